//! One request and its answer.

use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, header};
use http_body_util::BodyExt as _;
use kube::{Client, client::Body};
use serde_json::{Value, json};

use super::{Server, stream::Events};
use crate::{case::Step, placeholders::Placeholders};

/// A request that is ready to be sent.
pub(super) struct Exchange {
    client: Client,
    request: Request<Body>,
}

/// What a server answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Value,
}

/// The media type of a short name.
fn media_type(content: &str) -> &str {
    match content {
        "" | "json" => "application/json",
        "yaml" => "application/yaml",
        "merge" => "application/merge-patch+json",
        "json-patch" => "application/json-patch+json",
        "strategic" => "application/strategic-merge-patch+json",
        "apply" => "application/apply-patch+yaml",
        other => other,
    }
}

impl Exchange {
    pub(super) fn prepare(server: &Server, placeholders: &Placeholders, step: &Step) -> anyhow::Result<Self> {
        let client = if step.anonymous {
            server
                .anonymous
                .clone()
                .context("this server cannot be asked without credentials")?
        } else {
            server.admin.clone()
        };
        let line = placeholders.fill(&step.request);
        let (verb, path) = line
            .split_once(' ')
            .with_context(|| format!("{line:?} is not VERB PATH"))?;
        let body = match (&step.body, &step.text) {
            (Some(body), _) => Bytes::from(placeholders.fill_value(body).to_string()),
            (None, Some(text)) => Bytes::from(placeholders.fill(text)),
            (None, None) => Bytes::new(),
        };
        let mut request = Request::builder()
            .method(verb)
            .uri(path)
            .body(Body::from(body.clone()))
            .with_context(|| format!("{line:?} is no request"))?;
        let headers = request.headers_mut();
        headers.insert(header::ACCEPT, "application/json".parse()?);
        headers.insert(header::USER_AGENT, "vectors/1.0".parse()?);
        if !body.is_empty() {
            headers.insert(header::CONTENT_TYPE, media_type(&step.content).parse()?);
        }
        for (name, value) in &step.headers {
            let name: http::HeaderName = name.parse()?;
            headers.insert(name, placeholders.fill(value).parse()?);
        }
        Ok(Self { client, request })
    }

    /// Sends the request and reads the whole answer.
    pub(super) async fn send(self, deadline: Duration) -> anyhow::Result<Answer> {
        let answering = async {
            let response = self.client.send(self.request).await?;
            Answer::read(response).await
        };
        tokio::time::timeout(deadline, answering)
            .await
            .context("no answer in time")?
    }

    /// Sends the request of a watch; with its events if it was accepted.
    pub(super) async fn watch(self) -> anyhow::Result<(Answer, Option<Events>)> {
        let response = self.client.send(self.request).await?;
        if response.status() != http::StatusCode::OK {
            return Ok((Answer::read(response).await?, None));
        }
        let (parts, body) = response.into_parts();
        let answer = Answer {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: Value::Null,
        };
        Ok((answer, Some(Events::new(body))))
    }
}

impl Answer {
    async fn read(response: Response<Body>) -> anyhow::Result<Self> {
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await?.to_bytes();
        let body = match serde_json::from_slice(&bytes) {
            Ok(value) => value,
            Err(_not_json) if bytes.is_empty() => Value::Null,
            Err(_not_json) => {
                lines(&bytes).unwrap_or_else(|| Value::String(String::from_utf8_lossy(&bytes).into_owned()))
            }
        };
        Ok(Self {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body,
        })
    }

    /// The status and the headers that clients act upon.
    pub(super) fn head(&self) -> Value {
        let mut head = json!({"status": self.status});
        let mut set = |name: &str, value: Value| {
            if let Value::Object(members) = &mut head {
                members.insert(name.to_owned(), value);
            }
        };
        if let Some(content) = self.text(&header::CONTENT_TYPE) {
            set("contentType", Value::from(content));
        }
        if let Some(after) = self.text(&header::RETRY_AFTER) {
            set("retryAfter", Value::from(after));
        }
        let warnings: Vec<&str> = self
            .headers
            .get_all(header::WARNING)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .collect();
        if !warnings.is_empty() {
            set("warnings", Value::from(warnings));
        }
        head
    }

    fn text(&self, name: &http::HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// A watch that ended by itself: its events.
fn lines(bytes: &[u8]) -> Option<Value> {
    std::str::from_utf8(bytes)
        .ok()?
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).ok())
        .collect()
}
