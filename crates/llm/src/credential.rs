//! A provider's key, read anew for every call so that rotation needs no restart.

use std::collections::BTreeMap;

use mainstay_workload::FileRoot;
use secrecy::SecretString;

use crate::{
    config::ProviderConfig,
    error::{ModelError, ModelErrorKind},
};

/// Where the key is.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// A mounted file of the workload.
    File(String),
    /// A variable of the workload's environment.
    Environment(String),
}

/// Reads one provider's key.
#[derive(Clone)]
pub(crate) struct Credential {
    source: Source,
    files: FileRoot,
    environment: BTreeMap<String, String>,
}

impl std::fmt::Debug for Credential {
    // The environment holds other secrets as well.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.source.fmt(formatter)
    }
}

impl Credential {
    /// The credential of `config`, if it has one.
    pub(crate) fn of(
        config: &ProviderConfig,
        files: &FileRoot,
        environment: &BTreeMap<String, String>,
    ) -> Option<Self> {
        let source = match (&config.credential_file, &config.credential_env) {
            (Some(path), _) => Source::File(path.clone()),
            (None, Some(name)) => Source::Environment(name.clone()),
            (None, None) => return None,
        };
        Some(Self {
            source,
            files: files.clone(),
            environment: environment.clone(),
        })
    }

    /// The key as it is now, without surrounding blanks and line ends.
    pub(crate) fn read(&self, provider: &str) -> Result<SecretString, ModelError> {
        let unavailable =
            |message: String| ModelError::new(provider, ModelErrorKind::CredentialUnavailable, message);
        let value = match &self.source {
            Source::File(path) => self
                .files
                .read_to_string(path)
                .map_err(|error| unavailable(format!("the credential file cannot be read: {error}")))?,
            Source::Environment(name) => self
                .environment
                .get(name)
                .cloned()
                .ok_or_else(|| unavailable(format!("the environment variable `{name}` is not set")))?,
        };
        let value = value.trim();
        if value.is_empty() {
            let place = match &self.source {
                Source::File(path) => format!("the credential file {path}"),
                Source::Environment(name) => format!("the environment variable `{name}`"),
            };
            return Err(unavailable(format!("{place} is empty")));
        }
        Ok(SecretString::from(value))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use secrecy::ExposeSecret;

    use super::*;

    fn credential(config: ProviderConfig, files: &FileRoot) -> Credential {
        let environment = BTreeMap::from([("KEY".to_owned(), "from-env".to_owned())]);
        Credential::of(&config, files, &environment).unwrap()
    }

    #[test]
    fn the_key_is_read_anew_and_trimmed() {
        let directory = tempfile::tempdir().unwrap();
        let files = FileRoot::at(directory.path());
        let config = ProviderConfig {
            credential_file: Some("/key".to_owned()),
            ..ProviderConfig::default()
        };
        let credential = credential(config, &files);
        assert_eq!(
            credential.read("p").unwrap_err().kind,
            ModelErrorKind::CredentialUnavailable
        );
        std::fs::write(directory.path().join("key"), "one\n").unwrap();
        assert_eq!(credential.read("p").unwrap().expose_secret(), "one");
        std::fs::write(directory.path().join("key"), "two").unwrap();
        assert_eq!(credential.read("p").unwrap().expose_secret(), "two");
        std::fs::write(directory.path().join("key"), "\n").unwrap();
        assert!(credential.read("p").unwrap_err().message.contains("is empty"));
    }

    #[test]
    fn an_environment_variable_is_the_workloads_own() {
        let files = FileRoot::at("/nowhere");
        let config = |name: &str| ProviderConfig {
            credential_env: Some(name.to_owned()),
            ..ProviderConfig::default()
        };
        assert_eq!(
            credential(config("KEY"), &files)
                .read("p")
                .unwrap()
                .expose_secret(),
            "from-env"
        );
        let error = credential(config("PATH"), &files).read("p").unwrap_err();
        assert!(error.message.contains("`PATH` is not set"));
    }

    #[test]
    fn debug_output_never_shows_a_value() {
        let files = FileRoot::at("/nowhere");
        let config = ProviderConfig {
            credential_env: Some("KEY".to_owned()),
            ..ProviderConfig::default()
        };
        assert!(!format!("{:?}", credential(config, &files)).contains("from-env"));
    }
}
