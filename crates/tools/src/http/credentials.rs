//! Credentials of a handler, read from mounted files for every attempt (OM-401, OM-404).

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderName, HeaderValue, header};
use mainstay_workload::FileRoot;
use secrecy::{ExposeSecret, SecretString};

use crate::{
    config::{AuthConfig, AuthType},
    token::{TokenError, TokenSource},
};

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
    /// The identity gives no token (OM-402).
    #[error("{0}; the call is refused")]
    Token(TokenError),
    /// A value that no header can carry.
    #[error("the handler's credential holds a character that a header cannot carry; the call is refused")]
    NotSendable,
}

/// Where credentials come from.
#[derive(Debug, Clone)]
pub(crate) struct CredentialSources {
    /// Secrets, and ServiceAccount tokens, which whoever mounts them replaces before they end.
    pub(crate) files: FileRoot,
    /// The identity that the workload has by where it runs.
    pub(crate) cloud: Arc<dyn TokenSource>,
}

/// One secret header, and the texts that must not come back in an answer.
pub(crate) struct SecretHeader {
    pub(crate) name: HeaderName,
    pub(crate) value: HeaderValue,
    pub(crate) hidden: Vec<SecretString>,
}

/// The header of `auth`, if it has one (OM-400, OM-402).
pub(crate) async fn authorization(
    auth: Option<&AuthConfig>,
    sources: &CredentialSources,
) -> Result<Option<SecretHeader>, CredentialError> {
    let Some(auth) = auth else {
        return Ok(None);
    };
    let secret = match auth.kind {
        AuthType::None => return Ok(None),
        AuthType::WorkloadIdentity => {
            let audience = auth.audience.as_deref().ok_or(CredentialError::NotConfigured)?;
            sources
                .cloud
                .token(audience)
                .await
                .map_err(CredentialError::Token)?
        }
        AuthType::Basic | AuthType::Bearer | AuthType::ServiceAccount => {
            let file = auth.credential_file.as_deref();
            read(file.ok_or(CredentialError::NotConfigured)?, &sources.files).await?
        }
    };
    let mut hidden = vec![secret.clone()];
    let (scheme, sent) = if auth.kind == AuthType::Basic {
        let (_, password) = secret
            .expose_secret()
            .split_once(':')
            .ok_or(CredentialError::NotBasic)?;
        hidden.push(SecretString::from(password));
        (
            "Basic",
            SecretString::from(STANDARD.encode(secret.expose_secret())),
        )
    } else {
        ("Bearer", secret)
    };
    let value = sendable(&SecretString::from(format!("{scheme} {}", sent.expose_secret())))?;
    hidden.push(sent);
    // Only a workload identity may travel in a header of its own (OM-070).
    let own_header = auth
        .header
        .as_deref()
        .filter(|_| auth.kind == AuthType::WorkloadIdentity);
    let name = match own_header {
        None => header::AUTHORIZATION,
        Some(name) => HeaderName::from_bytes(name.as_bytes()).map_err(|_| CredentialError::NotSendable)?,
    };
    Ok(Some(SecretHeader { name, value, hidden }))
}

/// The value of one header of `headersFromSecret` (OM-404), and the text that must not come back.
pub(crate) async fn secret_header(
    file: &str,
    files: &FileRoot,
) -> Result<(HeaderValue, SecretString), CredentialError> {
    let secret = read(file, files).await?;
    Ok((sendable(&secret)?, secret))
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

    /// A cloud that gives one token to one audience.
    #[derive(Debug)]
    struct Cloud;

    #[async_trait::async_trait]
    impl TokenSource for Cloud {
        async fn token(&self, audience: &str) -> Result<SecretString, TokenError> {
            match audience {
                "api://crm" => Ok(SecretString::from("azure-one")),
                _ => Err(TokenError::Unusable),
            }
        }
    }

    fn sources(files: FileRoot) -> CredentialSources {
        CredentialSources {
            files,
            cloud: Arc::new(Cloud),
        }
    }

    #[tokio::test]
    async fn a_workload_identity_travels_in_its_header_and_never_not_at_all_om_070_om_402() {
        let sources = sources(FileRoot::at("/nowhere"));
        let mut auth = AuthConfig {
            kind: AuthType::WorkloadIdentity,
            audience: Some("api://crm".to_owned()),
            ..AuthConfig::default()
        };
        let found = authorization(Some(&auth), &sources).await.unwrap().unwrap();
        assert_eq!(
            (found.name, found.value.to_str().unwrap()),
            (header::AUTHORIZATION, "Bearer azure-one")
        );
        auth.header = Some("X-Crm-Token".to_owned());
        let found = authorization(Some(&auth), &sources).await.unwrap().unwrap();
        assert_eq!(
            (found.name.as_str(), found.value.to_str().unwrap()),
            ("x-crm-token", "Bearer azure-one")
        );
        assert!(
            found
                .hidden
                .iter()
                .any(|secret| secret.expose_secret() == "azure-one")
        );
        auth.audience = Some("api://other".to_owned());
        let refused = authorization(Some(&auth), &sources).await;
        assert!(matches!(refused, Err(CredentialError::Token(_))));
        auth.audience = None;
        let refused = authorization(Some(&auth), &sources).await;
        assert!(matches!(refused, Err(CredentialError::NotConfigured)));
    }

    async fn value(kind: AuthType, stored: &str) -> Result<String, CredentialError> {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("credential"), stored).unwrap();
        let auth = AuthConfig {
            kind,
            credential_file: Some("/credential".to_owned()),
            ..AuthConfig::default()
        };
        let header = authorization(Some(&auth), &sources(FileRoot::at(directory.path()))).await?;
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
        let sources = sources(files.clone());
        let mut auth = AuthConfig {
            kind: AuthType::Bearer,
            credential_file: None,
            ..AuthConfig::default()
        };
        assert!(matches!(
            authorization(Some(&auth), &sources).await,
            Err(CredentialError::NotConfigured)
        ));
        auth.credential_file = Some("/absent".to_owned());
        assert!(matches!(
            authorization(Some(&auth), &sources).await,
            Err(CredentialError::Unavailable(_))
        ));
        assert!(matches!(
            secret_header("/absent", &files).await,
            Err(CredentialError::Unavailable(_))
        ));
        assert!(authorization(None, &sources).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn the_header_is_marked_as_secret() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("key"), "hunter2").unwrap();
        let header = secret_header("/key", &FileRoot::at(directory.path()))
            .await
            .unwrap();
        assert!(!format!("{:?}", header.0).contains("hunter2"));
    }
}
