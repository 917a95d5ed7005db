//! From configuration to a model.

mod configured;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use mainstay_telemetry::{clock::SharedClock, random::SharedRandom};
use mainstay_workload::{Connector, FileRoot};

use self::configured::Configured;
use crate::{
    anthropic::{self, Anthropic},
    config::{AzureConfig, OpenAiApi, ProviderConfig},
    cooldown::{Cooldowns, ProviderKey},
    credential::Credential,
    fallback::{Candidate, Chain},
    idle,
    mock::{MockModel, ScenarioError},
    model::Model,
    openai::{self, OpenAi, OpenAiOptions, selection::ApiMode},
    rate_limit::RateLimit,
    retry::RetryPolicy,
    transport::{self, KeyHeader, Transport},
};

/// Provider types with role `llm` that are built (OM-495).
pub const SUPPORTED_TYPES: &[&str] = &["claude", "gemini", "mock", "ollama", "openai", "vllm"];

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

/// Builds the model of `config`, with retries and a cooldown of its own. Nothing is sent; a credential
/// is first read by a call. [`build_chain`] shares the cooldown with other users of the provider.
///
/// # Errors
/// [`BuildError`].
pub fn build(config: &ProviderConfig, context: &BuildContext) -> Result<Arc<dyn Model>, BuildError> {
    if config.kind == "mock" {
        // Deterministic: a scripted failure is shown as it is and not made again.
        return single(config, context);
    }
    let cooldowns = Cooldowns::in_memory(Arc::clone(&context.clock));
    build_chain(&config.name, &[config], context, &cooldowns)
}

/// Builds the model that is `candidates` in order of preference: retries of each, then the next, with
/// the cooldowns of `cooldowns` (OR-220…OR-228). In errors and records it is called `name`.
///
/// The first candidate is asked for the request's model; the others are asked for the one each is
/// configured with.
///
/// # Errors
/// [`BuildError`] of the first candidate that cannot be built.
pub fn build_chain(
    name: &str,
    candidates: &[&ProviderConfig],
    context: &BuildContext,
    cooldowns: &Cooldowns,
) -> Result<Arc<dyn Model>, BuildError> {
    let numbered = candidates.iter().enumerate();
    let candidates = numbered
        .map(|(index, config)| {
            Ok(Candidate {
                model: single(config, context)?,
                health: cooldowns.health(&ProviderKey::of(config)),
                limit: rate_limit(config, cooldowns)?,
                model_name: (index > 0).then(String::new),
            })
        })
        .collect::<Result<_, BuildError>>()?;
    let random = Arc::clone(&context.random);
    Ok(Arc::new(Chain::new(
        name,
        candidates,
        RetryPolicy::default(),
        random,
    )))
}

/// The limits of a provider, shared with its other users.
fn rate_limit(config: &ProviderConfig, cooldowns: &Cooldowns) -> Result<Option<RateLimit>, BuildError> {
    let Some(limits) = &config.rate_limit else {
        return Ok(None);
    };
    limits
        .check()
        .map_err(|problem| invalid(config, "rateLimit", problem))?;
    Ok(Some(RateLimit {
        limiter: cooldowns.limiter(&ProviderKey::of(config), limits),
        longest_wait: request_timeout(config),
    }))
}

/// The longest time of one call.
fn request_timeout(config: &ProviderConfig) -> Duration {
    let configured = config.defaults.request_timeout;
    configured.unwrap_or(transport::DEFAULT_REQUEST_TIMEOUT)
}

/// The model of one provider, without retries.
pub(crate) fn single(config: &ProviderConfig, context: &BuildContext) -> Result<Arc<dyn Model>, BuildError> {
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
    if config.kind == "claude" {
        return Ok(Arc::new(Configured::new(claude(config, context)?, config)));
    }
    let model = OpenAi::new(openai_options(config, context)?);
    Ok(Arc::new(Configured::new(model, config)))
}

fn invalid(config: &ProviderConfig, field: impl Into<String>, problem: String) -> BuildError {
    BuildError::FieldInvalid {
        provider: config.name.clone(),
        field: field.into(),
        problem,
    }
}

fn transport(
    config: &ProviderConfig,
    context: &BuildContext,
    key_header: KeyHeader,
) -> Result<Transport, BuildError> {
    let headers = transport::header_map(&config.headers).map_err(|name| {
        let problem = "it is not a header name, or its value cannot be sent".to_owned();
        invalid(config, format!("spec.headers[{name}]"), problem)
    })?;
    Ok(Transport {
        name: config.name.clone(),
        headers,
        credential: Credential::of(config, &context.files, &context.environment),
        key_header,
        request_timeout: request_timeout(config),
        idle_timeout: config
            .defaults
            .stream_idle_timeout
            .unwrap_or(idle::DEFAULT_IDLE_TIMEOUT),
        connector: context.connector.clone(),
        clock: Arc::clone(&context.clock),
        random: Arc::clone(&context.random),
    })
}

/// The address of a provider that has a public one: configured, else from the workload's
/// environment, else the public one; with the field it is from.
fn base_of<'a>(
    config: &'a ProviderConfig,
    context: &'a BuildContext,
    variable: &'static str,
    public: &'static str,
) -> (&'a str, &'static str) {
    let set = |url: &'a str| Some(url).filter(|url| !url.is_empty());
    if let Some(url) = config.base_url.as_deref().and_then(set) {
        return (url, "spec.baseURL");
    }
    match context
        .environment
        .get(variable)
        .map(String::as_str)
        .and_then(set)
    {
        Some(url) => (url, variable),
        None => (public, "spec.baseURL"),
    }
}

fn claude(config: &ProviderConfig, context: &BuildContext) -> Result<Anthropic, BuildError> {
    const PUBLIC: &str = "https://api.anthropic.com";
    let (base, field) = base_of(config, context, "ANTHROPIC_BASE_URL", PUBLIC);
    let endpoint = anthropic::endpoint(base).map_err(|problem| invalid(config, field, problem))?;
    Ok(Anthropic::new(
        transport(config, context, KeyHeader::ApiKey)?,
        endpoint,
    ))
}

fn openai_options(config: &ProviderConfig, context: &BuildContext) -> Result<OpenAiOptions, BuildError> {
    const PUBLIC: &str = "https://api.openai.com/v1";
    let configured = config.base_url.as_deref().filter(|url| !url.is_empty());
    let own = "spec.baseURL";
    if let Some(azure) = &config.azure {
        return azure_options(config, context, azure);
    }
    let (base, field, default_path) = match (config.kind.as_str(), configured) {
        ("openai", _) => {
            let (base, field) = base_of(config, context, "OPENAI_BASE_URL", PUBLIC);
            (base, field, "")
        }
        ("gemini", url) => (
            url.unwrap_or("https://generativelanguage.googleapis.com"),
            own,
            "/v1beta/openai",
        ),
        ("ollama", url) => (url.unwrap_or("http://localhost:11434"), own, "/v1"),
        (_, Some(url)) => (url, own, "/v1"),
        (kind, None) => {
            return Err(BuildError::FieldMissing {
                provider: config.name.clone(),
                kind: kind.to_owned(),
                field: own,
            });
        }
    };
    let endpoints =
        openai::endpoints(base, default_path).map_err(|problem| invalid(config, field, problem))?;
    // Only OpenAI's own servers are known to have Responses; the others are not asked for it.
    let mode = match config.api {
        OpenAiApi::Auto if config.kind == "openai" => ApiMode::Unknown,
        _ => ApiMode::Chat,
    };
    Ok(OpenAiOptions {
        transport: transport(config, context, KeyHeader::Bearer)?,
        // What speaks Responses is OpenAI's, or takes after it closely (OR-243).
        newer_limit_name: mode == ApiMode::Unknown || endpoints.chat.host_str() == Some("api.openai.com"),
        endpoints,
        mode,
    })
}

/// A model that Azure serves. Its address is the resource's, which nobody can guess.
fn azure_options(
    config: &ProviderConfig,
    context: &BuildContext,
    azure: &AzureConfig,
) -> Result<OpenAiOptions, BuildError> {
    let field = "spec.baseURL";
    let base = config.base_url.as_deref().filter(|url| !url.is_empty());
    let base = base.ok_or_else(|| BuildError::FieldMissing {
        provider: config.name.clone(),
        kind: config.kind.clone(),
        field,
    })?;
    let deployment = azure.deployment.as_deref().unwrap_or(&config.model);
    let found = openai::azure::endpoints(base, deployment, azure.api_version.as_deref())
        .map_err(|problem| invalid(config, field, problem))?;
    Ok(OpenAiOptions {
        transport: transport(config, context, KeyHeader::AzureKey)?,
        endpoints: found.endpoints,
        mode: match config.api {
            OpenAiApi::Auto => ApiMode::Unknown,
            OpenAiApi::Chat => ApiMode::Chat,
        },
        newer_limit_name: found.newer_limit_name,
    })
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
            assert_eq!(options.endpoints.chat.as_str(), expected, "{kind} {base:?}");
        }
    }

    #[tokio::test]
    async fn what_cannot_be_built_is_named() {
        let plain = context(&[]);
        let fails = |config: ProviderConfig| build(&config, &plain).unwrap_err();
        let error = fails(config("bedrock", None));
        assert_eq!(error.reason(), "ProviderTypeNotSupported");
        assert!(error.to_string().contains("type `bedrock`"), "{error}");
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
