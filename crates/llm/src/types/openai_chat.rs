//! OpenAI Chat Completions: `POST {base}/chat/completions`, plain and streamed.
//!
//! Reading is more tolerant than the published schema, since many servers speak a dialect of it;
//! writing follows the schema.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

pub use super::Extra;
use super::null_as_default;

/// The request body.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ChatRequest {
    /// Model name.
    pub model: String,
    /// The conversation, system prompt included.
    pub messages: Vec<ChatMessage>,
    /// Tools on offer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<Tool>>,
    /// `"auto"`, `"none"`, `"required"` or an object naming one function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<Value>,
    /// Sampling temperature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Nucleus sampling mass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Limit of the answer's tokens, older name; what compatible servers know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Limit of the answer's tokens, newer name; what OpenAI's own models require.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_completion_tokens: Option<u64>,
    /// Texts at which the answer ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Value>,
    /// Whether the answer comes as server-sent events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<bool>,
    /// Options of a streamed answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_options: Option<StreamOptions>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Options of a streamed answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamOptions {
    /// Ask for a last chunk with the token counts.
    #[serde(default)]
    pub include_usage: bool,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// One message of a request, or the message of a plain answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ChatMessage {
    /// `system`, `developer`, `user`, `assistant` or `tool`.
    #[serde(default)]
    pub role: String,
    /// The text; `null` in an assistant message that only calls tools.
    #[serde(default)]
    pub content: Option<Content>,
    /// Name of the speaker or tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Calls of an assistant message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<Vec<ToolCall>>,
    /// The only call, as older servers send it (OR-243).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function_call: Option<FunctionCall>,
    /// The call a tool message answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Text of a refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// Reasoning, as DeepSeek and vLLM name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// Reasoning, as Ollama and OpenRouter name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Value>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The content of a message: one text, or parts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Content {
    /// One text.
    Text(String),
    /// Parts; only those with a `text` mean anything here.
    Parts(Vec<ContentPart>),
}

impl Content {
    /// All text, parts joined.
    pub fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Parts(parts) => parts.into_iter().filter_map(|part| part.text).collect(),
        }
    }
}

/// One part of a message's content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ContentPart {
    /// `text`, `image_url`, …
    #[serde(rename = "type", default)]
    pub kind: String,
    /// The text of a text part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A tool on offer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// Always `function`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The function.
    pub function: FunctionDefinition,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// What the model is told about a function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FunctionDefinition {
    /// Name the model calls it by.
    pub name: String,
    /// What it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema of the arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Value>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A complete call in a message, or a fragment of one in a streamed chunk.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Position among the answer's calls; only in chunks, and missing from some servers (D9).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
    /// Id; only in a call's first fragment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// `function`.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// What is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<FunctionCall>,
    /// Everything else (one provider keeps a signature here that must come back).
    #[serde(flatten)]
    pub extra: Extra,
}

/// Name and arguments of a call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FunctionCall {
    /// The function's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// JSON text; some servers send the value itself, or null.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "arguments_as_text"
    )]
    pub arguments: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Arguments are JSON text; some servers send the value itself, or null.
pub(super) fn arguments_as_text<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    Ok(match Option::<Value>::deserialize(deserializer)? {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text),
        Some(value) => Some(value.to_string()),
    })
}

/// A plain answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ChatResponse {
    /// Id of the answer.
    #[serde(default)]
    pub id: String,
    /// `chat.completion`.
    #[serde(default)]
    pub object: String,
    /// Unix seconds.
    #[serde(default)]
    pub created: i64,
    /// The model that answered.
    #[serde(default)]
    pub model: String,
    /// The answers; only the first is asked for.
    #[serde(default)]
    pub choices: Vec<Choice>,
    /// Token counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// One answer of a plain response.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// Position.
    #[serde(default)]
    pub index: u64,
    /// The message.
    #[serde(default)]
    pub message: ChatMessage,
    /// Why it ended.
    #[serde(default)]
    pub finish_reason: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// One chunk of a streamed answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ChatChunk {
    /// Id of the answer.
    #[serde(default)]
    pub id: String,
    /// `chat.completion.chunk`.
    #[serde(default)]
    pub object: String,
    /// Unix seconds.
    #[serde(default)]
    pub created: i64,
    /// The model that answers.
    #[serde(default)]
    pub model: String,
    /// The pieces; empty in a chunk that only carries `usage` (D10).
    #[serde(default, deserialize_with = "null_as_default")]
    pub choices: Vec<ChunkChoice>,
    /// Token counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// One piece of one answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ChunkChoice {
    /// Position.
    #[serde(default)]
    pub index: u64,
    /// What is new.
    #[serde(default, deserialize_with = "null_as_default")]
    pub delta: ChunkDelta,
    /// Set once, at the end.
    #[serde(default)]
    pub finish_reason: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// What is new in an answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ChunkDelta {
    /// `assistant`, in the first chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// More text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Content>,
    /// More text of a refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// More reasoning, as DeepSeek and vLLM name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// More reasoning, as Ollama and OpenRouter name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Value>,
    /// Fragments of calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<Vec<ToolCall>>,
    /// A fragment of the only call, as older servers send it (OR-243).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function_call: Option<FunctionCall>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Token counts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the request.
    #[serde(default, deserialize_with = "null_as_default")]
    pub prompt_tokens: u64,
    /// Tokens of the answer.
    #[serde(default, deserialize_with = "null_as_default")]
    pub completion_tokens: u64,
    /// Their sum.
    #[serde(default, deserialize_with = "null_as_default")]
    pub total_tokens: u64,
    /// Of the request's tokens, what was cached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_tokens_details: Option<PromptTokensDetails>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Details of the request's tokens.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PromptTokensDetails {
    /// Tokens read from the provider's cache.
    #[serde(default, deserialize_with = "null_as_default")]
    pub cached_tokens: u64,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The error of a body or of a stream.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ErrorObject {
    /// For people.
    #[serde(default, deserialize_with = "null_as_default")]
    pub message: String,
    /// Class of the error, such as `invalid_request_error`.
    #[serde(rename = "type", default)]
    pub kind: Option<String>,
    /// The field that is wrong.
    #[serde(default)]
    pub param: Option<Value>,
    /// A word or a number.
    #[serde(default)]
    pub code: Option<Value>,
}

/// The error body this program's own server answers with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorObject,
}

/// Answer of `GET {base}/models`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelList {
    /// `list`.
    pub object: String,
    /// The models.
    pub data: Vec<ModelEntry>,
}

/// One model of the list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelEntry {
    /// Its name.
    pub id: String,
    /// `model`.
    pub object: String,
    /// Unix seconds.
    pub created: i64,
    /// Who offers it.
    pub owned_by: String,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    #[test]
    fn fields_that_are_not_modelled_pass_through() {
        let text = r#"{"model":"m","messages":[{"role":"user","content":"hi","cache_control":{"type":"ephemeral"}}],"logit_bias":{"5":1},"stream_options":{"include_usage":true,"x":1}}"#;
        let request: ChatRequest = serde_json::from_str(text).unwrap();
        let again: Value = serde_json::to_value(&request).unwrap();
        assert_eq!(again, serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn nulls_and_values_in_odd_places_are_read() {
        let chunk: ChatChunk = serde_json::from_str(
            r#"{"choices":[{"delta":null,"finish_reason":null},{"delta":{"content":null,"tool_calls":[{"function":{"name":"f","arguments":{"a":1}}}]}}],"usage":null}"#,
        )
        .unwrap();
        assert_eq!(chunk.choices[0].delta, ChunkDelta::default());
        let calls = chunk.choices[1].delta.tool_calls.clone().unwrap();
        assert_eq!(
            calls[0].function.clone().unwrap().arguments.unwrap(),
            r#"{"a":1}"#
        );
        let chunk: ChatChunk = serde_json::from_str(r#"{"choices":null}"#).unwrap();
        assert!(chunk.choices.is_empty());
    }
}
