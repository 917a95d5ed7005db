//! The WebSocket to an agent, with its events (`?events=1`).

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use http::{HeaderValue, StatusCode, header};
use mainstay_agent::event::Event;
use serde_json::{Map, Value, json};
use tokio::{net::TcpStream, time::Instant};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{self, Message, client::IntoClientRequest},
};

use super::client_tools::Answer;
use crate::{endpoints::Endpoints, terminal::Failure};

/// How long the server may take to greet.
const GREETS_WITHIN: Duration = Duration::from_secs(10);
/// How long an agent may take that is about to start: right after `up`, or while an edit replaces its Pod.
const STARTS_WITHIN: Duration = Duration::from_secs(10);
/// How often such an agent is asked.
const LOOKS_EVERY: Duration = Duration::from_millis(100);
/// How long nothing at all may arrive: the server pings every 30 seconds.
const SILENT_AT_MOST: Duration = Duration::from_secs(90);
/// How long a frame may take to be taken by the server.
const SENT_WITHIN: Duration = Duration::from_secs(10);

/// What arrives that matters here.
#[derive(Debug)]
pub(super) enum Frame {
    /// An event, read and as it came.
    Event(Box<Event>, String),
    /// The server refused the message or ended the turn with an error that has no event.
    Error {
        /// The protocol's code.
        code: String,
        /// For people.
        message: String,
    },
}

/// Which agent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    /// The server.
    pub(super) endpoints: &'a Endpoints,
    /// The agent's namespace.
    pub(super) namespace: &'a str,
    /// The agent.
    pub(super) name: &'a str,
}

/// Why no conversation was opened.
#[derive(Debug)]
pub(super) enum NotOpened {
    /// Nothing runs under the agent's name.
    Absent(Failure),
    /// The session that was to be continued is not there any more.
    Expired(Failure),
    /// Any other reason.
    Failed(Failure),
}

impl From<Failure> for NotOpened {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// An open conversation.
#[derive(Debug)]
pub(super) struct Connection {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    session: String,
    open: bool,
}

impl Connection {
    /// Connects to the agent of `place`, in `session` where one is given, with its events behind `after`.
    pub(super) async fn open(
        place: &Place<'_>,
        session: Option<&str>,
        after: Option<u64>,
    ) -> Result<Self, NotOpened> {
        let Place {
            endpoints,
            namespace,
            name,
        } = *place;
        let base = endpoints.http.replacen("http", "ws", 1);
        let mut url = url::Url::parse(&format!("{base}/agents/"))
            .map_err(|error| Failure::new(format!("the front door's address {base}: {error}")))?;
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend([namespace, name, "ws"]);
        }
        url.query_pairs_mut().append_pair("events", "1");
        if let Some(session) = session {
            url.query_pairs_mut().append_pair("resume", session);
        }
        if let Some(after) = after {
            url.query_pairs_mut().append_pair("after", &after.to_string());
        }
        let mut request = url
            .as_str()
            .into_client_request()
            .map_err(|error| Failure::new(format!("the front door's address {base}: {error}")))?;
        let token = HeaderValue::from_str(&format!("Bearer {}", endpoints.token))
            .map_err(|_| Failure::new("the front door's token cannot be sent in a header"))?;
        request.headers_mut().insert(header::AUTHORIZATION, token);
        let ends = Instant::now() + STARTS_WITHIN;
        let (socket, _) = loop {
            match connect_async(request.clone()).await {
                Ok(connected) => break connected,
                Err(error) if is_starting(&error) && Instant::now() < ends => {
                    tokio::time::sleep(LOOKS_EVERY).await;
                }
                Err(error) => return Err(refusal(&error, &endpoints.http, namespace, name)),
            }
        };
        let mut connection = Self {
            socket,
            session: String::new(),
            open: true,
        };
        connection.greet(session).await?;
        Ok(connection)
    }

    /// Reads up to the greeting, which names the session.
    async fn greet(&mut self, asked: Option<&str>) -> Result<(), NotOpened> {
        let greeting = tokio::time::timeout(GREETS_WITHIN, async {
            loop {
                let (frame, _) = self.frame().await?;
                match frame.get("type").and_then(Value::as_str) {
                    Some("connected") => return Ok::<_, Failure>(frame),
                    Some("error") => return Err(error_of(&frame)),
                    _ => {}
                }
            }
        });
        let frame = greeting
            .await
            .map_err(|_| Failure::new("the agent does not greet"))??;
        self.session = frame
            .get("session_id")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        match asked {
            Some(asked) if asked != self.session => Err(NotOpened::Expired(
                Failure::new(format!("session {asked} cannot be continued"))
                    .with_hint("it may have expired, or belong to another agent"),
            )),
            _ => Ok(()),
        }
    }

    /// The session's id.
    pub(super) fn session(&self) -> &str {
        &self.session
    }

    /// Whether another message can be sent.
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// Sends a message whose turn will carry `key`. One that was accepted before begins no second turn.
    pub(super) async fn send(
        &mut self,
        content: &str,
        key: &str,
        variables: &Map<String, Value>,
    ) -> Result<(), Failure> {
        let mut message = json!({ "type": "message", "content": content, "client_key": key });
        if let (false, Some(object)) = (variables.is_empty(), message.as_object_mut()) {
            object.insert("metadata".to_owned(), Value::Object(variables.clone()));
        }
        self.write(&message).await
    }

    /// Ends the turn that runs.
    pub(super) async fn cancel(&mut self) -> Result<(), Failure> {
        self.write(&json!({ "type": "cancel" })).await
    }

    /// Says that a call of a client tool has arrived (OM-510).
    pub(super) async fn acknowledge(&mut self, call_id: &str) -> Result<(), Failure> {
        self.write(&json!({ "type": "tool_call_ack", "tool_call_ack": { "call_id": call_id } }))
            .await
    }

    /// Says what came of a call of a client tool (OM-509, OM-511).
    pub(super) async fn answer(&mut self, call_id: &str, answer: Answer) -> Result<(), Failure> {
        let frame = match answer {
            Answer::Result(result) => {
                json!({ "type": "tool_result", "tool_result": { "call_id": call_id, "result": result } })
            }
            Answer::Failed(error) => {
                json!({ "type": "tool_result", "tool_result": { "call_id": call_id, "error": error } })
            }
            Answer::Rejected(reason) => {
                json!({ "type": "tool_call_nack", "tool_call_nack": { "call_id": call_id, "reason": reason } })
            }
        };
        self.write(&frame).await
    }

    async fn write(&mut self, frame: &Value) -> Result<(), Failure> {
        let sent = tokio::time::timeout(SENT_WITHIN, self.socket.send(Message::text(frame.to_string())));
        let why = match sent.await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("not within {} s", SENT_WITHIN.as_secs()),
        };
        self.open = false;
        Err(Failure::new(format!("the message could not be sent: {why}")))
    }

    /// The next event or error.
    pub(super) async fn next(&mut self) -> Result<Frame, Failure> {
        loop {
            let (frame, _) = self.frame().await?;
            match frame.get("type").and_then(Value::as_str) {
                Some("event") => {
                    let raw = frame.get("event").cloned().unwrap_or_default();
                    let text = raw.to_string();
                    let event = serde_json::from_value(raw)
                        .map_err(|error| Failure::new(format!("an event cannot be read: {error}")))?;
                    return Ok(Frame::Event(Box::new(event), text));
                }
                // The same failure arrives as an event of the turn, with more to say; only errors about the message
                // or the connection have none.
                Some("error") if !ends_turn(&frame) => {
                    let text = |field: &str| {
                        frame
                            .pointer(field)
                            .and_then(Value::as_str)
                            .unwrap_or_default()
                            .to_owned()
                    };
                    return Ok(Frame::Error {
                        code: text("/error/code"),
                        message: text("/error/message"),
                    });
                }
                _ => {}
            }
        }
    }

    async fn frame(&mut self) -> Result<(Value, String), Failure> {
        loop {
            let arrived = tokio::time::timeout(SILENT_AT_MOST, self.socket.next()).await;
            let message = match arrived {
                Err(_) => {
                    self.open = false;
                    return Err(Failure::new("the agent is silent; the connection seems dead"));
                }
                Ok(None) => {
                    self.open = false;
                    return Err(closed());
                }
                Ok(Some(Err(error))) => {
                    self.open = false;
                    return Err(Failure::new(format!("the connection broke: {error}"))
                        .with_hint("a turn that runs goes on; continue the session with `--session ID`"));
                }
                Ok(Some(Ok(message))) => message,
            };
            match message {
                Message::Text(text) => {
                    let frame = serde_json::from_str(&text).map_err(|error| {
                        Failure::new(format!("a frame of the agent cannot be read: {error}"))
                    })?;
                    return Ok((frame, text.to_string()));
                }
                Message::Close(_) => {
                    self.open = false;
                    return Err(closed());
                }
                _ => {}
            }
        }
    }
}

fn closed() -> Failure {
    Failure::new("the server closed the connection")
        .with_hint("a turn that runs goes on; continue the session with `--session ID`")
}

/// Whether an error frame tells of a turn that failed, which its event tells better.
fn ends_turn(frame: &Value) -> bool {
    frame.pointer("/error/details/turn").is_some()
}

fn error_of(frame: &Value) -> Failure {
    let text = |field: &str| frame.pointer(field).and_then(Value::as_str).unwrap_or_default();
    Failure::new(format!("{} ({})", text("/error/message"), text("/error/code")))
}

/// Whether the agent is there and will answer soon.
fn is_starting(error: &tungstenite::Error) -> bool {
    matches!(error, tungstenite::Error::Http(response) if response.status() == StatusCode::SERVICE_UNAVAILABLE)
}

fn refusal(error: &tungstenite::Error, address: &str, namespace: &str, name: &str) -> NotOpened {
    let tungstenite::Error::Http(response) = error else {
        return NotOpened::Failed(Failure::new(format!("{address} cannot be reached: {error}")));
    };
    let body: Value = response
        .body()
        .as_deref()
        .and_then(|body| serde_json::from_slice(body).ok())
        .unwrap_or_default();
    let said = |field: &str| body.get(field).and_then(Value::as_str).map(str::to_owned);
    let text = said("error").unwrap_or_else(|| format!("the front door answered {}", response.status()));
    let text = match said("detail") {
        Some(detail) => format!("{text}: {detail}"),
        None => text,
    };
    let failure = Failure::new(text);
    match response.status() {
        StatusCode::NOT_FOUND => NotOpened::Absent(failure.with_hint(format!(
            "is there an AgentRuntime `{name}` in `{namespace}`? `mainstay status` lists them"
        ))),
        StatusCode::SERVICE_UNAVAILABLE => {
            NotOpened::Failed(failure.with_hint("`mainstay status` says what the agent waits for"))
        }
        _ => NotOpened::Failed(failure),
    }
}
