//! The tools of an agent over REST: listed, asked about, called by hand.
//!
//! Only for callers whom the front door recognised: these routes make calls with the agent's credentials. A call is decided,
//! checked and sent as the agent's own would be.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Extension, Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router, http::StatusCode};
use mainstay_agent::event::Caller;
use mainstay_agent::tool::by_hand::{HandCall, NotCallable};
use mainstay_telemetry::text::escape;
use serde::Deserialize;
use serde_json::Value;

use super::{Facade, draining};
use crate::problem::Problem;

/// Largest body of a request, in bytes: arguments of one call.
const BODY_LIMIT: usize = 1 << 20;

pub(super) fn routes() -> Router<Arc<Facade>> {
    Router::new()
        .route("/tools", get(list))
        .route("/tools/{tool}", post(call))
        .route("/tools/{tool}/decision", post(explain))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
}

/// The tool's name in the path. By name and not by place: the front door's own parameters are among those of the request.
#[derive(Debug, Deserialize)]
struct Named {
    tool: String,
}

/// The body of a call.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Call {
    arguments: Value,
    /// Everything but the call.
    dry_run: bool,
}

/// The body of a question.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Question {
    arguments: Value,
    /// Further headers, as policies would see them.
    headers: BTreeMap<String, String>,
    /// Another caller than the one who asks.
    identity: Option<Caller>,
}

type Known = Option<Extension<Caller>>;

async fn list(State(facade): State<Arc<Facade>>, caller: Known) -> Response {
    match recognised(caller) {
        Ok(_) => Json(facade.engine.list_tools().await).into_response(),
        Err(problem) => problem.into_response(),
    }
}

async fn call(
    State(facade): State<Arc<Facade>>,
    Path(Named { tool }): Path<Named>,
    caller: Known,
    body: Result<Json<Call>, JsonRejection>,
) -> Response {
    let (caller, body) = match (recognised(caller), body) {
        (Err(problem), _) => return problem.into_response(),
        (_, Err(rejection)) => return unreadable(&rejection).into_response(),
        (Ok(caller), Ok(Json(body))) => (caller, body),
    };
    if facade.engine.is_draining() {
        return draining().into_response();
    }
    let asked = HandCall {
        tool,
        arguments: body.arguments,
        caller,
        headers: BTreeMap::new(),
    };
    match facade.engine.call_by_hand(asked, body.dry_run).await {
        Ok(result) => Json(result).into_response(),
        Err(error) => problem(&error).into_response(),
    }
}

async fn explain(
    State(facade): State<Arc<Facade>>,
    Path(Named { tool }): Path<Named>,
    caller: Known,
    body: Result<Json<Question>, JsonRejection>,
) -> Response {
    let (caller, body) = match (recognised(caller), body) {
        (Err(problem), _) => return problem.into_response(),
        (_, Err(rejection)) => return unreadable(&rejection).into_response(),
        (Ok(caller), Ok(Json(body))) => (caller, body),
    };
    let asked = HandCall {
        tool,
        arguments: body.arguments,
        caller: body.identity.unwrap_or(caller),
        headers: body.headers,
    };
    match facade.engine.explain_call(asked).await {
        Ok(explanation) => Json(explanation).into_response(),
        Err(error) => problem(&error).into_response(),
    }
}

/// The caller, as the front door knows it.
fn recognised(caller: Known) -> Result<Caller, Problem> {
    caller.map(|Extension(caller)| caller).ok_or_else(|| {
        Problem::new(
            StatusCode::UNAUTHORIZED,
            "unauthorized",
            "tools are listed and called through the front door only",
        )
    })
}

fn unreadable(rejection: &JsonRejection) -> Problem {
    Problem::new(
        rejection.status(),
        "body_invalid",
        escape(&rejection.body_text(), 512),
    )
}

fn problem(error: &NotCallable) -> Problem {
    let (status, code) = match error {
        NotCallable::Unknown { .. } => (StatusCode::NOT_FOUND, "tool_not_found"),
        NotCallable::NotOffered(_) => (StatusCode::FORBIDDEN, "tool_not_offered"),
        NotCallable::Arguments(_) => (StatusCode::BAD_REQUEST, "arguments_invalid"),
    };
    Problem::new(status, code, error.to_string())
}
