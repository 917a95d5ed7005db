//! Building HTTP answers. Requirements KA-006, KA-014.

mod yaml;

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body::Body as _;
use serde_json::Value;

use crate::{
    negotiation::{Encoding, Form, Rendering},
    protobuf,
    status::ApiError,
};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const YAML: HeaderValue = HeaderValue::from_static("application/yaml");
const PROTOBUF: HeaderValue = HeaderValue::from_static("application/vnd.kubernetes.protobuf");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// An answer before its headers are final.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) content_type: HeaderValue,
    pub(crate) body: Body,
    /// Sent as `Warning: 299 - "…"`.
    pub(crate) warnings: Vec<String>,
    /// `details.retryAfterSeconds` of a refusal, sent as `Retry-After` too.
    pub(crate) retry_after_seconds: Option<u32>,
    /// What the body is: it is written as the client wants this form written.
    form: Form,
    /// Further headers, of answers that are not the API's own words.
    pub(crate) headers: HeaderMap,
}

impl Answer {
    /// JSON that is already encoded.
    pub(crate) fn encoded(status: StatusCode, body: Bytes) -> Self {
        Self {
            status,
            content_type: JSON,
            body: Body::from(body),
            warnings: Vec::new(),
            retry_after_seconds: None,
            form: Form::Plain,
            headers: HeaderMap::new(),
        }
    }

    /// A JSON document.
    pub(crate) fn json(status: StatusCode, value: &Value) -> Self {
        Self::encoded(status, Bytes::from(value.to_string()))
    }

    /// 200 with a JSON document.
    pub(crate) fn ok(value: &Value) -> Self {
        Self::json(StatusCode::OK, value)
    }

    /// Plain text, as health checks and unknown paths use it.
    pub(crate) fn text(status: StatusCode, text: impl Into<String>) -> Self {
        Self {
            status,
            content_type: TEXT,
            body: Body::from(text.into()),
            warnings: Vec::new(),
            retry_after_seconds: None,
            form: Form::Plain,
            headers: HeaderMap::new(),
        }
    }

    /// A stream of events or of log lines.
    pub(crate) fn stream(content_type: HeaderValue, body: Body) -> Self {
        Self {
            status: StatusCode::OK,
            content_type,
            body,
            warnings: Vec::new(),
            retry_after_seconds: None,
            form: Form::Plain,
            headers: HeaderMap::new(),
        }
    }

    /// Headers alone: of a connection that is taken over.
    pub(crate) fn bare(status: StatusCode, headers: HeaderMap) -> Self {
        let mut answer = Self::text(status, "");
        answer.content_type = HeaderValue::from_static("");
        answer.headers = headers;
        answer
    }

    /// What the reference says for a path below no API: plain text, not a `Status`.
    pub(crate) fn page_not_found() -> Self {
        Self::text(StatusCode::NOT_FOUND, "404 page not found\n")
    }

    /// What the reference says for a document that it does not have: nothing.
    pub(crate) fn nothing_found() -> Self {
        let mut answer = Self::text(StatusCode::NOT_FOUND, "");
        answer.content_type = HeaderValue::from_static("");
        answer
    }

    /// A refusal as a `Status`.
    pub(crate) fn refusal(error: &ApiError) -> Self {
        let status = StatusCode::from_u16(error.reason.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut answer = Self::json(status, &error.to_status());
        answer.retry_after_seconds = error.retry_after_seconds;
        answer.with_warnings(error.warnings.clone())
    }

    /// Says that the body is not the object or list itself but this form of it.
    pub(crate) fn in_form(mut self, form: Form) -> Self {
        self.form = form;
        self
    }

    /// Adds warnings.
    pub(crate) fn with_warnings(mut self, warnings: Vec<String>) -> Self {
        self.warnings.extend(warnings);
        self
    }

    /// The answer as the client wants it written: in the first of `renderings`, which are in its order, that is of this form
    /// and has the kind. Streams are written as they are; so is what has no other form. Requirement KA-007.
    pub(crate) async fn rendered(mut self, mut renderings: Vec<Rendering>) -> Self {
        renderings.retain(|rendering| rendering.form == self.form);
        let plain = renderings
            .first()
            .is_none_or(|rendering| rendering.encoding == Encoding::Json && !rendering.beta);
        if plain || self.content_type != JSON || self.body.size_hint().exact().is_none() {
            return self;
        }
        // In memory already, and of no other length than it was made with.
        let Ok(bytes) = axum::body::to_bytes(std::mem::take(&mut self.body), usize::MAX).await else {
            return self;
        };
        let Ok(value) = serde_json::from_slice::<Value>(&bytes) else {
            self.body = Body::from(bytes);
            return self;
        };
        for rendering in renderings {
            let value = rendering.version(&value);
            match rendering.encoding {
                Encoding::Json if rendering.beta => self.body = Body::from(value.to_string()),
                Encoding::Json => self.body = Body::from(bytes),
                Encoding::Yaml => {
                    self.body = Body::from(yaml::encode(&value));
                    self.content_type = YAML;
                }
                Encoding::Protobuf => match protobuf::encode(&value) {
                    Some(Ok(encoded)) => {
                        self.body = Body::from(encoded);
                        self.content_type = PROTOBUF;
                    }
                    Some(Err(unfit)) => {
                        tracing::error!(%unfit, "an answer cannot be written in protobuf");
                        self.status = StatusCode::INTERNAL_SERVER_ERROR;
                        self.body = Body::from(protobuf::refusal(&unfit).to_string());
                    }
                    None => continue,
                },
            }
            return self;
        }
        self.body = Body::from(bytes);
        self
    }

    /// The HTTP response.
    pub(crate) fn into_response(self) -> Response {
        let mut response = Response::new(self.body);
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        if !self.content_type.is_empty() {
            headers.insert(header::CONTENT_TYPE, self.content_type);
        }
        headers.insert(
            header::CACHE_CONTROL,
            HeaderValue::from_static("no-cache, private"),
        );
        headers.extend(self.headers);
        for warning in &self.warnings {
            if let Ok(value) = HeaderValue::from_str(&warning_text(warning)) {
                headers.append(header::WARNING, value);
            }
        }
        if let Some(seconds) = self.retry_after_seconds {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// `299 - "TEXT"` with quotes and backslashes escaped and control characters replaced, since a header cannot hold them.
fn warning_text(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 10);
    quoted.push_str("299 - \"");
    for character in text.chars() {
        match character {
            '"' | '\\' => {
                quoted.push('\\');
                quoted.push(character);
            }
            _ if character.is_control() => quoted.push(' '),
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_header_escapes_quotes_ka_014() {
        assert_eq!(
            warning_text("unknown field \"spec.x\""),
            "299 - \"unknown field \\\"spec.x\\\"\""
        );
        assert!(!warning_text("a\r\nb").contains('\n'));
    }
}
