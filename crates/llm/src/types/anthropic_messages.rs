//! Anthropic Messages: `POST {base}/v1/messages`, plain and streamed.

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::{Map, Value};

use super::{Extra, null_as_default};

/// The request body, also of `count_tokens`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct MessagesRequest {
    /// Model name.
    #[serde(default)]
    pub(crate) model: String,
    /// Limit of the answer's tokens; required, except to count tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) max_tokens: Option<u64>,
    /// The system prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) system: Option<Content>,
    /// The conversation; roles alternate.
    #[serde(default)]
    pub(crate) messages: Vec<InputMessage>,
    /// Tools on offer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tools: Option<Vec<Tool>>,
    /// Whether a tool may or must be called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tool_choice: Option<ToolChoice>,
    /// What the answer is to look like, in `format`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) output_config: Option<Value>,
    /// Sampling temperature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) temperature: Option<f64>,
    /// Nucleus sampling mass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) top_p: Option<f64>,
    /// Texts at which the answer ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stop_sequences: Option<Vec<String>>,
    /// Whether the answer comes as server-sent events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stream: Option<bool>,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// One message of a request.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct InputMessage {
    /// `user` or `assistant`.
    #[serde(default)]
    pub(crate) role: String,
    /// The content.
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) content: Content,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// One text, or blocks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Content {
    /// One text.
    Text(String),
    /// Blocks.
    Blocks(Vec<Block>),
}

impl Default for Content {
    fn default() -> Self {
        Self::Blocks(Vec::new())
    }
}

impl Content {
    /// The blocks; a text becomes one, an empty text none.
    pub(crate) fn into_blocks(self) -> Vec<Block> {
        match self {
            Self::Text(text) if text.is_empty() => Vec::new(),
            Self::Text(text) => vec![Block::text(text)],
            Self::Blocks(blocks) => blocks,
        }
    }

    /// All text, blocks joined.
    pub(crate) fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Blocks(blocks) => blocks
                .into_iter()
                .filter_map(|block| match block {
                    Block::Text(block) => Some(block.text),
                    _ => None,
                })
                .collect(),
        }
    }
}

/// One block of content.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Block {
    /// `text`.
    Text(TextBlock),
    /// `thinking`.
    Thinking(ThinkingBlock),
    /// `redacted_thinking`.
    Redacted(RedactedThinkingBlock),
    /// `tool_use`.
    ToolUse(ToolUseBlock),
    /// `tool_result`.
    ToolResult(ToolResultBlock),
    /// Anything else, as it was.
    Other(Value),
}

impl<'de> Deserialize<'de> for Block {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let block = match value.get("type").and_then(Value::as_str) {
            Some("text") => serde_json::from_value(value).map(Self::Text),
            Some("thinking") => serde_json::from_value(value).map(Self::Thinking),
            Some("redacted_thinking") => serde_json::from_value(value).map(Self::Redacted),
            Some("tool_use") => serde_json::from_value(value).map(Self::ToolUse),
            Some("tool_result") => serde_json::from_value(value).map(Self::ToolResult),
            _ => Ok(Self::Other(value)),
        };
        block.map_err(D::Error::custom)
    }
}

impl Block {
    /// A block of text.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(TextBlock {
            kind: "text".to_owned(),
            text: text.into(),
            extra: Map::new(),
        })
    }
}

/// A text.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct TextBlock {
    /// `text`.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// The text.
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) text: String,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// What the model thought.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ThinkingBlock {
    /// `thinking`.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// The thoughts.
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) thinking: String,
    /// The provider's mark that the thoughts are its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) signature: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// What the model thought, readable for the provider only.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RedactedThinkingBlock {
    /// `redacted_thinking`.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// The thoughts, as the provider sent them.
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) data: String,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// A call of a tool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ToolUseBlock {
    /// `tool_use`.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// Id that results name.
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) id: String,
    /// The tool's name.
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) name: String,
    /// The arguments: an object; empty while they are still being streamed.
    #[serde(default)]
    pub(crate) input: Value,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// The result of a call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ToolResultBlock {
    /// `tool_result`.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// The call this is the result of.
    #[serde(default)]
    pub(crate) tool_use_id: String,
    /// The result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) content: Option<Content>,
    /// Whether the call failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) is_error: Option<bool>,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// A tool on offer. The provider's own tools have a `type` and no schema.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Tool {
    /// Name the model calls it by.
    #[serde(default)]
    pub(crate) name: String,
    /// What it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    /// JSON Schema of the arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) input_schema: Option<Value>,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// Whether a tool may or must be called.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ToolChoice {
    /// `auto`, `any`, `tool` or `none`.
    #[serde(rename = "type", default)]
    pub(crate) kind: String,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// A plain answer, and the start of a streamed one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct MessageObject {
    /// Id of the answer.
    #[serde(default)]
    pub(crate) id: String,
    /// `message`.
    #[serde(rename = "type", default)]
    pub(crate) kind: String,
    /// `assistant`.
    #[serde(default)]
    pub(crate) role: String,
    /// The model that answered.
    #[serde(default)]
    pub(crate) model: String,
    /// The answer.
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) content: Vec<Block>,
    /// Why it ended; `null` at the start of a stream.
    #[serde(default)]
    pub(crate) stop_reason: Option<String>,
    /// The stop sequence it ended at.
    #[serde(default)]
    pub(crate) stop_sequence: Option<String>,
    /// Token counts.
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) usage: Usage,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// Token counts. Cached tokens are not among `input_tokens`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Usage {
    /// Tokens of the request that no cache was involved in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) input_tokens: Option<u64>,
    /// Tokens that were written to the cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cache_creation_input_tokens: Option<u64>,
    /// Tokens that were read from the cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cache_read_input_tokens: Option<u64>,
    /// Tokens of the answer so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) output_tokens: Option<u64>,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// One event of a streamed answer. Which fields are there depends on `kind`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StreamEvent {
    /// `message_start`, `content_block_delta`, …
    #[serde(rename = "type", default)]
    pub(crate) kind: String,
    /// Of `message_start`: the answer without its content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<MessageObject>,
    /// Position of the block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) index: Option<u64>,
    /// Of `content_block_start`: the block without its content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) content_block: Option<Block>,
    /// What is new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) delta: Option<Delta>,
    /// Of `message_delta`: token counts so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) usage: Option<Usage>,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// What is new: of a block (with a `type`), or of the message (without).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Delta {
    /// `text_delta`, `input_json_delta`, `thinking_delta`, `signature_delta`.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
    /// More text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
    /// More of the JSON text of a tool's input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) partial_json: Option<String>,
    /// More thoughts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) thinking: Option<String>,
    /// The provider's mark on the thoughts of the block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) signature: Option<String>,
    /// Why the answer ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stop_reason: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// The error body this program's own server answers with, and the `error` event of a stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ErrorBody {
    /// `error`.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// The error.
    pub(crate) error: ErrorObject,
    /// Id of the request.
    #[serde(default)]
    pub(crate) request_id: Option<String>,
}

/// An error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ErrorObject {
    /// Class of the error, such as `overloaded_error`.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// For people.
    pub(crate) message: String,
}

/// Answer of `POST {base}/v1/messages/count_tokens`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TokenCount {
    /// Tokens of the request.
    pub(crate) input_tokens: u64,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn fields_and_blocks_that_are_not_modelled_pass_through() {
        let body = json!({
            "model": "m",
            "max_tokens": 5,
            "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
            "messages": [
                {"role": "user", "content": "hi"},
                {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "u"}}]},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "t", "signature": "s"},
                    {"type": "redacted_thinking", "data": "d"},
                    {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": [1]}},
                ]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "x", "is_error": true}]},
            ],
            "tools": [{"name": "f", "input_schema": {"type": "object"}}, {"type": "bash_20250124", "name": "bash"}],
            "tool_choice": {"type": "tool", "name": "f"},
            "thinking": {"type": "enabled", "budget_tokens": 1024},
        });
        let request: MessagesRequest = serde_json::from_value(body.clone()).unwrap();
        assert_eq!(serde_json::to_value(&request).unwrap(), body);
    }
}
