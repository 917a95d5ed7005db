//! The library's HTTP client trait over the workload's connector.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt, stream::BoxStream};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use rmcp::{
    ErrorData,
    model::{ClientJsonRpcMessage, ClientRequest, GetExtensions, ServerJsonRpcMessage, ServerResult},
    transport::streamable_http_client::{
        StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse, StreamableHttpResponseLimits,
    },
};
use serde_json::Value;
use sse_stream::Sse;
use tokio_util::sync::CancellationToken;

use super::{CallState, MESSAGE_LIMIT, McpFailure, REQUEST_DEADLINE, Server, events, server::Carried};
use crate::{http::ERROR_BODY_BYTES, invocation::FailureReason, transport::Opened};

/// How long a server may think about `server/discover`. One of the older era may not answer at all.
const DISCOVER_DEADLINE: Duration = Duration::from_secs(5);

/// How long a server may take to open the stream of its own messages: some send no header before the
/// first of them. Nothing waits for it.
const STREAM_DEADLINE: Duration = Duration::from_secs(300);

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The statuses with which servers of the older era refuse a session that they do not know (D5).
const UNKNOWN_SESSION: [StatusCode; 3] = [
    StatusCode::NOT_FOUND,
    StatusCode::BAD_REQUEST,
    StatusCode::SERVICE_UNAVAILABLE,
];

type StreamError = StreamableHttpError<McpFailure>;
type LibraryEvents = BoxStream<'static, Result<Sse, sse_stream::Error>>;

/// Sends one session's requests. Clones are the same session's.
#[derive(Clone)]
pub(super) struct SessionClient {
    shared: Arc<Shared>,
}

struct Shared {
    server: Arc<Server>,
    lost: CancellationToken,
    had_stream: AtomicBool,
    // A std mutex: held to note and to read, never across an await.
    last_failure: Mutex<Option<McpFailure>>,
}

impl fmt::Debug for SessionClient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SessionClient")
            .field("handler", &self.shared.server.handler.name)
            .finish_non_exhaustive()
    }
}

impl SessionClient {
    /// A client whose `lost` is cancelled once the session is known to be gone.
    pub(super) fn new(server: Arc<Server>, lost: CancellationToken) -> Self {
        Self {
            shared: Arc::new(Shared {
                server,
                lost,
                had_stream: AtomicBool::new(false),
                last_failure: Mutex::new(None),
            }),
        }
    }

    pub(super) fn server(&self) -> &Arc<Server> {
        &self.shared.server
    }

    pub(super) fn lose(&self) {
        self.shared.lost.cancel();
    }

    /// Why the last request failed.
    pub(super) fn last_failure(&self) -> Option<McpFailure> {
        self.failure_slot().clone()
    }

    fn failure_slot(&self) -> std::sync::MutexGuard<'_, Option<McpFailure>> {
        self.shared
            .last_failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes why a request failed where whoever made it will look.
    pub(super) fn note(&self, call: Option<&Arc<CallState>>, failure: McpFailure) -> McpFailure {
        if let Some(call) = call {
            call.note_failure(failure.clone());
        }
        *self.failure_slot() = Some(failure.clone());
        failure
    }

    async fn post(
        &self,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        protocol: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, McpFailure> {
        let call = call_state(&message);
        let sent = self.exchange(&message, call.as_ref(), session, protocol).await;
        sent.map_err(|failure| self.note(call.as_ref(), failure))
    }

    async fn exchange(
        &self,
        message: &ClientJsonRpcMessage,
        call: Option<&Arc<CallState>>,
        session: Option<Arc<str>>,
        protocol: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, McpFailure> {
        let server = self.server();
        let body = serde_json::to_vec(message)
            .map_err(|error| McpFailure::lasting(FailureReason::RequestInvalid, error.to_string()))?;
        let mut carried = server.carried(call.map(AsRef::as_ref)).await?;
        let headers = &mut carried.headers;
        let has_session = session.is_some();
        frame(headers, "application/json, text/event-stream", session.as_deref())?;
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.extend(protocol);
        let deadline = match call {
            Some(call) => call.deadline,
            None if is_discover(message) => DISCOVER_DEADLINE,
            None => REQUEST_DEADLINE,
        };
        if let Some(call) = call {
            call.count_request();
        }
        let url = server.url().clone();
        let opened = server.send(
            Method::POST,
            url,
            carried.headers.clone(),
            Some(Bytes::from(body)),
            deadline,
        );
        let opened = match opened.await {
            // One of the older era may leave what it does not know without an answer.
            Err(failure) if failure.reason == FailureReason::TimedOut && is_discover(message) => {
                return Ok(not_modern(
                    message,
                    ErrorData::invalid_request(failure.message, None),
                ));
            }
            opened => opened?,
        };
        if let Some(call) = call {
            call.note_status(opened.status.as_u16());
        }
        // The call's own limit covers the body of its answer; the reading of any other has this one.
        let ends = tokio::time::Instant::now() + deadline;
        let answer = async {
            if opened.status.is_success() {
                self.answer(message, call, opened, &carried).await
            } else {
                self.refusal(message, opened, has_session, &carried).await
            }
        };
        match tokio::time::timeout_at(ends, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(McpFailure::transient(
                FailureReason::TimedOut,
                format!("no answer within {deadline:?}"),
            )),
        }
    }

    async fn answer(
        &self,
        message: &ClientJsonRpcMessage,
        call: Option<&Arc<CallState>>,
        opened: Opened,
        carried: &Carried,
    ) -> Result<StreamableHttpPostResponse, McpFailure> {
        let is_request = matches!(message, ClientJsonRpcMessage::Request(_));
        // Whatever type it names, an answer that was only accepted has no body (D7).
        if matches!(opened.status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) || !is_request {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if is_discover(message) {
            return discovered(message, opened).await;
        }
        let session = opened.headers.get(SESSION_ID);
        let session = session.and_then(|id| id.to_str().ok()).map(str::to_owned);
        if media_type(&opened.headers) == "text/event-stream" {
            let events = events::library_events(opened.body, call.cloned());
            return Ok(StreamableHttpPostResponse::Sse(events, session));
        }
        let (bytes, is_cut) = events::whole(opened.body, MESSAGE_LIMIT).await?;
        if is_cut {
            return Err(events::too_large());
        }
        if let Ok(batch) = serde_json::from_slice::<Vec<Value>>(&bytes) {
            return Ok(StreamableHttpPostResponse::Sse(events::stream_of(batch), session));
        }
        match serde_json::from_slice::<ServerJsonRpcMessage>(&bytes) {
            Ok(message) => Ok(StreamableHttpPostResponse::Json(message, session)),
            Err(_) => Err(McpFailure::transient(
                FailureReason::ResponseInvalid,
                format!(
                    "the server's answer is no message of the protocol: {}",
                    quote(carried, &bytes)
                ),
            )),
        }
    }

    async fn refusal(
        &self,
        message: &ClientJsonRpcMessage,
        opened: Opened,
        has_session: bool,
        carried: &Carried,
    ) -> Result<StreamableHttpPostResponse, McpFailure> {
        let status = opened.status;
        // What is read of the body decides nothing; a body that breaks off is quoted as far as it came.
        let (bytes, _) = events::whole(opened.body, MESSAGE_LIMIT)
            .await
            .unwrap_or_default();
        let error = match serde_json::from_slice::<ServerJsonRpcMessage>(&bytes) {
            Ok(ServerJsonRpcMessage::Error(error)) => Some(error.error),
            _ => None,
        };
        let is_auth = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        if is_discover(message) && !is_auth && !status.is_redirection() {
            // Whatever refuses the question of the newer era is asked in the older one's way; what is in
            // the way of both says so again.
            let error = error
                .unwrap_or_else(|| ErrorData::invalid_request(format!("HTTP {}", status.as_u16()), None));
            return Ok(not_modern(message, error));
        }
        let body = match &error {
            Some(error) => carried.conceal(error.message.to_string()),
            None => quote(carried, &bytes),
        };
        let failure = McpFailure::status(status, &body);
        let is_unknown = UNKNOWN_SESSION.contains(&status);
        if is_unknown && (has_session || error.is_none()) {
            return Err(McpFailure {
                is_session_lost: true,
                ..failure
            });
        }
        match (error, message) {
            (Some(mut error), ClientJsonRpcMessage::Request(request)) if !is_auth => {
                error.message = body.into();
                let answer = ServerJsonRpcMessage::error(error, Some(request.id.clone()));
                Ok(StreamableHttpPostResponse::Json(answer, None))
            }
            _ => Err(failure),
        }
    }

    async fn listen(
        &self,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        protocol: HashMap<HeaderName, HeaderValue>,
    ) -> Result<LibraryEvents, StreamError> {
        let shared = &self.shared;
        let mut carried = shared.server.carried(None).await.map_err(StreamError::Client)?;
        let headers = &mut carried.headers;
        frame(headers, "text/event-stream", session.as_deref()).map_err(StreamError::Client)?;
        let goes_on = last_event.is_some();
        if let Some(value) = last_event.and_then(|id| HeaderValue::from_str(&id).ok()) {
            headers.insert(LAST_EVENT_ID, value);
        }
        headers.extend(protocol);
        // A session that never had a stream may be with a server that has none to give; whatever it
        // answers then says nothing about the session.
        let is_known = goes_on || shared.had_stream.load(Ordering::Relaxed);
        let url = shared.server.url().clone();
        let opened = shared
            .server
            .send(Method::GET, url, carried.headers, None, STREAM_DEADLINE)
            .await;
        let opened = match opened {
            Ok(opened) => opened,
            Err(failure) => {
                if is_known && failure.is_session_lost {
                    shared.lost.cancel();
                }
                return Err(StreamError::Client(failure));
            }
        };
        let status = opened.status;
        if status.is_success() && media_type(&opened.headers) == "text/event-stream" {
            shared.had_stream.store(true, Ordering::Relaxed);
            return Ok(events::library_events(opened.body, None));
        }
        if is_known && UNKNOWN_SESSION.contains(&status) {
            shared.lost.cancel();
        }
        // Also 405, with which a server says so in as many words (D7).
        Err(StreamError::ServerDoesNotSupportSse)
    }

    async fn end(
        &self,
        session: Arc<str>,
        protocol: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), StreamError> {
        let server = self.server();
        let mut carried = server.carried(None).await.map_err(StreamError::Client)?;
        let headers = &mut carried.headers;
        frame(headers, "application/json", Some(session.as_ref())).map_err(StreamError::Client)?;
        headers.extend(protocol);
        let url = server.url().clone();
        let opened = server
            .send(Method::DELETE, url, carried.headers, None, REQUEST_DEADLINE)
            .await
            .map_err(StreamError::Client)?;
        match opened.status {
            StatusCode::METHOD_NOT_ALLOWED => Err(StreamError::ServerDoesNotSupportDeleteSession),
            _ => Ok(()),
        }
    }
}

// The library's own addresses, credentials and limits are not used: they are the server's.
impl StreamableHttpClient for SessionClient {
    type Error = McpFailure;

    async fn post_message(
        &self,
        _uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, StreamError> {
        self.post(message, session, headers)
            .await
            .map_err(StreamError::Client)
    }

    async fn post_message_with_response_limits(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
        _limits: StreamableHttpResponseLimits,
    ) -> Result<StreamableHttpPostResponse, StreamError> {
        self.post_message(uri, message, session, auth, headers).await
    }

    async fn delete_session(
        &self,
        _uri: Arc<str>,
        session: Arc<str>,
        _auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), StreamError> {
        self.end(session, headers).await
    }

    async fn get_stream(
        &self,
        _uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        _auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<LibraryEvents, StreamError> {
        self.listen(session, last_event, headers).await
    }
}

/// What the caller put into the request of a tool's call.
pub(super) fn call_state(message: &ClientJsonRpcMessage) -> Option<Arc<CallState>> {
    match message {
        ClientJsonRpcMessage::Request(request) => {
            request.request.extensions().get::<Arc<CallState>>().cloned()
        }
        _ => None,
    }
}

fn is_discover(message: &ClientJsonRpcMessage) -> bool {
    matches!(message, ClientJsonRpcMessage::Request(request)
        if matches!(request.request, ClientRequest::DiscoverRequest(_)))
}

/// What a server says to `server/discover`. One of the older era may answer it with an empty result, as it
/// answers everything that it does not know.
async fn discovered(
    message: &ClientJsonRpcMessage,
    opened: Opened,
) -> Result<StreamableHttpPostResponse, McpFailure> {
    let mut answer = None;
    if media_type(&opened.headers) == "text/event-stream" {
        let mut events = events::events(opened.body);
        while let (None, Some(event)) = (&answer, events.next().await) {
            // Notices may come in front of the answer.
            answer = serde_json::from_str::<ServerJsonRpcMessage>(&event?.data)
                .ok()
                .filter(|message| !matches!(message, ServerJsonRpcMessage::Notification(_)));
        }
    } else {
        let (bytes, _) = events::whole(opened.body, MESSAGE_LIMIT).await?;
        answer = serde_json::from_slice(&bytes).ok();
    }
    match answer {
        Some(ServerJsonRpcMessage::Response(response))
            if !matches!(response.result, ServerResult::DiscoverResult(_)) => {}
        Some(answer @ (ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_))) => {
            return Ok(StreamableHttpPostResponse::Json(answer, None));
        }
        _ => {}
    }
    let error = ErrorData::invalid_request("the server does not know `server/discover`", None);
    Ok(not_modern(message, error))
}

/// The answer to `server/discover` by which the library knows a server of the older era.
fn not_modern(message: &ClientJsonRpcMessage, error: ErrorData) -> StreamableHttpPostResponse {
    let id = match message {
        ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
        _ => None,
    };
    StreamableHttpPostResponse::Json(ServerJsonRpcMessage::error(error, id), None)
}

fn frame(headers: &mut HeaderMap, accept: &'static str, session: Option<&str>) -> Result<(), McpFailure> {
    headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
    if let Some(session) = session {
        let mut value = HeaderValue::from_str(session).map_err(|_| {
            McpFailure::lasting(
                FailureReason::ResponseInvalid,
                "the server's session id cannot be sent in a header",
            )
        })?;
        value.set_sensitive(true);
        headers.insert(SESSION_ID, value);
    }
    Ok(())
}

fn media_type(headers: &HeaderMap) -> String {
    let value = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let value = value.unwrap_or_default();
    value
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase()
}

/// The beginning of a body for an error's text.
fn quote(carried: &Carried, body: &[u8]) -> String {
    // The secrets first: a cut could leave half of one.
    let text = carried.conceal(String::from_utf8_lossy(body).into_owned());
    mainstay_telemetry::text::escape(&text, ERROR_BODY_BYTES)
}
