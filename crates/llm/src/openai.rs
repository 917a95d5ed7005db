//! OpenAI Chat Completions over HTTP, and the many servers that speak it.

mod answer;
#[cfg(test)]
mod tests;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use mainstay_telemetry::{clock::SharedClock, random::SharedRandom};
use mainstay_workload::{ConnectError, Connector, OutboundRequest, OutboundResponse};
use secrecy::{ExposeSecret, SecretString};
use tokio::time::Instant;
use url::Url;

use crate::{
    conversion::{
        error_from_body,
        openai_chat::{Dialect, request_to_wire, response_as_chunk},
        rejects_stream_options,
    },
    credential::Credential,
    error::{ModelError, ModelErrorKind},
    event::ModelStream,
    model::Model,
    request::Request,
    retry_after,
    types::openai_chat as wire,
};

/// Longest time without a token where the provider sets none (OM-371).
pub const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// Longest time of one call where the provider sets none.
pub const DEFAULT_REQUEST_TIMEOUT: Duration = Duration::from_secs(600);

// Errors are a few hundred bytes; whatever is longer is a page of HTML.
const ERROR_BODY_LIMIT: usize = 64 * 1024;

// A plain answer of a server that ignores `stream`.
const PLAIN_BODY_LIMIT: usize = 16 * 1024 * 1024;

/// How one server is reached and spoken to.
#[derive(Debug)]
pub(crate) struct OpenAiOptions {
    pub(crate) name: String,
    /// The URL of `chat/completions`.
    pub(crate) endpoint: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) credential: Option<Credential>,
    pub(crate) newer_limit_name: bool,
    pub(crate) request_timeout: Duration,
    pub(crate) idle_timeout: Duration,
    pub(crate) connector: Connector,
    pub(crate) clock: SharedClock,
    pub(crate) random: SharedRandom,
}

/// One server. Makes each call once; [`crate::retry::Retrying`] makes it again.
#[derive(Debug)]
pub struct OpenAi {
    options: OpenAiOptions,
    // Set when the server refused `stream_options` once. Read and written by concurrent calls; a
    // lost race costs one more refused request.
    usage_refused: Arc<AtomicBool>,
}

impl OpenAi {
    pub(crate) fn new(options: OpenAiOptions) -> Self {
        Self {
            options,
            usage_refused: Arc::default(),
        }
    }

    fn error(&self, kind: ModelErrorKind, message: impl AsRef<str>) -> ModelError {
        ModelError::new(&self.options.name, kind, message)
    }

    fn headers(&self, key: Option<&SecretString>) -> Result<HeaderMap, ModelError> {
        let mut headers = self.options.headers.clone();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(
            header::ACCEPT,
            HeaderValue::from_static("text/event-stream, application/json"),
        );
        if let Some(key) = key {
            let mut value =
                HeaderValue::from_str(&format!("Bearer {}", key.expose_secret())).map_err(|_| {
                    self.error(
                        ModelErrorKind::CredentialUnavailable,
                        "the credential holds a character that a header cannot carry",
                    )
                })?;
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
        Ok(headers)
    }

    async fn send(
        &self,
        request: &Request,
        headers: HeaderMap,
        include_usage: bool,
        ends: Instant,
    ) -> Result<OutboundResponse, ModelError> {
        let dialect = Dialect {
            newer_limit_name: self.options.newer_limit_name,
            include_usage,
        };
        let body = serde_json::to_vec(&request_to_wire(request, dialect)).map_err(|error| {
            self.error(
                ModelErrorKind::Protocol,
                format!("the request cannot be written: {error}"),
            )
        })?;
        let sending = self.options.connector.send(OutboundRequest {
            method: Method::POST,
            url: self.options.endpoint.clone(),
            headers,
            body: Some(Bytes::from(body)),
            deadline: ends.saturating_duration_since(Instant::now()),
        });
        // The wait for the first byte counts as time without a token (OM-371).
        match tokio::time::timeout(self.options.idle_timeout, sending).await {
            Ok(response) => response.map_err(|error| connect_error(&self.options, &error)),
            Err(_) => Err(answer::idle_error(&self.options.name, self.options.idle_timeout)),
        }
    }

    async fn refusal(&self, response: OutboundResponse, key: Option<&SecretString>) -> (ModelError, String) {
        let status = response.status.as_u16();
        let retry_after = response
            .headers
            .get(header::RETRY_AFTER)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| retry_after::parse(value, self.options.clock.now()));
        // Without its body the error still has its status, which is what retries go by.
        let body = match response.bytes_capped(ERROR_BODY_LIMIT).await {
            Ok((body, _)) => body,
            Err(_) => Bytes::new(),
        };
        let body = redacted(String::from_utf8_lossy(&body).into_owned(), key);
        let mut error = error_from_body(&self.options.name, status, body.as_bytes());
        error.retry_after = retry_after;
        (error, body)
    }
}

#[async_trait]
impl Model for OpenAi {
    fn name(&self) -> &str {
        &self.options.name
    }

    async fn stream(&self, request: Request) -> Result<ModelStream, ModelError> {
        let ends = Instant::now() + self.options.request_timeout;
        let key = match &self.options.credential {
            Some(credential) => Some(credential.read(&self.options.name)?),
            None => None,
        };
        let headers = self.headers(key.as_ref())?;
        let include_usage = !self.usage_refused.load(Ordering::Relaxed);
        let mut response = self.send(&request, headers.clone(), include_usage, ends).await?;
        if include_usage && matches!(response.status.as_u16(), 400 | 422) {
            let (error, body) = self.refusal(response, key.as_ref()).await;
            if !rejects_stream_options(&body) {
                return Err(error);
            }
            self.usage_refused.store(true, Ordering::Relaxed);
            response = self.send(&request, headers, false, ends).await?;
        }
        if !response.status.is_success() {
            return Err(self.refusal(response, key.as_ref()).await.0);
        }

        let is_plain = response
            .headers
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .is_some_and(|value| value.trim_start().starts_with("application/json"));
        let limits = answer::Limits {
            provider: self.options.name.clone(),
            key,
            idle_timeout: self.options.idle_timeout,
            request_timeout: self.options.request_timeout,
            ends,
        };
        let random = Arc::clone(&self.options.random);
        if !is_plain {
            let options = ErrorNames::of(&self.options);
            let bytes = response
                .into_stream()
                .map(move |chunk| chunk.map_err(|error| options.connect_error(&error)));
            return Ok(Box::pin(answer::read(bytes, limits, random)));
        }
        let (body, cut) = response
            .bytes_capped(PLAIN_BODY_LIMIT)
            .await
            .map_err(|error| connect_error(&self.options, &error))?;
        if cut {
            return Err(self.error(
                ModelErrorKind::Protocol,
                format!("the answer is larger than {PLAIN_BODY_LIMIT} bytes"),
            ));
        }
        answer::read_plain(&body, &limits, &*random)
    }
}

/// What a connection error needs to know of its provider; owned by the stream that outlives the call.
struct ErrorNames {
    provider: String,
}

impl ErrorNames {
    fn of(options: &OpenAiOptions) -> Self {
        Self {
            provider: options.name.clone(),
        }
    }

    fn connect_error(&self, error: &ConnectError) -> ModelError {
        let kind = match error {
            ConnectError::TimedOut { .. } => ModelErrorKind::TimedOut,
            ConnectError::InvalidUrl { .. } | ConnectError::SetUp { .. } => ModelErrorKind::Configuration,
            ConnectError::AddressRefused { .. } => ModelErrorKind::Unreachable,
            error if error.is_network() => ModelErrorKind::Network,
            _ => ModelErrorKind::Unreachable,
        };
        ModelError::new(&self.provider, kind, error.to_string())
    }
}

fn connect_error(options: &OpenAiOptions, error: &ConnectError) -> ModelError {
    ErrorNames::of(options).connect_error(error)
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

/// `chat/completions` below `base`. A base that is only a host gets `default_path` first, since the
/// addresses people copy for local servers lack it.
pub(crate) fn endpoint(base: &str, default_path: &str) -> Result<Url, String> {
    let mut url = Url::parse(base.trim()).map_err(|error| error.to_string())?;
    if !matches!(url.scheme(), "http" | "https") || url.cannot_be_a_base() {
        return Err("it must start with http:// or https://".to_owned());
    }
    url.set_fragment(None);
    let path = url.path().trim_end_matches('/').to_owned();
    let path = path.strip_suffix("/chat/completions").unwrap_or(&path);
    let path = if path.is_empty() { default_path } else { path };
    url.set_path(&format!("{path}/chat/completions"));
    Ok(url)
}

fn plain_chunk(body: &[u8]) -> Result<wire::ChatChunk, serde_json::Error> {
    serde_json::from_slice(body).map(response_as_chunk)
}
