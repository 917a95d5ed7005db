//! kill -9 at a hundred points of chance of conversations with ten steps (contract 7).
//!
//! Several conversations run at the same time, so that one kill meets each of them at another point. The points are numbers
//! of frames from a seed; `MAINSTAY_KILL_POINTS` asks for more of them, as the nightly run does.

use std::collections::BTreeMap;

use http::Method;
use mainstay_telemetry::random::{Random, SeededRandom};
use serde_json::Value;
use tokio::{sync::mpsc, task::JoinSet};

use crate::support::{
    backend::Backend,
    conversation::{Conversation, ends_turn, events},
    desk,
    objects::{omnia, reaches},
    server::Server,
    world::World,
};

/// Points at which a conversation is interrupted.
const POINTS: usize = 100;
/// Conversations that one kill interrupts.
pub(crate) const TOGETHER: usize = 10;
/// Steps of a conversation: each is a call that must not be repeated.
pub(crate) const STEPS: usize = 10;
/// Where the points come from.
const SEED: u64 = 0x6b69_6c6c;

/// A model that ships ten orders, one after the other.
pub(crate) fn scenario() -> String {
    let captures: Vec<String> = (0..STEPS).map(|step| format!(r"(?P<o{step}>\d+)")).collect();
    let steps: String = (0..STEPS)
        .map(|step| {
            format!(
                "      - text: \"Now order {{{{o{step}}}}} goes. \"\n        calls: [{{tool: ship_order, arguments: {{id: \"{{{{o{step} | number}}}}\"}}}}]\n"
            )
        })
        .collect();
    format!(
        "delay: 1ms\nturns:\n  - match: '^ship all {}$'\n    steps:\n{steps}      - text: \"All are gone.\"\n  - default: true\n    steps: [{{text: \"Hello.\"}}]\n",
        captures.join(" ")
    )
}

/// The order of a step of a conversation.
fn order(conversation: usize, step: usize) -> usize {
    10_000 + conversation * 100 + step
}

/// How calls ended.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Tally {
    once: usize,
    unknown_and_sent: usize,
    unknown_and_never_sent: usize,
}

impl Tally {
    /// Judges the ten calls of a conversation by its events and by what the service has counted.
    pub(crate) fn add(&mut self, conversation: usize, stored: &[&Value], backend: &Backend) {
        let mut outcomes: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
        let mut orders: BTreeMap<&str, u64> = BTreeMap::new();
        for event in stored {
            let data = &event["data"];
            let call = data["call_id"].as_str().unwrap_or_default();
            match event["type"].as_str().unwrap() {
                "tool.started" => {
                    orders.insert(call, data["arguments"]["id"].as_u64().unwrap());
                }
                "tool.finished" => outcomes
                    .entry(orders[call])
                    .or_default()
                    .push(data["outcome"].as_str().unwrap()),
                _ => {}
            }
        }
        for step in 0..STEPS {
            let order = order(conversation, step);
            let sent = backend.count(Method::POST, &format!("/orders/{order}/ship"));
            match (outcomes.get(&(order as u64)).map(Vec::as_slice), sent) {
                (Some(["succeeded"]), 1) => self.once += 1,
                (Some(["unknown"]), 1) => self.unknown_and_sent += 1,
                (Some(["unknown"]), 0) => self.unknown_and_never_sent += 1,
                (outcomes, sent) => {
                    panic!("order {order} was sent {sent} times, its results are {outcomes:?}: {stored:#?}")
                }
            }
        }
    }
}

/// What to say so that all orders of a conversation are shipped.
pub(crate) fn message(conversation: usize) -> String {
    let orders: Vec<String> = (0..STEPS)
        .map(|step| order(conversation, step).to_string())
        .collect();
    format!("ship all {}", orders.join(" "))
}

/// Begins a round of conversations and gives their sessions once `frames` frames of them have arrived, or all have ended.
async fn begun(server: &Server, first: usize, frames: usize) -> Vec<String> {
    let (sender, mut seen) = mpsc::channel(256);
    let mut sessions = Vec::new();
    let mut readers = JoinSet::new();
    for conversation in first..first + TOGETHER {
        let mut open = Conversation::open(server, "desk").await;
        sessions.push(open.session.clone());
        // Its message is stored: from here on the turn has to be brought to its end.
        open.say(&message(conversation)).await;
        open.frame().await;
        let sender = sender.clone();
        readers.spawn(async move {
            while let Some(frame) = open.next().await {
                let last = frame["type"] == "done";
                if sender.send(frame).await.is_err() || last {
                    return;
                }
            }
        });
    }
    drop(sender);
    for _ in 0..frames {
        if seen.recv().await.is_none() {
            break;
        }
    }
    sessions
}

#[tokio::test]
#[allow(clippy::disallowed_methods, reason = "a test reads its own surroundings")]
async fn contract_7_a_hundred_kills_in_conversations_of_ten_steps_repeat_no_call() {
    let points = std::env::var("MAINSTAY_KILL_POINTS")
        .ok()
        .map_or(POINTS, |points| points.parse().expect("a number of points"));
    let backend = Backend::start(200);
    let world = World::new();
    desk::write(&world, backend.address, &scenario());
    let mut server = world.up(&["desk"]);
    reaches(&omnia(&server.client().await, "AgentRuntime"), "desk", "Running").await;

    // How many frames a round has without a fault.
    let mut whole = Conversation::open(&server, "desk").await;
    let frames = whole.turn(&message(0)).await.len();
    let random = SeededRandom::new(SEED);
    let mut tally = Tally::default();
    let mut interrupted = 0;
    for round in 0..points.div_ceil(TOGETHER) {
        let first = 1 + round * TOGETHER;
        let last_frame = usize::try_from(random.bits()).unwrap_or(usize::MAX) % (frames * TOGETHER * 9 / 10);
        let sessions = begun(&server, first, last_frame + 1).await;
        server.kill();
        server = world.up(&[]);
        // The first to come waits for the agent, which starts anew.
        world.run(&["chat", "desk", "-m", "hello"]).await.succeeded();
        for (conversation, session) in (first..).zip(&sessions) {
            let mut resumed = Conversation::resume(&server, "desk", session).await;
            let replayed = resumed.until(ends_turn).await;
            let stored: Vec<&Value> = events(&replayed)
                .into_iter()
                .filter(|event| event.get("seq").is_some())
                .collect();
            for (index, event) in stored.iter().enumerate() {
                assert_eq!(event["seq"], index as u64 + 1, "no event is lost or twice");
            }
            assert_eq!(stored.last().unwrap()["type"], "turn.done", "{stored:#?}");
            let answer = stored
                .iter()
                .rev()
                .find(|event| event["type"] == "message")
                .unwrap();
            assert_eq!(answer["data"]["content"], "All are gone.");
            interrupted += 1;
            tally.add(conversation, &stored, &backend);
        }
    }
    assert!(interrupted >= points, "{interrupted}");
    assert!(
        tally.once > tally.unknown_and_sent + tally.unknown_and_never_sent,
        "{tally:?}"
    );
    println!("{interrupted} conversations killed, seed {SEED:#x}: {tally:?}, repeated 0");
}
