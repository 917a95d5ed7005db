//! Processes that end at any moment: every call is made once, or reported as unknown; none is repeated
//! (contract 7).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use mainstay_llm::{FinishReason, Model, ModelError, ModelEvent, ModelStream, Request, Role, ToolCall};
use mainstay_tools::policy::Decision;
use proptest::prelude::*;
use serde_json::json;

use super::support::*;
use crate::event::Event;
use crate::tool::{RegistryTool, Runs, ToolAnswer, ToolRequest, ToolRunner};
use crate::{Hubs, ModelEntry};

const ROUNDS: usize = 2;
const CALLS: usize = 3;

/// Asks for three calls in each of two rounds, then answers. What it does follows from the conversation, so it
/// goes on in the next process where it stood.
#[derive(Debug)]
struct Steady;

#[async_trait]
impl Model for Steady {
    fn name(&self) -> &str {
        "steady"
    }

    async fn stream(&self, request: Request) -> Result<ModelStream, ModelError> {
        let round = request
            .messages
            .iter()
            .filter(|message| !message.tool_calls.is_empty())
            .count();
        let results = request
            .messages
            .iter()
            .filter(|message| message.role == Role::Tool)
            .count();
        assert_eq!(
            results,
            round * CALLS,
            "every call has one result before the model is asked again"
        );
        Ok(Box::pin(async_stream::stream! {
            yield Ok(ModelEvent::Text("thinking ".to_owned()));
            tokio::task::yield_now().await;
            if round < ROUNDS {
                for call in 0..CALLS {
                    yield Ok(ModelEvent::ToolCall(ToolCall::new(
                        format!("call-{round}-{call}"),
                        "effect",
                        json!({"n": call}).to_string(),
                    )));
                }
            }
            yield Ok(ModelEvent::Finished(FinishReason::Completed));
        }))
    }
}

/// A backend that is outside of the process: it keeps count over all lives.
#[derive(Debug, Default)]
struct Backend {
    effects: Mutex<BTreeMap<String, u32>>,
}

#[async_trait]
impl ToolRunner for Backend {
    fn tools(&self) -> Vec<RegistryTool> {
        vec![RegistryTool {
            name: "effect".to_owned(),
            description: String::new(),
            parameters: json!({"type": "object"}),
            handler: "backend".to_owned(),
            runs: Runs::Here,
            repeat_safe: false,
        }]
    }

    fn ceiling(&self) -> Duration {
        Duration::from_secs(150)
    }

    async fn decide(&self, _: &ToolRequest) -> Decision {
        Decision {
            allow: true,
            ..Decision::default()
        }
    }

    async fn execute(&self, request: &ToolRequest, _: &Decision) -> ToolAnswer {
        // The request travels, takes effect, and its answer travels back.
        tokio::task::yield_now().await;
        *self
            .effects
            .lock()
            .unwrap()
            .entry(request.call_id.clone())
            .or_default() += 1;
        for _ in 0..request.arguments["n"].as_u64().unwrap() {
            tokio::task::yield_now().await;
        }
        ToolAnswer {
            content: "done".to_owned(),
            attempts: 1,
            ..ToolAnswer::default()
        }
    }
}

/// Lives until event number `events` of this life was seen and `yields` more steps were made.
#[derive(Debug, Clone, Copy)]
struct Life {
    events: usize,
    yields: usize,
}

async fn lives(kills: Vec<Life>, parallel: usize) -> (Vec<Event>, BTreeMap<String, u32>) {
    let backend = Arc::new(Backend::default());
    let mut world = World::new(vec![], vec![], json!({}));
    world.options.tools = backend.clone();
    world.options.models = vec![ModelEntry::plain("main", Arc::new(Steady))];
    world.options.limits.parallel_tool_calls = parallel;
    world.options.limits.restarts = u32::MAX;
    let mut id = None;
    let last = Life {
        events: usize::MAX,
        yields: 0,
    };
    for life in kills.into_iter().chain([last]) {
        // Nothing but the journal and the backend outlive a process.
        world.options.hubs = Hubs::new();
        let engine = world.engine().await;
        let session = engine.open_session(id).await.unwrap();
        let mut events = Box::pin(session.subscribe(None));
        let mut open = 1;
        if id.replace(session.id()).is_none() {
            session.send(message("go")).unwrap().started().await.unwrap();
        } else {
            open = engine.resume_open_turns().await.unwrap();
        }
        let mut seen = 0;
        while open > 0 && seen < life.events {
            let event = events.next().await.unwrap().unwrap();
            seen += 1;
            if ends_turn(&event) {
                break;
            }
        }
        for _ in 0..life.yields {
            tokio::task::yield_now().await;
        }
        engine.stop().await;
    }
    let engine = world.engine().await;
    assert_eq!(engine.resume_open_turns().await.unwrap(), 0, "the turn has ended");
    let session = engine.open_session(id).await.unwrap();
    let effects = backend.effects.lock().unwrap().clone();
    (stored(&world, &session).await, effects)
}

fn check(events: &[Event], effects: &BTreeMap<String, u32>) -> Result<(), TestCaseError> {
    prop_assert_eq!(events.iter().filter(|event| ends_turn(event)).count(), 1);
    prop_assert_eq!(&events.last().unwrap().kind, "turn.done");
    let mut results: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for finished in all(events, "tool.finished") {
        let outcome = finished["outcome"].as_str().unwrap();
        results
            .entry(finished["call_id"].as_str().unwrap())
            .or_default()
            .push(outcome);
    }
    prop_assert_eq!(results.len(), ROUNDS * CALLS);
    for (call, outcomes) in results {
        let made = effects.get(call).copied().unwrap_or(0);
        match outcomes.as_slice() {
            ["succeeded"] => prop_assert_eq!(made, 1, "{} was not made once", call),
            ["unknown"] => prop_assert!(made <= 1, "{call} was repeated"),
            other => prop_assert!(false, "{call} has the results {other:?}"),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn contract_7_whenever_a_process_ends_no_call_is_repeated(
        kills in prop::collection::vec((0_usize..14, 0_usize..12), 0..7),
        parallel in 1_usize..4,
    ) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let kills = kills.into_iter().map(|(events, yields)| Life { events, yields }).collect();
        let (events, effects) = runtime.block_on(lives(kills, parallel));
        check(&events, &effects)?;
    }
}
