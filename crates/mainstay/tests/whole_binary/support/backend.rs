//! A service of the test's own in the place of `orders`: it counts what arrives, and can be told to stay silent.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::{
    Json, Router,
    body::Bytes,
    http::{Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::DEADLINE;

/// The service. It has a thread of its own, so it answers while a test waits for something else.
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    arrived: watch::Receiver<usize>,
    // Its end ends the thread.
    _stop: tokio::sync::oneshot::Sender<()>,
}

struct State {
    calls: Mutex<BTreeMap<(Method, String), usize>>,
    arrivals: watch::Sender<usize>,
    status: u16,
}

impl Backend {
    /// `GET /orders/ID` gives an order, `POST /orders/ID/ship` ships it, `GET /silent/…` and `POST /silent/…` never
    /// answer, a Chat Completion repeats its system message, and everything answers `status` where that is not 200.
    pub(crate) fn start(status: u16) -> Self {
        let (arrivals, arrived) = watch::channel(0);
        let state = Arc::new(State {
            calls: Mutex::default(),
            arrivals,
            status,
        });
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let serving = Arc::clone(&state);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let router = Router::new().fallback(move |method: Method, uri: Uri, body: Bytes| {
                    let state = Arc::clone(&serving);
                    async move { answer(&state, method, &uri, &body).await }
                });
                let served = std::future::IntoFuture::into_future(axum::serve(listener, router));
                tokio::select! {
                    served = served => served.unwrap(),
                    _ = stopped => {}
                }
            });
        });
        Self {
            address,
            state,
            arrived,
            _stop: stop,
        }
    }

    /// How often `method path` arrived.
    pub(crate) fn count(&self, method: Method, path: &str) -> usize {
        self.state
            .calls
            .lock()
            .unwrap()
            .get(&(method, path.to_owned()))
            .copied()
            .unwrap_or_default()
    }

    /// Waits until `method path` has arrived.
    pub(crate) async fn receives(&self, method: Method, path: &str) {
        let mut arrived = self.arrived.clone();
        let waiting = arrived.wait_for(|_| self.count(method.clone(), path) > 0);
        tokio::time::timeout(DEADLINE, waiting)
            .await
            .expect("the call arrives")
            .unwrap();
    }
}

async fn answer(state: &State, method: Method, uri: &Uri, body: &[u8]) -> Response {
    *state
        .calls
        .lock()
        .unwrap()
        .entry((method.clone(), uri.path().to_owned()))
        .or_default() += 1;
    state.arrivals.send_modify(|count| *count += 1);
    let parts: Vec<&str> = uri.path().trim_matches('/').split('/').collect();
    let status = StatusCode::from_u16(state.status).unwrap();
    if status != StatusCode::OK {
        return (status, "out of order").into_response();
    }
    match (method, parts.as_slice()) {
        (_, ["silent", ..]) => std::future::pending().await,
        (Method::GET, ["orders", id]) => Json(json!({ "id": id, "status": "packed" })).into_response(),
        (Method::POST, ["orders", id, "ship"]) => {
            Json(json!({ "id": id, "status": "shipped" })).into_response()
        }
        (Method::POST, ["v1", "chat", "completions"]) => completion(body),
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

/// A streamed Chat Completion whose text is the request's system message.
fn completion(body: &[u8]) -> Response {
    let request: Value = serde_json::from_slice(body).unwrap();
    let system = request["messages"]
        .as_array()
        .unwrap()
        .iter()
        .find(|message| message["role"] == "system");
    let text = system
        .map(|message| message["content"].clone())
        .unwrap_or_default();
    let chunk = |delta: Value, finish: Value| {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
        let chunk =
            json!({ "id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [choice] });
        format!("data: {chunk}\n\n")
    };
    let stream = [
        chunk(json!({ "role": "assistant", "content": text }), Value::Null),
        chunk(json!({}), json!("stop")),
        "data: [DONE]\n\n".to_owned(),
    ];
    ([(header::CONTENT_TYPE, "text/event-stream")], stream.concat()).into_response()
}
