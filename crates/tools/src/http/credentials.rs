//! Credentials of a handler, read from mounted files for every attempt (OM-401, OM-404).

use base64::{Engine, engine::general_purpose::STANDARD};
use http::HeaderValue;
use mainstay_workload::FileRoot;
use secrecy::{ExposeSecret, SecretString};

use crate::config::{AuthConfig, AuthType};

/// Why a call is refused for want of its credential (OM-403). Names the file, never a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CredentialError {
    /// The configuration names no file.
    #[error("the handler's `auth` has no credential; the call is refused")]
    NotConfigured,
    /// The file is not there or cannot be read.
    #[error("the handler's credential is not available ({0}); the call is refused")]
    Unavailable(String),
    /// OM-401.
    #[error("the handler's basic credential is not of the form `username:password`; the call is refused")]
    NotBasic,
    /// A value that no header can carry.
    #[error("the handler's credential holds a character that a header cannot carry; the call is refused")]
    NotSendable,
}

/// One secret header, and the texts that must not come back in an answer.
pub(crate) struct SecretHeader {
    pub(crate) value: HeaderValue,
    pub(crate) hidden: Vec<SecretString>,
}

/// The `Authorization` header of `auth`, if it has one (OM-400).
pub(crate) async fn authorization(
    auth: Option<&AuthConfig>,
    files: &FileRoot,
) -> Result<Option<SecretHeader>, CredentialError> {
    let Some(auth) = auth else {
        return Ok(None);
    };
    let prefix = match auth.kind {
        AuthType::None => return Ok(None),
        AuthType::Basic => "Basic",
        AuthType::Bearer | AuthType::ServiceAccount | AuthType::WorkloadIdentity => "Bearer",
    };
    let file = auth
        .credential_file
        .as_deref()
        .ok_or(CredentialError::NotConfigured)?;
    let secret = read(file, files).await?;
    let mut hidden = vec![secret.clone()];
    let sent = if auth.kind == AuthType::Basic {
        let (_, password) = secret
            .expose_secret()
            .split_once(':')
            .ok_or(CredentialError::NotBasic)?;
        hidden.push(SecretString::from(password));
        SecretString::from(STANDARD.encode(secret.expose_secret()))
    } else {
        secret
    };
    let value = sendable(&SecretString::from(format!("{prefix} {}", sent.expose_secret())))?;
    hidden.push(sent);
    Ok(Some(SecretHeader { value, hidden }))
}

/// The value of one header of `headersFromSecret` (OM-404).
pub(crate) async fn secret_header(file: &str, files: &FileRoot) -> Result<SecretHeader, CredentialError> {
    let secret = read(file, files).await?;
    Ok(SecretHeader {
        value: sendable(&secret)?,
        hidden: vec![secret],
    })
}

async fn read(file: &str, files: &FileRoot) -> Result<SecretString, CredentialError> {
    let text = files
        .read_text(file)
        .await
        .map_err(|error| CredentialError::Unavailable(error.to_string()))?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    if text.is_empty() {
        return Err(CredentialError::Unavailable(format!("{file}: it is empty")));
    }
    Ok(SecretString::from(text))
}

fn sendable(secret: &SecretString) -> Result<HeaderValue, CredentialError> {
    let mut value = HeaderValue::from_bytes(secret.expose_secret().as_bytes())
        .map_err(|_| CredentialError::NotSendable)?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    async fn value(kind: AuthType, stored: &str) -> Result<String, CredentialError> {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("credential"), stored).unwrap();
        let auth = AuthConfig {
            kind,
            credential_file: Some("/credential".to_owned()),
        };
        let header = authorization(Some(&auth), &FileRoot::at(directory.path())).await?;
        Ok(header.unwrap().value.to_str().unwrap().to_owned())
    }

    #[tokio::test]
    async fn a_credential_is_sent_as_its_type_says_om_400_om_401() {
        assert_eq!(value(AuthType::Bearer, "abc\n").await.unwrap(), "Bearer abc");
        assert_eq!(
            value(AuthType::Basic, "ada:pa:ss\r\n").await.unwrap(),
            "Basic YWRhOnBhOnNz"
        );
        assert_eq!(
            value(AuthType::Basic, "ada").await,
            Err(CredentialError::NotBasic)
        );
        assert_eq!(
            value(AuthType::Bearer, "a\nb").await,
            Err(CredentialError::NotSendable)
        );
        assert!(matches!(
            value(AuthType::Bearer, "\n").await,
            Err(CredentialError::Unavailable(_))
        ));
    }

    #[tokio::test]
    async fn a_missing_credential_is_an_error_and_never_silence_om_403() {
        let files = FileRoot::at("/nowhere");
        let mut auth = AuthConfig {
            kind: AuthType::Bearer,
            credential_file: None,
        };
        assert!(matches!(
            authorization(Some(&auth), &files).await,
            Err(CredentialError::NotConfigured)
        ));
        auth.credential_file = Some("/absent".to_owned());
        assert!(matches!(
            authorization(Some(&auth), &files).await,
            Err(CredentialError::Unavailable(_))
        ));
        assert!(matches!(
            secret_header("/absent", &files).await,
            Err(CredentialError::Unavailable(_))
        ));
        assert!(authorization(None, &files).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn the_header_is_marked_as_secret() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("key"), "hunter2").unwrap();
        let header = secret_header("/key", &FileRoot::at(directory.path()))
            .await
            .unwrap();
        assert!(!format!("{:?}", header.value).contains("hunter2"));
    }
}
