//! OpenAI's formats over HTTP, and the many servers that speak one of them: Chat Completions, and
//! Responses where the configuration asks for it.

pub(crate) mod azure;
pub(crate) mod selection;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use url::Url;

use crate::{
    conversion::{
        openai_chat::{self, Dialect},
        openai_responses, rejects_stream_options,
    },
    error::ModelError,
    event::ModelStream,
    model::Model,
    request::Request,
    retry::first_event,
    transport::{self, Call, Transport},
};
use selection::{ApiMode, ApiSelection, Verdict, judge};

/// How one server is reached and spoken to.
#[derive(Debug)]
pub(crate) struct OpenAiOptions {
    pub(crate) transport: Transport,
    /// The URLs of the two formats.
    pub(crate) endpoints: Endpoints,
    /// What is known of the server from the start.
    pub(crate) mode: ApiMode,
    pub(crate) newer_limit_name: bool,
}

/// One server. Makes each call once; [`crate::fallback::Chain`] makes it again.
#[derive(Debug)]
pub(crate) struct OpenAi {
    options: OpenAiOptions,
    selection: ApiSelection,
    // Set when the server refused `stream_options` once. Read and written by concurrent calls; a
    // lost race costs one more refused request.
    usage_refused: AtomicBool,
}

impl OpenAi {
    pub(crate) fn new(options: OpenAiOptions) -> Self {
        Self {
            selection: ApiSelection::new(options.mode),
            options,
            usage_refused: AtomicBool::new(false),
        }
    }

    /// Which format the server is spoken to in, as far as that is known.
    #[cfg(test)]
    pub(crate) fn mode(&self) -> ApiMode {
        self.selection.mode()
    }

    async fn chat(&self, request: &Request) -> Result<ModelStream, ModelError> {
        let transport = &self.options.transport;
        let call = transport.begin()?;
        let include_usage = !self.usage_refused.load(Ordering::Relaxed);
        let mut response = self.post_chat(request, include_usage, &call).await?;
        if include_usage && matches!(response.status.as_u16(), 400 | 422) {
            let refusal = transport.refusal(response, &call).await;
            if !rejects_stream_options(&refusal.body) {
                return Err(refusal.error);
            }
            self.usage_refused.store(true, Ordering::Relaxed);
            response = self.post_chat(request, false, &call).await?;
        }
        if !response.status.is_success() {
            return Err(transport.refusal(response, &call).await.error);
        }
        let reader = Box::new(openai_chat::AnswerReader::default());
        transport.read(response, call, reader).await
    }

    async fn post_chat(
        &self,
        request: &Request,
        include_usage: bool,
        call: &Call,
    ) -> Result<mainstay_workload::OutboundResponse, ModelError> {
        let dialect = Dialect {
            newer_limit_name: self.options.newer_limit_name,
            include_usage,
        };
        let body = openai_chat::request_to_wire(request, dialect);
        let url = &self.options.endpoints.chat;
        self.options.transport.post(url, &body, call).await
    }

    async fn responses(&self, request: &Request) -> Result<ModelStream, ModelError> {
        let transport = &self.options.transport;
        let call = transport.begin()?;
        let body = openai_responses::request_to_wire(request);
        let url = &self.options.endpoints.responses;
        let response = transport.post(url, &body, &call).await?;
        if !response.status.is_success() {
            return Err(transport.refusal(response, &call).await.error);
        }
        let reader = Box::new(openai_responses::reader::AnswerReader::default());
        // The answer is judged by its status and its first event; nothing is asked just to find out
        // (OR-242).
        first_event(transport.read(response, call, reader).await?).await
    }
}

#[async_trait]
impl Model for OpenAi {
    fn name(&self) -> &str {
        &self.options.transport.name
    }

    async fn stream(&self, request: Request) -> Result<ModelStream, ModelError> {
        let mode = self.selection.mode();
        if mode == ApiMode::Chat {
            return self.chat(&request).await;
        }
        let error = match self.responses(&request).await {
            Ok(stream) => {
                self.selection.responses_worked();
                return Ok(stream);
            }
            Err(error) => error,
        };
        match judge(&error, self.options.endpoints.responses.as_str()) {
            Verdict::Error => return Err(error),
            Verdict::Scoped if mode == ApiMode::Responses => {}
            Verdict::Unsupported | Verdict::Scoped => self.selection.switch_to_chat(),
        }
        tracing::info!(
            provider = self.name(),
            status = error.status,
            code = error.code,
            "the server does not take this call as Responses, using Chat Completions"
        );
        self.chat(&request).await
    }
}

/// The URLs of the two formats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoints {
    pub(crate) chat: Url,
    pub(crate) responses: Url,
}

/// The endpoints below `base`, which may also be the URL of one of them. A base that is only a host
/// gets `default_path` first, since the addresses people copy for local servers lack it.
pub(crate) fn endpoints(base: &str, default_path: &str) -> Result<Endpoints, String> {
    let url = transport::base_url(base)?;
    let path = url.path().trim_end_matches('/');
    let path = path
        .strip_suffix("/chat/completions")
        .or_else(|| path.strip_suffix("/responses"))
        .unwrap_or(path);
    let path = if path.is_empty() { default_path } else { path };
    let below = |end: &str| {
        let mut url = url.clone();
        url.set_path(&format!("{path}{end}"));
        url
    };
    Ok(Endpoints {
        chat: below("/chat/completions"),
        responses: below("/responses"),
    })
}
