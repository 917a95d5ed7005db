//! From the session's events to the frames of a client that knows only OM D.2.

use mainstay_agent::event::{Event, Payload};
use serde_json::json;

use super::frame::{ErrorBody, ErrorCode, ServerFrame, ToolCall};

/// What a client has been told of the running turn.
#[derive(Debug, Default)]
pub(super) struct Presenter {
    /// Attempt whose text is being sent, and how many bytes of it were.
    sent: Option<(String, u32, usize)>,
    /// The answer, until `turn.done` says that it is one.
    answer: String,
}

impl Presenter {
    /// The frames for one event, in order.
    pub(super) fn frames(&mut self, event: &Event) -> Vec<ServerFrame> {
        let Some(payload) = event.payload() else {
            return Vec::new();
        };
        let turn = event.turn.clone().unwrap_or_default();
        match payload {
            Payload::ModelDelta(delta) => {
                let end = delta.offset as usize + delta.text.len();
                self.sent = Some((turn, delta.attempt, end));
                vec![ServerFrame::Chunk { content: delta.text }]
            }
            // A client that fell behind, or joined between the last piece and the end, gets the rest at once.
            Payload::ModelDone(done) => {
                let known = match self.sent.take() {
                    Some((sent, attempt, length)) if sent == turn && attempt == done.attempt => length,
                    _ => 0,
                };
                match done.text.get(known..) {
                    Some(rest) if !rest.is_empty() => vec![ServerFrame::Chunk {
                        content: rest.to_owned(),
                    }],
                    _ => Vec::new(),
                }
            }
            Payload::Message(message) if message.role == "assistant" => {
                self.answer = message.content;
                Vec::new()
            }
            Payload::TurnDone(_) => vec![ServerFrame::Done {
                content: std::mem::take(&mut self.answer),
            }],
            Payload::TurnFailed(failed) => {
                let mut details = json!({"reason": failed.reason, "turn": turn});
                if let Some(hint) = failed.hint {
                    details["hint"] = json!(hint);
                }
                vec![ServerFrame::Error {
                    error: ErrorBody {
                        code: code_of(&failed.reason),
                        message: failed.message,
                        details: Some(details),
                    },
                }]
            }
            Payload::TurnCancelled(cancelled) => vec![ServerFrame::Error {
                error: ErrorBody {
                    code: ErrorCode::InternalError,
                    message: format!("the turn was cancelled ({})", cancelled.reason),
                    details: Some(json!({"reason": "TurnCancelled", "turn": turn})),
                },
            }],
            Payload::ClientToolRequested(request) => vec![ServerFrame::ToolCall {
                tool_call: ToolCall {
                    id: request.call_id,
                    name: request.tool,
                    arguments: request.arguments,
                    consent_message: request.consent_message,
                    categories: request.categories,
                },
            }],
            _ => Vec::new(),
        }
    }
}

/// Provider failures are `INTERNAL_ERROR`; what the client can correct is its own message (OM-525).
fn code_of(reason: &str) -> ErrorCode {
    match reason {
        "PromptVariableMissing" | "PromptVariableInvalid" => ErrorCode::InvalidMessage,
        _ => ErrorCode::InternalError,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::Value;

    use super::*;

    fn event(kind: &str, data: Value) -> Event {
        Event {
            seq: Some(1),
            session: "s".to_owned(),
            turn: Some("t".to_owned()),
            time: jiff::Timestamp::UNIX_EPOCH,
            kind: kind.to_owned(),
            data,
        }
    }

    fn done(text: &str) -> Event {
        event(
            "model.done",
            json!({"attempt": 1, "round": 1, "text": text, "finish": "completed"}),
        )
    }

    #[test]
    fn om_514_what_was_not_sent_as_pieces_is_sent_when_the_attempt_ends() {
        let mut presenter = Presenter::default();
        let delta = event("model.delta", json!({"attempt": 1, "offset": 0, "text": "Hä"}));
        assert_eq!(
            presenter.frames(&delta),
            [ServerFrame::Chunk {
                content: "Hä".to_owned()
            }]
        );
        assert_eq!(
            presenter.frames(&done("Hällo")),
            [ServerFrame::Chunk {
                content: "llo".to_owned()
            }]
        );
        assert_eq!(
            presenter.frames(&done("Other")),
            [ServerFrame::Chunk {
                content: "Other".to_owned()
            }]
        );
        assert_eq!(presenter.frames(&event("weather", json!({}))), []);
    }

    #[test]
    fn om_518_a_failure_without_a_hint_has_none_rather_than_null() {
        let failed = event("turn.failed", json!({"reason": "r", "message": "m"}));
        let frames = serde_json::to_value(Presenter::default().frames(&failed)).unwrap();
        assert_eq!(frames[0]["error"]["details"], json!({"reason": "r", "turn": "t"}));
    }

    #[test]
    fn om_525_a_failure_carries_its_reason_and_only_the_clients_own_fault_is_invalid() {
        for (reason, code) in [
            ("PromptVariableMissing", "INVALID_MESSAGE"),
            ("ModelServerError", "INTERNAL_ERROR"),
        ] {
            let failed = event(
                "turn.failed",
                json!({"reason": reason, "message": "m", "hint": "h"}),
            );
            let frames = serde_json::to_value(Presenter::default().frames(&failed)).unwrap();
            assert_eq!(frames[0]["error"]["code"], code);
            assert_eq!(
                frames[0]["error"]["details"],
                json!({"reason": reason, "hint": "h", "turn": "t"})
            );
        }
    }
}
