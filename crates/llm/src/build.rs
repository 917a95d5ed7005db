//! From configuration to a model.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use mainstay_telemetry::{clock::SharedClock, random::SharedRandom};
use mainstay_workload::{Connector, FileRoot};

use crate::{
    config::ProviderConfig,
    credential::Credential,
    error::ModelError,
    event::ModelStream,
    mock::{MockModel, ScenarioError},
    model::Model,
    openai::{self, OpenAi, OpenAiOptions},
    request::{Parameters, Request},
    retry::{RetryPolicy, Retrying},
};

/// Provider types with role `llm` that are built (OM-495).
pub const SUPPORTED_TYPES: &[&str] = &["gemini", "mock", "ollama", "openai", "vllm"];

/// What a model gets from its workload.
#[derive(Debug, Clone)]
pub struct BuildContext {
    /// The way out.
    pub connector: Connector,
    /// Mounted files: credentials and scenarios.
    pub files: FileRoot,
    /// The workload's environment.
    pub environment: BTreeMap<String, String>,
    /// Wall clock, for `Retry-After` dates.
    pub clock: SharedClock,
    /// Chance, for jitter and call ids.
    pub random: SharedRandom,
}

/// Why no model could be built. The text names the provider and the field.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The type is known but not built yet, or not known at all.
    #[error(
        "provider `{provider}`: type `{kind}` is not supported by this version; supported are: {}",
        SUPPORTED_TYPES.join(", ")
    )]
    TypeNotSupported {
        /// The provider.
        provider: String,
        /// Its type.
        kind: String,
    },
    /// The role is not one an agent can talk to.
    #[error("provider `{provider}`: role `{role}` cannot hold a conversation; `llm` can")]
    RoleNotSupported {
        /// The provider.
        provider: String,
        /// Its role.
        role: String,
    },
    /// A required field is missing.
    #[error("provider `{provider}`: `{field}` is required for type `{kind}`")]
    FieldMissing {
        /// The provider.
        provider: String,
        /// Its type.
        kind: String,
        /// The field as the manifest names it.
        field: &'static str,
    },
    /// A field has a value that cannot be used.
    #[error("provider `{provider}`: `{field}` cannot be used: {problem}")]
    FieldInvalid {
        /// The provider.
        provider: String,
        /// The field as the manifest names it.
        field: String,
        /// What is wrong.
        problem: String,
    },
    /// The mock's scenario cannot be used.
    #[error("provider `{provider}`: {source}")]
    Scenario {
        /// The provider.
        provider: String,
        /// What is wrong.
        #[source]
        source: ScenarioError,
    },
}

impl BuildError {
    /// The stable word for conditions and logs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::TypeNotSupported { .. } => "ProviderTypeNotSupported",
            Self::RoleNotSupported { .. } => "ProviderRoleNotSupported",
            Self::FieldMissing { .. } => "ProviderFieldMissing",
            Self::FieldInvalid { .. } => "ProviderFieldInvalid",
            Self::Scenario { .. } => "ScenarioInvalid",
        }
    }
}

/// Whether a provider of this type and role can be built; asked by the controllers too.
///
/// # Errors
/// [`BuildError::TypeNotSupported`] or [`BuildError::RoleNotSupported`].
pub fn supported(provider: &str, kind: &str, role: &str) -> Result<(), BuildError> {
    if role != "llm" {
        return Err(BuildError::RoleNotSupported {
            provider: provider.to_owned(),
            role: role.to_owned(),
        });
    }
    if !SUPPORTED_TYPES.contains(&kind) {
        return Err(BuildError::TypeNotSupported {
            provider: provider.to_owned(),
            kind: kind.to_owned(),
        });
    }
    Ok(())
}

/// Builds the model of `config`. Nothing is sent; a credential is first read by a call.
///
/// # Errors
/// [`BuildError`].
pub fn build(config: &ProviderConfig, context: &BuildContext) -> Result<Arc<dyn Model>, BuildError> {
    supported(&config.name, &config.kind, &config.role)?;
    if config.kind == "mock" {
        let mock = MockModel::from_config(config, context).map_err(|source| BuildError::Scenario {
            provider: config.name.clone(),
            source,
        })?;
        return Ok(Arc::new(Configured::new(mock, config)));
    }
    if config.model.is_empty() {
        return Err(BuildError::FieldMissing {
            provider: config.name.clone(),
            kind: config.kind.clone(),
            field: "spec.model",
        });
    }
    let model = OpenAi::new(openai_options(config, context)?);
    let model = Retrying::new(model, RetryPolicy::default(), Arc::clone(&context.random));
    Ok(Arc::new(Configured::new(model, config)))
}

fn openai_options(config: &ProviderConfig, context: &BuildContext) -> Result<OpenAiOptions, BuildError> {
    const PUBLIC: &str = "https://api.openai.com/v1";
    let invalid = |field: String, problem: String| BuildError::FieldInvalid {
        provider: config.name.clone(),
        field,
        problem,
    };
    let configured = config.base_url.as_deref().filter(|url| !url.is_empty());
    let (base, field, default_path) = match (config.kind.as_str(), configured) {
        ("openai", Some(url)) => (url, "spec.baseURL", ""),
        ("openai", None) => match context.environment.get("OPENAI_BASE_URL") {
            Some(url) if !url.is_empty() => (url.as_str(), "OPENAI_BASE_URL", ""),
            _ => (PUBLIC, "spec.baseURL", ""),
        },
        ("gemini", url) => (
            url.unwrap_or("https://generativelanguage.googleapis.com"),
            "spec.baseURL",
            "/v1beta/openai",
        ),
        ("ollama", url) => (url.unwrap_or("http://localhost:11434"), "spec.baseURL", "/v1"),
        (_, Some(url)) => (url, "spec.baseURL", "/v1"),
        (kind, None) => {
            return Err(BuildError::FieldMissing {
                provider: config.name.clone(),
                kind: kind.to_owned(),
                field: "spec.baseURL",
            });
        }
    };
    let endpoint =
        openai::endpoint(base, default_path).map_err(|problem| invalid(field.to_owned(), problem))?;
    let headers = openai::header_map(&config.headers).map_err(|name| {
        let problem = "it is not a header name, or its value cannot be sent".to_owned();
        invalid(format!("spec.headers[{name}]"), problem)
    })?;
    let defaults = &config.defaults;
    Ok(OpenAiOptions {
        name: config.name.clone(),
        newer_limit_name: endpoint.host_str() == Some("api.openai.com"),
        endpoint,
        headers,
        credential: Credential::of(config, &context.files, &context.environment),
        request_timeout: defaults
            .request_timeout
            .unwrap_or(openai::DEFAULT_REQUEST_TIMEOUT),
        idle_timeout: defaults
            .stream_idle_timeout
            .unwrap_or(openai::DEFAULT_IDLE_TIMEOUT),
        connector: context.connector.clone(),
        clock: Arc::clone(&context.clock),
        random: Arc::clone(&context.random),
    })
}

/// Fills a request with what its provider is configured with.
#[derive(Debug)]
struct Configured<M> {
    inner: M,
    model: String,
    parameters: Parameters,
    offers_tools: bool,
}

impl<M> Configured<M> {
    fn new(inner: M, config: &ProviderConfig) -> Self {
        Self {
            inner,
            model: config.model.clone(),
            parameters: config.defaults.parameters(),
            offers_tools: config.offers_tools(),
        }
    }
}

#[async_trait]
impl<M: Model> Model for Configured<M> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn stream(&self, mut request: Request) -> Result<ModelStream, ModelError> {
        if request.model.is_empty() {
            request.model.clone_from(&self.model);
        }
        request.parameters = request.parameters.or(&self.parameters);
        if !self.offers_tools {
            request.tools.clear();
        }
        self.inner.stream(request).await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use mainstay_telemetry::{clock, random::SeededRandom};

    use super::*;

    fn context(environment: &[(&str, &str)]) -> BuildContext {
        BuildContext {
            connector: Connector::direct().unwrap(),
            files: FileRoot::at("/nowhere"),
            environment: environment
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            clock: clock::system(),
            random: SeededRandom::new(1),
        }
    }

    fn config(kind: &str, base_url: Option<&str>) -> ProviderConfig {
        ProviderConfig {
            name: "main".to_owned(),
            kind: kind.to_owned(),
            role: "llm".to_owned(),
            model: "m".to_owned(),
            base_url: base_url.map(str::to_owned),
            ..ProviderConfig::default()
        }
    }

    #[tokio::test]
    async fn the_endpoint_follows_type_base_url_and_environment() {
        let with_variable = context(&[("OPENAI_BASE_URL", "http://proxy/v1")]);
        let plain = context(&[]);
        for (kind, base, context, expected) in [
            (
                "openai",
                None,
                &plain,
                "https://api.openai.com/v1/chat/completions",
            ),
            ("openai", None, &with_variable, "http://proxy/v1/chat/completions"),
            (
                "openai",
                Some("http://h:1/v1/"),
                &with_variable,
                "http://h:1/v1/chat/completions",
            ),
            (
                "openai",
                Some("http://h/v1/chat/completions"),
                &plain,
                "http://h/v1/chat/completions",
            ),
            (
                "openai",
                Some("http://h:1"),
                &plain,
                "http://h:1/chat/completions",
            ),
            (
                "ollama",
                None,
                &with_variable,
                "http://localhost:11434/v1/chat/completions",
            ),
            (
                "ollama",
                Some("http://ollama:11434"),
                &plain,
                "http://ollama:11434/v1/chat/completions",
            ),
            (
                "vllm",
                Some("http://vllm:8000/v1"),
                &plain,
                "http://vllm:8000/v1/chat/completions",
            ),
            (
                "gemini",
                None,
                &plain,
                "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions",
            ),
        ] {
            let options = openai_options(&config(kind, base), context).unwrap();
            assert_eq!(options.endpoint.as_str(), expected, "{kind} {base:?}");
        }
    }

    #[tokio::test]
    async fn what_cannot_be_built_is_named() {
        let plain = context(&[]);
        let fails = |config: ProviderConfig| build(&config, &plain).unwrap_err();
        let error = fails(config("claude", None));
        assert_eq!(error.reason(), "ProviderTypeNotSupported");
        assert!(error.to_string().contains("type `claude`"), "{error}");
        assert_eq!(fails(config("vllm", None)).reason(), "ProviderFieldMissing");
        let error = fails(config("openai", Some("ftp://h")));
        assert!(error.to_string().contains("`spec.baseURL`"), "{error}");
        let mut nameless = config("openai", None);
        nameless.model.clear();
        assert!(fails(nameless).to_string().contains("`spec.model`"));
        let mut broken = config("openai", None);
        broken.headers.insert("X-Key".to_owned(), "a\nsecret".to_owned());
        let error = fails(broken).to_string();
        assert!(
            error.contains("spec.headers[X-Key]") && !error.contains("secret"),
            "{error}"
        );
        let mut speech = config("openai", None);
        speech.role = "tts".to_owned();
        assert_eq!(fails(speech).reason(), "ProviderRoleNotSupported");
    }
}
