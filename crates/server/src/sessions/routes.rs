//! The sessions over REST, behind the front door.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use http::StatusCode;
use mainstay_telemetry::text::escape;
use serde::Deserialize;
use serde_json::json;

use super::{PAGE, Sessions, SessionsError};
use crate::problem::Problem;

/// Most sessions of one answer.
const MOST: usize = 1000;
/// Sessions of an answer where nothing is said.
const USUAL: usize = 20;

/// `/api/sessions` of [`crate::front_door::FrontDoor::routes`].
pub fn router(sessions: Sessions) -> Router {
    Router::new()
        .route("/api/sessions", get(list))
        .route("/api/sessions/{namespace}/{session}", get(one))
        .route("/api/sessions/{namespace}/{session}/events", get(events))
        .with_state(sessions)
}

#[derive(Debug, Deserialize)]
struct Wanted {
    #[serde(default = "default_namespace")]
    namespace: String,
    agent: Option<String>,
    limit: Option<usize>,
}

#[derive(Debug, Deserialize)]
struct Part {
    agent: Option<String>,
    #[serde(default)]
    after: u64,
    limit: Option<usize>,
}

fn default_namespace() -> String {
    "default".to_owned()
}

type Asked<T> = Result<Query<T>, QueryRejection>;

async fn list(State(sessions): State<Sessions>, asked: Asked<Wanted>) -> Response {
    let asked = match asked {
        Ok(Query(asked)) => asked,
        Err(rejection) => return bad_query(&rejection),
    };
    let limit = asked.limit.unwrap_or(USUAL).clamp(1, MOST);
    match sessions
        .list(&asked.namespace, asked.agent.as_deref(), limit)
        .await
    {
        Ok(found) => Json(json!({ "sessions": found })).into_response(),
        Err(error) => problem(&error),
    }
}

async fn one(
    State(sessions): State<Sessions>,
    Path((namespace, session)): Path<(String, String)>,
    asked: Asked<Part>,
) -> Response {
    let asked = match asked {
        Ok(Query(asked)) => asked,
        Err(rejection) => return bad_query(&rejection),
    };
    match sessions.find(&namespace, asked.agent.as_deref(), &session).await {
        Ok(found) => Json(found).into_response(),
        Err(error) => problem(&error),
    }
}

async fn events(
    State(sessions): State<Sessions>,
    Path((namespace, session)): Path<(String, String)>,
    asked: Asked<Part>,
) -> Response {
    let asked = match asked {
        Ok(Query(asked)) => asked,
        Err(rejection) => return bad_query(&rejection),
    };
    let found = match sessions.find(&namespace, asked.agent.as_deref(), &session).await {
        Ok(found) => found,
        Err(error) => return problem(&error),
    };
    match sessions
        .events(&found, asked.after, asked.limit.unwrap_or(PAGE))
        .await
    {
        Ok(page) => Json(page).into_response(),
        Err(error) => problem(&error),
    }
}

fn bad_query(rejection: &QueryRejection) -> Response {
    Problem::new(
        StatusCode::BAD_REQUEST,
        "bad_query",
        escape(&rejection.body_text(), 256),
    )
    .into_response()
}

fn problem(error: &SessionsError) -> Response {
    let (status, code) = match error {
        SessionsError::NotFound { .. } => (StatusCode::NOT_FOUND, "session_not_found"),
        SessionsError::Ambiguous { .. } => (StatusCode::BAD_REQUEST, "session_ambiguous"),
        SessionsError::Store(source) => {
            tracing::error!(error = %source, "sessions cannot be read");
            (StatusCode::SERVICE_UNAVAILABLE, "sessions_unavailable")
        }
    };
    Problem::new(status, code, error.to_string()).into_response()
}
