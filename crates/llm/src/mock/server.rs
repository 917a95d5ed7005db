//! The script as an OpenAI-compatible server.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, Path, State, rejection::BytesRejection},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response, sse},
    routing::{get, post},
};
use bytes::Bytes;
use futures::{Stream, StreamExt};
use mainstay_telemetry::clock::SharedClock;
use serde_json::{Map, Value, json};

use super::model::MockModel;
use crate::{
    conversion::openai_chat::{finish_to_wire, request_from_wire, usage_to_wire},
    error::{ModelError, ModelErrorKind},
    event::{ModelEvent, ModelStream},
    message::ToolCall,
    model::{Answer, Model, complete},
    types::openai_chat as wire,
};

const BODY_LIMIT: usize = 16 * 1024 * 1024;

// The arguments of a call are sent in pieces, as real servers do, so that clients which cannot join
// them are found out.
const ARGUMENT_PIECE: usize = 16;

#[derive(Debug)]
struct Server {
    model: MockModel,
    clock: SharedClock,
    // Numbers answers; ids need only be distinct.
    answers: AtomicU64,
}

/// Serves `model` as Chat Completions: `/v1/chat/completions`, `/v1/models` and
/// `/v1/models/{model}`. Errors have OpenAI's form. Any key is accepted.
pub fn router(model: MockModel, clock: SharedClock) -> Router {
    let server = Arc::new(Server {
        model,
        clock,
        answers: AtomicU64::new(0),
    });
    Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/v1/models", get(models))
        .route("/v1/models/{model}", get(model_entry))
        .route("/healthz", get(|| async { "ok" }))
        .fallback(|| async {
            refuse(
                StatusCode::NOT_FOUND,
                "invalid_request_error",
                None,
                "there is nothing at this path",
            )
        })
        .method_not_allowed_fallback(|| async {
            refuse(
                StatusCode::METHOD_NOT_ALLOWED,
                "invalid_request_error",
                None,
                "this path does not know this method",
            )
        })
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(server)
}

fn refuse(status: StatusCode, kind: &str, param: Option<&str>, message: impl Into<String>) -> Response {
    let body = wire::ErrorBody {
        error: wire::ErrorObject {
            message: message.into(),
            kind: Some(kind.to_owned()),
            param: param.map(|param| json!(param)),
            code: None,
        },
    };
    (status, Json(body)).into_response()
}

fn error_object(error: &ModelError) -> wire::ErrorObject {
    let kind = match error.kind {
        ModelErrorKind::Unauthorized => "authentication_error",
        ModelErrorKind::RateLimited => "rate_limit_error",
        ModelErrorKind::InvalidRequest | ModelErrorKind::ContextTooLong => "invalid_request_error",
        _ => "server_error",
    };
    wire::ErrorObject {
        message: error.message.clone(),
        kind: Some(kind.to_owned()),
        param: None,
        code: error.status.map(|status| json!(status.to_string())),
    }
}

fn failed(error: &ModelError) -> Response {
    let status = error
        .status
        .and_then(|status| StatusCode::from_u16(status).ok())
        .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = wire::ErrorBody {
        error: error_object(error),
    };
    let mut response = (status, Json(body)).into_response();
    if let Some(wait) = error.retry_after {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs()));
    }
    response
}

async fn chat(State(server): State<Arc<Server>>, body: Result<Bytes, BytesRejection>) -> Response {
    let invalid = |param: Option<&str>, message: String| {
        refuse(StatusCode::BAD_REQUEST, "invalid_request_error", param, message)
    };
    let body = match body {
        Ok(body) => body,
        Err(rejection) => {
            return refuse(
                rejection.status(),
                "invalid_request_error",
                None,
                rejection.body_text(),
            );
        }
    };
    let body: wire::ChatRequest = match serde_json::from_slice(&body) {
        Ok(body) => body,
        Err(error) => return invalid(None, format!("the body is not a chat request: {error}")),
    };
    if body.model.is_empty() {
        return invalid(Some("model"), "`model` is required".to_owned());
    }
    if body.messages.is_empty() {
        return invalid(Some("messages"), "`messages` must not be empty".to_owned());
    }
    let number = server.answers.fetch_add(1, Ordering::Relaxed) + 1;
    let head = Head {
        id: format!("chatcmpl-mock-{number}"),
        created: server.clock.now().as_second(),
        model: body.model.clone(),
        include_usage: body
            .stream_options
            .as_ref()
            .is_some_and(|options| options.include_usage),
    };
    let streamed = body.stream.unwrap_or(false);
    let request = request_from_wire(body);
    if !streamed {
        return match complete(&server.model, request).await {
            Ok(answer) => Json(head.response(answer)).into_response(),
            Err(error) => failed(&error),
        };
    }
    match server.model.stream(request).await {
        Ok(events) => sse::Sse::new(head.chunks(events)).into_response(),
        Err(error) => failed(&error),
    }
}

async fn models(State(server): State<Arc<Server>>) -> Response {
    match names(&server) {
        Ok(names) => Json(wire::ModelList {
            object: "list".to_owned(),
            data: names.into_iter().map(entry).collect(),
        })
        .into_response(),
        Err(error) => failed(&error),
    }
}

async fn model_entry(State(server): State<Arc<Server>>, Path(model): Path<String>) -> Response {
    match names(&server) {
        Ok(names) if names.contains(&model) => Json(entry(model)).into_response(),
        Ok(_) => refuse(
            StatusCode::NOT_FOUND,
            "invalid_request_error",
            Some("model"),
            "there is no model of this name",
        ),
        Err(error) => failed(&error),
    }
}

fn names(server: &Server) -> Result<Vec<String>, ModelError> {
    let scenario = server.model.scenario()?;
    Ok(scenario.map_or_else(|| vec!["mock".to_owned()], |scenario| scenario.models.clone()))
}

fn entry(id: String) -> wire::ModelEntry {
    wire::ModelEntry {
        id,
        object: "model".to_owned(),
        created: 0,
        owned_by: "mainstay".to_owned(),
    }
}

/// What every chunk of one answer repeats.
struct Head {
    id: String,
    created: i64,
    model: String,
    include_usage: bool,
}

impl Head {
    fn response(self, answer: Answer) -> wire::ChatResponse {
        let calls: Vec<wire::ToolCall> = answer
            .tool_calls
            .into_iter()
            .map(|call| wire::ToolCall {
                index: None,
                ..first_fragment(0, call, usize::MAX).0
            })
            .collect();
        wire::ChatResponse {
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
        }
    }

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
        // A chunk is made of texts and numbers only, which always can be written.
        sse::Event::default().data(serde_json::to_string(&chunk).unwrap_or_default())
    }

    fn delta(&self, delta: wire::ChunkDelta, finish_reason: Option<&str>) -> sse::Event {
        let choice = wire::ChunkChoice {
            delta,
            finish_reason: finish_reason.map(str::to_owned),
            ..wire::ChunkChoice::default()
        };
        self.chunk(vec![choice], None)
    }

    /// The answer as server-sent events. An error after the first one is sent as an error event;
    /// one that stands for a broken connection breaks it.
    fn chunks(self, mut events: ModelStream) -> impl Stream<Item = Result<sse::Event, ModelError>> + Send {
        async_stream::stream! {
            let mut index = 0;
            let mut usage = None;
            while let Some(event) = events.next().await {
                match event {
                    Ok(ModelEvent::Started) => {
                        let delta = wire::ChunkDelta {
                            role: Some("assistant".to_owned()),
                            content: Some(wire::Content::Text(String::new())),
                            ..wire::ChunkDelta::default()
                        };
                        yield Ok(self.delta(delta, None));
                    }
                    Ok(ModelEvent::Text(text)) => {
                        let delta = wire::ChunkDelta {
                            content: Some(wire::Content::Text(text)),
                            ..wire::ChunkDelta::default()
                        };
                        yield Ok(self.delta(delta, None));
                    }
                    Ok(ModelEvent::Thinking(text)) => {
                        let delta = wire::ChunkDelta {
                            reasoning_content: Some(text),
                            ..wire::ChunkDelta::default()
                        };
                        yield Ok(self.delta(delta, None));
                    }
                    Ok(ModelEvent::ToolCall(call)) => {
                        for fragment in fragments(index, call) {
                            let delta = wire::ChunkDelta {
                                tool_calls: Some(vec![fragment]),
                                ..wire::ChunkDelta::default()
                            };
                            yield Ok(self.delta(delta, None));
                        }
                        index += 1;
                    }
                    Ok(ModelEvent::Usage(counts)) => usage = Some(counts),
                    Ok(ModelEvent::Finished(finish)) => {
                        yield Ok(self.delta(wire::ChunkDelta::default(), Some(finish_to_wire(finish))));
                    }
                    Err(error) if error.status.is_none() => {
                        yield Err(error);
                        return;
                    }
                    Err(error) => {
                        let body = wire::ErrorBody { error: error_object(&error) };
                        let text = serde_json::to_string(&body).unwrap_or_default();
                        yield Ok(sse::Event::default().data(text));
                        return;
                    }
                }
            }
            if self.include_usage {
                let counts = usage_to_wire(usage.unwrap_or_default());
                yield Ok(self.chunk(Vec::new(), Some(counts)));
            }
            yield Ok(sse::Event::default().data("[DONE]"));
        }
    }
}

/// The first fragment of a call, with at most `limit` bytes of its arguments, and the rest of them.
fn first_fragment(index: u64, mut call: ToolCall, limit: usize) -> (wire::ToolCall, String) {
    let mut cut = limit.min(call.arguments.len());
    while !call.arguments.is_char_boundary(cut) {
        cut += 1;
    }
    let rest = call.arguments.split_off(cut);
    let fragment = wire::ToolCall {
        index: Some(index),
        id: Some(call.id),
        kind: Some("function".to_owned()),
        function: Some(wire::FunctionCall {
            name: Some(call.name),
            arguments: Some(call.arguments),
            ..wire::FunctionCall::default()
        }),
        ..wire::ToolCall::default()
    };
    (fragment, rest)
}

fn fragments(index: u64, call: ToolCall) -> Vec<wire::ToolCall> {
    let (first, mut rest) = first_fragment(index, call, 0);
    let mut fragments = vec![first];
    while !rest.is_empty() {
        let mut cut = ARGUMENT_PIECE.min(rest.len());
        while !rest.is_char_boundary(cut) {
            cut += 1;
        }
        let after = rest.split_off(cut);
        fragments.push(wire::ToolCall {
            index: Some(index),
            function: Some(wire::FunctionCall {
                arguments: Some(std::mem::replace(&mut rest, after)),
                ..wire::FunctionCall::default()
            }),
            ..wire::ToolCall::default()
        });
    }
    fragments
}

#[cfg(test)]
mod tests;
