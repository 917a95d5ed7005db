//! Handlers that need neither a provider nor a pack: `echo` and `demo` (OM-504).
//!
//! They are models like any other, so sessions, events, resumption and limits are those of real agents.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainstay_llm::{FinishReason, Model, ModelError, ModelEvent, ModelStream, Request, Role};

use mainstay_telemetry::clock::SharedClock;
use mainstay_telemetry::random::SharedRandom;

use crate::journal::Journal;
use crate::pack_source::FixedPack;
use crate::tool::NoTools;
use crate::{EngineOptions, Hubs, Limits, ModelEntry};

/// Time between two pieces of the `demo` answer.
const DEMO_PAUSE: Duration = Duration::from_millis(30);

const DEMO_ANSWER: &str = "Hello! This is a demonstration answer. It is streamed piece by piece, as an agent with a model would do it, \
     but no model is involved. Set the facade's handler to `runtime` to talk to the agent itself.";

/// A pack that says nothing.
fn pack() -> FixedPack {
    FixedPack(
        br#"{"id": "builtin", "name": "Built in", "version": "1.0.0",
             "template_engine": {"version": "v1", "syntax": "{{variable}}"},
             "prompts": {"default": {"id": "default", "name": "Default", "version": "1.0.0", "system_template": "-"}}}"#
            .to_vec(),
    )
}

/// Options of an engine for one of the models below, over the same store and sessions as any other.
pub fn options(
    model: Arc<dyn Model>,
    (namespace, agent): (&str, &str),
    journal: Arc<dyn Journal>,
    hubs: Hubs,
    clock: SharedClock,
    random: SharedRandom,
) -> EngineOptions {
    let entry = ModelEntry::plain(model.name(), Arc::clone(&model));
    EngineOptions {
        namespace: namespace.to_owned(),
        agent: agent.to_owned(),
        pack: Arc::new(pack()),
        models: vec![entry],
        tools: Arc::new(NoTools),
        journal,
        hubs,
        clock,
        random,
        limits: Limits::default(),
        surface_unlisted_tools: false,
    }
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
            .into_iter()
            .rev()
            .find(|message| message.role == Role::User)
            .map(|message| message.content)
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
