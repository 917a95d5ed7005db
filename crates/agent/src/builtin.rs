//! Handlers that need neither a provider nor a pack: `echo` and `demo` (OM-504).
//!
//! They are models like any other, so sessions, events, resumption and limits are those of real agents.

use std::time::Duration;

use async_trait::async_trait;
use mainstay_llm::{FinishReason, Model, ModelError, ModelEvent, ModelStream, Request, Role};

use crate::pack_source::FixedPack;

/// Time between two pieces of the `demo` answer.
const DEMO_PAUSE: Duration = Duration::from_millis(30);

const DEMO_ANSWER: &str = "Hello! This is a demonstration answer. It is streamed piece by piece, as an agent with a model would do it, \
     but no model is involved. Set the facade's handler to `runtime` to talk to the agent itself.";

/// A pack that says nothing.
pub fn pack() -> FixedPack {
    FixedPack(
        br#"{"id": "builtin", "name": "Built in", "version": "1.0.0",
             "template_engine": {"version": "v1", "syntax": "{{variable}}"},
             "prompts": {"default": {"id": "default", "name": "Default", "version": "1.0.0", "system_template": "-"}}}"#
            .to_vec(),
    )
}

/// Answers with the text of the message.
#[derive(Debug, Clone, Copy, Default)]
pub struct EchoModel;

/// Streams a canned answer.
#[derive(Debug, Clone, Copy, Default)]
pub struct DemoModel;

#[async_trait]
impl Model for EchoModel {
    fn name(&self) -> &str {
        "echo"
    }

    async fn stream(&self, request: Request) -> Result<ModelStream, ModelError> {
        let said = request
            .messages
            .iter()
            .rev()
            .find(|message| message.role == Role::User)
            .map(|message| message.content.clone())
            .unwrap_or_default();
        Ok(Box::pin(futures::stream::iter([
            Ok(ModelEvent::Started),
            Ok(ModelEvent::Text(said)),
            Ok(ModelEvent::Finished(FinishReason::Completed)),
        ])))
    }
}

#[async_trait]
impl Model for DemoModel {
    fn name(&self) -> &str {
        "demo"
    }

    async fn stream(&self, _: Request) -> Result<ModelStream, ModelError> {
        Ok(Box::pin(async_stream::stream! {
            yield Ok(ModelEvent::Started);
            for word in DEMO_ANSWER.split_inclusive(' ') {
                tokio::time::sleep(DEMO_PAUSE).await;
                yield Ok(ModelEvent::Text(word.to_owned()));
            }
            yield Ok(ModelEvent::Finished(FinishReason::Completed));
        }))
    }
}
