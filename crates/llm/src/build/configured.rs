//! A model together with what its provider is configured with.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{
    config::ProviderConfig,
    error::ModelError,
    event::ModelStream,
    message::Message,
    model::Model,
    request::{Parameters, Request, ResponseFormat},
};

/// Fills a request with what its provider is configured with.
#[derive(Debug)]
pub(super) struct Configured<M> {
    inner: M,
    model: String,
    service: &'static str,
    parameters: Parameters,
    offers_tools: bool,
    offers_json: bool,
}

/// A model of OpenAI's is one wherever it is served; records of calls tell the services apart (OR-244).
fn service(config: &ProviderConfig) -> &'static str {
    match config.kind.as_str() {
        "openai" if config.azure.is_some() => "azure.ai.openai",
        "openai" => "openai",
        "claude" => "anthropic",
        "gemini" => "gcp.gemini",
        "ollama" => "ollama",
        "vllm" => "vllm",
        "mock" => "mock",
        _ => "unknown",
    }
}

impl<M> Configured<M> {
    pub(super) fn new(inner: M, config: &ProviderConfig) -> Self {
        Self {
            inner,
            model: config.model.clone(),
            service: service(config),
            parameters: config.defaults.parameters(),
            offers_tools: config.offers_tools(),
            offers_json: config.offers_json(),
        }
    }
}

#[async_trait]
impl<M: Model> Model for Configured<M> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn service(&self) -> &'static str {
        self.service
    }

    async fn stream(&self, mut request: Request) -> Result<ModelStream, ModelError> {
        if request.model.is_empty() {
            request.model.clone_from(&self.model);
        }
        request.parameters = request.parameters.or(&self.parameters);
        if !self.offers_tools {
            request.tools = Arc::default();
        }
        if !self.offers_json {
            request.response_format = ResponseFormat::Text;
        }
        if let Some(messages) = own_marks(&request.messages, self.name()) {
            request.messages = messages;
        }
        self.inner.stream(request).await
    }
}

/// The conversation without marks of other providers than `provider`; `None` where there are none.
fn own_marks(messages: &[Message], provider: &str) -> Option<Arc<[Message]>> {
    let foreign = |message: &Message| message.is_signed() && message.author.as_deref() != Some(provider);
    messages.iter().any(foreign).then(|| {
        let kept = messages.iter().cloned();
        kept.map(|message| match foreign(&message) {
            true => message.unsigned(),
            false => message,
        })
        .collect()
    })
}
