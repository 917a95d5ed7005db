//! `POST /v1/messages` and `/v1/messages/count_tokens`.

use std::sync::Arc;

use axum::{
    Json,
    extract::{State, rejection::BytesRejection},
    http::StatusCode,
    response::{IntoResponse, Response, sse},
};
use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::{Form, Server, pieces, read_body, respond, status_of, text_of};
use crate::{
    conversion::anthropic_messages::{finish_to_wire, request_from_wire, usage_to_wire},
    error::ModelError,
    event::{FinishReason, ModelEvent, Usage},
    message::ToolCall,
    mock::script,
    model::Answer,
    types::anthropic_messages as wire,
};

// Thoughts are signed by the provider; clients pass the signature on unread.
const SIGNATURE: &str = "bWFpbnN0YXkgbW9jaw==";

pub(super) async fn create(
    State(server): State<Arc<Server>>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let body: wire::MessagesRequest = match read_body(body, "messages request") {
        Ok(body) => body,
        Err((status, message)) => return refuse(status, &message),
    };
    let missing = [
        ("model", body.model.is_empty()),
        ("max_tokens", body.max_tokens.is_none()),
        ("messages", body.messages.is_empty()),
    ];
    if let Some((field, _)) = missing.into_iter().find(|(_, missing)| *missing) {
        return refuse(StatusCode::BAD_REQUEST, &format!("{field}: Field required"));
    }
    if let Some(place) = foreign_thought(&body.messages) {
        return refuse(
            StatusCode::BAD_REQUEST,
            &format!("{place}: Invalid `signature` in `thinking` block"),
        );
    }
    let id = format!("msg_mock_{}", server.next_answer());
    let model = body.model.clone();
    let streamed = body.stream.unwrap_or(false);
    let request = request_from_wire(body);
    let form = Messages {
        id,
        model,
        input: Usage {
            output_tokens: 0,
            ..server.model.usage(&request)
        },
        blocks: 0,
        open: None,
        usage: Usage::default(),
    };
    respond(&server, request, streamed, form).await
}

/// The first block of reasoning in the conversation that this server did not sign: the format's own server
/// refuses a conversation whose reasoning was changed.
fn foreign_thought(messages: &[wire::InputMessage]) -> Option<String> {
    messages.iter().enumerate().find_map(|(at, message)| {
        let wire::Content::Blocks(blocks) = &message.content else {
            return None;
        };
        let foreign = blocks.iter().position(|block| match block {
            wire::Block::Thinking(block) => block.signature.as_deref() != Some(SIGNATURE),
            _ => false,
        })?;
        Some(format!("messages.{at}.content.{foreign}"))
    })
}

pub(super) async fn count_tokens(body: Result<Bytes, BytesRejection>) -> Response {
    let body: wire::MessagesRequest = match read_body(body, "count_tokens request") {
        Ok(body) => body,
        Err((status, message)) => return refuse(status, &message),
    };
    Json(wire::TokenCount {
        input_tokens: script::count_input(&request_from_wire(body)),
    })
    .into_response()
}

/// An error in Anthropic's form.
pub(super) fn refuse(status: StatusCode, message: &str) -> Response {
    (status, Json(error_body(status, message))).into_response()
}

fn error_body(status: StatusCode, message: &str) -> wire::ErrorBody {
    let kind = match status.as_u16() {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        400..=499 => "invalid_request_error",
        504 => "timeout_error",
        _ => "api_error",
    };
    wire::ErrorBody {
        kind: "error".to_owned(),
        error: wire::ErrorObject {
            kind: kind.to_owned(),
            message: message.to_owned(),
        },
        request_id: None,
    }
}

pub(super) fn model_entry(id: String) -> Value {
    json!({"type": "model", "display_name": id, "id": id, "created_at": "1970-01-01T00:00:00Z"})
}

pub(super) fn model_list(names: Vec<String>) -> Response {
    let (first, last) = (names.first().cloned(), names.last().cloned());
    let data: Vec<Value> = names.into_iter().map(model_entry).collect();
    Json(json!({"data": data, "has_more": false, "first_id": first, "last_id": last})).into_response()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    Text,
    Thinking,
}

/// One answer.
struct Messages {
    id: String,
    model: String,
    // Counts of the request, which are sent before the answer.
    input: Usage,
    blocks: u64,
    open: Option<Open>,
    usage: Usage,
}

impl Messages {
    fn send(event: &wire::StreamEvent, out: &mut Vec<sse::Event>) {
        out.push(sse::Event::default().event(&event.kind).data(text_of(event)));
    }

    fn message(
        &self,
        content: Vec<wire::Block>,
        stop_reason: Option<&str>,
        usage: Usage,
    ) -> wire::MessageObject {
        wire::MessageObject {
            id: self.id.clone(),
            kind: "message".to_owned(),
            role: "assistant".to_owned(),
            model: self.model.clone(),
            content,
            stop_reason: stop_reason.map(str::to_owned),
            stop_sequence: None,
            usage: usage_to_wire(usage),
            extra: Map::new(),
        }
    }

    fn start(&mut self, block: wire::Block, out: &mut Vec<sse::Event>) {
        let event = wire::StreamEvent {
            kind: "content_block_start".to_owned(),
            index: Some(self.blocks),
            content_block: Some(block),
            ..wire::StreamEvent::default()
        };
        Self::send(&event, out);
    }

    fn delta(&mut self, kind: &str, delta: wire::Delta, out: &mut Vec<sse::Event>) {
        let event = wire::StreamEvent {
            kind: "content_block_delta".to_owned(),
            index: Some(self.blocks),
            delta: Some(wire::Delta {
                kind: Some(kind.to_owned()),
                ..delta
            }),
            ..wire::StreamEvent::default()
        };
        Self::send(&event, out);
    }

    fn stop(&mut self, out: &mut Vec<sse::Event>) {
        let event = wire::StreamEvent {
            kind: "content_block_stop".to_owned(),
            index: Some(self.blocks),
            ..wire::StreamEvent::default()
        };
        Self::send(&event, out);
        self.blocks += 1;
    }

    fn close(&mut self, out: &mut Vec<sse::Event>) {
        match self.open.take() {
            Some(Open::Thinking) => {
                let delta = wire::Delta {
                    signature: Some(SIGNATURE.to_owned()),
                    ..wire::Delta::default()
                };
                self.delta("signature_delta", delta, out);
                self.stop(out);
            }
            Some(Open::Text) => self.stop(out),
            None => {}
        }
    }

    fn open(&mut self, wanted: Open, out: &mut Vec<sse::Event>) {
        if self.open == Some(wanted) {
            return;
        }
        self.close(out);
        let block = match wanted {
            Open::Text => wire::Block::text(""),
            Open::Thinking => thinking(String::new(), ""),
        };
        self.start(block, out);
        self.open = Some(wanted);
    }
}

fn thinking(text: String, signature: &str) -> wire::Block {
    wire::Block::Thinking(wire::ThinkingBlock {
        kind: "thinking".to_owned(),
        thinking: text,
        signature: Some(signature.to_owned()),
        extra: Map::new(),
    })
}

fn tool_use(call: ToolCall, input: Value) -> wire::Block {
    wire::Block::ToolUse(wire::ToolUseBlock {
        kind: "tool_use".to_owned(),
        id: call.id,
        name: call.name,
        input,
        extra: Map::new(),
    })
}

impl Form for Messages {
    fn plain(self, answer: Answer) -> Value {
        let mut content = Vec::new();
        if !answer.thinking.is_empty() {
            content.push(thinking(answer.thinking, SIGNATURE));
        }
        if !answer.text.is_empty() {
            content.push(wire::Block::text(answer.text));
        }
        content.extend(answer.tool_calls.into_iter().map(|call| {
            let input = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
            tool_use(call, input)
        }));
        let usage = answer.usage.unwrap_or(self.input);
        json!(self.message(content, Some(finish_to_wire(answer.finish)), usage))
    }

    fn failed(error: &ModelError) -> Response {
        refuse(status_of(error), &error.message)
    }

    fn event(&mut self, event: ModelEvent, out: &mut Vec<sse::Event>) {
        match event {
            ModelEvent::Started => {
                let start = wire::StreamEvent {
                    kind: "message_start".to_owned(),
                    message: Some(self.message(Vec::new(), None, self.input)),
                    ..wire::StreamEvent::default()
                };
                Self::send(&start, out);
                out.push(sse::Event::default().event("ping").data("{\"type\": \"ping\"}"));
            }
            ModelEvent::Text(text) => {
                self.open(Open::Text, out);
                let delta = wire::Delta {
                    text: Some(text),
                    ..wire::Delta::default()
                };
                self.delta("text_delta", delta, out);
            }
            ModelEvent::Thinking(text) => {
                self.open(Open::Thinking, out);
                let delta = wire::Delta {
                    thinking: Some(text),
                    ..wire::Delta::default()
                };
                self.delta("thinking_delta", delta, out);
            }
            // Signed where its block is closed.
            ModelEvent::Thought(_) => {}
            ModelEvent::ToolCall(call) => {
                self.close(out);
                // A call without arguments is streamed as empty text (D11), any other in pieces.
                let mut parts = vec![String::new()];
                if call.arguments != "{}" {
                    parts.extend(pieces(&call.arguments));
                }
                self.start(tool_use(call, json!({})), out);
                for part in parts {
                    let delta = wire::Delta {
                        partial_json: Some(part),
                        ..wire::Delta::default()
                    };
                    self.delta("input_json_delta", delta, out);
                }
                self.stop(out);
            }
            ModelEvent::Usage(usage) => self.usage = usage,
            ModelEvent::Finished(finish) => {
                self.close(out);
                let delta = wire::StreamEvent {
                    kind: "message_delta".to_owned(),
                    delta: Some(ended(finish)),
                    usage: Some(usage_to_wire(self.usage)),
                    ..wire::StreamEvent::default()
                };
                Self::send(&delta, out);
            }
        }
    }

    fn end(&mut self, out: &mut Vec<sse::Event>) {
        let stop = wire::StreamEvent {
            kind: "message_stop".to_owned(),
            ..wire::StreamEvent::default()
        };
        Self::send(&stop, out);
    }

    fn error(&mut self, error: &ModelError, out: &mut Vec<sse::Event>) {
        let body = error_body(status_of(error), &error.message);
        out.push(sse::Event::default().event("error").data(text_of(&body)));
    }
}

fn ended(finish: FinishReason) -> wire::Delta {
    wire::Delta {
        stop_reason: Some(finish_to_wire(finish).to_owned()),
        extra: Map::from_iter([("stop_sequence".to_owned(), Value::Null)]),
        ..wire::Delta::default()
    }
}
