//! OpenAI Responses: `POST {base}/responses`, plain and streamed.

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::Value;

use super::{
    Extra, null_as_default,
    openai_chat::{ErrorObject, arguments_as_text},
    present,
};

/// The request body.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ResponsesRequest {
    /// Model name.
    #[serde(default)]
    pub(crate) model: String,
    /// The system prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) instructions: Option<String>,
    /// The conversation.
    #[serde(default)]
    pub(crate) input: Input,
    /// Tools on offer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tools: Option<Vec<Tool>>,
    /// `"auto"`, `"none"`, `"required"` or an object naming one tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tool_choice: Option<Value>,
    /// What the answer's text is to look like, in `format`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<Value>,
    /// Sampling temperature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) temperature: Option<f64>,
    /// Nucleus sampling mass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) top_p: Option<f64>,
    /// Limit of the answer's tokens, reasoning included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) max_output_tokens: Option<u64>,
    /// Whether the answer comes as server-sent events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stream: Option<bool>,
    /// Whether the provider keeps the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) store: Option<bool>,
    /// An answer that the provider kept and that this request continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) previous_response_id: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// The conversation: one text of the user, or items.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Input {
    /// One text.
    Text(String),
    /// Items, oldest first.
    Items(Vec<Item>),
}

impl Default for Input {
    fn default() -> Self {
        Self::Items(Vec::new())
    }
}

/// A tool on offer. Only those of type `function` mean anything here.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Tool {
    /// `function`, or one of the provider's own tools.
    #[serde(rename = "type", default)]
    pub(crate) kind: String,
    /// Name the model calls it by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// What it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    /// JSON Schema of the arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parameters: Option<Value>,
    /// Whether arguments must follow the schema exactly, which restricts the schema (OR-243).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) strict: Option<bool>,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// One item of a conversation or an answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Item {
    /// `message`, also without a `type`.
    Message(MessageItem),
    /// `function_call`.
    FunctionCall(FunctionCallItem),
    /// `function_call_output`.
    FunctionCallOutput(FunctionCallOutputItem),
    /// `reasoning`.
    Reasoning(ReasoningItem),
    /// Anything else, as it was.
    Other(Value),
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let kind = value.get("type").and_then(Value::as_str);
        let item = match kind {
            Some("message") => serde_json::from_value(value).map(Self::Message),
            None if value.get("role").is_some() => serde_json::from_value(value).map(Self::Message),
            Some("function_call") => serde_json::from_value(value).map(Self::FunctionCall),
            Some("function_call_output") => serde_json::from_value(value).map(Self::FunctionCallOutput),
            Some("reasoning") => serde_json::from_value(value).map(Self::Reasoning),
            _ => Ok(Self::Other(value)),
        };
        item.map_err(D::Error::custom)
    }
}

/// A message.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct MessageItem {
    /// `message`; may be missing in a request.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
    /// Id; only in answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
    /// `in_progress`, `completed` or `incomplete`; only in answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<String>,
    /// `user`, `assistant`, `system` or `developer`.
    #[serde(default)]
    pub(crate) role: String,
    /// The content.
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) content: Content,
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
    /// Parts.
    Parts(Vec<Part>),
}

impl Default for Content {
    fn default() -> Self {
        Self::Parts(Vec::new())
    }
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
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Part {
    /// `input_text`, `output_text`, `refusal`, `summary_text`, `reasoning_text`, …
    #[serde(rename = "type", default)]
    pub(crate) kind: String,
    /// The text of a text part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
    /// The text of a refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refusal: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// A call of a function.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct FunctionCallItem {
    /// `function_call`.
    #[serde(rename = "type", default)]
    pub(crate) kind: String,
    /// Id of the item; not the one results name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
    /// Id that results name.
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) call_id: String,
    /// The function's name.
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) name: String,
    /// JSON text of the arguments; empty while it is still being streamed.
    #[serde(default, deserialize_with = "text_or_empty")]
    pub(crate) arguments: String,
    /// `in_progress`, `completed` or `incomplete`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// The result of a call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct FunctionCallOutputItem {
    /// `function_call_output`.
    #[serde(rename = "type", default)]
    pub(crate) kind: String,
    /// The call this is the result of.
    #[serde(default)]
    pub(crate) call_id: String,
    /// The result.
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) output: Content,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// What the model thought.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReasoningItem {
    /// `reasoning`.
    #[serde(rename = "type", default)]
    pub(crate) kind: String,
    /// Id of the item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
    /// A summary of the thoughts.
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) summary: Vec<Part>,
    /// The thoughts themselves, where the provider shows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) content: Option<Vec<Part>>,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// An answer: the body of a plain response, and part of several stream events.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ResponseObject {
    /// Id of the answer.
    #[serde(default)]
    pub(crate) id: String,
    /// `response`.
    #[serde(default)]
    pub(crate) object: String,
    /// Unix seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) created_at: Option<serde_json::Number>,
    /// `in_progress`, `completed`, `incomplete`, `failed`, `cancelled` or `queued`.
    #[serde(default)]
    pub(crate) status: Option<String>,
    /// Why it failed.
    #[serde(default)]
    pub(crate) error: Option<ErrorObject>,
    /// Why it is incomplete.
    #[serde(default)]
    pub(crate) incomplete_details: Option<IncompleteDetails>,
    /// The model that answered.
    #[serde(default)]
    pub(crate) model: String,
    /// The answer's items.
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) output: Vec<Item>,
    /// Token counts; `null` until the answer is complete.
    #[serde(default)]
    pub(crate) usage: Option<Usage>,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// Why an answer is incomplete.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct IncompleteDetails {
    /// `max_output_tokens` or `content_filter`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// Token counts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Usage {
    /// Tokens of the request.
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) input_tokens: u64,
    /// Of these, what was cached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) input_tokens_details: Option<InputTokensDetails>,
    /// Tokens of the answer.
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) output_tokens: u64,
    /// Of these, what was reasoning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) output_tokens_details: Option<OutputTokensDetails>,
    /// Their sum.
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) total_tokens: u64,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// Details of the request's tokens.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct InputTokensDetails {
    /// Tokens read from the provider's cache.
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) cached_tokens: u64,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// Details of the answer's tokens.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct OutputTokensDetails {
    /// Tokens of reasoning.
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) reasoning_tokens: u64,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// One event of a streamed answer. Which fields are there depends on `kind`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StreamEvent {
    /// `response.created`, `response.output_text.delta`, …
    #[serde(rename = "type", default)]
    pub(crate) kind: String,
    /// Position in the stream, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sequence_number: Option<u64>,
    /// The answer as it is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) response: Option<ResponseObject>,
    /// Position of the item in the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) output_index: Option<u64>,
    /// Position of the part in the item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) content_index: Option<u64>,
    /// Position of the part in a summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) summary_index: Option<u64>,
    /// Id of the item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) item_id: Option<String>,
    /// The item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) item: Option<Item>,
    /// The part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) part: Option<Part>,
    /// More of a text or of arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) delta: Option<Value>,
    /// The whole text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
    /// The whole refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refusal: Option<String>,
    /// The whole arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) arguments: Option<String>,
    /// Code of an `error` event.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub(crate) code: Option<Value>,
    /// Message of an `error` event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

fn text_or_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    arguments_as_text(deserializer).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn fields_and_items_that_are_not_modelled_pass_through() {
        let body = json!({
            "model": "m",
            "input": [
                {"role": "user", "content": "hi", "x": 1},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a", "annotations": []}]},
                {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "zzz"},
                {"type": "web_search_call", "id": "w", "action": {"query": "q"}},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "y": null},
                {"type": "function_call_output", "call_id": "c", "output": "1"},
            ],
            "tools": [{"type": "web_search"}, {"type": "function", "name": "f", "parameters": {}, "strict": false}],
            "reasoning": {"effort": "low"},
        });
        let request: ResponsesRequest = serde_json::from_value(body.clone()).unwrap();
        assert_eq!(serde_json::to_value(&request).unwrap(), body);
    }

    #[test]
    fn a_known_item_of_the_wrong_form_is_an_error() {
        let result: Result<Item, _> = serde_json::from_value(json!({"type": "function_call", "name": 1}));
        assert!(result.is_err());
    }
}
