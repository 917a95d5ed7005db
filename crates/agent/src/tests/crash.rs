//! A process that ends in the middle of a turn, and the next one over the same database (contract 7).
//!
//! `Engine::stop` drops every turn at the point where it waits, which is what a kill does to it; the store
//! is closed and opened again, so nothing but the file carries over.

use std::path::PathBuf;
use std::sync::Arc;

use futures::StreamExt;
use mainstay_store::payload::{PayloadOptions, PayloadStore};
use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore};

use super::support::*;
use crate::event::Event;
use crate::{Engine, SessionHandle};

struct Disk {
    _directory: tempfile::TempDir,
    path: PathBuf,
}

impl Disk {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self {
            path: directory.path().join("payload.db"),
            _directory: directory,
        }
    }

    fn open(&self) -> PayloadStore {
        PayloadStore::open(PayloadOptions::file(&self.path)).unwrap()
    }
}

/// Stops the engine where it stands and opens the file in a new process's place.
async fn killed(
    disk: &Disk,
    store: PayloadStore,
    world: World,
    engine: Engine,
    answers: Vec<Vec<Say>>,
) -> World {
    engine.stop().await;
    store.close().await;
    let mut next = world.restarted(answers);
    next.journal = Arc::new(disk.open());
    next.options.journal = next.journal.clone();
    next
}

/// Continues what is open and returns the session's events once the turn has ended.
async fn continued(world: &World, session: &SessionHandle) -> Vec<Event> {
    let engine = world.engine().await;
    let reopened = engine.open_session(Some(session.id())).await.unwrap();
    let mut events = Box::pin(reopened.subscribe(Some(0)));
    assert_eq!(engine.resume_open_turns().await.unwrap(), 1);
    let mut seen = Vec::new();
    loop {
        let event = events.next().await.unwrap().unwrap();
        let last = ends_turn(&event);
        seen.push(Arc::unwrap_or_clone(event));
        if last {
            break;
        }
    }
    assert_eq!(engine.resume_open_turns().await.unwrap(), 0);
    seen
}

fn ask(name: &'static str) -> Vec<Say> {
    vec![Say::Call("c1", name, json!({"id": 1}))]
}

#[tokio::test]
async fn a_call_with_an_intent_and_no_result_is_not_sent_again_and_the_model_is_told() {
    let disk = Disk::new();
    let store = disk.open();
    let world = World::over(
        Arc::new(store.clone()),
        vec![ask("pay")],
        vec![("pay", tool(Does::Hangs))],
        json!({}),
    );
    let engine = world.engine().await;
    let session = engine.open_session(None).await.unwrap();
    let _ticket = session.send(message("pay it")).unwrap();
    world.tools.called.notified().await;
    let next = killed(
        &disk,
        store,
        world,
        engine,
        vec![vec![Say::Text("I am not sure.")]],
    )
    .await;
    let seen = continued(&next, &session).await;
    assert_eq!(
        next.tools.count("pay"),
        1,
        "classified as unknown and reported; repeated must be 0"
    );
    let finished = find(&seen, "tool.finished");
    assert_eq!(
        (&finished["outcome"], &finished["is_error"]),
        (&json!("unknown"), &json!(true))
    );
    let told = next.model.request(0).messages.last().unwrap().clone();
    assert!(
        told.is_error && told.content.contains("outcome of this call is unknown"),
        "{told:?}"
    );
    assert_eq!(seen.last().unwrap().kind, "turn.done");
    assert_eq!(all(&seen, "message").last().unwrap()["content"], "I am not sure.");
}

#[tokio::test]
async fn a_call_that_is_safe_to_repeat_is_sent_again_and_marked() {
    let disk = Disk::new();
    let store = disk.open();
    let gate = Arc::new(Semaphore::new(0));
    let safe = ScriptedTool {
        repeat_safe: true,
        ..tool(Does::Waits(gate.clone(), "shipped"))
    };
    let world = World::over(
        Arc::new(store.clone()),
        vec![ask("get")],
        vec![("get", safe)],
        json!({}),
    );
    let engine = world.engine().await;
    let session = engine.open_session(None).await.unwrap();
    let _ticket = session.send(message("where?")).unwrap();
    world.tools.called.notified().await;
    let next = killed(&disk, store, world, engine, vec![vec![Say::Text("Shipped.")]]).await;
    gate.add_permits(1);
    let seen = continued(&next, &session).await;
    assert_eq!(next.tools.count("get"), 2);
    let repeated: Vec<&Value> = all(&seen, "tool.started")
        .into_iter()
        .map(|data| &data["repeated"])
        .collect();
    assert_eq!(repeated, [&Value::Null, &json!(true)]);
    assert_eq!(find(&seen, "tool.finished")["content"], "shipped");
}

#[tokio::test]
async fn a_finished_call_is_never_sent_again_and_a_call_without_intent_is_sent() {
    let disk = Disk::new();
    let store = disk.open();
    let gate = Arc::new(Semaphore::new(0));
    let script = vec![
        Say::Call("c1", "quick", json!({})),
        Say::Call("c2", "slow", json!({})),
        Say::Call("c3", "quick", json!({})),
    ];
    let mut world = World::over(
        Arc::new(store.clone()),
        vec![script],
        vec![
            ("quick", tool(Does::Answers("done"))),
            ("slow", tool(Does::Waits(gate, "late"))),
        ],
        json!({}),
    );
    // The third call waits for a place, so it has no intent when the process ends.
    world.options.limits.parallel_tool_calls = 2;
    let engine = world.engine().await;
    let session = engine.open_session(None).await.unwrap();
    let mut events = Box::pin(session.subscribe(None));
    let _ticket = session.send(message("go")).unwrap();
    while events.next().await.unwrap().unwrap().kind != "tool.finished" {}
    let next = killed(&disk, store, world, engine, vec![vec![Say::Text("ok")]]).await;
    let seen = continued(&next, &session).await;
    assert_eq!((next.tools.count("quick"), next.tools.count("slow")), (2, 1));
    let results: Vec<(String, bool)> = next
        .model
        .request(0)
        .messages
        .iter()
        .filter(|message| message.tool_call_id.is_some())
        .map(|message| (message.content.clone(), message.is_error))
        .collect();
    assert_eq!(results.len(), 3);
    assert_eq!((results[0].0.as_str(), results[2].0.as_str()), ("done", "done"));
    assert!(results[1].1, "{results:?}");
    assert_eq!(find(&seen, "turn.done")["tool_calls"], 3);
}

#[tokio::test]
async fn an_attempt_that_broke_off_is_restarted_and_readers_are_told() {
    let disk = Disk::new();
    let store = disk.open();
    let world = World::over(
        Arc::new(store.clone()),
        vec![vec![Say::Text("Half an"), Say::Hang]],
        vec![],
        json!({}),
    );
    let engine = world.engine().await;
    let session = engine.open_session(None).await.unwrap();
    let mut events = Box::pin(session.subscribe(None));
    let _ticket = session.send(message("hi")).unwrap();
    while events.next().await.unwrap().unwrap().kind != "model.delta" {}
    let next = killed(
        &disk,
        store,
        world,
        engine,
        vec![vec![Say::Text("A whole answer")]],
    )
    .await;
    let seen = continued(&next, &session).await;
    assert_eq!(
        kinds(&seen)
            .into_iter()
            .filter(|kind| *kind != "model.delta")
            .collect::<Vec<_>>(),
        [
            "turn.started",
            "message",
            "model.started",
            "model.restarted",
            "model.started",
            "model.done",
            "message",
            "turn.done"
        ]
    );
    assert_eq!(find(&seen, "model.restarted")["attempt"], 1);
    assert_eq!(all(&seen, "model.started")[1]["attempt"], 2);
    assert_eq!(all(&seen, "message")[1]["content"], "A whole answer");
    assert_eq!(
        next.model.request(0).messages.len(),
        1,
        "the message is not repeated"
    );
}

#[tokio::test]
async fn the_conversation_of_a_session_survives_a_restart() {
    let disk = Disk::new();
    let store = disk.open();
    let world = World::over(
        Arc::new(store.clone()),
        vec![ask("get"), vec![Say::Text("It is shipped.")]],
        vec![("get", tool(Does::Answers("shipped")))],
        json!({}),
    );
    let engine = world.engine().await;
    let session = engine.open_session(None).await.unwrap();
    let before = converse(&session, message("where?")).await;
    let next = killed(&disk, store, world, engine, vec![vec![Say::Text("Yes.")]]).await;
    let reopened = next
        .engine()
        .await
        .open_session(Some(session.id()))
        .await
        .unwrap();
    assert!(reopened.resumed());
    let kept: Vec<Event> = stored(&next, &reopened).await;
    let shown: Vec<&Event> = before.iter().filter(|event| event.seq.is_some()).collect();
    assert_eq!(
        kept.iter().collect::<Vec<_>>(),
        shown,
        "events are replayed exactly as they were shown"
    );
    let seen = converse(&reopened, message("sure?")).await;
    assert_eq!(seen[0].seq, Some(kept.len() as u64 + 1));
    let contents: Vec<String> = next
        .model
        .request(0)
        .messages
        .iter()
        .map(|message| message.content.clone())
        .collect();
    assert_eq!(contents, ["where?", "", "shipped", "It is shipped.", "sure?"]);
}

#[tokio::test]
async fn a_turn_that_ends_its_process_again_and_again_is_given_up() {
    let disk = Disk::new();
    let mut store = disk.open();
    let mut world = World::over(Arc::new(store.clone()), vec![vec![Say::Hang]], vec![], json!({}));
    world.options.limits.restarts = 2;
    let mut engine = world.engine().await;
    let session = engine.open_session(None).await.unwrap();
    let _ticket = session.send(message("hi")).unwrap();
    for _ in 0..2 {
        world.model.asked.notified().await;
        world = killed(&disk, store, world, engine, vec![vec![Say::Hang]]).await;
        store = disk.open();
        world.journal = Arc::new(store.clone());
        world.options.journal = world.journal.clone();
        engine = world.engine().await;
        engine.resume_open_turns().await.unwrap();
    }
    world.model.asked.notified().await;
    let next = killed(&disk, store, world, engine, vec![]).await;
    let seen = continued(&next, &session).await;
    assert_eq!(find(&seen, "turn.failed")["reason"], "TurnRestartedTooOften");
    assert_eq!(next.model.count(), 0);
}

#[tokio::test]
async fn while_a_pod_is_replaced_the_new_engine_leaves_running_turns_to_the_old_one() {
    let gate = Arc::new(Notify::new());
    let mut world = World::new(
        vec![vec![Say::Wait(gate.clone()), Say::Text("old")]],
        vec![],
        json!({}),
    );
    let old = world.engine().await;
    let session = old.open_session(None).await.unwrap();
    let mut ticket = session.send(message("hi")).unwrap();
    ticket.started().await.unwrap();
    world.model.asked.notified().await;

    // The same hubs, another model: it would fail the test by being asked.
    let second = ScriptedModel::new(vec![vec![Say::Text("new")]]);
    world.options.models = vec![crate::ModelEntry::plain("main", second.clone())];
    let new = world.engine().await;
    let there = new.open_session(Some(session.id())).await.unwrap();
    assert_eq!(there.running_turn(), Some(ticket.turn.clone()));
    let events = there.subscribe(Some(0));
    new.resume_open_turns().await.unwrap();
    let queued = there.send(message("next")).unwrap();
    assert!(queued.queued);
    gate.notify_one();
    let seen = until_end(events, &queued).await;
    let answers: Vec<&Value> = all(&seen, "message")
        .into_iter()
        .map(|data| &data["content"])
        .collect();
    assert_eq!(answers, ["hi", "old", "next", "new"]);
    assert_eq!((world.model.count(), second.count()), (1, 1));
    assert!(!kinds(&seen).contains(&"model.restarted"));
}
