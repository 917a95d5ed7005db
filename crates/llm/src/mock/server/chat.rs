//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::{
    extract::{State, rejection::BytesRejection},
    http::StatusCode,
    response::{Response, sse},
};
use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::{Form, Server, error_object, failed, pieces, read_body, refuse, respond, text_of};
use crate::{
    conversion::openai_chat::{finish_to_wire, request_from_wire, usage_to_wire},
    error::ModelError,
    event::{ModelEvent, Usage},
    message::ToolCall,
    model::Answer,
    types::openai_chat as wire,
};

pub(super) async fn create(
    State(server): State<Arc<Server>>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let invalid =
        |status, param: Option<&str>, message: &str| refuse(status, "invalid_request_error", param, message);
    let body: wire::ChatRequest = match read_body(body, "chat request") {
        Ok(body) => body,
        Err((status, message)) => return invalid(status, None, &message),
    };
    if body.model.is_empty() {
        return invalid(StatusCode::BAD_REQUEST, Some("model"), "`model` is required");
    }
    if body.messages.is_empty() {
        return invalid(
            StatusCode::BAD_REQUEST,
            Some("messages"),
            "`messages` must not be empty",
        );
    }
    let options = body.stream_options.as_ref();
    let form = Chat {
        id: format!("chatcmpl-mock-{}", server.next_answer()),
        created: server.clock.now().as_second(),
        model: body.model.clone(),
        include_usage: options.is_some_and(|options| options.include_usage),
        calls: 0,
        usage: None,
    };
    let streamed = body.stream.unwrap_or(false);
    respond(&server, request_from_wire(body), streamed, form).await
}

/// One answer.
struct Chat {
    id: String,
    created: i64,
    model: String,
    include_usage: bool,
    calls: u64,
    usage: Option<Usage>,
}

impl Chat {
    fn chunk(&self, choices: Vec<wire::ChunkChoice>, usage: Option<wire::Usage>) -> sse::Event {
        let mut extra = Map::new();
        if self.include_usage && usage.is_none() {
            // The published protocol has an explicit null in every chunk but the last.
            extra.insert("usage".to_owned(), Value::Null);
        }
        let chunk = wire::ChatChunk {
            id: self.id.clone(),
            object: "chat.completion.chunk".to_owned(),
            created: self.created,
            model: self.model.clone(),
            choices,
            usage,
            extra,
        };
        sse::Event::default().data(text_of(&chunk))
    }

    fn delta(&self, delta: wire::ChunkDelta, finish_reason: Option<&str>) -> sse::Event {
        let choice = wire::ChunkChoice {
            delta,
            finish_reason: finish_reason.map(str::to_owned),
            ..wire::ChunkChoice::default()
        };
        self.chunk(vec![choice], None)
    }
}

impl Form for Chat {
    fn plain(self, answer: Answer) -> Value {
        let calls: Vec<wire::ToolCall> = answer.tool_calls.into_iter().map(whole_call).collect();
        json!(wire::ChatResponse {
            id: self.id,
            object: "chat.completion".to_owned(),
            created: self.created,
            model: self.model,
            choices: vec![wire::Choice {
                index: 0,
                message: wire::ChatMessage {
                    role: "assistant".to_owned(),
                    content: (!answer.text.is_empty() || calls.is_empty())
                        .then_some(wire::Content::Text(answer.text)),
                    tool_calls: (!calls.is_empty()).then_some(calls),
                    reasoning_content: (!answer.thinking.is_empty()).then_some(answer.thinking),
                    ..wire::ChatMessage::default()
                },
                finish_reason: Some(finish_to_wire(answer.finish).to_owned()),
                extra: Map::from_iter([("logprobs".to_owned(), Value::Null)]),
            }],
            usage: answer.usage.map(usage_to_wire),
            extra: Map::new(),
        })
    }

    fn failed(error: &ModelError) -> Response {
        failed(error)
    }

    fn event(&mut self, event: ModelEvent, out: &mut Vec<sse::Event>) {
        let text = |text: String| Some(wire::Content::Text(text));
        match event {
            ModelEvent::Started => out.push(self.delta(
                wire::ChunkDelta {
                    role: Some("assistant".to_owned()),
                    content: text(String::new()),
                    ..wire::ChunkDelta::default()
                },
                None,
            )),
            ModelEvent::Text(piece) => out.push(self.delta(
                wire::ChunkDelta {
                    content: text(piece),
                    ..wire::ChunkDelta::default()
                },
                None,
            )),
            ModelEvent::Thinking(piece) => out.push(self.delta(
                wire::ChunkDelta {
                    reasoning_content: Some(piece),
                    ..wire::ChunkDelta::default()
                },
                None,
            )),
            // The format has no place for signed reasoning.
            ModelEvent::Thought(_) => {}
            ModelEvent::ToolCall(call) => {
                let index = self.calls;
                self.calls += 1;
                for fragment in fragments(index, call) {
                    out.push(self.delta(
                        wire::ChunkDelta {
                            tool_calls: Some(vec![fragment]),
                            ..wire::ChunkDelta::default()
                        },
                        None,
                    ));
                }
            }
            ModelEvent::Usage(counts) => self.usage = Some(counts),
            ModelEvent::Finished(finish) => {
                out.push(self.delta(wire::ChunkDelta::default(), Some(finish_to_wire(finish))));
            }
        }
    }

    fn end(&mut self, out: &mut Vec<sse::Event>) {
        if self.include_usage {
            let counts = usage_to_wire(self.usage.unwrap_or_default());
            out.push(self.chunk(Vec::new(), Some(counts)));
        }
        out.push(sse::Event::default().data("[DONE]"));
    }

    fn error(&mut self, error: &ModelError, out: &mut Vec<sse::Event>) {
        let body = wire::ErrorBody {
            error: error_object(error),
        };
        out.push(sse::Event::default().data(text_of(&body)));
    }
}

fn whole_call(call: ToolCall) -> wire::ToolCall {
    wire::ToolCall {
        id: Some(call.id),
        kind: Some("function".to_owned()),
        function: Some(wire::FunctionCall {
            name: Some(call.name),
            arguments: Some(call.arguments),
            ..wire::FunctionCall::default()
        }),
        ..wire::ToolCall::default()
    }
}

fn fragments(index: u64, call: ToolCall) -> Vec<wire::ToolCall> {
    let rest = pieces(&call.arguments);
    let first = wire::ToolCall {
        index: Some(index),
        ..whole_call(ToolCall {
            arguments: String::new(),
            ..call
        })
    };
    let rest = rest.into_iter().map(|piece| wire::ToolCall {
        index: Some(index),
        function: Some(wire::FunctionCall {
            arguments: Some(piece),
            ..wire::FunctionCall::default()
        }),
        ..wire::ToolCall::default()
    });
    std::iter::once(first).chain(rest).collect()
}
