//! The script as a server that speaks the formats of OpenAI and Anthropic.

mod chat;
mod messages;
mod responses;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use axum::{
    Json, Router,
    body::Body,
    extract::{DefaultBodyLimit, Path, State, rejection::BytesRejection},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response, sse},
    routing::{get, post},
};
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use mainstay_telemetry::clock::SharedClock;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::model::MockModel;
use crate::{
    error::{ModelError, ModelErrorKind},
    event::{ModelEvent, ModelStream},
    model::{Answer, Model, complete},
    request::Request,
    types::openai_chat as wire,
};

const BODY_LIMIT: usize = 16 * 1024 * 1024;

// The arguments of a call are sent in pieces, as real servers do, so that clients which cannot join
// them are found out.
const ARGUMENT_PIECE: usize = 16;

/// What stands in a stream where a scenario asks for a chunk that cannot be read.
const MALFORMED: &str = "{\"malformed\": ";

#[derive(Debug)]
struct Server {
    model: MockModel,
    clock: SharedClock,
    // Numbers answers; ids need only be distinct.
    answers: AtomicU64,
}

impl Server {
    fn next_answer(&self) -> u64 {
        self.answers.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Serves `model` in three formats: Chat Completions (`/v1/chat/completions`), Responses
/// (`/v1/responses`) and Messages (`/v1/messages`, `/v1/messages/count_tokens`), with `/v1/models` and
/// `/v1/models/{model}` for the clients of all of them. Errors have the form of the format. Any key is
/// accepted.
pub fn router(model: MockModel, clock: SharedClock) -> Router {
    let server = Arc::new(Server {
        model,
        clock,
        answers: AtomicU64::new(0),
    });
    Router::new()
        .route("/v1/chat/completions", post(chat::create))
        .route("/v1/responses", post(responses::create))
        .route("/v1/messages", post(messages::create))
        .route("/v1/messages/count_tokens", post(messages::count_tokens))
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

/// How one answer is written in one format.
trait Form: Send + Sized + 'static {
    /// The body of an answer that is not streamed.
    fn plain(self, answer: Answer) -> Value;
    /// A failure before the answer.
    fn failed(error: &ModelError) -> Response;
    /// The next event of a streamed answer.
    fn event(&mut self, event: ModelEvent, out: &mut Vec<sse::Event>);
    /// What follows the last event.
    fn end(&mut self, out: &mut Vec<sse::Event>);
    /// An error inside a streamed answer, which ends it.
    fn error(&mut self, error: &ModelError, out: &mut Vec<sse::Event>);
}

/// Plays the answer to `request` in `form`.
async fn respond<F: Form>(server: &Server, request: Request, streamed: bool, form: F) -> Response {
    if !streamed {
        return match complete(&server.model, request).await {
            Ok(answer) => Json(form.plain(answer)).into_response(),
            Err(error) => refusal::<F>(&error, "application/json"),
        };
    }
    match server.model.stream(request).await {
        Ok(events) => sse::Sse::new(write(form, events)).into_response(),
        Err(error) => refusal::<F>(&error, "text/event-stream"),
    }
}

/// An error before the answer, as a scenario may ask for it: as HTTP error, as a body that cannot be
/// read, or as a connection that breaks.
fn refusal<F: Form>(error: &ModelError, content_type: &'static str) -> Response {
    let body = match error.kind {
        ModelErrorKind::Network => {
            let broken = stream::iter([Err::<Bytes, ModelError>(error.clone())]);
            Body::from_stream(broken)
        }
        ModelErrorKind::Protocol => Body::from(MALFORMED),
        _ => {
            let mut response = F::failed(error);
            if let Some(wait) = error.retry_after {
                response
                    .headers_mut()
                    .insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs()));
            }
            return response;
        }
    };
    ([(header::CONTENT_TYPE, content_type)], body).into_response()
}

/// The answer as server-sent events. An error is sent as an error event, as a chunk that cannot be
/// read, or breaks the connection.
fn write<F: Form>(
    mut form: F,
    mut events: ModelStream,
) -> impl Stream<Item = Result<sse::Event, ModelError>> + Send {
    async_stream::stream! {
        let mut out = Vec::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => form.event(event, &mut out),
                Err(error) => {
                    match error.kind {
                        ModelErrorKind::Network => {
                            // The connection hands on what it has while it waits; what it has not
                            // handed on is lost with it.
                            tokio::task::yield_now().await;
                            yield Err(error);
                        }
                        ModelErrorKind::Protocol => yield Ok(sse::Event::default().data(MALFORMED)),
                        _ => form.error(&error, &mut out),
                    }
                    for event in out {
                        yield Ok(event);
                    }
                    return;
                }
            }
            for event in out.drain(..) {
                yield Ok(event);
            }
        }
        form.end(&mut out);
        for event in out {
            yield Ok(event);
        }
    }
}

/// The JSON text of a value that is made of texts, numbers and lists, which always can be written.
fn text_of(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// The body as a request of one format, or the status and message of what is wrong with it.
fn read_body<T: DeserializeOwned>(
    body: Result<Bytes, BytesRejection>,
    what: &str,
) -> Result<T, (StatusCode, String)> {
    let body = body.map_err(|rejection| (rejection.status(), rejection.body_text()))?;
    serde_json::from_slice(&body).map_err(|error| {
        (
            StatusCode::BAD_REQUEST,
            format!("the body is not a {what}: {error}"),
        )
    })
}

/// Splits the text of arguments as it is streamed.
fn pieces(text: &str) -> Vec<String> {
    let letters: Vec<char> = text.chars().collect();
    letters
        .chunks(ARGUMENT_PIECE)
        .map(|letters| letters.iter().collect())
        .collect()
}

/// An error in OpenAI's form.
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
    let code = error.code.clone().map(Value::String);
    wire::ErrorObject {
        message: error.message.clone(),
        kind: Some(kind.to_owned()),
        param: None,
        code: code.or_else(|| error.status.map(|status| json!(status.to_string()))),
    }
}

fn status_of(error: &ModelError) -> StatusCode {
    error
        .status
        .and_then(|status| StatusCode::from_u16(status).ok())
        .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

fn failed(error: &ModelError) -> Response {
    let body = wire::ErrorBody {
        error: error_object(error),
    };
    (status_of(error), Json(body)).into_response()
}

/// Whether the client speaks Anthropic's formats: `/v1/models` is a path of both.
fn is_anthropic(headers: &HeaderMap) -> bool {
    headers.contains_key("anthropic-version")
}

async fn models(State(server): State<Arc<Server>>, headers: HeaderMap) -> Response {
    match names(&server) {
        Ok(names) if is_anthropic(&headers) => messages::model_list(names),
        Ok(names) => Json(wire::ModelList {
            object: "list".to_owned(),
            data: names.into_iter().map(entry).collect(),
        })
        .into_response(),
        Err(error) => failed(&error),
    }
}

async fn model_entry(
    State(server): State<Arc<Server>>,
    Path(model): Path<String>,
    headers: HeaderMap,
) -> Response {
    const ABSENT: &str = "there is no model of this name";
    match names(&server) {
        Ok(names) => match (names.contains(&model), is_anthropic(&headers)) {
            (true, true) => Json(messages::model_entry(model)).into_response(),
            (true, false) => Json(entry(model)).into_response(),
            (false, true) => messages::refuse(StatusCode::NOT_FOUND, ABSENT),
            (false, false) => refuse(
                StatusCode::NOT_FOUND,
                "invalid_request_error",
                Some("model"),
                ABSENT,
            ),
        },
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

#[cfg(test)]
mod tests;
