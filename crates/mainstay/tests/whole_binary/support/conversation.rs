//! A conversation over the WebSocket, by what the protocol says and nothing else.

use futures::{SinkExt, StreamExt};
use http::HeaderValue;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{self, Message, client::IntoClientRequest},
};

use super::{DEADLINE, server::Endpoints};

/// An open WebSocket to an agent.
pub(crate) struct Conversation {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    pub(crate) session: String,
}

impl Conversation {
    /// Opens one with the events of a new session.
    pub(crate) async fn open(server: &Endpoints, agent: &str) -> Self {
        Self::with(server, agent, "events=1").await
    }

    /// Opens one with the given query, and reads the greeting.
    pub(crate) async fn with(server: &Endpoints, agent: &str, query: &str) -> Self {
        let socket = connect(server, agent, query, &[])
            .await
            .expect("the front door lets this machine in");
        let mut conversation = Self {
            socket,
            session: String::new(),
        };
        let greeting = conversation.frame().await;
        assert_eq!(greeting["type"], "connected", "OM-507: {greeting}");
        conversation.session = greeting["session_id"].as_str().unwrap().to_owned();
        conversation
    }

    /// Continues `session` with all its events from the first on.
    pub(crate) async fn resume(server: &Endpoints, agent: &str, session: &str) -> Self {
        let resumed = Self::with(server, agent, &format!("events=1&after=0&resume={session}")).await;
        assert_eq!(resumed.session, session);
        resumed
    }

    /// Sends a message.
    pub(crate) async fn say(&mut self, content: &str) {
        self.send(json!({ "type": "message", "content": content }).to_string())
            .await;
    }

    /// Sends a text frame.
    pub(crate) async fn send(&mut self, text: String) {
        self.socket
            .send(Message::text(text))
            .await
            .expect("the connection is open");
    }

    /// The next frame; `None` when the connection is over.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            let message = tokio::time::timeout(DEADLINE, self.socket.next())
                .await
                .expect("the agent says something");
            match message? {
                Ok(Message::Text(text)) => {
                    return Some(serde_json::from_str(&text).expect("OM-506: JSON text frames"));
                }
                Ok(Message::Close(_)) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    /// The next frame.
    pub(crate) async fn frame(&mut self) -> Value {
        self.next().await.expect("the connection is open")
    }

    /// The frames up to the one that `last` wants.
    pub(crate) async fn until(&mut self, last: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut frames = Vec::new();
        loop {
            let frame = self.frame().await;
            let ends = last(&frame);
            frames.push(frame);
            if ends {
                return frames;
            }
        }
    }

    /// Sends a message and reads until its turn has ended with `done` or `error`.
    pub(crate) async fn turn(&mut self, content: &str) -> Vec<Value> {
        self.say(content).await;
        self.until(|frame| frame["type"] == "done" || frame["type"] == "error")
            .await
    }

    /// The same; gives the whole answer.
    pub(crate) async fn answer(&mut self, content: &str) -> String {
        let frames = self.turn(content).await;
        let last = frames.last().unwrap();
        last["content"]
            .as_str()
            .unwrap_or_else(|| panic!("not an answer: {last}"))
            .to_owned()
    }
}

/// The events among frames.
pub(crate) fn events(frames: &[Value]) -> Vec<&Value> {
    frames
        .iter()
        .filter(|frame| frame["type"] == "event")
        .map(|frame| &frame["event"])
        .collect()
}

/// Whether a frame carries an event that ends a turn.
pub(crate) fn ends_turn(frame: &Value) -> bool {
    let kind = frame["event"]["type"].as_str().unwrap_or_default();
    matches!(kind, "turn.done" | "turn.failed" | "turn.cancelled")
}

/// Asks for a WebSocket with the given headers instead of the usual ones.
pub(crate) async fn connect(
    server: &Endpoints,
    agent: &str,
    query: &str,
    headers: &[(&'static str, &str)],
) -> Result<WebSocketStream<MaybeTlsStream<TcpStream>>, tungstenite::Error> {
    let url = format!("ws://{}/agents/default/{agent}/ws?{query}", server.front_door());
    let mut request = url.into_client_request()?;
    for (name, value) in headers {
        request
            .headers_mut()
            .insert(*name, HeaderValue::from_str(value).unwrap());
    }
    let (socket, _) = tokio::time::timeout(DEADLINE, connect_async(request))
        .await
        .expect("the front door answers")?;
    Ok(socket)
}
