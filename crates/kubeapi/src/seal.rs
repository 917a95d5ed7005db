//! Secrets are unreadable in the file of the store. Requirement KA-034.
//!
//! [`SecretSeal`] is given to the store when it is opened. Each value is sealed by itself with AES-256-GCM under a key that
//! lies in a file of its own, mode 0600; the object's name and the revision are authenticated with it, so that a value
//! cannot be put in the place of another. In memory Secrets are open: what is protected is a copy of the database.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mainstay_store::kube::{Key, SealError, ValueSeal};
use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    rand::{SecureRandom as _, SystemRandom},
};
use secrecy::{ExposeSecret as _, SecretBox};
use sha2::{Digest as _, Sha256};

use crate::files;

const SECRETS: &str = "/secrets";
const FILE: &str = "secrets.key";
const KEY_BYTES: usize = 32;
/// The beginning of the digest of the key: tells a wrong key from a damaged value.
const IDENTIFIER: usize = 8;

type Bytes32 = [u8; KEY_BYTES];

/// Seals Secrets with the key kept in a directory.
///
/// The key is made when the first Secret is written, never at the start: a lost key is then an error that names its file,
/// and not a new key beside Secrets that it cannot open.
pub struct SecretSeal {
    path: PathBuf,
    /// Read or made when first needed.
    key: Mutex<Option<Loaded>>,
}

#[derive(Clone)]
struct Loaded {
    key: LessSafeKey,
    identifier: [u8; IDENTIFIER],
}

impl fmt::Debug for SecretSeal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SecretSeal")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl SecretSeal {
    /// A seal whose key is, or will be, in `directory`.
    pub fn new(directory: &Path) -> Self {
        Self {
            path: directory.join(FILE),
            key: Mutex::new(None),
        }
    }

    fn error(&self, what: &str) -> SealError {
        SealError(format!("{}: {what}", self.path.display()))
    }

    /// The key; with `make`, a new one where there is none.
    fn key(&self, make: bool) -> Result<Loaded, SealError> {
        let mut key = self.key.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = key.as_ref() {
            return Ok(key.clone());
        }
        let loaded = match self.read()? {
            Some(bytes) => self.loaded(&bytes)?,
            None if make => self.make()?,
            None => {
                return Err(self.error(
                    "the key of the stored Secrets is missing; put the file back, or remove the database to begin anew",
                ));
            }
        };
        *key = Some(loaded.clone());
        Ok(loaded)
    }

    fn read(&self) -> Result<Option<SecretBox<Bytes32>>, SealError> {
        let text = files::read_if_there(&self.path)
            .map_err(|error| self.error(&format!("the key of the stored Secrets cannot be read: {error}")))?;
        let Some(text) = text else { return Ok(None) };
        let malformed = || self.error("the file does not hold a key of 32 bytes in base64");
        let bytes = STANDARD.decode(text.trim()).map_err(|_malformed| malformed())?;
        let bytes = Bytes32::try_from(bytes.as_slice()).map_err(|_length| malformed())?;
        Ok(Some(SecretBox::new(Box::new(bytes))))
    }

    fn make(&self) -> Result<Loaded, SealError> {
        let mut bytes = [0_u8; KEY_BYTES];
        SystemRandom::new()
            .fill(&mut bytes)
            .map_err(|_unspecified| self.error("the system gave no random bytes for a key"))?;
        let bytes = SecretBox::new(Box::new(bytes));
        let text = SecretBox::new(Box::new(STANDARD.encode(bytes.expose_secret())));
        let failed = |error| self.error(&format!("a key for Secrets cannot be kept: {error}"));
        if let Some(directory) = self.path.parent() {
            files::private_directory(directory).map_err(failed)?;
        }
        files::write_private(&self.path, text.expose_secret().as_bytes()).map_err(failed)?;
        self.loaded(&bytes)
    }

    fn loaded(&self, bytes: &SecretBox<Bytes32>) -> Result<Loaded, SealError> {
        let key = UnboundKey::new(&AES_256_GCM, bytes.expose_secret())
            .map_err(|_unspecified| self.error("the key cannot be used"))?;
        let digest = Sha256::digest(bytes.expose_secret());
        let mut identifier = [0_u8; IDENTIFIER];
        identifier.copy_from_slice(digest.get(..IDENTIFIER).unwrap_or(&[0; IDENTIFIER]));
        Ok(Loaded {
            key: LessSafeKey::new(key),
            identifier,
        })
    }
}

/// What is authenticated with a value: names hold no zero byte.
fn context(key: &Key, revision: u64) -> Vec<u8> {
    format!("{}\0{}\0{}\0{revision}", key.resource, key.namespace, key.name).into_bytes()
}

impl ValueSeal for SecretSeal {
    fn covers(&self, resource: &str) -> bool {
        resource == SECRETS
    }

    fn seal(&self, key: &Key, revision: u64, value: &[u8]) -> Result<Vec<u8>, SealError> {
        let loaded = self.key(true)?;
        let mut nonce = [0_u8; NONCE_LEN];
        // Random, and never counted: a database that is put back to an earlier state must not use one twice.
        SystemRandom::new()
            .fill(&mut nonce)
            .map_err(|_unspecified| self.error("the system gave no random bytes"))?;
        let mut sealed = value.to_vec();
        loaded
            .key
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(context(key, revision)),
                &mut sealed,
            )
            .map_err(|_unspecified| self.error("a Secret cannot be sealed"))?;
        Ok([&loaded.identifier[..], &nonce, &sealed].concat())
    }

    fn open(&self, key: &Key, revision: u64, sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        let loaded = self.key(false)?;
        let damaged = || self.error(&format!("the stored Secret {key} is damaged"));
        let (identifier, rest) = sealed.split_at_checked(IDENTIFIER).ok_or_else(damaged)?;
        if identifier != loaded.identifier {
            return Err(self.error(
                "this is not the key that the stored Secrets were sealed with; put the right file back",
            ));
        }
        let (nonce, rest) = rest.split_at_checked(NONCE_LEN).ok_or_else(damaged)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_length| damaged())?;
        let mut value = rest.to_vec();
        let length = loaded
            .key
            .open_in_place(nonce, Aad::from(context(key, revision)), &mut value)
            .map_err(|_unspecified| damaged())?
            .len();
        value.truncate(length);
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use std::{os::unix::fs::PermissionsExt as _, sync::Arc};

    use bytes::Bytes;
    use mainstay_store::kube::{Body, Change, Expect, KubeOptions, KubeStore};

    use super::*;

    fn open(directory: &Path) -> Result<KubeStore, String> {
        let options = KubeOptions {
            seal: Some(Arc::new(SecretSeal::new(&directory.join("keys")))),
            ..KubeOptions::file(directory.join("kube.db"))
        };
        KubeStore::open(options).map_err(|error| {
            let source = std::error::Error::source(&error).map(ToString::to_string);
            format!("{error}: {}", source.unwrap_or_default())
        })
    }

    async fn put(store: &KubeStore, resource: &str, text: &str) {
        let change = Change::Put {
            key: Key::new(resource, "default", "a"),
            body: Body {
                bytes: Bytes::from(text.to_owned()),
                revision_at: None,
            },
            expect: Expect::Absent,
        };
        store.commit(vec![change]).await.unwrap();
    }

    #[tokio::test]
    async fn secrets_are_sealed_in_the_file_and_open_after_a_restart_ka_034() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path()).unwrap();
        put(&store, "/configmaps", r#"{"data":"visible-text"}"#).await;
        let key = directory.path().join("keys").join(FILE);
        assert!(!key.exists(), "there is no key before there is a Secret");
        put(&store, "/secrets", r#"{"data":"hidden-text"}"#).await;
        store.close().await;
        assert_eq!(
            std::fs::metadata(&key).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let mut content = std::fs::read(directory.path().join("kube.db")).unwrap();
        content.extend(std::fs::read(directory.path().join("kube.db-wal")).unwrap_or_default());
        let holds = |text: &[u8]| content.windows(text.len()).any(|window| window == text);
        assert!(holds(b"visible-text") && !holds(b"hidden-text"));
        let store = open(directory.path()).unwrap();
        let stored = store.get(&Key::new("/secrets", "default", "a")).unwrap();
        assert_eq!(&stored.value[..], br#"{"data":"hidden-text"}"#);
        let newest = store.revision();
        put(&store, "/configmaps2", "{}").await;
        let page = store.list_at("/secrets", None, newest, None, 10).await.unwrap();
        assert_eq!(&page.items[0].value[..], br#"{"data":"hidden-text"}"#);
        store.close().await;
    }

    #[tokio::test]
    async fn a_lost_or_wrong_key_is_an_error_that_names_its_file_ka_034() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path()).unwrap();
        put(&store, "/secrets", "{}").await;
        store.close().await;
        let key = directory.path().join("keys").join(FILE);
        let right = std::fs::read(&key).unwrap();
        std::fs::remove_file(&key).unwrap();
        let error = open(directory.path()).unwrap_err();
        assert!(
            error.contains("secrets.key") && error.contains("is missing"),
            "{error}"
        );
        assert!(!key.exists(), "no new key takes the place of a lost one");
        std::fs::write(&key, STANDARD.encode([7; KEY_BYTES])).unwrap();
        let error = open(directory.path()).unwrap_err();
        assert!(
            error.contains("secrets.key") && error.contains("not the key"),
            "{error}"
        );
        std::fs::write(&key, "nonsense").unwrap();
        assert!(
            open(directory.path())
                .unwrap_err()
                .contains("does not hold a key")
        );
        std::fs::write(&key, right).unwrap();
        open(directory.path()).unwrap().close().await;
    }

    #[test]
    fn a_sealed_value_opens_only_in_its_own_place_ka_034() {
        let directory = tempfile::tempdir().unwrap();
        let seal = SecretSeal::new(directory.path());
        let key = Key::new("/secrets", "default", "a");
        let mut sealed = seal.seal(&key, 7, b"value").unwrap();
        assert_eq!(seal.open(&key, 7, &sealed).unwrap(), b"value");
        assert!(seal.open(&key, 8, &sealed).is_err());
        assert!(
            seal.open(&Key::new("/secrets", "other", "a"), 7, &sealed)
                .is_err()
        );
        *sealed.last_mut().unwrap() ^= 1;
        assert!(seal.open(&key, 7, &sealed).is_err());
        assert!(seal.open(&key, 7, b"short").is_err());
    }
}
