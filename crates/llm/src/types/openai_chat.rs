//! OpenAI Chat Completions: `POST {base}/chat/completions`, plain and streamed.
//!
//! Reading is more tolerant than the published schema, since many servers speak a dialect of it;
//! writing follows the schema.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

pub(crate) use super::Extra;
use super::null_as_default;

/// The request body.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ChatRequest {
    /// Model name.
    pub(crate) model: String,
    /// The conversation, system prompt included.
    pub(crate) messages: Vec<ChatMessage>,
    /// Tools on offer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tools: Option<Vec<Tool>>,
    /// `"auto"`, `"none"`, `"required"` or an object naming one function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tool_choice: Option<Value>,
    /// What the answer is to look like: `text`, `json_object` or `json_schema`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) response_format: Option<Value>,
    /// Sampling temperature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) temperature: Option<f64>,
    /// Nucleus sampling mass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) top_p: Option<f64>,
    /// Limit of the answer's tokens, older name; what compatible servers know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) max_tokens: Option<u64>,
    /// Limit of the answer's tokens, newer name; what OpenAI's own models require.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) max_completion_tokens: Option<u64>,
    /// Texts at which the answer ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stop: Option<Value>,
    /// Whether the answer comes as server-sent events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stream: Option<bool>,
    /// Options of a streamed answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stream_options: Option<StreamOptions>,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// Options of a streamed answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StreamOptions {
    /// Ask for a last chunk with the token counts.
    #[serde(default)]
    pub(crate) include_usage: bool,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// One message of a request, or the message of a plain answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ChatMessage {
    /// `system`, `developer`, `user`, `assistant` or `tool`.
    #[serde(default)]
    pub(crate) role: String,
    /// The text; `null` in an assistant message that only calls tools.
    #[serde(default)]
    pub(crate) content: Option<Content>,
    /// Name of the speaker or tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// Calls of an assistant message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tool_calls: Option<Vec<ToolCall>>,
    /// The only call, as older servers send it (OR-243).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) function_call: Option<FunctionCall>,
    /// The call a tool message answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tool_call_id: Option<String>,
    /// Text of a refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refusal: Option<String>,
    /// Reasoning, as DeepSeek and vLLM name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reasoning_content: Option<String>,
    /// Reasoning, as Ollama and OpenRouter name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reasoning: Option<Value>,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// The content of a message: one text, or parts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Content {
    /// One text.
    Text(String),
    /// Parts; only those with a `text` mean anything here.
    Parts(Vec<ContentPart>),
}

impl Content {
    /// All text, parts joined.
    pub(crate) fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Parts(parts) => parts.into_iter().filter_map(|part| part.text).collect(),
        }
    }
}

/// One part of a message's content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ContentPart {
    /// `text`, `image_url`, …
    #[serde(rename = "type", default)]
    pub(crate) kind: String,
    /// The text of a text part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// A tool on offer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Tool {
    /// Always `function`.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// The function.
    pub(crate) function: FunctionDefinition,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// What the model is told about a function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct FunctionDefinition {
    /// Name the model calls it by.
    pub(crate) name: String,
    /// What it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    /// JSON Schema of the arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parameters: Option<Value>,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// A complete call in a message, or a fragment of one in a streamed chunk.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ToolCall {
    /// Position among the answer's calls; only in chunks, and missing from some servers (D9).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) index: Option<u64>,
    /// Id; only in a call's first fragment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
    /// `function`.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
    /// What is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) function: Option<FunctionCall>,
    /// Everything else (one provider keeps a signature here that must come back).
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// Name and arguments of a call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct FunctionCall {
    /// The function's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// JSON text; some servers send the value itself, or null.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "arguments_as_text"
    )]
    pub(crate) arguments: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
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
pub(crate) struct ChatResponse {
    /// Id of the answer.
    #[serde(default)]
    pub(crate) id: String,
    /// `chat.completion`.
    #[serde(default)]
    pub(crate) object: String,
    /// Unix seconds.
    #[serde(default)]
    pub(crate) created: i64,
    /// The model that answered.
    #[serde(default)]
    pub(crate) model: String,
    /// The answers; only the first is asked for.
    #[serde(default)]
    pub(crate) choices: Vec<Choice>,
    /// Token counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) usage: Option<Usage>,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// One answer of a plain response.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Choice {
    /// Position.
    #[serde(default)]
    pub(crate) index: u64,
    /// The message.
    #[serde(default)]
    pub(crate) message: ChatMessage,
    /// Why it ended.
    #[serde(default)]
    pub(crate) finish_reason: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// One chunk of a streamed answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ChatChunk {
    /// Id of the answer.
    #[serde(default)]
    pub(crate) id: String,
    /// `chat.completion.chunk`.
    #[serde(default)]
    pub(crate) object: String,
    /// Unix seconds.
    #[serde(default)]
    pub(crate) created: i64,
    /// The model that answers.
    #[serde(default)]
    pub(crate) model: String,
    /// The pieces; empty in a chunk that only carries `usage` (D10).
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) choices: Vec<ChunkChoice>,
    /// Token counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) usage: Option<Usage>,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// One piece of one answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ChunkChoice {
    /// Position.
    #[serde(default)]
    pub(crate) index: u64,
    /// What is new.
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) delta: ChunkDelta,
    /// Set once, at the end.
    #[serde(default)]
    pub(crate) finish_reason: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// What is new in an answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ChunkDelta {
    /// `assistant`, in the first chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) role: Option<String>,
    /// More text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) content: Option<Content>,
    /// More text of a refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refusal: Option<String>,
    /// More reasoning, as DeepSeek and vLLM name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reasoning_content: Option<String>,
    /// More reasoning, as Ollama and OpenRouter name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reasoning: Option<Value>,
    /// Fragments of calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tool_calls: Option<Vec<ToolCall>>,
    /// A fragment of the only call, as older servers send it (OR-243).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) function_call: Option<FunctionCall>,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// Token counts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Usage {
    /// Tokens of the request.
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) prompt_tokens: u64,
    /// Tokens of the answer.
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) completion_tokens: u64,
    /// Their sum.
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) total_tokens: u64,
    /// Of the request's tokens, what was cached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prompt_tokens_details: Option<PromptTokensDetails>,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// Details of the request's tokens.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PromptTokensDetails {
    /// Tokens read from the provider's cache.
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) cached_tokens: u64,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// The error of a body or of a stream.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ErrorObject {
    /// For people.
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) message: String,
    /// Class of the error, such as `invalid_request_error`.
    #[serde(rename = "type", default)]
    pub(crate) kind: Option<String>,
    /// The field that is wrong.
    #[serde(default)]
    pub(crate) param: Option<Value>,
    /// A word or a number.
    #[serde(default)]
    pub(crate) code: Option<Value>,
}

/// The error body this program's own server answers with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ErrorBody {
    /// The error.
    pub(crate) error: ErrorObject,
}

/// Answer of `GET {base}/models`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ModelList {
    /// `list`.
    pub(crate) object: String,
    /// The models.
    pub(crate) data: Vec<ModelEntry>,
}

/// One model of the list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ModelEntry {
    /// Its name.
    pub(crate) id: String,
    /// `model`.
    pub(crate) object: String,
    /// Unix seconds.
    pub(crate) created: i64,
    /// Who offers it.
    pub(crate) owned_by: String,
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
