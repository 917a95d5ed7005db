//! The one form of an HTTP error: `{"error": CODE, "detail": TEXT}`.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::Serialize;

/// An HTTP error.
#[derive(Debug, Clone)]
pub struct Problem {
    status: StatusCode,
    body: Body,
}

#[derive(Debug, Clone, Serialize)]
struct Body {
    /// Stable code.
    error: &'static str,
    /// For people.
    detail: String,
}

impl Problem {
    /// An error with a stable code and a text for people.
    pub fn new(status: StatusCode, error: &'static str, detail: impl Into<String>) -> Self {
        Self {
            status,
            body: Body {
                error,
                detail: detail.into(),
            },
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        (self.status, Json(self.body)).into_response()
    }
}
