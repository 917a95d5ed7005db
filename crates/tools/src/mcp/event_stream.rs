//! The transport of 2024-11-05: an event stream that says where messages are posted (OM-420).

use std::{future::Future, sync::Arc};

use bytes::Bytes;
use futures::{StreamExt, stream::BoxStream};
use http::{HeaderValue, Method, header};
use mainstay_workload::sse::Event;
use rmcp::{RoleClient, model::ServerJsonRpcMessage, service::TxJsonRpcMessage, transport::Transport};
use url::Url;

use super::{
    McpFailure, REQUEST_DEADLINE, SessionClient, answer::UNKNOWN_SESSION, client::call_state, events,
};
use crate::{http::ERROR_BODY_BYTES, invocation::FailureReason};

/// See the [module](self). The session lasts as long as the stream.
pub(super) struct EventStream {
    client: SessionClient,
    messages: Url,
    events: BoxStream<'static, Result<Event, McpFailure>>,
    // A batch is handed on one by one.
    queue: std::collections::VecDeque<ServerJsonRpcMessage>,
}

impl EventStream {
    /// Opens the stream and waits for the address of the messages.
    pub(super) async fn open(client: SessionClient) -> Result<Self, McpFailure> {
        let server = Arc::clone(client.server());
        let mut carried = client.carried(None).await?;
        carried
            .headers
            .insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        let opened = server
            .send(
                Method::GET,
                server.url().clone(),
                carried.headers.clone(),
                None,
                REQUEST_DEADLINE,
            )
            .await?;
        if !opened.status.is_success() {
            let read = events::whole(opened.body, ERROR_BODY_BYTES);
            // What is read of the body decides nothing.
            let read = tokio::time::timeout(REQUEST_DEADLINE, read).await;
            let (body, _) = read.ok().and_then(Result::ok).unwrap_or_default();
            let body = carried.conceal(String::from_utf8_lossy(&body).into_owned());
            return Err(McpFailure::status(
                opened.status,
                &mainstay_telemetry::text::escape(&body, ERROR_BODY_BYTES),
            ));
        }
        let mut events = events::events(opened.body);
        let announced = tokio::time::timeout(REQUEST_DEADLINE, announced(&mut events)).await;
        let address = announced.map_err(|_| {
            McpFailure::transient(
                FailureReason::TimedOut,
                format!("the server announced no address for messages within {REQUEST_DEADLINE:?}"),
            )
        })??;
        Ok(Self {
            messages: resolve(server.url(), &address)?,
            client,
            events,
            queue: std::collections::VecDeque::new(),
        })
    }
}

async fn announced(events: &mut BoxStream<'static, Result<Event, McpFailure>>) -> Result<String, McpFailure> {
    while let Some(event) = events.next().await {
        let event = event?;
        if event.name == "endpoint" {
            return Ok(event.data);
        }
    }
    Err(McpFailure::transient(
        FailureReason::ResponseInvalid,
        "the server's stream ended before it announced an address for messages; is `transport: sse` right?",
    ))
}

/// The announced address, relative to the stream's. It must be on the same host: the credential goes there.
fn resolve(stream: &Url, address: &str) -> Result<Url, McpFailure> {
    let refused = |cause: String| McpFailure::lasting(FailureReason::ResponseInvalid, cause);
    let url = stream.join(address.trim()).map_err(|error| {
        refused(format!(
            "the server announced an address for messages that is none: {error}"
        ))
    })?;
    if url.origin() != stream.origin() {
        return Err(refused(
            "the server announced an address for messages on another host, which is refused".to_owned(),
        ));
    }
    Ok(url)
}

impl Transport<RoleClient> for EventStream {
    type Error = McpFailure;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), McpFailure>> + Send + 'static {
        let client = self.client.clone();
        let url = self.messages.clone();
        async move {
            let call = call_state(&message);
            let sent = post(&client, url, &message).await;
            sent.map_err(|failure| client.note(call.as_ref(), failure))
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            if let Some(message) = self.queue.pop_front() {
                return Some(message);
            }
            match self.events.next().await {
                Some(Ok(event)) if matches!(event.name.as_str(), "" | "message") => {
                    for event in events::messages(event) {
                        let data = event.data.unwrap_or_default();
                        // What is no message, a first event without data for one, says nothing (D7).
                        self.queue
                            .extend(serde_json::from_str::<ServerJsonRpcMessage>(&data).ok());
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(failure)) => {
                    tracing::debug!(%failure, "an MCP server's event stream broke");
                    self.client.note(None, failure);
                    self.client.lose();
                    return None;
                }
                None => {
                    self.client.lose();
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), McpFailure> {
        self.events = futures::stream::empty().boxed();
        Ok(())
    }
}

async fn post(
    client: &SessionClient,
    url: Url,
    message: &TxJsonRpcMessage<RoleClient>,
) -> Result<(), McpFailure> {
    let server = client.server();
    let call = call_state(message);
    let body = serde_json::to_vec(message)
        .map_err(|error| McpFailure::lasting(FailureReason::RequestInvalid, error.to_string()))?;
    let mut carried = client.carried(call.as_deref()).await?;
    carried
        .headers
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let deadline = call.as_ref().map_or(REQUEST_DEADLINE, |call| call.deadline);
    if let Some(call) = &call {
        call.count_request();
    }
    let headers = carried.headers.clone();
    let opened = server
        .send(Method::POST, url, headers, Some(Bytes::from(body)), deadline)
        .await?;
    if let Some(call) = &call {
        call.note_status(opened.status.as_u16());
    }
    if opened.status.is_success() {
        return Ok(());
    }
    let read = events::whole(opened.body, crate::http::BODY_LIMIT);
    // What is read of the body decides nothing.
    let read = tokio::time::timeout(deadline, read).await;
    let (body, _) = read.ok().and_then(Result::ok).unwrap_or_default();
    let body = carried.conceal(String::from_utf8_lossy(&body).into_owned());
    let body = mainstay_telemetry::text::escape(&body, ERROR_BODY_BYTES);
    let failure = McpFailure::status(opened.status, &body);
    // D5: each of these is how some server says that it does not know the session.
    Err(McpFailure {
        is_session_lost: UNKNOWN_SESSION.contains(&opened.status),
        ..failure
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    #[test]
    fn the_address_of_messages_is_relative_to_the_stream_and_on_its_host_om_420() {
        let stream: Url = "http://mcp:8080/base/sse".parse().unwrap();
        for (announced, expected) in [
            ("/messages?session=1", "http://mcp:8080/messages?session=1"),
            ("messages", "http://mcp:8080/base/messages"),
            ("?session=1", "http://mcp:8080/base/sse?session=1"),
            ("http://mcp:8080/m", "http://mcp:8080/m"),
            (" /m ", "http://mcp:8080/m"),
        ] {
            assert_eq!(resolve(&stream, announced).unwrap().as_str(), expected);
        }
        for elsewhere in [
            "http://other:8080/m",
            "http://mcp:9090/m",
            "https://mcp:8080/m",
            "//other/m",
            "http://[",
        ] {
            assert_eq!(
                resolve(&stream, elsewhere).unwrap_err().reason,
                FailureReason::ResponseInvalid,
                "{elsewhere}"
            );
        }
    }
}
