//! What a model is asked (OR-201).

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::message::{Message, ToolDescriptor};

/// One call of a model. Clones share what is large: a call is cloned for each of its attempts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Request {
    /// Model name; empty means the model the provider is configured with.
    pub model: String,
    /// The system prompt; empty means none.
    pub system: Arc<str>,
    /// The conversation so far, oldest first.
    pub messages: Arc<[Message]>,
    /// The tools on offer.
    pub tools: Arc<[ToolDescriptor]>,
    /// Whether tools may or must be called.
    pub tool_choice: ToolChoice,
    /// What the answer is to look like.
    pub response_format: ResponseFormat,
    /// Sampling parameters; unset ones take the provider's configured defaults (OM-496).
    pub parameters: Parameters,
}

/// Whether the model may, must or must not call a tool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// At least one call.
    Required,
    /// No call.
    None,
}

/// What an answer is to look like (OR-201, OM-533).
///
/// Sent only to a provider that is known to take it ([`crate::config::ProviderConfig::offers_json`]). It is a wish: which
/// part of a schema a provider holds itself to differs, so the answer is checked by whoever needs it.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum ResponseFormat {
    /// Text.
    #[default]
    Text,
    /// One JSON value.
    Json,
    /// One JSON value that conforms to a schema.
    Schema {
        /// A name for it, which some providers ask for.
        name: String,
        /// The JSON Schema.
        schema: Arc<Value>,
    },
}

/// Sampling parameters. Unset ones are not sent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Parameters {
    /// Sampling temperature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Nucleus sampling mass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Upper bound on the tokens of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Texts at which the answer ends.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
}

impl Parameters {
    /// These parameters, with `defaults` where one is unset (OM-496).
    #[must_use]
    pub fn or(self, defaults: &Self) -> Self {
        Self {
            temperature: self.temperature.or(defaults.temperature),
            top_p: self.top_p.or(defaults.top_p),
            max_tokens: self.max_tokens.or(defaults.max_tokens),
            stop: if self.stop.is_empty() {
                defaults.stop.clone()
            } else {
                self.stop
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_parameter_wins_over_the_default_om_496() {
        let defaults = Parameters {
            temperature: Some(0.2),
            max_tokens: Some(100),
            ..Parameters::default()
        };
        let asked = Parameters {
            temperature: Some(0.9),
            ..Parameters::default()
        };
        let effective = asked.or(&defaults);
        assert_eq!(effective.temperature, Some(0.9));
        assert_eq!(effective.max_tokens, Some(100));
        assert_eq!(effective.top_p, None);
    }
}
