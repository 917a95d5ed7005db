//! Anthropic Messages over HTTP, and the servers that speak it.

#[cfg(test)]
mod tests;

use async_trait::async_trait;
use http::{HeaderName, HeaderValue};
use url::Url;

use crate::{
    conversion::anthropic_messages::{reader::AnswerReader, request_to_wire},
    error::ModelError,
    event::ModelStream,
    model::Model,
    request::Request,
    transport::{self, Transport},
};

/// The version of the format that is spoken.
const VERSION: &str = "2023-06-01";

/// One server. Makes each call once; [`crate::fallback::Chain`] makes it again.
#[derive(Debug)]
pub(crate) struct Anthropic {
    transport: Transport,
    endpoint: Url,
}

impl Anthropic {
    pub(crate) fn new(mut transport: Transport, endpoint: Url) -> Self {
        // A configured version wins: servers exist that know only a newer one.
        let name = HeaderName::from_static("anthropic-version");
        transport
            .headers
            .entry(name)
            .or_insert(HeaderValue::from_static(VERSION));
        Self { transport, endpoint }
    }
}

#[async_trait]
impl Model for Anthropic {
    fn name(&self) -> &str {
        &self.transport.name
    }

    async fn stream(&self, request: Request) -> Result<ModelStream, ModelError> {
        let call = self.transport.begin()?;
        let body = request_to_wire(&request);
        let response = self.transport.post(&self.endpoint, &body, &call).await?;
        if !response.status.is_success() {
            return Err(self.transport.refusal(response, &call).await.error);
        }
        self.transport
            .read(response, call, Box::new(AnswerReader::default()))
            .await
    }
}

/// `v1/messages` below `base`. A `/v1` at the end of the base is not doubled, and the whole URL is
/// taken as well (OR-250).
pub(crate) fn endpoint(base: &str) -> Result<Url, String> {
    let mut url = transport::base_url(base)?;
    let path = url.path().trim_end_matches('/').to_owned();
    let path = path.strip_suffix("/messages").unwrap_or(&path);
    let path = path.strip_suffix("/v1").unwrap_or(path);
    url.set_path(&format!("{}/v1/messages", path.trim_end_matches('/')));
    Ok(url)
}
