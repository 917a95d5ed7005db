//! One call of a provider over HTTP, whatever its wire format: key, headers, time limits, refusals.

mod answer;
#[cfg(test)]
mod tests;

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use mainstay_telemetry::{clock::SharedClock, random::SharedRandom};
use mainstay_workload::{ConnectError, Connector, OutboundRequest, OutboundResponse, retry_after};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use tokio::time::Instant;
use url::Url;

use crate::{
    conversion::{Reader, error_from_body},
    credential::Credential,
    error::{ModelError, ModelErrorKind},
    event::ModelStream,
    idle,
};

/// Longest time of one call where the provider sets none.
pub(crate) const DEFAULT_REQUEST_TIMEOUT: Duration = Duration::from_secs(600);

// Errors are a few hundred bytes; whatever is longer is a page of HTML.
const ERROR_BODY_LIMIT: usize = 64 * 1024;

// A plain answer of a server that ignores `stream`.
const PLAIN_BODY_LIMIT: usize = 16 * 1024 * 1024;

/// The header that carries the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyHeader {
    /// `Authorization: Bearer KEY`.
    Bearer,
    /// `x-api-key: KEY`.
    ApiKey,
    /// `api-key: KEY`, as Azure wants it (OR-244).
    AzureKey,
}

/// How a provider is reached.
#[derive(Debug)]
pub(crate) struct Transport {
    pub(crate) name: String,
    pub(crate) headers: HeaderMap,
    pub(crate) credential: Option<Credential>,
    pub(crate) key_header: KeyHeader,
    pub(crate) request_timeout: Duration,
    pub(crate) idle_timeout: Duration,
    pub(crate) connector: Connector,
    pub(crate) clock: SharedClock,
    pub(crate) random: SharedRandom,
}

/// What stays the same over the requests of one call.
pub(crate) struct Call {
    key: Option<SecretString>,
    headers: HeaderMap,
    ends: Instant,
}

/// A response that is not a success.
pub(crate) struct Refusal {
    pub(crate) error: ModelError,
    /// The body as it came, without the key.
    pub(crate) body: String,
}

impl Transport {
    fn error(&self, kind: ModelErrorKind, message: impl AsRef<str>) -> ModelError {
        ModelError::new(&self.name, kind, message)
    }

    /// Begins a call: its time runs from here, and the key is read as it is now.
    pub(crate) fn begin(&self) -> Result<Call, ModelError> {
        let ends = Instant::now() + self.request_timeout;
        let key = match &self.credential {
            Some(credential) => Some(credential.read(&self.name)?),
            None => None,
        };
        let mut headers = self.headers.clone();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(
            header::ACCEPT,
            HeaderValue::from_static("text/event-stream, application/json"),
        );
        if let Some(key) = &key {
            let (name, value) = match self.key_header {
                KeyHeader::Bearer => (header::AUTHORIZATION, format!("Bearer {}", key.expose_secret())),
                KeyHeader::ApiKey => (
                    HeaderName::from_static("x-api-key"),
                    key.expose_secret().to_owned(),
                ),
                KeyHeader::AzureKey => (HeaderName::from_static("api-key"), key.expose_secret().to_owned()),
            };
            let mut value = HeaderValue::from_str(&value).map_err(|_| {
                self.error(
                    ModelErrorKind::CredentialUnavailable,
                    "the credential holds a character that a header cannot carry",
                )
            })?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(Call { key, headers, ends })
    }

    /// Sends one request of `call`.
    pub(crate) async fn post(
        &self,
        url: &Url,
        body: &impl Serialize,
        call: &Call,
    ) -> Result<OutboundResponse, ModelError> {
        let body = serde_json::to_vec(body).map_err(|error| {
            self.error(
                ModelErrorKind::InvalidRequest,
                format!("the request cannot be written: {error}"),
            )
        })?;
        let sending = self.connector.send(OutboundRequest {
            method: Method::POST,
            url: url.clone(),
            headers: call.headers.clone(),
            body: Some(Bytes::from(body)),
            deadline: call.ends.saturating_duration_since(Instant::now()),
        });
        // The wait for the first byte counts as time without a token (OM-371).
        match tokio::time::timeout(self.idle_timeout, sending).await {
            Ok(response) => response.map_err(|error| connect_error(&self.name, &error)),
            Err(_) => Err(idle::error(&self.name, self.idle_timeout)),
        }
    }

    /// The error that `response` is.
    pub(crate) async fn refusal(&self, response: OutboundResponse, call: &Call) -> Refusal {
        let status = response.status.as_u16();
        let retry_after = response
            .headers
            .get(header::RETRY_AFTER)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| retry_after::parse(value, self.clock.now()));
        // Without its body the error still has its status, which is what retries go by.
        let body = match response.bytes_capped(ERROR_BODY_LIMIT).await {
            Ok((body, _)) => body,
            Err(_) => Bytes::new(),
        };
        let body = redacted(String::from_utf8_lossy(&body).into_owned(), call.key.as_ref());
        let mut error = error_from_body(&self.name, status, body.as_bytes());
        error.retry_after = retry_after;
        Refusal { error, body }
    }

    /// The events of a successful response, whether the server streams or ignores that it was asked
    /// to. Any other content is a page of something else that answers at this address (OM-495).
    pub(crate) async fn read(
        &self,
        response: OutboundResponse,
        call: Call,
        reader: Box<dyn Reader>,
    ) -> Result<ModelStream, ModelError> {
        let is_plain = match BodyKind::of(&response.headers) {
            BodyKind::Events => false,
            BodyKind::Json => true,
            BodyKind::Other(kind) => {
                let kind = redacted(kind, call.key.as_ref());
                return Err(self.error(
                    ModelErrorKind::Protocol,
                    format!("the server answered with `{kind}` instead of an event stream or JSON"),
                ));
            }
        };
        let limits = answer::Limits {
            provider: self.name.clone(),
            key: call.key,
            idle_timeout: self.idle_timeout,
            request_timeout: self.request_timeout,
            ends: call.ends,
        };
        if !is_plain {
            let provider = self.name.clone();
            let bytes = response
                .into_stream()
                .map(move |chunk| chunk.map_err(|error| connect_error(&provider, &error)));
            return Ok(Box::pin(answer::read(
                bytes,
                reader,
                limits,
                SharedRandom::clone(&self.random),
            )));
        }
        let (body, cut) = response
            .bytes_capped(PLAIN_BODY_LIMIT)
            .await
            .map_err(|error| connect_error(&self.name, &error))?;
        if cut {
            return Err(self.error(
                ModelErrorKind::Protocol,
                format!("the answer is larger than {PLAIN_BODY_LIMIT} bytes"),
            ));
        }
        answer::read_plain(&body, reader, &limits, &*self.random)
    }
}

/// What a body is by its content type.
#[derive(Debug, PartialEq, Eq)]
enum BodyKind {
    Events,
    Json,
    Other(String),
}

impl BodyKind {
    /// A body without a content type is read as the stream that was asked for: small servers leave
    /// the header out, and what is no stream is found out by its content.
    fn of(headers: &HeaderMap) -> Self {
        let Some(value) = headers.get(header::CONTENT_TYPE) else {
            return Self::Events;
        };
        let value = String::from_utf8_lossy(value.as_bytes());
        let kind = value.split(';').next().unwrap_or_default().trim();
        match kind.to_lowercase().as_str() {
            "" | "text/event-stream" => Self::Events,
            "application/json" | "text/json" => Self::Json,
            lower if lower.ends_with("+json") => Self::Json,
            _ => Self::Other(kind.to_owned()),
        }
    }
}

fn connect_error(provider: &str, error: &ConnectError) -> ModelError {
    let kind = match error {
        ConnectError::TimedOut { .. } => ModelErrorKind::TimedOut,
        ConnectError::InvalidUrl { .. } | ConnectError::SetUp { .. } => ModelErrorKind::Configuration,
        ConnectError::AddressRefused { .. } => ModelErrorKind::Unreachable,
        error if error.is_network() => ModelErrorKind::Network,
        _ => ModelErrorKind::Unreachable,
    };
    ModelError::new(provider, kind, error.to_string())
}

// A shorter key would be found in ordinary words.
const SHORTEST_KEY: usize = 4;

/// `text` without the key: servers quote the key they refuse. Done before a message is cut, since a
/// cut could leave a part of the key.
fn redacted(text: String, key: Option<&SecretString>) -> String {
    match key.map(ExposeSecret::expose_secret) {
        Some(key) if key.len() >= SHORTEST_KEY => text.replace(key, "[REDACTED]"),
        _ => text,
    }
}

/// Headers from configuration.
///
/// # Errors
/// The name of the header that cannot be sent.
pub(crate) fn header_map<'a>(
    headers: impl IntoIterator<Item = (&'a String, &'a String)>,
) -> Result<HeaderMap, String> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let (Ok(header), Ok(mut value)) = (
            HeaderName::from_bytes(name.as_bytes()),
            HeaderValue::from_str(value),
        ) else {
            return Err(mainstay_telemetry::text::escape(name, 64));
        };
        value.set_sensitive(true);
        map.insert(header, value);
    }
    Ok(map)
}

/// A base URL, without the blanks around it, its fragment and the slashes at its end.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn base_url(text: &str) -> Result<Url, String> {
    let mut url = Url::parse(text.trim()).map_err(|error| error.to_string())?;
    if !matches!(url.scheme(), "http" | "https") || url.cannot_be_a_base() {
        return Err("it must start with http:// or https://".to_owned());
    }
    url.set_fragment(None);
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&path);
    Ok(url)
}
