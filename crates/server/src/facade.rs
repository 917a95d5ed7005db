//! The WebSocket facade of one agent (OM D.2).
//!
//! `frame` is what travels, `presenter` turns the session's events into frames, `connection` is one
//! open connection. A connection is a view of a session: its end never ends a turn.

mod connection;
mod frame;
mod intake;
mod presenter;
mod tools;
mod violation;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{Extension, Path, Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Router, http::StatusCode};
use mainstay_agent::Engine;
use mainstay_agent::event::Caller;
use mainstay_telemetry::metrics::{Counter, Gauge, Metrics};
use mainstay_telemetry::text::escape;
use serde::Deserialize;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::problem::Problem;

/// Bounds of a facade (OM-527).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FacadeLimits {
    /// Open connections; more are answered with 503.
    pub connections: usize,
    /// Largest message of a client, in bytes.
    pub message_bytes: usize,
    /// Messages per second of one connection, on average.
    pub messages_per_second: u32,
    /// Messages of one connection at once.
    pub message_burst: u32,
    /// Time between two pings.
    pub ping: Duration,
    /// How long a client may be silent; pongs count.
    pub pong_wait: Duration,
    /// How long one write may take.
    pub write_wait: Duration,
    /// Frames that may wait for a client. While the queue is full its connection waits, at most `write_wait`.
    pub outgoing_frames: usize,
}

impl Default for FacadeLimits {
    fn default() -> Self {
        Self {
            connections: 500,
            message_bytes: 16 << 20,
            messages_per_second: 50,
            message_burst: 100,
            ping: Duration::from_secs(30),
            pong_wait: Duration::from_secs(60),
            write_wait: Duration::from_secs(10),
            outgoing_frames: 256,
        }
    }
}

/// What a facade needs beside the engine.
#[derive(Debug, Clone, Default)]
pub struct FacadeOptions {
    /// Bounds.
    pub limits: FacadeLimits,
    /// Ends the connections. They also end when the engine is stopped.
    pub shutdown: CancellationToken,
    /// Counted over all facades of the process.
    pub metrics: FacadeMetrics,
}

/// Figures of all facades. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct FacadeMetrics {
    /// Open WebSocket connections.
    pub connections: Gauge,
    /// Messages that clients sent.
    pub messages: Counter,
    /// Connections closed because the client read too slowly.
    pub too_slow: Counter,
}

impl FacadeMetrics {
    /// Figures that `/metrics` shows.
    pub fn register(metrics: &Metrics) -> Self {
        let figures = Self::default();
        metrics.register(
            "websocket_connections",
            "Open WebSocket connections",
            &figures.connections,
        );
        metrics.register(
            "websocket_messages",
            "Messages received over WebSockets",
            &figures.messages,
        );
        metrics.register(
            "websocket_slow_clients",
            "WebSocket connections closed because the client read too slowly",
            &figures.too_slow,
        );
        figures
    }
}

/// What connections share.
#[derive(Debug)]
struct Facade {
    engine: Engine,
    options: FacadeOptions,
    connections: Arc<Semaphore>,
}

/// The router of one agent: `/ws`, the path form of OM-505, health (OM-499), and `/tools`. Connections end when the
/// engine is stopped, so running turns of a draining engine are shown to their end (OM-503).
pub fn router(engine: Engine, options: FacadeOptions) -> Router {
    let connections = Arc::new(Semaphore::new(options.limits.connections));
    let facade = Arc::new(Facade {
        engine,
        options,
        connections,
    });
    Router::new()
        .route("/ws", get(by_query))
        .route("/api/agents/{namespace}/{name}/ws", get(by_path))
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .merge(tools::routes())
        .fallback(|| async { Problem::new(StatusCode::NOT_FOUND, "not_found", "the agent has no such path") })
        .with_state(facade)
}

/// The query of OM-505, with our extension `events` and `after`.
#[derive(Debug, Default, Deserialize)]
struct Parameters {
    agent: Option<String>,
    namespace: Option<String>,
    #[serde(default)]
    binary: bool,
    resume: Option<String>,
    #[serde(default, deserialize_with = "flag")]
    events: bool,
    after: Option<u64>,
}

/// `1` and `0` beside `true` and `false`.
fn flag<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "1" | "true" => Ok(true),
        "0" | "false" | "" => Ok(false),
        _ => Err(serde::de::Error::custom("must be 1, 0, true or false")),
    }
}

/// Bytes that are read of a connection at once. Frames may be larger.
const READ_BUFFER: usize = 4 * 1024;

type Upgrade = Result<WebSocketUpgrade, WebSocketUpgradeRejection>;
type Asked = Result<Query<Parameters>, QueryRejection>;

async fn by_query(
    State(facade): State<Arc<Facade>>,
    caller: Option<Extension<Caller>>,
    asked: Asked,
    upgrade: Upgrade,
) -> Response {
    accept(facade, caller, asked, upgrade, None)
}

async fn by_path(
    State(facade): State<Arc<Facade>>,
    Path((namespace, name)): Path<(String, String)>,
    caller: Option<Extension<Caller>>,
    asked: Asked,
    upgrade: Upgrade,
) -> Response {
    accept(facade, caller, asked, upgrade, Some((namespace, name)))
}

async fn ready(State(facade): State<Arc<Facade>>) -> Response {
    match facade.engine.is_draining() {
        false => "ok".into_response(),
        true => draining().into_response(),
    }
}

fn draining() -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "draining",
        "the agent is about to end; try again",
    )
}

fn accept(
    facade: Arc<Facade>,
    caller: Option<Extension<Caller>>,
    asked: Asked,
    upgrade: Upgrade,
    by_path: Option<(String, String)>,
) -> Response {
    let asked = match asked {
        Ok(Query(asked)) => asked,
        Err(rejection) => {
            let detail = escape(&rejection.body_text(), 256);
            return Problem::new(StatusCode::BAD_REQUEST, "bad_query", detail).into_response();
        }
    };
    if let Err(problem) = is_meant(&facade.engine, &asked, by_path) {
        return problem.into_response();
    }
    if facade.engine.is_draining() {
        return draining().into_response();
    }
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade,
        Err(rejection) => {
            let detail = rejection.body_text();
            return Problem::new(rejection.status(), "websocket_expected", detail).into_response();
        }
    };
    let Ok(place) = Arc::clone(&facade.connections).try_acquire_owned() else {
        let detail = format!(
            "the agent has {} open connections already",
            facade.options.limits.connections
        );
        return Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_connections", detail).into_response();
    };
    let limit = facade.options.limits.message_bytes;
    let asked = connection::Asked {
        caller: caller.map_or_else(anonymous, |Extension(caller)| caller),
        binary: asked.binary,
        resume: asked.resume,
        events: asked.events,
        after: asked.after,
    };
    upgrade
        // The default is 128 KiB for each connection, of which nearly all wait.
        .read_buffer_size(READ_BUFFER)
        .max_message_size(limit)
        .max_frame_size(limit)
        .on_upgrade(move |socket| async move {
            facade.options.metrics.connections.inc();
            // On the heap: the future of a connection is large, and there are hundreds of them.
            Box::pin(connection::serve(socket, &facade, asked)).await;
            facade.options.metrics.connections.dec();
            drop(place);
        })
}

/// A caller whom nothing in front of this facade recognised.
fn anonymous() -> Caller {
    Caller {
        origin: "anonymous".to_owned(),
        ..Caller::default()
    }
}

/// Whether the request names this agent, where it names one (OM-505).
fn is_meant(engine: &Engine, asked: &Parameters, by_path: Option<(String, String)>) -> Result<(), Problem> {
    let (by_path_namespace, by_path_name) = by_path.unzip();
    let names = [asked.agent.as_ref(), by_path_name.as_ref()];
    let namespaces = [asked.namespace.as_ref(), by_path_namespace.as_ref()];
    let wrong_name = names.into_iter().flatten().find(|name| *name != engine.agent());
    let wrong_namespace = namespaces
        .into_iter()
        .flatten()
        .find(|namespace| *namespace != engine.namespace());
    if wrong_name.is_none() && wrong_namespace.is_none() {
        return Ok(());
    }
    let name = wrong_name.map_or(engine.agent(), String::as_str);
    let namespace = wrong_namespace.map_or(engine.namespace(), String::as_str);
    let detail = format!(
        "there is no agent `{}` in namespace `{}` here",
        escape(name, 64),
        escape(namespace, 64)
    );
    Err(Problem::new(StatusCode::NOT_FOUND, "agent_not_found", detail))
}

#[cfg(test)]
mod tests;
