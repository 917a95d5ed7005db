//! An agent behind a real socket, and a client that knows nothing of our code.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use futures::{SinkExt, StreamExt};
use mainstay_agent::tool::{RegistryTool, Runs, ToolAnswer, ToolRequest, ToolRunner};
use mainstay_agent::{Engine, EngineMetrics, EngineOptions, FixedPack, Hubs, Limits, ModelEntry};
use mainstay_llm::{FinishReason, Model, ModelError, ModelEvent, ModelStream, Request, ToolCall};
use mainstay_store::payload::{PayloadOptions, PayloadStore};
use mainstay_telemetry::{clock, random, task};
use mainstay_tools::policy::Decision;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::facade::{FacadeLimits, FacadeOptions, router};

/// Longest wait for anything; only a failing test meets it.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// One step of a scripted answer.
#[derive(Clone)]
pub(super) enum Say {
    Text(String),
    Call(&'static str, &'static str, Value),
    Fail,
    Wait(Arc<Notify>),
}

pub(super) fn text(text: &str) -> Say {
    Say::Text(text.to_owned())
}

#[derive(Default)]
pub(super) struct ScriptedModel {
    scripts: Mutex<VecDeque<Vec<Say>>>,
    pub(super) requests: Mutex<Vec<Request>>,
}

impl std::fmt::Debug for ScriptedModel {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("ScriptedModel")
    }
}

#[async_trait]
impl Model for ScriptedModel {
    fn name(&self) -> &str {
        "scripted"
    }

    async fn stream(&self, request: Request) -> Result<ModelStream, ModelError> {
        self.requests.lock().unwrap().push(request);
        let script = self
            .scripts
            .lock()
            .unwrap()
            .pop_front()
            .expect("the script has another answer");
        Ok(Box::pin(async_stream::stream! {
            let mut finish = FinishReason::Completed;
            for step in script {
                match step {
                    Say::Text(text) => yield Ok(ModelEvent::Text(text)),
                    Say::Call(id, name, arguments) => {
                        finish = FinishReason::ToolCalls;
                        yield Ok(ModelEvent::ToolCall(ToolCall::new(id, name, arguments.to_string())));
                    }
                    Say::Fail => {
                        yield Err(ModelError::with_status("main", 500, "boom"));
                        return;
                    }
                    Say::Wait(gate) => gate.notified().await,
                }
            }
            yield Ok(ModelEvent::Finished(finish));
        }))
    }
}

/// One tool that the client runs.
#[derive(Debug)]
struct ClientTool;

#[async_trait]
impl ToolRunner for ClientTool {
    fn tools(&self) -> Vec<RegistryTool> {
        vec![RegistryTool {
            name: "locate".to_owned(),
            description: "Where the user is".to_owned(),
            parameters: json!({"type": "object"}),
            handler: "browser".to_owned(),
            runs: Runs::AtClient {
                consent_message: Some("May I?".to_owned()),
                categories: Some(vec!["location".to_owned()]),
            },
            repeat_safe: false,
        }]
    }

    fn ceiling(&self) -> Duration {
        Duration::from_secs(150)
    }

    async fn decide(&self, _: &ToolRequest) -> Decision {
        Decision {
            allow: true,
            ..Decision::default()
        }
    }

    async fn execute(&self, _: &ToolRequest, _: &Decision) -> ToolAnswer {
        panic!("a client tool is never run here")
    }
}

/// An agent that is served on a free port.
pub(super) struct Served {
    pub(super) address: SocketAddr,
    pub(super) engine: Engine,
    pub(super) model: Arc<ScriptedModel>,
    pub(super) store: PayloadStore,
    pub(super) options: FacadeOptions,
}

pub(super) fn pack(prompt: Value) -> Vec<u8> {
    let mut main =
        json!({"id": "main", "name": "Main", "version": "1.0.0", "system_template": "Help.", "tools": ["*"]});
    for (name, value) in prompt.as_object().unwrap() {
        main[name] = value.clone();
    }
    let document = json!({
        "id": "helpdesk", "name": "Helpdesk", "version": "1.0.0",
        "template_engine": {"version": "v1", "syntax": "{{variable}}"}, "prompts": {"main": main}
    });
    document.to_string().into_bytes()
}

pub(super) async fn engine(
    scripts: Vec<Vec<Say>>,
    prompt: Value,
) -> (Engine, Arc<ScriptedModel>, PayloadStore) {
    let model = Arc::new(ScriptedModel {
        scripts: Mutex::new(scripts.into()),
        ..ScriptedModel::default()
    });
    let store = PayloadStore::open(PayloadOptions::in_memory()).unwrap();
    let engine = Engine::start(EngineOptions {
        namespace: "default".to_owned(),
        agent: "helpdesk".to_owned(),
        pack: Arc::new(FixedPack(pack(prompt))),
        models: vec![ModelEntry::plain("main", model.clone())],
        tools: Arc::new(ClientTool),
        journal: Arc::new(store.clone()),
        hubs: Hubs::new(),
        claims: Arc::new(mainstay_agent::claims::OnlyProcess),
        clock: clock::system(),
        random: random::system(),
        limits: Limits::default(),
        metrics: EngineMetrics::default(),
        surface_unlisted_tools: false,
    })
    .await
    .unwrap();
    (engine, model, store)
}

/// Serves a router on a free port until the test ends.
pub(super) async fn listen(router: Router) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    drop(task::spawn("test-server", async move {
        axum::serve(listener, service).await
    }));
    address
}

impl Served {
    pub(super) async fn new(scripts: Vec<Vec<Say>>) -> Self {
        Self::with(scripts, json!({}), FacadeLimits::default()).await
    }

    pub(super) async fn with(scripts: Vec<Vec<Say>>, prompt: Value, limits: FacadeLimits) -> Self {
        let (engine, model, store) = engine(scripts, prompt).await;
        let options = FacadeOptions {
            limits,
            ..FacadeOptions::default()
        };
        let address = listen(router(engine.clone(), options.clone())).await;
        Self {
            address,
            engine,
            model,
            store,
            options,
        }
    }

    /// Connects and reads the `connected` frame.
    pub(super) async fn connect(&self, query: &str) -> (Client, Value) {
        let mut client = Client::open(&format!("ws://{}/ws{query}", self.address), &[])
            .await
            .unwrap();
        let connected = client.next().await;
        assert_eq!(
            connected["type"], "connected",
            "connected comes first: {connected}"
        );
        (client, connected)
    }

    /// Waits until the facade has `count` open connections.
    pub(super) async fn connections(&self, count: i64) {
        let gauge = &self.options.metrics.connections;
        let reached = async {
            while gauge.get() != count {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, reached)
            .await
            .expect("the number of connections is reached");
    }
}

/// A WebSocket client.
pub(super) struct Client {
    pub(super) socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
}

impl Client {
    /// Opens a connection with further headers.
    ///
    /// # Errors
    ///
    /// The status and body of an answer that is no upgrade.
    pub(super) async fn open(url: &str, headers: &[(&'static str, &str)]) -> Result<Self, (u16, String)> {
        let mut request = url.into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        match tokio::time::timeout(PATIENCE, tokio_tungstenite::connect_async(request))
            .await
            .unwrap()
        {
            Ok((socket, _)) => Ok(Self { socket }),
            Err(tungstenite::Error::Http(response)) => {
                let body = response.body().as_deref().unwrap_or_default();
                Err((
                    response.status().as_u16(),
                    String::from_utf8_lossy(body).into_owned(),
                ))
            }
            Err(other) => panic!("{other}"),
        }
    }

    /// A client whose machine takes little before it is read.
    pub(super) async fn narrow(url: &str, address: SocketAddr) -> Self {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let stream = MaybeTlsStream::Plain(socket.connect(address).await.unwrap());
        let (socket, _) = tokio_tungstenite::client_async(url, stream).await.unwrap();
        Self { socket }
    }

    pub(super) async fn send(&mut self, frame: Value) {
        self.raw(Message::text(frame.to_string())).await;
    }

    pub(super) async fn raw(&mut self, message: Message) {
        self.socket.send(message).await.unwrap();
    }

    pub(super) async fn say(&mut self, content: &str) {
        self.send(json!({"type": "message", "content": content})).await;
    }

    /// The next JSON frame.
    pub(super) async fn next(&mut self) -> Value {
        loop {
            match self.received().await {
                Some(Ok(Message::Text(text))) => return serde_json::from_str(text.as_str()).unwrap(),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                other => panic!("no frame but {other:?}"),
            }
        }
    }

    pub(super) async fn received(&mut self) -> Option<Result<Message, tungstenite::Error>> {
        tokio::time::timeout(PATIENCE, self.socket.next())
            .await
            .expect("the server answers")
    }

    /// All frames up to and including the first of this type.
    pub(super) async fn until(&mut self, kind: &str) -> Vec<Value> {
        let mut frames = Vec::new();
        loop {
            let frame = self.next().await;
            let last = frame["type"] == kind;
            frames.push(frame);
            if last {
                return frames;
            }
        }
    }

    /// Frames until the connection ends.
    pub(super) async fn until_closed(&mut self) -> (Vec<Value>, Option<u16>) {
        let mut frames = Vec::new();
        loop {
            match self.received().await {
                Some(Ok(Message::Text(text))) => frames.push(serde_json::from_str(text.as_str()).unwrap()),
                Some(Ok(Message::Close(close))) => return (frames, close.map(|close| close.code.into())),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return (frames, None),
            }
        }
    }
}

pub(super) fn kinds(frames: &[Value]) -> Vec<&str> {
    frames
        .iter()
        .map(|frame| frame["type"].as_str().unwrap())
        .collect()
}
