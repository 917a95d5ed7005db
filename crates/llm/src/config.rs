//! What the controllers render for an agent: `/etc/omnia/providers/providers.yaml`.

use std::{collections::BTreeMap, fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::request::Parameters;

/// The rendered file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProvidersConfig {
    /// One entry per provider of the agent; the first, or the one named `default`, is the default.
    pub providers: Vec<ProviderConfig>,
}

impl ProvidersConfig {
    /// Reads the rendered file.
    ///
    /// # Errors
    /// The parser's message with line and column.
    pub fn parse(text: &str) -> Result<Self, String> {
        serde_saphyr::from_str(text).map_err(|error| error.without_snippet().to_string())
    }

    /// The file's text.
    ///
    /// # Errors
    /// Never in practice; a value that cannot be written as YAML.
    pub fn render(&self) -> Result<String, String> {
        // JSON is YAML, and its writer quotes every string, so no value can be read back as another.
        serde_json::to_string_pretty(self).map_err(|error| error.to_string())
    }
}

/// What all agents together may spend on a provider (OM-204).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct CostControls {
    /// Dollars in a day of UTC, as decimal text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub daily_budget: Option<String>,
    /// Dollars in a month of UTC, as decimal text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub monthly_budget: Option<String>,
    /// `warn`, `pauseJobs` or `block`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_exceeded_action: Option<String>,
    /// Percentages of a budget that are told of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alert_thresholds: Vec<u32>,
}

/// One provider as an agent uses it (OM-174…OM-182).
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProviderConfig {
    /// Name of the agent's entry.
    pub name: String,
    /// Name of the Provider resource.
    #[serde(default)]
    pub provider: String,
    /// Namespace of the Provider resource. With its name it is the provider's identity, which all
    /// users of a Provider share their knowledge of failures by (OR-226).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// `openai`, `mock`, … (OM-174).
    #[serde(rename = "type")]
    pub kind: String,
    /// `llm`, … (OM-175).
    #[serde(default = "default_role")]
    pub role: String,
    /// Model name; empty is allowed for `mock` only (OM-176).
    #[serde(default)]
    pub model: String,
    /// Base URL; unset means the provider's own (OM-177).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// Which of OpenAI's formats is spoken, for type `openai` (OR-235).
    #[serde(default, skip_serializing_if = "OpenAiApi::is_chat")]
    pub api: OpenAiApi,
    /// Set where Azure serves the model, for type `openai` (OR-244).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub azure: Option<AzureConfig>,
    /// Further headers of every request (OM-177).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Mounted file that holds the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential_file: Option<String>,
    /// Variable of the workload's environment that holds the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential_env: Option<String>,
    /// Mounted file that holds the scenario of a `mock`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scenario_file: Option<String>,
    /// Parameters and limits (OM-180).
    #[serde(default)]
    pub defaults: ProviderDefaults,
    /// Prices (OM-181).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pricing: Option<Pricing>,
    /// What may be spent (OM-204).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_controls: Option<CostControls>,
    /// How much may be asked for in a minute (OR-229).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimits>,
    /// What the model can do; empty means not stated (OM-182).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<String>,
}

/// A model that Azure serves (OR-244). The provider's base URL is the resource's address.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct AzureConfig {
    /// Name of the deployment; unset means the model's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deployment: Option<String>,
    /// Version of the API; unset means `2024-02-15-preview` (OR-033), and none for an address that ends with `/openai/v1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
}

/// What may be asked of a provider in a minute, by all of its users together (OR-229).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct RateLimits {
    /// Requests, each attempt of a call counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<u32>,
    /// Tokens of prompts and answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_minute: Option<u64>,
}

impl RateLimits {
    /// What keeps these from being limits.
    ///
    /// # Errors
    /// The field and what is wrong with it.
    pub fn check(&self) -> Result<(), String> {
        match (self.requests_per_minute, self.tokens_per_minute) {
            (None, None) => Err("it names neither requestsPerMinute nor tokensPerMinute".to_owned()),
            (Some(0), _) => Err("requestsPerMinute must be at least 1".to_owned()),
            (_, Some(0)) => Err("tokensPerMinute must be at least 1".to_owned()),
            _ => Ok(()),
        }
    }
}

/// Which of OpenAI's formats a provider is spoken to in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OpenAiApi {
    /// Chat Completions.
    #[default]
    Chat,
    /// Responses first, and Chat Completions where the server does not know it (OR-235, OR-236).
    Auto,
}

impl OpenAiApi {
    fn is_chat(&self) -> bool {
        *self == Self::Chat
    }
}

fn default_role() -> String {
    "llm".to_owned()
}

impl ProviderConfig {
    /// Whether the model may be offered tools: a non-empty list of capabilities must name them
    /// (OM-495).
    pub fn offers_tools(&self) -> bool {
        self.capabilities.is_empty() || self.capabilities.iter().any(|name| name == "tools")
    }
}

impl ProviderConfig {
    /// Whether the model may be asked for an answer in JSON. Unlike tools this has to be stated: a server that does not
    /// know the field refuses the whole call.
    pub fn offers_json(&self) -> bool {
        self.capabilities.iter().any(|name| name == "json")
    }
}

impl fmt::Debug for ProviderConfig {
    // The values of headers may be keys.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ProviderConfig")
            .field("name", &self.name)
            .field("provider", &self.provider)
            .field("type", &self.kind)
            .field("model", &self.model)
            .field("base_url", &self.base_url)
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// Parameters and limits of a provider (OM-180).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ProviderDefaults {
    /// Sampling temperature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Nucleus sampling mass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Limit of the answer's tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Tokens the model can read at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    /// What happens to a conversation that no longer fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncation_strategy: Option<String>,
    /// Longest time of one call, from sending to the end of the answer.
    #[serde(
        with = "jiff::fmt::serde::unsigned_duration::friendly::compact::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub request_timeout: Option<Duration>,
    /// Longest time without a token (OM-371).
    #[serde(
        with = "jiff::fmt::serde::unsigned_duration::friendly::compact::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub stream_idle_timeout: Option<Duration>,
}

impl ProviderDefaults {
    /// The sampling parameters among these.
    pub fn parameters(&self) -> Parameters {
        Parameters {
            temperature: self.temperature,
            top_p: self.top_p,
            max_tokens: self.max_tokens,
            stop: Vec::new(),
        }
    }
}

/// Prices per thousand tokens, as decimal text (OM-181).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pricing {
    /// Of the request's tokens.
    #[serde(rename = "inputCostPer1K", skip_serializing_if = "Option::is_none")]
    pub input_cost_per_1k: Option<String>,
    /// Of the answer's tokens.
    #[serde(rename = "outputCostPer1K", skip_serializing_if = "Option::is_none")]
    pub output_cost_per_1k: Option<String>,
    /// Of cached tokens.
    #[serde(rename = "cachedCostPer1K", skip_serializing_if = "Option::is_none")]
    pub cached_cost_per_1k: Option<String>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    #[test]
    fn what_is_rendered_is_read_back() {
        let config = ProvidersConfig {
            providers: vec![ProviderConfig {
                name: "default".to_owned(),
                provider: "helpdesk-model".to_owned(),
                kind: "openai".to_owned(),
                role: "llm".to_owned(),
                model: "no".to_owned(),
                headers: BTreeMap::from([("X-Team".to_owned(), "1e3".to_owned())]),
                defaults: ProviderDefaults {
                    temperature: Some(0.2),
                    request_timeout: Some(Duration::from_secs(90)),
                    ..ProviderDefaults::default()
                },
                pricing: Some(Pricing {
                    input_cost_per_1k: Some("0.15".to_owned()),
                    ..Pricing::default()
                }),
                ..ProviderConfig::default()
            }],
        };
        let text = config.render().unwrap();
        assert!(text.contains("\"requestTimeout\": \"1m 30s\""), "{text}");
        assert_eq!(ProvidersConfig::parse(&text).unwrap(), config);
    }

    #[test]
    fn an_unknown_field_is_named_with_its_line() {
        let error =
            ProvidersConfig::parse("providers:\n- name: a\n  type: mock\n  baseURL: x\n").unwrap_err();
        assert!(error.contains("baseURL") && error.contains("line 4"), "{error}");
    }

    #[test]
    fn tools_need_the_capability_once_any_is_listed_om_495() {
        let mut config = ProviderConfig::default();
        assert!(config.offers_tools());
        config.capabilities = vec!["text".to_owned()];
        assert!(!config.offers_tools());
        config.capabilities.push("tools".to_owned());
        assert!(config.offers_tools());
    }

    #[test]
    fn debug_output_shows_no_header_value() {
        let config = ProviderConfig {
            headers: BTreeMap::from([("X-Key".to_owned(), "hunter2".to_owned())]),
            ..ProviderConfig::default()
        };
        assert!(!format!("{config:?}").contains("hunter2"));
    }
}
