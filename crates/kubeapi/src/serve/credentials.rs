//! The admin token. Requirements KA-040, KA-042.

use std::{
    io,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::rand::{SecureRandom as _, SystemRandom};
use secrecy::{ExposeSecret as _, SecretString};

use crate::files;

/// 256 bits, which no one guesses.
const TOKEN_BYTES: usize = 32;

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// The token's file cannot be read or written.
    #[error("cannot keep the admin token in {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// The file is there and holds no token.
    #[error("{path} holds no token; remove it to have a new one made")]
    Malformed {
        /// The file.
        path: PathBuf,
    },
    /// The system gave no random bytes.
    #[error("the system gave no random bytes for the admin token")]
    Random,
}

/// The token kept in `directory`, made at the first start. It comes from the system's generator and not from the
/// injected one: a token must not be predictable even where names are.
pub(super) fn load_or_make(directory: &Path) -> Result<SecretString, CredentialError> {
    let path = directory.join("admin-token");
    let failed = |source| CredentialError::File {
        path: path.clone(),
        source,
    };
    if let Some(text) = files::read_if_there(&path).map_err(failed)? {
        let token = text.trim();
        if token.len() < TOKEN_BYTES || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(CredentialError::Malformed { path });
        }
        return Ok(SecretString::from(token));
    }
    let mut bytes = [0_u8; TOKEN_BYTES];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_unspecified| CredentialError::Random)?;
    let token = SecretString::from(URL_SAFE_NO_PAD.encode(bytes));
    files::private_directory(directory).map_err(failed)?;
    files::write_private(&path, token.expose_secret().as_bytes()).map_err(failed)?;
    Ok(token)
}
