//! Opening, queueing, cancelling, expiry (contract 9, OM-528, OM-587).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mainstay_store::payload::{PayloadOptions, PayloadStore};
use serde_json::json;
use tokio::sync::Notify;
use uuid::Uuid;

use super::support::*;
use crate::journal::JournalError;
use crate::{IncomingMessage, SendError, SessionError};

fn keyed(content: &str, key: &str) -> IncomingMessage {
    IncomingMessage {
        client_key: Some(key.to_owned()),
        ..message(content)
    }
}

#[tokio::test(start_paused = true)]
async fn om_528_an_absent_session_has_expired_and_a_store_that_cannot_tell_is_no_expiry() {
    let mut world = World::new(vec![vec![Say::Text("ok")]], vec![], json!({}));
    let journal = Arc::new(MemoryJournal::default());
    world.options.journal = journal.clone();
    let engine = world.engine().await;
    let absent = engine.open_session(Some(Uuid::from_u128(1))).await.unwrap_err();
    assert!(matches!(absent, SessionError::Expired { .. }));
    let session = engine.open_session(None).await.unwrap();
    converse(&session, message("hi")).await;
    journal.broken.store(true, Ordering::SeqCst);
    let unavailable = engine.open_session(Some(session.id())).await.unwrap_err();
    assert!(matches!(
        unavailable,
        SessionError::Unavailable(JournalError::Unavailable(_))
    ));
    journal.broken.store(false, Ordering::SeqCst);
    assert!(engine.open_session(Some(session.id())).await.unwrap().resumed());
}

#[tokio::test(start_paused = true)]
async fn om_587_a_session_can_be_continued_until_its_time_to_live_has_passed() {
    let world = World::new(vec![vec![Say::Text("ok")]], vec![], json!({}));
    let engine = world.engine().await;
    let session = engine.open_session(None).await.unwrap();
    converse(&session, message("hi")).await;
    world.clock.advance(Duration::from_secs(24 * 3600));
    assert!(engine.open_session(Some(session.id())).await.is_ok());
    world.clock.advance(Duration::from_secs(1));
    let expired = engine.open_session(Some(session.id())).await.unwrap_err();
    assert!(matches!(expired, SessionError::Expired { .. }));
}

#[tokio::test(start_paused = true)]
async fn contract_9_one_message_runs_one_waits_and_further_ones_are_refused() {
    let gate = Arc::new(Notify::new());
    let world = World::new(
        vec![
            vec![Say::Wait(gate.clone()), Say::Text("1")],
            vec![Say::Text("2")],
            vec![Say::Text("3")],
        ],
        vec![],
        json!({}),
    );
    let session = world.engine().await.open_session(None).await.unwrap();
    let events = session.subscribe(None);
    let mut first = session.send(message("one")).unwrap();
    first.started().await.unwrap();
    let second = session.send(message("two")).unwrap();
    assert!(second.queued && !first.queued);
    assert!(matches!(
        session.send(message("three")).unwrap_err(),
        SendError::Busy
    ));
    assert_eq!(session.running_turn(), Some(first.turn.clone()));
    gate.notify_one();
    let seen = until_end(events, &second).await;
    let order: Vec<&str> = seen
        .iter()
        .filter(|event| ends_turn(event))
        .map(|event| event.turn.as_deref().unwrap())
        .collect();
    assert_eq!(order, [first.turn.as_str(), second.turn.as_str()]);
    converse(&session, message("three")).await;
}

#[tokio::test(start_paused = true)]
async fn contract_9_a_client_that_goes_away_does_not_stop_its_turn() {
    let gate = Arc::new(Notify::new());
    let world = World::new(
        vec![vec![Say::Text("a"), Say::Wait(gate.clone()), Say::Text("b")]],
        vec![],
        json!({}),
    );
    let engine = world.engine().await;
    let session = engine.open_session(None).await.unwrap();
    let id = session.id();
    {
        let mut ticket = session.send(message("hi")).unwrap();
        ticket.started().await.unwrap();
    }
    drop(session);
    world.model.asked.notified().await;
    let session = engine.open_session(Some(id)).await.unwrap();
    let turn = session.running_turn().expect("the turn still runs");
    let mut events = Box::pin(session.subscribe(Some(0)));
    gate.notify_one();
    let mut seen = Vec::new();
    loop {
        let event = futures::StreamExt::next(&mut events).await.unwrap().unwrap();
        let last = ends_turn(&event);
        seen.push(event);
        if last {
            break;
        }
    }
    assert_eq!(seen.last().unwrap().turn.as_ref(), Some(&turn));
    assert_eq!(find(&seen, "turn.done")["rounds"], 0);
    assert_eq!(all(&seen, "message")[1]["content"], "ab");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_turn_keeps_its_text_and_the_session_goes_on() {
    let world = World::new(
        vec![vec![Say::Text("So far"), Say::Hang], vec![Say::Text("ok")]],
        vec![],
        json!({}),
    );
    let session = world.engine().await.open_session(None).await.unwrap();
    assert!(!session.cancel(), "nothing runs");
    let events = session.subscribe(None);
    let ticket = session.send(message("hi")).unwrap();
    world.model.asked.notified().await;
    tokio::task::yield_now().await;
    assert!(session.cancel());
    let seen = until_end(events, &ticket).await;
    assert_eq!(
        seen.last().unwrap().data,
        json!({"reason": "requested", "text": "So far"})
    );
    let seen = converse(&session, message("again")).await;
    assert_eq!(seen.last().unwrap().kind, "turn.done");
}

#[tokio::test(start_paused = true)]
async fn contract_9_a_client_key_is_accepted_once_also_while_it_waits() {
    let gate = Arc::new(Notify::new());
    let world = World::new(
        vec![
            vec![Say::Wait(gate.clone()), Say::Text("1")],
            vec![Say::Text("2")],
        ],
        vec![],
        json!({}),
    );
    let session = world.engine().await.open_session(None).await.unwrap();
    let events = session.subscribe(None);
    let mut first = session.send(keyed("one", "k1")).unwrap();
    first.started().await.unwrap();
    let second = session.send(keyed("two", "k2")).unwrap();
    gate.notify_one();
    until_end(events, &second).await;
    for (key, turn) in [("k1", &first.turn), ("k2", &second.turn)] {
        let mut again = session.send(keyed("again", key)).unwrap();
        match again.started().await.unwrap_err() {
            SendError::Duplicate { turn: known } => assert_eq!(known, *turn),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(world.model.count(), 2);
    assert_eq!(session.running_turn(), None);
}

#[tokio::test]
async fn contract_9_a_client_key_is_accepted_once_across_restarts() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("payload.db");
    let id = {
        let store = PayloadStore::open(PayloadOptions::file(&path)).unwrap();
        let world = World::over(
            Arc::new(store.clone()),
            vec![vec![Say::Text("ok")]],
            vec![],
            json!({}),
        );
        let engine = world.engine().await;
        let session = engine.open_session(None).await.unwrap();
        converse(&session, keyed("pay", "k")).await;
        engine.stop().await;
        store.close().await;
        session.id()
    };
    let store = PayloadStore::open(PayloadOptions::file(&path)).unwrap();
    let world = World::over(Arc::new(store), vec![], vec![], json!({}));
    let session = world.engine().await.open_session(Some(id)).await.unwrap();
    let before = stored(&world, &session).await.len();
    let mut again = session.send(keyed("pay", "k")).unwrap();
    assert!(matches!(
        again.started().await.unwrap_err(),
        SendError::Duplicate { turn: _ }
    ));
    assert_eq!(
        stored(&world, &session).await.len(),
        before,
        "nothing of a repetition is stored"
    );
    assert_eq!(world.model.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_cannot_be_stored_is_not_accepted() {
    let mut world = World::new(vec![vec![Say::Text("ok")]], vec![], json!({}));
    let journal = Arc::new(MemoryJournal::default());
    world.options.journal = journal.clone();
    let session = world.engine().await.open_session(None).await.unwrap();
    journal.broken.store(true, Ordering::SeqCst);
    let mut ticket = session.send(keyed("hi", "k")).unwrap();
    assert!(matches!(
        ticket.started().await.unwrap_err(),
        SendError::Unavailable(_)
    ));
    assert_eq!(world.model.count(), 0);
    journal.broken.store(false, Ordering::SeqCst);
    let seen = converse(&session, keyed("hi", "k")).await;
    assert_eq!(seen.last().unwrap().kind, "turn.done", "its key is still free");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_too_long_is_refused_with_the_limit() {
    let mut world = World::new(vec![], vec![], json!({}));
    world.options.limits.message_bytes = 3;
    let session = world.engine().await.open_session(None).await.unwrap();
    let error = session.send(message("four")).unwrap_err();
    assert_eq!(error.to_string(), "the message is longer than 3 bytes");
    let error = session.send(keyed("hi", &"k".repeat(300))).unwrap_err();
    assert_eq!(error.to_string(), "the client key is longer than 256 bytes");
}

#[tokio::test(start_paused = true)]
async fn om_503_a_draining_engine_lets_turns_end_and_takes_no_new_work() {
    let gate = Arc::new(Notify::new());
    let world = World::new(
        vec![vec![Say::Wait(gate.clone()), Say::Text("ok")]],
        vec![],
        json!({}),
    );
    let engine = world.engine().await;
    let session = engine.open_session(None).await.unwrap();
    let mut ticket = session.send(message("hi")).unwrap();
    ticket.started().await.unwrap();
    world.model.asked.notified().await;
    let draining = mainstay_telemetry::task::spawn("drain", {
        let engine = engine.clone();
        async move { engine.drain(Duration::from_secs(30)).await }
    });
    while !engine.is_draining() {
        tokio::task::yield_now().await;
    }
    assert!(matches!(
        engine.open_session(None).await.unwrap_err(),
        SessionError::Draining
    ));
    assert!(matches!(
        session.send(message("more")).unwrap_err(),
        SendError::Draining
    ));
    gate.notify_one();
    assert!(draining.await.unwrap(), "the running turn ended by itself");
    assert_eq!(stored(&world, &session).await.last().unwrap().kind, "turn.done");
}

#[tokio::test(start_paused = true)]
async fn om_503_a_turn_that_outlives_the_drain_stays_open_and_a_waiting_message_is_refused() {
    let world = World::new(vec![vec![Say::Hang]], vec![], json!({}));
    let engine = world.engine().await;
    let session = engine.open_session(None).await.unwrap();
    let mut first = session.send(message("one")).unwrap();
    first.started().await.unwrap();
    let mut second = session.send(message("two")).unwrap();
    assert!(!engine.drain(Duration::from_secs(1)).await);
    assert!(matches!(second.started().await.unwrap_err(), SendError::Draining));
    assert_eq!(session.running_turn(), None);
    let open = world.journal.open_turns("default", "helpdesk").await.unwrap();
    assert_eq!(open.len(), 1);
    assert_eq!(open[0].turn, first.turn);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_the_store_refused_is_continued_before_the_next_message() {
    let gate = Arc::new(Notify::new());
    let mut world = World::new(
        vec![
            vec![Say::Wait(gate.clone()), Say::Text("lost")],
            vec![Say::Text("one")],
            vec![Say::Text("two")],
        ],
        vec![],
        json!({}),
    );
    let journal = Arc::new(MemoryJournal::default());
    world.options.journal = journal.clone();
    world.journal = journal.clone();
    let session = world.engine().await.open_session(None).await.unwrap();
    let mut events = Box::pin(session.subscribe(None));
    let mut ticket = session.send(message("first")).unwrap();
    ticket.started().await.unwrap();
    world.model.asked.notified().await;
    journal.broken.store(true, Ordering::SeqCst);
    gate.notify_one();
    loop {
        match futures::StreamExt::next(&mut events).await.unwrap() {
            Ok(_) => {}
            Err(error) => {
                assert!(matches!(error, crate::SubscriptionError::TurnSuspended));
                break;
            }
        }
    }
    let mut refused = session.send(keyed("second", "k")).unwrap();
    assert!(matches!(
        refused.started().await.unwrap_err(),
        SendError::Unavailable(_)
    ));
    journal.broken.store(false, Ordering::SeqCst);
    converse(&session, keyed("second", "k")).await;
    let kept = stored(&world, &session).await;
    let said: Vec<&serde_json::Value> = all(&kept, "message")
        .into_iter()
        .map(|data| &data["content"])
        .collect();
    assert_eq!(said, ["first", "one", "second", "two"]);
    assert_eq!(all(&kept, "model.restarted").len(), 1);
}

#[tokio::test]
async fn contract_9_who_sends_a_waiting_message_again_learns_what_becomes_of_the_first() {
    let mut world = World::new(vec![vec![Say::Text("ok")]], vec![], json!({}));
    let journal = Arc::new(MemoryJournal::default());
    world.options.journal = journal.clone();
    let session = world.engine().await.open_session(None).await.unwrap();
    let hub = world.options.hubs.get(&key_of(&session), 0);
    let waiting = |error: SendError| match error {
        SendError::Waiting(first) => first,
        other => panic!("{other:?}"),
    };
    // The store refuses the first, so that a copy may be sent.
    let running = Arc::clone(&hub.turn).lock_owned().await;
    let mut first = session.send(keyed("pay", "k")).unwrap();
    let mut copy = waiting(session.send(keyed("pay", "k")).unwrap_err());
    journal.broken.store(true, Ordering::SeqCst);
    drop(running);
    assert!(matches!(
        first.started().await.unwrap_err(),
        SendError::Unavailable(_)
    ));
    assert_eq!(copy.settled().await, None);
    journal.broken.store(false, Ordering::SeqCst);
    // It takes it, and the copy learns which turn answers.
    let running = Arc::clone(&hub.turn).lock_owned().await;
    let mut first = session.send(keyed("pay", "k")).unwrap();
    let mut copy = waiting(session.send(keyed("pay", "k")).unwrap_err());
    drop(running);
    first.started().await.unwrap();
    assert_eq!(copy.settled().await, Some(first.turn));
}
