//! The one address that users meet: `/agents/NAMESPACE/NAME/…`, health, metrics (contract 4).
//!
//! Every request passes [`access`] first. A web page of another site must not drive an agent on this
//! machine, neither by a cross-site WebSocket nor by making its own name resolve to this address; and a
//! request from another machine needs the token.

pub mod access;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use http::uri::{PathAndQuery, Uri};
use http::{StatusCode, header};
use mainstay_telemetry::metrics::Metrics;
use mainstay_telemetry::text::escape;
use tower::ServiceExt;

use crate::problem::Problem;
pub use access::Access;

/// Finds the router that serves an agent. Asked once per request, so an agent that was replaced is served by
/// its successor at once.
pub trait AgentDirectory: Send + Sync {
    /// The agent, as it is now.
    fn find(&self, namespace: &str, name: &str) -> Lookup;
}

/// What is known of an agent.
#[derive(Debug, Clone)]
pub enum Lookup {
    /// It can be talked to.
    Ready(Router),
    /// It exists and cannot be talked to.
    NotReady {
        /// Why, for people.
        reason: String,
    },
    /// There is no such agent.
    Absent,
}

/// What the front door is made of.
#[derive(Clone)]
pub struct FrontDoor {
    /// Who serves the agents.
    pub agents: Arc<dyn AgentDirectory>,
    /// Who may come in.
    pub access: Access,
    /// What `/metrics` shows.
    pub metrics: Metrics,
    /// Shown at `/`.
    pub version: &'static str,
    /// Further routes behind the same door.
    pub routes: Router,
    /// Routes for everybody, such as public keys: whoever reaches the address may read them.
    pub open_routes: Router,
}

/// The router of the front door. Serve it with
/// `into_make_service_with_connect_info::<SocketAddr>()`: without the peer's address every request counts as
/// one from another machine.
pub fn router(front_door: FrontDoor) -> Router {
    let access = front_door.access.clone();
    let routes = front_door.routes.clone();
    let open_routes = front_door.open_routes.clone();
    let state = Arc::new(front_door);
    Router::new()
        .route("/", get(index))
        .route("/healthz", get(|| async { "ok" }))
        .route("/metrics", get(metrics))
        .route("/ws", any(by_query))
        .route("/agents/{namespace}/{name}/{*rest}", any(by_path))
        .route("/api/agents/{namespace}/{name}/{*rest}", any(by_path))
        .with_state(state)
        .merge(routes)
        .fallback(|| async { Problem::new(StatusCode::NOT_FOUND, "not_found", "there is nothing here") })
        .layer(axum::middleware::from_fn_with_state(
            Arc::new(access),
            access::check,
        ))
        // Behind the layer, which so does not hold for them.
        .merge(open_routes)
}

async fn index(State(state): State<Arc<FrontDoor>>) -> String {
    format!(
        "Mainstay {}\n\n/agents/NAMESPACE/NAME/ws   WebSocket of an agent\n/healthz                     health\n\
         /metrics                     metrics (OpenMetrics text)\n",
        state.version
    )
}

async fn metrics(State(state): State<Arc<FrontDoor>>) -> Response {
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, content_type)], state.metrics.encode()).into_response()
}

/// `/agents/NAMESPACE/NAME/REST` is `/REST` of the agent.
async fn by_path(
    State(state): State<Arc<FrontDoor>>,
    Path((namespace, name, _)): Path<(String, String, String)>,
    request: Request,
) -> Response {
    // From the path as it was sent: the parsed one is decoded, and a decoded `%3F` would begin a query.
    let path = request.uri().path();
    let slash = if path.starts_with("/api/") { 4 } else { 3 };
    let rest = path
        .match_indices('/')
        .nth(slash)
        .map_or("/", |(at, _)| &path[at..])
        .to_owned();
    hand_over(&state, &namespace, &name, &rest, request).await
}

/// OM-505: `/ws?agent=NAME&namespace=NAMESPACE`.
async fn by_query(State(state): State<Arc<FrontDoor>>, request: Request) -> Response {
    let mut agent = None;
    let mut namespace = "default".to_owned();
    for (name, value) in url::form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes()) {
        match name.as_ref() {
            "agent" => agent = Some(value.into_owned()),
            "namespace" if !value.is_empty() => namespace = value.into_owned(),
            _ => {}
        }
    }
    match agent.filter(|agent| !agent.is_empty()) {
        Some(agent) => hand_over(&state, &namespace, &agent, "/ws", request).await,
        None => Problem::new(
            StatusCode::BAD_REQUEST,
            "agent_missing",
            "the query parameter `agent` is missing",
        )
        .into_response(),
    }
}

/// Gives the request to the agent's router, in process. A WebSocket upgrade travels in the request's
/// extensions, so it works through this as well.
async fn hand_over(
    state: &FrontDoor,
    namespace: &str,
    name: &str,
    path: &str,
    mut request: Request<Body>,
) -> Response {
    let (shown_namespace, shown_name) = (escape(namespace, 64), escape(name, 64));
    match state.agents.find(namespace, name) {
        Lookup::Ready(agent) => {
            let Some(uri) = with_path(request.uri(), path) else {
                return Problem::new(
                    StatusCode::BAD_REQUEST,
                    "bad_path",
                    "the path cannot be handed over",
                )
                .into_response();
            };
            *request.uri_mut() = uri;
            match agent.oneshot(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            }
        }
        Lookup::NotReady { reason } => Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "agent_not_ready",
            format!("agent `{shown_name}` in namespace `{shown_namespace}` is not ready: {reason}"),
        )
        .into_response(),
        Lookup::Absent => Problem::new(
            StatusCode::NOT_FOUND,
            "agent_not_found",
            format!("there is no agent `{shown_name}` in namespace `{shown_namespace}`"),
        )
        .into_response(),
    }
}

/// The same address with another path; the query stays.
fn with_path(uri: &Uri, path: &str) -> Option<Uri> {
    let path_and_query = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(path_and_query).ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests;
