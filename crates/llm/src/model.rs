//! The one interface to a model (OR-200).

use std::fmt::Debug;

use async_trait::async_trait;
use futures::StreamExt;

use crate::{
    error::ModelError,
    event::{FinishReason, ModelEvent, ModelStream, Usage},
    message::{SignedThought, ToolCall},
    observer::CallObserver,
    request::Request,
};

/// A model that can be talked to.
#[async_trait]
pub trait Model: Debug + Send + Sync {
    /// The name of the provider entry, for errors, logs and records.
    fn name(&self) -> &str;

    /// Whose service it is in logs and metrics, in OpenTelemetry's words for `gen_ai.provider.name` where it has one
    /// (OR-244).
    fn service(&self) -> &'static str {
        "unknown"
    }

    /// Starts one call. Dropping the future or the stream ends the request promptly.
    ///
    /// # Errors
    /// What is known before the first event: the provider's refusal, a missing credential, a
    /// network failure that outlived the retries.
    async fn stream(&self, request: Request) -> Result<ModelStream, ModelError>;

    /// As [`Model::stream`], and tells `observer` about retries, cooldowns and changes of provider.
    /// A model that does none of these has nothing to tell.
    ///
    /// # Errors
    /// As [`Model::stream`].
    async fn stream_observed(
        &self,
        request: Request,
        _observer: &dyn CallObserver,
    ) -> Result<ModelStream, ModelError> {
        self.stream(request).await
    }
}

/// A whole answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// All text.
    pub text: String,
    /// All reasoning.
    pub thinking: String,
    /// Reasoning that the provider expects back.
    pub thoughts: Vec<SignedThought>,
    /// The calls in the model's order.
    pub tool_calls: Vec<ToolCall>,
    /// Token counts, when the provider gave any.
    pub usage: Option<Usage>,
    /// Why it ended.
    pub finish: FinishReason,
}

/// Calls `model` and waits for the whole answer: the *complete* operation of OR-200.
///
/// # Errors
/// The first error of the call or of its stream.
pub async fn complete(model: &dyn Model, request: Request) -> Result<Answer, ModelError> {
    let mut stream = model.stream(request).await?;
    let mut answer = Answer {
        text: String::new(),
        thinking: String::new(),
        thoughts: Vec::new(),
        tool_calls: Vec::new(),
        usage: None,
        finish: FinishReason::Unknown,
    };
    while let Some(event) = stream.next().await {
        match event? {
            ModelEvent::Started => {}
            ModelEvent::Text(text) => answer.text.push_str(&text),
            ModelEvent::Thinking(text) => answer.thinking.push_str(&text),
            ModelEvent::Thought(thought) => answer.thoughts.push(thought),
            ModelEvent::ToolCall(call) => answer.tool_calls.push(call),
            ModelEvent::Usage(usage) => answer.usage = Some(usage),
            ModelEvent::Finished(reason) => answer.finish = reason,
        }
    }
    Ok(answer)
}
