//! The key that signs tokens.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use ring::{
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _,
        UnparsedPublicKey,
    },
};
use rustls::pki_types::{PrivatePkcs8KeyDer, pem::PemObject as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::files;

/// What stands before a point of the curve P-256 in the DER form of a public key.
const PUBLIC_KEY_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
/// The length of one coordinate of a point, in bytes.
const COORDINATE: usize = 32;
const FILE: &str = "service-account.key";

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The key's file cannot be read or written.
    #[error("cannot keep the key {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// The file is there and holds no key.
    #[error(
        "{path} holds no key for signing tokens; remove it to have a new one made, which ends all tokens given out"
    )]
    Malformed {
        /// The file.
        path: PathBuf,
    },
    /// The system gave no random bytes.
    #[error("a key for signing tokens cannot be made: the system gave no random bytes")]
    Random,
}

/// Signs tokens, and checks them. Its debug output names the key and does not show it.
pub(crate) struct SigningKey {
    pair: EcdsaKeyPair,
    id: String,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SigningKey")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl SigningKey {
    /// A key that lives as long as the process.
    pub(crate) fn ephemeral() -> Result<Self, KeyError> {
        Self::read(&Self::generate()?).ok_or(KeyError::Random)
    }

    /// The key kept in `directory`, made at the first start with mode 0600.
    pub(crate) fn load_or_make(directory: &Path) -> Result<Self, KeyError> {
        let path = directory.join(FILE);
        let failed = |source| KeyError::File {
            path: path.clone(),
            source,
        };
        let malformed = || KeyError::Malformed { path: path.clone() };
        if let Some(pem) = files::read_if_there(&path).map_err(failed)? {
            let document =
                PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).map_err(|_no_key| malformed())?;
            return Self::read(document.secret_pkcs8_der()).ok_or_else(malformed);
        }
        let document = Self::generate()?;
        let key = Self::read(&document).ok_or_else(malformed)?;
        files::private_directory(directory).map_err(failed)?;
        let pem = format!(
            "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
            lines(&STANDARD.encode(&document))
        );
        files::write_private(&path, pem.as_bytes()).map_err(failed)?;
        Ok(key)
    }

    fn generate() -> Result<Vec<u8>, KeyError> {
        EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
            .map(|document| document.as_ref().to_vec())
            .map_err(|_unspecified| KeyError::Random)
    }

    fn read(document: &[u8]) -> Option<Self> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document, &SystemRandom::new())
            .ok()?;
        let mut digest = Sha256::new();
        digest.update(PUBLIC_KEY_PREFIX);
        digest.update(pair.public_key().as_ref());
        let id = URL_SAFE_NO_PAD.encode(digest.finalize());
        Some(Self { pair, id })
    }

    /// The key's name: the digest of its public part.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        self.pair
            .sign(&SystemRandom::new(), message)
            .ok()
            .map(|signature| signature.as_ref().to_vec())
    }

    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.pair.public_key().as_ref())
            .verify(message, signature)
            .is_ok()
    }

    /// The public part as a JSON Web Key.
    pub(super) fn web_key(&self) -> Value {
        // An uncompressed point is a byte that says so, and two coordinates.
        let point = self.pair.public_key().as_ref();
        let coordinate =
            |from: usize| URL_SAFE_NO_PAD.encode(point.get(from..from + COORDINATE).unwrap_or_default());
        json!({
            "use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": "ES256",
            "x": coordinate(1), "y": coordinate(1 + COORDINATE),
        })
    }
}

/// Breaks base64 into the lines that PEM asks for.
fn lines(text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let lines: Vec<String> = characters.chunks(64).map(|line| line.iter().collect()).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_key_is_made_once_and_only_its_owner_reads_it_ka_040() {
        let directory = tempfile::tempdir().unwrap();
        let first = SigningKey::load_or_make(directory.path()).unwrap();
        let second = SigningKey::load_or_make(directory.path()).unwrap();
        assert_eq!(first.id(), second.id());
        let signature = first.sign(b"message").unwrap();
        assert!(second.verifies(b"message", &signature));
        assert!(!second.verifies(b"another", &signature));
        let path = directory.path().join(FILE);
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        std::fs::write(&path, "no key").unwrap();
        let error = SigningKey::load_or_make(directory.path()).unwrap_err();
        assert!(error.to_string().contains(FILE), "{error}");
    }
}
