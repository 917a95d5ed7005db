//! Power cuts in conversations with ten steps (contracts 1 and 7): the machine dies in the middle of any operation of the
//! server on its files, and what was not synced is lost, all of it or a part by chance. No call is repeated, what was
//! synced before it was shown is there, and the server starts and goes on.
//!
//! What a power cut may leave is made by `mainstay-power-cut` for the whole data directory: both databases, keys,
//! certificates and what Pods see. `MAINSTAY_KILL_POINTS` asks for more points, as the nightly run does.

use std::ffi::OsString;

use mainstay_power_cut::{Loss, Recorder};
use mainstay_telemetry::random::{Random, SeededRandom};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::{
    kills::{STEPS, TOGETHER, Tally, message, scenario},
    support::{
        backend::Backend,
        conversation::{Conversation, ends_turn, events},
        desk,
        objects::{objects, omnia, reaches},
        program::Program,
        server::Server,
        world::World,
    },
};

/// Points at which a conversation is interrupted.
const POINTS: usize = 30;
/// Where the points come from.
const SEED: u64 = 0x706f_7765;

/// First starts that are interrupted, for each ten points.
const FIRST_STARTS: usize = 1;

/// How many points there are to be.
#[allow(clippy::disallowed_methods, reason = "a test reads its own surroundings")]
fn points() -> usize {
    std::env::var("MAINSTAY_KILL_POINTS")
        .ok()
        .map_or(POINTS, |points| points.parse().expect("a number of points"))
}

/// Starts the server of `world` under a recorder.
fn start(world: &World, arguments: &[&str]) -> (Server, Recorder) {
    let recorder = Recorder::new(&world.path("")).unwrap();
    let environment: Vec<(&str, OsString)> = recorder.environment().into();
    let environment: Vec<(&str, &str)> = environment
        .iter()
        .map(|(name, value)| (*name, value.to_str().unwrap()))
        .collect();
    (world.up_with(arguments, &environment), recorder)
}

/// What was seen of a conversation: its session and its frames until the end or until the machine died.
struct Seen {
    session: String,
    frames: Vec<Value>,
}

/// Runs a round of conversations; the machine dies at the operation that is `ahead` of the one at which all have begun.
async fn interrupted(server: &Server, recorder: &Recorder, first: usize, ahead: u64) -> Vec<Seen> {
    let mut readers = JoinSet::new();
    let mut begun = Vec::new();
    for conversation in first..first + TOGETHER {
        let mut open = Conversation::open(server, "desk").await;
        open.say(&message(conversation)).await;
        // Its message is stored: from here on the turn has to be brought to its end.
        let frames = vec![open.frame().await];
        begun.push((open, frames));
    }
    recorder.cut_at(recorder.operations().unwrap() + ahead).unwrap();
    for (index, (mut open, mut frames)) in begun.into_iter().enumerate() {
        readers.spawn(async move {
            while let Some(frame) = open.next().await {
                let last = frame["type"] == "done";
                frames.push(frame);
                if last {
                    break;
                }
            }
            let session = open.session;
            (index, Seen { session, frames })
        });
    }
    let mut seen = readers.join_all().await;
    seen.sort_by_key(|(index, _)| *index);
    seen.into_iter().map(|(_, seen)| seen).collect()
}

/// Whether an event is synced before it is shown (contract 1): a call's intent, and what was acknowledged.
fn is_synced(event: &Value) -> bool {
    let kind = event["type"].as_str().unwrap();
    matches!(kind, "turn.started" | "message" | "tool.started" | "turn.done")
}

#[tokio::test]
async fn contract_7_power_cuts_in_conversations_of_ten_steps_repeat_no_call() {
    let points = points();
    let backend = Backend::start(200);
    let world = World::new();
    desk::write(&world, backend.address, &scenario());
    let (mut server, mut recorder) = start(&world, &["desk"]);
    reaches(&omnia(&server.client().await, "AgentRuntime"), "desk", "Running").await;

    // How many operations a step takes without a fault.
    let mut whole = Conversation::open(&server, "desk").await;
    let before = recorder.operations().unwrap();
    whole.turn(&message(0)).await;
    let operations = recorder.operations().unwrap() - before;
    assert!(operations > STEPS as u64, "{operations}");

    let random = SeededRandom::new(SEED);
    let mut tally = Tally::default();
    let mut cuts = 0;
    for round in 0..points.div_ceil(TOGETHER) {
        let first = 1 + round * TOGETHER;
        // Conversations at the same time share transactions, so a round takes fewer than ten times those of one.
        let ahead = 1 + random.bits() % (operations * 3);
        let seen = interrupted(&server, &recorder, first, ahead).await;
        // Where all had ended before: the next operation is the last.
        recorder.cut_at(1).unwrap();
        cuts += usize::from(server.end().code().is_none());
        let recording = recorder.finish().unwrap();
        recording.check_complete().unwrap();
        let loss = match round % 3 {
            0 => Loss::Everything,
            _ => Loss::Some(random.bits()),
        };
        recording.left(loss).unwrap();

        (server, recorder) = start(&world, &[]);
        // The first to come waits for the agent, which starts anew.
        world.run(&["chat", "desk", "-m", "hello"]).await.succeeded();
        for (conversation, Seen { session, frames }) in (first..).zip(&seen) {
            let mut resumed = Conversation::resume(&server, "desk", session).await;
            let replayed = resumed.until(ends_turn).await;
            let stored: Vec<&Value> = events(&replayed)
                .into_iter()
                .filter(|event| event.get("seq").is_some())
                .collect();
            for (index, event) in stored.iter().enumerate() {
                assert_eq!(event["seq"], index as u64 + 1, "no event is lost or twice");
            }
            for event in events(frames).into_iter().filter(|event| is_synced(event)) {
                assert!(
                    stored.contains(&event),
                    "{loss:?}: shown before the power cut and gone after it: {event}, {stored:#?}"
                );
            }
            let last = stored.last().unwrap();
            assert_eq!(last["type"], "turn.done", "{loss:?}: {stored:#?}");
            tally.add(conversation, &stored, &backend);
        }
    }
    assert_eq!(cuts, points.div_ceil(TOGETHER), "a server ended by itself");
    println!("{cuts} power cuts in {TOGETHER} conversations each, seed {SEED:#x}: {tally:?}, repeated 0");
}

#[tokio::test]
async fn ka_030_ka_034_a_power_cut_in_the_first_start_hinders_no_later_one() {
    let backend = Backend::start(200);
    let random = SeededRandom::new(SEED + 1);
    // How many operations a first start takes.
    let world = World::new();
    desk::write(&world, backend.address, &scenario());
    let (server, recorder) = start(&world, &["desk"]);
    let operations = recorder.operations().unwrap();
    assert!(server.end().success());
    recorder.finish().unwrap().check_complete().unwrap();

    for number in 0..points().div_ceil(TOGETHER) * FIRST_STARTS {
        let world = World::new();
        desk::write(&world, backend.address, &scenario());
        let recorder = Recorder::new(&world.path("")).unwrap();
        let operation = 1 + random.bits() % operations;
        recorder.cut_at(operation).unwrap();
        let mut command = world.command(&[
            "up",
            "--listen",
            "127.0.0.1:0",
            "--kube-listen",
            "127.0.0.1:0",
            "desk",
        ]);
        command.envs(recorder.environment());
        assert_eq!(
            Program::start(command).ended().code(),
            None,
            "operation {operation}"
        );
        let recording = recorder.finish().unwrap();
        recording.check_complete().unwrap();
        let loss = match number % 2 {
            0 => Loss::Everything,
            _ => Loss::Some(random.bits()),
        };
        recording.left(loss).unwrap();
        println!("operation {operation} of {operations}, {loss:?}");

        let server = world.up(&["desk"]);
        let client = server.client().await;
        reaches(&omnia(&client, "AgentRuntime"), "desk", "Running").await;
        let kinds = objects(&client, "", "v1", "ConfigMap");
        let listed = kinds.list(&kube::api::ListParams::default()).await;
        listed.expect("the certificates and the token are of one making");
        assert!(server.end().success());
    }
}
