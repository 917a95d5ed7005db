//! A server of the older era whose faults are chosen.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, Method, Response, StatusCode},
    response::IntoResponse,
    routing::any,
};
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// How a server answers a request that has a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Json,
    /// Events, the first without data, the last without its blank line (D7).
    Events,
    /// One batch (2025-03-26).
    Batch,
}

/// What the tool that is called does.
#[derive(Debug, Clone)]
pub(super) enum Does {
    Answers(Value),
    /// Answers with an error of the protocol.
    Errs(i64, &'static str),
    /// Answers with this status and body.
    Refuses(u16, &'static str),
    /// Takes the call and says nothing.
    Hangs,
    /// Opens a stream as its answer and says nothing in it.
    Opens,
    /// Begins an answer and breaks off.
    Breaks,
}

#[derive(Debug)]
pub(super) struct Config {
    pub(super) form: Form,
    /// What an unknown session is refused with.
    pub(super) unknown: StatusCode,
    /// Whether it gives out sessions at all.
    pub(super) has_sessions: bool,
    /// Whether GET opens a stream; else 405.
    pub(super) has_stream: bool,
    pub(super) version: &'static str,
    /// What `server/discover` is answered with.
    pub(super) discover: Does,
    /// What `initialize` is answered with in place of a session.
    pub(super) initialize: Option<Does>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            form: Form::Json,
            unknown: StatusCode::NOT_FOUND,
            has_sessions: true,
            has_stream: false,
            version: "2025-06-18",
            discover: Does::Refuses(400, "Bad Request: no valid session"),
            initialize: None,
        }
    }
}

#[derive(Debug, Default)]
struct Memory {
    sessions: BTreeSet<String>,
    given: u32,
    tools: Value,
    script: VecDeque<Does>,
    log: Vec<(String, HeaderMap, Value)>,
    streams: BTreeMap<String, mpsc::Sender<String>>,
}

/// See the [module](self). Clones are the same server.
#[derive(Debug, Clone)]
pub(super) struct Fake {
    config: Arc<Config>,
    memory: Arc<Mutex<Memory>>,
}

pub(super) fn tool(name: &str) -> Value {
    json!({"name": name, "description": format!("does {name}"), "inputSchema": {"type": "object"}})
}

impl Fake {
    pub(super) fn new(tools: &[&str], config: Config) -> Self {
        let memory = Memory {
            tools: tools.iter().map(|name| tool(name)).collect(),
            ..Memory::default()
        };
        Self {
            config: Arc::new(config),
            memory: Arc::new(Mutex::new(memory)),
        }
    }

    pub(super) fn router(&self) -> Router {
        Router::new()
            .route("/mcp", any(streamable))
            .route("/sse", any(open_stream))
            .route("/messages", any(posted))
            .with_state(self.clone())
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().unwrap()
    }

    /// Forgets all sessions and ends their streams, as a restart does.
    pub(super) fn restart(&self) {
        let mut memory = self.memory();
        memory.sessions.clear();
        memory.streams.clear();
    }

    pub(super) fn set_tools(&self, tools: impl Into<Value>) {
        self.memory().tools = tools.into();
    }

    /// What the next calls of tools come to; after them, each call is answered with its arguments.
    pub(super) fn script(&self, steps: impl IntoIterator<Item = Does>) {
        self.memory().script.extend(steps);
    }

    /// Says something unasked on every stream.
    pub(super) fn notify(&self, method: &str) {
        let event = format!("data: {}\n\n", json!({"jsonrpc": "2.0", "method": method}));
        for stream in self.memory().streams.values() {
            stream.try_send(event.clone()).unwrap();
        }
    }

    /// How many requests of this method came.
    pub(super) fn count(&self, method: &str) -> usize {
        self.requests(method).len()
    }

    /// The requests of this method, with their headers.
    pub(super) fn requests(&self, method: &str) -> Vec<(HeaderMap, Value)> {
        let memory = self.memory();
        let log = memory.log.iter().filter(|(name, ..)| name == method);
        log.map(|(_, headers, body)| (headers.clone(), body.clone()))
            .collect()
    }

    fn note(&self, method: &str, headers: &HeaderMap, body: &Value) {
        self.memory()
            .log
            .push((method.to_owned(), headers.clone(), body.clone()));
    }

    fn begin(&self) -> String {
        let mut memory = self.memory();
        memory.given += 1;
        let session = format!("session-{}", memory.given);
        memory.sessions.insert(session.clone());
        session
    }

    fn knows(&self, session: &str) -> bool {
        self.memory().sessions.contains(session)
    }

    fn next_step(&self, message: &Value) -> Does {
        let arguments = message["params"]["arguments"].to_string();
        self.memory()
            .script
            .pop_front()
            .unwrap_or_else(|| Does::Answers(super::text(&arguments)))
    }

    /// The answer to a request that is not a tool's call.
    fn result(&self, message: &Value) -> Value {
        match message["method"].as_str().unwrap() {
            "initialize" => json!({
                "protocolVersion": self.config.version, "capabilities": {"tools": {"listChanged": true}},
                "serverInfo": {"name": "fake", "version": "1"},
            }),
            "tools/list" => json!({"tools": self.memory().tools}),
            _ => json!({}),
        }
    }

    fn open(&self, session: &str) -> Body {
        let (sender, receiver) = mpsc::channel(64);
        self.memory().streams.insert(session.to_owned(), sender);
        Body::from_stream(ReceiverStream::new(receiver).map(Ok::<_, std::convert::Infallible>))
    }
}

fn plain(status: StatusCode, body: &'static str) -> Response<Body> {
    (status, body).into_response()
}

fn answer(form: Form, message: &Value, session: Option<&str>) -> Response<Body> {
    let (kind, body) = match form {
        Form::Json => ("application/json", message.to_string()),
        Form::Batch => ("application/json", json!([message]).to_string()),
        Form::Events => (
            "text/event-stream; charset=utf-8",
            format!(": hello\n\ndata:\n\nevent: message\ndata: {message}"),
        ),
    };
    let mut response = Response::builder().header("content-type", kind);
    if let Some(session) = session {
        response = response.header("mcp-session-id", session);
    }
    response.body(Body::from(body)).unwrap()
}

fn result(id: &Value, result: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

/// What a step answers, or `None` where it never does.
fn stepped(form: Form, id: &Value, step: Does) -> Option<Response<Body>> {
    Some(match step {
        Does::Answers(value) => answer(form, &result(id, &value), None),
        Does::Errs(code, message) => {
            let error = json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}});
            answer(form, &error, None)
        }
        Does::Refuses(status, body) => plain(StatusCode::from_u16(status).unwrap(), body),
        Does::Hangs => return None,
        Does::Opens => Response::builder()
            .header("content-type", "text/event-stream")
            .body(Body::from_stream(futures::stream::pending::<
                Result<Bytes, std::io::Error>,
            >()))
            .unwrap(),
        Does::Breaks => {
            let begun = futures::stream::iter([
                Ok(Bytes::from_static(b"data: {\"jsonrpc\"")),
                Err(std::io::Error::other("reset")),
            ]);
            Response::builder()
                .header("content-type", "text/event-stream")
                .body(Body::from_stream(begun))
                .unwrap()
        }
    })
}

async fn streamable(
    State(fake): State<Fake>,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let config = Arc::clone(&fake.config);
    let session = headers
        .get("mcp-session-id")
        .map(|id| id.to_str().unwrap().to_owned());
    let is_known = session.as_deref().is_some_and(|id| fake.knows(id));
    if method != Method::POST {
        fake.note(method.as_str(), &headers, &Value::Null);
        return match (method, session) {
            (Method::GET, Some(session)) if config.has_stream && is_known => Response::builder()
                .header("content-type", "text/event-stream")
                .body(fake.open(&session))
                .unwrap(),
            (Method::GET, _) if config.has_stream => plain(config.unknown, "unknown session"),
            (Method::DELETE, Some(session)) => {
                fake.memory().sessions.remove(&session);
                plain(StatusCode::OK, "")
            }
            _ => plain(StatusCode::METHOD_NOT_ALLOWED, ""),
        };
    }
    let message: Value = serde_json::from_slice(&body).unwrap();
    let name = message["method"].as_str().unwrap_or("answer").to_owned();
    fake.note(&name, &headers, &message);
    let id = &message["id"];
    if name == "server/discover" {
        return match stepped(config.form, id, config.discover.clone()) {
            Some(response) => response,
            None => std::future::pending().await,
        };
    }
    if let (Some(step), "initialize") = (config.initialize.clone(), name.as_str()) {
        return match stepped(config.form, id, step) {
            Some(response) => response,
            None => std::future::pending().await,
        };
    }
    if name == "initialize" {
        let session = config.has_sessions.then(|| fake.begin());
        return answer(
            config.form,
            &result(id, &fake.result(&message)),
            session.as_deref(),
        );
    }
    if config.has_sessions && !is_known {
        return plain(config.unknown, "unknown session");
    }
    if id.is_null() {
        // Some name a type although there is nothing of it (D7).
        return Response::builder()
            .status(StatusCode::ACCEPTED)
            .header("content-type", "text/event-stream")
            .body(Body::empty())
            .unwrap();
    }
    if name != "tools/call" {
        return answer(config.form, &result(id, &fake.result(&message)), None);
    }
    let step = fake.next_step(&message);
    match stepped(config.form, id, step) {
        Some(response) => response,
        None => std::future::pending().await,
    }
}

/// The transport of 2024-11-05.
async fn open_stream(State(fake): State<Fake>, headers: HeaderMap) -> Response<Body> {
    fake.note("GET", &headers, &Value::Null);
    let session = fake.begin();
    let body = fake.open(&session);
    fake.memory().streams[&session]
        .try_send(format!("event: endpoint\ndata: /messages?session={session}\n\n"))
        .unwrap();
    Response::builder()
        .header("content-type", "text/event-stream")
        .body(body)
        .unwrap()
}

async fn posted(
    State(fake): State<Fake>,
    uri: axum::http::Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let session = uri.query().unwrap().strip_prefix("session=").unwrap().to_owned();
    let message: Value = serde_json::from_slice(&body).unwrap();
    let name = message["method"].as_str().unwrap_or("answer").to_owned();
    fake.note(&name, &headers, &message);
    if !fake.knows(&session) {
        return plain(fake.config.unknown, "unknown session");
    }
    let id = &message["id"];
    if id.is_null() {
        return plain(StatusCode::ACCEPTED, "Accepted");
    }
    let answer = match name.as_str() {
        "tools/call" => match fake.next_step(&message) {
            Does::Answers(value) => result(id, &value),
            Does::Errs(code, text) => {
                json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text}})
            }
            Does::Refuses(status, body) => return plain(StatusCode::from_u16(status).unwrap(), body),
            Does::Hangs | Does::Opens => return plain(StatusCode::ACCEPTED, "Accepted"),
            Does::Breaks => {
                fake.restart();
                return plain(StatusCode::ACCEPTED, "Accepted");
            }
        },
        "initialize" => match fake.config.initialize {
            Some(Does::Errs(code, text)) => {
                json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text}})
            }
            _ => result(id, &fake.result(&message)),
        },
        _ => result(id, &fake.result(&message)),
    };
    let event = format!("event: message\ndata: {answer}\n\n");
    let stream = fake.memory().streams.get(&session).cloned();
    stream.unwrap().send(event).await.unwrap();
    plain(StatusCode::ACCEPTED, "Accepted")
}
