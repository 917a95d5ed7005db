//! What a model answers, piece by piece (OR-201, OR-202).

use std::pin::Pin;

use futures::Stream;
use serde::{Deserialize, Serialize};

use crate::{
    error::ModelError,
    message::{SignedThought, ToolCall},
};

/// The answer of one call. Dropping it ends the request.
///
/// A successful stream is `Started`, then any number of `Text`, `Thinking`, `Thought` and `ToolCall`, then at
/// most one `Usage`, then exactly one `Finished`. A failed one ends with an `Err` in place of the
/// rest; nothing follows an `Err`.
pub type ModelStream = Pin<Box<dyn Stream<Item = Result<ModelEvent, ModelError>> + Send>>;

/// One piece of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelEvent {
    /// The provider accepted the request and the answer has begun.
    Started,
    /// Text for the person, to be appended.
    Text(String),
    /// The model's reasoning, to be appended; never part of the answer's text.
    Thinking(String),
    /// A piece of reasoning that is complete and goes back to the provider with the calls it led to. Its text
    /// came as [`ModelEvent::Thinking`] before.
    Thought(SignedThought),
    /// A complete call; fragments are joined before they get here.
    ToolCall(ToolCall),
    /// Token counts of this call.
    Usage(Usage),
    /// The answer is complete.
    Finished(FinishReason),
}

/// Token counts of one call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    /// Tokens of the prompt, cached ones included.
    pub input_tokens: u64,
    /// Tokens of the answer.
    pub output_tokens: u64,
    /// Those of `input_tokens` that the provider had cached.
    pub cached_tokens: u64,
}

/// Why an answer ended, normalised over providers (OR-202).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The model said all it wanted to.
    Completed,
    /// The model waits for the results of its calls.
    ToolCalls,
    /// Cut off by a length limit.
    Incomplete,
    /// Withheld by a filter or refused by the model.
    Refused,
    /// The provider gave up on its side.
    Failed,
    /// A reason this program does not know.
    Unknown,
}

impl FinishReason {
    /// The normal form of a provider's word (OR-202). No word at all counts as `stop`: several
    /// servers leave it out (D10).
    pub fn normalise(word: Option<&str>, has_tool_calls: bool) -> Self {
        match word.unwrap_or("").trim() {
            "" | "stop" | "end_turn" | "stop_sequence" | "completed" | "response.completed" => {
                if has_tool_calls {
                    Self::ToolCalls
                } else {
                    Self::Completed
                }
            }
            "tool_use" | "tool_calls" | "function_call" => {
                if has_tool_calls {
                    Self::ToolCalls
                } else {
                    Self::Unknown
                }
            }
            "length" | "max_tokens" | "incomplete" | "response.incomplete" | "pause_turn" => Self::Incomplete,
            "content_filter" | "refusal" | "refused" => Self::Refused,
            "failed" | "cancelled" | "canceled" | "response.failed" | "response.cancelled"
            | "response.canceled" => Self::Failed,
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finish_words_are_normalised_or_202() {
        for (word, calls, expected) in [
            (Some("stop"), false, FinishReason::Completed),
            (Some("stop"), true, FinishReason::ToolCalls),
            (None, true, FinishReason::ToolCalls),
            (Some(""), false, FinishReason::Completed),
            (Some("tool_calls"), true, FinishReason::ToolCalls),
            (Some("tool_calls"), false, FinishReason::Unknown),
            (Some("length"), false, FinishReason::Incomplete),
            (Some("content_filter"), false, FinishReason::Refused),
            (Some("response.cancelled"), false, FinishReason::Failed),
            (Some("surprise"), false, FinishReason::Unknown),
        ] {
            assert_eq!(FinishReason::normalise(word, calls), expected, "{word:?}");
        }
    }
}
