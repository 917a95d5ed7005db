//! What the library is told of a server's answer over streamable HTTP.

use std::sync::Arc;

use futures::StreamExt;
use http::{HeaderMap, HeaderName, StatusCode, header};
use rmcp::{
    ErrorData,
    model::{ClientJsonRpcMessage, ClientRequest, ServerJsonRpcMessage, ServerResult},
    transport::streamable_http_client::StreamableHttpPostResponse,
};
use serde_json::Value;

use super::{CallState, MESSAGE_LIMIT, McpFailure, events, server::Carried};
use crate::{http::ERROR_BODY_BYTES, invocation::FailureReason, transport::Opened};

pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");

/// The statuses with which servers of the older era refuse a session that they do not know (D5).
pub(super) const UNKNOWN_SESSION: [StatusCode; 3] = [
    StatusCode::NOT_FOUND,
    StatusCode::BAD_REQUEST,
    StatusCode::SERVICE_UNAVAILABLE,
];

/// What the library is told of an answer to `message` that is one.
pub(super) async fn taken(
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

/// What the library is told of an answer that refuses `message`.
pub(super) async fn refused(
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
        let error =
            error.unwrap_or_else(|| ErrorData::invalid_request(format!("HTTP {}", status.as_u16()), None));
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

/// Whether `message` asks a server of the newer era what it is.
pub(super) fn is_discover(message: &ClientJsonRpcMessage) -> bool {
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
pub(super) fn not_modern(message: &ClientJsonRpcMessage, error: ErrorData) -> StreamableHttpPostResponse {
    let id = match message {
        ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
        _ => None,
    };
    StreamableHttpPostResponse::Json(ServerJsonRpcMessage::error(error, id), None)
}

pub(super) fn media_type(headers: &HeaderMap) -> String {
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
