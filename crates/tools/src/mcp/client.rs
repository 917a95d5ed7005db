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
use futures::stream::BoxStream;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use rmcp::{
    ErrorData,
    model::{ClientJsonRpcMessage, GetExtensions},
    transport::streamable_http_client::{
        StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse, StreamableHttpResponseLimits,
    },
};
use secrecy::SecretString;
use sse_stream::Sse;
use tokio_util::sync::CancellationToken;

use super::{
    CallState, McpFailure, REQUEST_DEADLINE, Server,
    answer::{SESSION_ID, UNKNOWN_SESSION, is_discover, media_type, not_modern, refused, taken},
    events,
    server::Carried,
};
use crate::{
    http::{ERROR_BODY_BYTES, conceal},
    invocation::FailureReason,
};

/// How long a server may think about `server/discover`. One of the older era may not answer at all.
const DISCOVER_DEADLINE: Duration = Duration::from_secs(5);

/// How long a server may take to open the stream of its own messages: some send no header before the
/// first of them. Nothing waits for it.
const STREAM_DEADLINE: Duration = Duration::from_secs(300);

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

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
    // What the last request carried: the library's own errors may quote an answer to it.
    last_secrets: Mutex<Vec<SecretString>>,
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
                last_secrets: Mutex::default(),
            }),
        }
    }

    pub(super) fn server(&self) -> &Arc<Server> {
        &self.shared.server
    }

    pub(super) fn lose(&self) {
        self.shared.lost.cancel();
    }

    /// What the next request carries.
    pub(super) async fn carried(&self, call: Option<&CallState>) -> Result<Carried, McpFailure> {
        let carried = self.shared.server.carried(call).await?;
        let mut last = self
            .shared
            .last_secrets
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        last.clone_from(&carried.secrets);
        Ok(carried)
    }

    /// A server's words without what the last request carried, and fit to be shown.
    pub(super) fn shown(&self, text: String) -> String {
        let secrets = self
            .shared
            .last_secrets
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        mainstay_telemetry::text::escape(&conceal(text, &secrets), ERROR_BODY_BYTES)
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
        let mut carried = self.carried(call.map(AsRef::as_ref)).await?;
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
                taken(message, call, opened, &carried).await
            } else {
                refused(message, opened, has_session, &carried).await
            }
        };
        match tokio::time::timeout_at(ends, answer).await {
            Ok(answer) => answer,
            Err(_) => {
                let no_answer = format!("no answer within {deadline:?}");
                // Some of the older era open a stream for whatever they are asked, and say nothing in it.
                if is_discover(message) {
                    return Ok(not_modern(message, ErrorData::invalid_request(no_answer, None)));
                }
                Err(McpFailure::transient(FailureReason::TimedOut, no_answer))
            }
        }
    }

    async fn listen(
        &self,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        protocol: HashMap<HeaderName, HeaderValue>,
    ) -> Result<LibraryEvents, StreamError> {
        let shared = &self.shared;
        let mut carried = self.carried(None).await.map_err(StreamError::Client)?;
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
        let mut carried = self.carried(None).await.map_err(StreamError::Client)?;
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
