use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc as blocking};

use mainstay_telemetry::task;
use rusqlite::params;
use serde_json::json;

use super::*;

fn key(session: &str) -> SessionKey {
    SessionKey::new("default", "helpdesk", session)
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::new(1_780_000_000 + seconds, 123_456_789).unwrap()
}

fn event(kind: &str) -> NewEvent {
    NewEvent {
        kind: kind.to_owned(),
        turn: Some("t1".to_owned()),
        time: at(0),
        data: json!({"k": kind}),
        ..NewEvent::default()
    }
}

fn tool(kind: &str, call: &str) -> NewEvent {
    NewEvent {
        tool_call_id: Some(call.to_owned()),
        tool: Some("get_order".to_owned()),
        ..event(kind)
    }
}

fn message(id: &str, role: &str, content: &str) -> NewMessage {
    NewMessage {
        message_id: id.to_owned(),
        role: role.to_owned(),
        content: content.to_owned(),
        created_at: at(1),
        ..NewMessage::default()
    }
}

async fn memory() -> PayloadStore {
    let store = PayloadStore::open(PayloadOptions::in_memory()).unwrap();
    store.create_session(&key("s"), at(0)).await.unwrap();
    store
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), future)
        .await
        .expect("not within the deadline")
}

#[tokio::test]
async fn or_306_sequence_numbers_rise_by_one_from_one_and_events_read_back_exactly() {
    let store = memory().await;
    let numbers = store
        .append(
            &key("s"),
            vec![event("turn.started"), event("message")],
            vec![],
            Durability::Synced,
        )
        .await;
    assert_eq!(numbers.unwrap(), [1, 2]);
    let call = tool("tool.started", "call-1");
    assert_eq!(
        store
            .append(&key("s"), vec![call], vec![], Durability::Synced)
            .await
            .unwrap(),
        [3]
    );
    let events = store.events_after(&key("s"), 1, 10).await.unwrap();
    assert_eq!(
        events,
        [
            StoredEvent {
                seq: 2,
                kind: "message".to_owned(),
                turn: Some("t1".to_owned()),
                time: at(0),
                data: json!({"k": "message"}),
                tool_call_id: None,
            },
            StoredEvent {
                seq: 3,
                kind: "tool.started".to_owned(),
                turn: Some("t1".to_owned()),
                time: at(0),
                data: json!({"k": "tool.started"}),
                tool_call_id: Some("call-1".to_owned()),
            },
        ]
    );
    assert_eq!(store.events_after(&key("s"), 0, 1).await.unwrap().len(), 1);
    assert_eq!(store.find_session(&key("s")).await.unwrap().unwrap().next_seq, 4);
}

#[tokio::test]
async fn or_306_the_view_shows_the_columns_of_the_published_table() {
    let store = memory().await;
    store
        .append(
            &key("s"),
            vec![tool("tool.started", "c")],
            vec![],
            Durability::Relaxed,
        )
        .await
        .unwrap();
    let row = store
        .thread
        .read(|connection| {
            Ok(connection.query_row(
                "SELECT namespace || ' ' || stream_type || ' ' || stream_id || ' ' || seq || ' ' || session_seq || ' ' || type \
                 || ' ' || severity || ' ' || session_name || ' ' || agent_name || ' ' || tool_name || ' ' || tool_call_id \
                 || ' ' || task_name || summary || dedupe_key || content_text || content_json FROM execution_events \
                 WHERE truncation_json IS NULL AND id > 0 AND created_at > 0",
                [],
                |row| row.get::<_, String>(0),
            )?)
        })
        .await
        .unwrap();
    assert_eq!(
        row,
        "default session s 1 1 tool.started info s helpdesk get_order c {\"k\":\"tool.started\"}"
    );
}

#[tokio::test]
async fn an_event_with_a_known_key_is_stored_once() {
    let store = memory().await;
    let keyed = NewEvent {
        dedupe: Some("k".to_owned()),
        ..event("message")
    };
    let numbers = store
        .append(
            &key("s"),
            vec![keyed.clone(), event("usage")],
            vec![],
            Durability::Relaxed,
        )
        .await;
    assert_eq!(numbers.unwrap(), [1, 2]);
    let numbers = store
        .append(
            &key("s"),
            vec![keyed, event("usage")],
            vec![],
            Durability::Relaxed,
        )
        .await;
    assert_eq!(numbers.unwrap(), [1, 3]);
    assert_eq!(store.events_after(&key("s"), 0, 10).await.unwrap().len(), 3);
}

#[tokio::test]
async fn contract_9_a_message_with_a_known_client_key_is_told_its_turn_and_stores_nothing() {
    let store = memory().await;
    let entry = |turn: &str| {
        let of_turn = |kind: &str| NewEvent {
            turn: Some(turn.to_owned()),
            ..event(kind)
        };
        vec![of_turn("turn.started"), of_turn("message")]
    };
    let once = async |session: &str, turn: &str| {
        let (session, durability) = (key(session), Durability::Synced);
        store
            .append_once(&session, "k", entry(turn), vec![], durability)
            .await
    };
    // Two at once: the transaction decides, not the caller.
    let (first, second) = tokio::join!(once("s", "one"), once("s", "two"));
    assert_eq!(first.unwrap(), [1, 2]);
    assert!(matches!(second, Err(PayloadError::Repeated { turn }) if turn == "one"));
    let stored = store.events_after(&key("s"), 0, 10).await.unwrap();
    assert_eq!(stored.len(), 2);
    store.create_session(&key("other"), at(0)).await.unwrap();
    assert_eq!(
        once("other", "three").await.unwrap(),
        [1, 2],
        "keys are those of one session"
    );
}

#[tokio::test]
async fn or_292_a_message_id_is_stored_once_and_counted_once() {
    let store = memory().await;
    let mut answer = message("m2", "assistant", "It left.");
    answer.tool_calls = Some(json!([{"id": "c"}]));
    (answer.input_tokens, answer.output_tokens) = (10, 4);
    let question = message("m1", "user", "Where is it?");
    for _ in 0..2 {
        store
            .append(
                &key("s"),
                vec![],
                vec![question.clone(), answer.clone()],
                Durability::Synced,
            )
            .await
            .unwrap();
    }
    store
        .append(
            &key("s"),
            vec![],
            vec![message("", "user", "a"), message("", "user", "b")],
            Durability::Synced,
        )
        .await
        .unwrap();
    let messages = store.messages(&key("s"), 10).await.unwrap();
    let texts: Vec<&str> = messages.iter().map(|message| message.content.as_str()).collect();
    assert_eq!(texts, ["Where is it?", "It left.", "a", "b"]);
    assert!(
        messages
            .windows(2)
            .all(|pair| pair[1].sort_order - pair[0].sort_order > 1),
        "no gaps left"
    );
    assert_eq!(messages[1].tool_calls, Some(json!([{"id": "c"}])));
    assert_eq!(messages[1].metadata, json!({}));
    assert_eq!(store.messages(&key("s"), 1).await.unwrap()[0].content, "b");
    let row = store.find_session(&key("s")).await.unwrap().unwrap();
    assert_eq!(
        (
            row.message_count,
            row.input_tokens,
            row.output_tokens,
            row.last_activity
        ),
        (4, 10, 4, at(1))
    );
}

#[tokio::test]
async fn or_287_a_session_is_seen_by_its_own_agent_and_namespace_only() {
    let store = memory().await;
    for stranger in [
        SessionKey::new("default", "other", "s"),
        SessionKey::new("other", "helpdesk", "s"),
    ] {
        assert_eq!(store.find_session(&stranger).await.unwrap(), None);
        let missing =
            |result: Result<(), PayloadError>| assert!(matches!(result, Err(PayloadError::NotFound(_))));
        missing(
            store
                .append(&stranger, vec![event("message")], vec![], Durability::Relaxed)
                .await
                .map(drop),
        );
        missing(store.events_after(&stranger, 0, 1).await.map(drop));
        missing(store.messages(&stranger, 1).await.map(drop));
        missing(store.touch(&stranger, at(0)).await);
        missing(store.delete_session(&stranger, at(0)).await);
    }
    let taken = store
        .create_session(&SessionKey::new("default", "other", "s"), at(0))
        .await;
    assert!(matches!(taken, Err(PayloadError::Exists(_))));
    store
        .create_session(&SessionKey::new("other", "helpdesk", "s"), at(0))
        .await
        .unwrap();
    assert_eq!(store.list_sessions("default", None, 10).await.unwrap().len(), 1);
    assert_eq!(
        store.list_sessions("default", Some("other"), 10).await.unwrap(),
        []
    );
}

#[tokio::test]
async fn or_315_one_task_holds_the_lock_and_may_take_it_again() {
    let store = memory().await;
    store.acquire_lock("default", "s", "task", "uid-1").await.unwrap();
    store.acquire_lock("default", "s", "task", "uid-1").await.unwrap();
    let error = store
        .acquire_lock("default", "s", "task", "uid-2")
        .await
        .unwrap_err();
    assert!(
        matches!(&error, PayloadError::Locked { holder, .. } if holder == "task"),
        "{error:?}"
    );
    assert!(!store.release_lock("default", "s", "task", "uid-2").await.unwrap());
    assert!(store.release_lock("default", "s", "task", "uid-1").await.unwrap());
    store
        .acquire_lock("default", "s", "other", "uid-3")
        .await
        .unwrap();
    let missing = store
        .acquire_lock("default", "none", "task", "uid-1")
        .await
        .unwrap_err();
    assert!(matches!(missing, PayloadError::NotFound(_)));
}

#[tokio::test]
async fn what_a_crash_left_open_is_found_after_a_restart() {
    let world = tempfile::tempdir().unwrap();
    let path = world.path().join("payload.db");
    let store = PayloadStore::open(PayloadOptions::file(&path)).unwrap();
    store.create_session(&key("s"), at(0)).await.unwrap();
    store.create_session(&key("done"), at(0)).await.unwrap();
    let finished = vec![
        event("turn.started"),
        tool("tool.started", "c1"),
        tool("tool.finished", "c1"),
        event("turn.done"),
    ];
    store
        .append(&key("done"), finished, vec![], Durability::Synced)
        .await
        .unwrap();
    let open = vec![
        event("turn.started"),
        tool("tool.started", "c1"),
        tool("tool.finished", "c1"),
        tool("tool.started", "c2"),
        tool("tool.started", "c3"),
    ];
    store
        .append(&key("s"), open, vec![], Durability::Synced)
        .await
        .unwrap();
    store.close().await;

    let store = PayloadStore::open(PayloadOptions::file(&path)).unwrap();
    let turns = store.open_turns().await.unwrap();
    assert_eq!(
        turns,
        [OpenTurn {
            key: key("s"),
            turn: "t1".to_owned(),
            started_seq: 1
        }]
    );
    let calls = store.open_tool_calls(&key("s")).await.unwrap();
    let ids: Vec<(&str, u64)> = calls
        .iter()
        .map(|call| (call.tool_call_id.as_str(), call.started_seq))
        .collect();
    assert_eq!(ids, [("c2", 4), ("c3", 5)]);
    assert_eq!(store.open_tool_calls(&key("done")).await.unwrap(), []);
    let end = vec![tool("tool.finished", "c2"), event("turn.failed")];
    assert_eq!(
        store
            .append(&key("s"), end, vec![], Durability::Synced)
            .await
            .unwrap(),
        [6, 7]
    );
    assert_eq!(store.open_turns().await.unwrap(), []);
    assert_eq!(store.open_tool_calls(&key("s")).await.unwrap(), []);
}

#[tokio::test]
async fn or_285_or_286_the_connection_has_the_pragmas_and_syncs_only_where_asked() {
    let world = tempfile::tempdir().unwrap();
    let store = PayloadStore::open(PayloadOptions::file(world.path().join("payload.db"))).unwrap();
    let pragmas = |connection: &rusqlite::Connection| {
        let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        Ok((
            number("busy_timeout")?,
            number("synchronous")?,
            number("foreign_keys")?,
        ))
    };
    let mode = store
        .thread
        .read(|connection| {
            Ok(connection.pragma_query_value(None, "journal_mode", |row| row.get::<_, String>(0))?)
        })
        .await
        .unwrap();
    assert_eq!(mode, "wal");
    assert_eq!(store.thread.read(pragmas).await.unwrap(), (5000, 1, 1));
    assert_eq!(
        store.thread.write(Durability::Synced, pragmas).await.unwrap(),
        (5000, 2, 1)
    );
    assert_eq!(
        store.thread.write(Durability::Relaxed, pragmas).await.unwrap(),
        (5000, 1, 1)
    );
}

#[tokio::test]
async fn or_288_calls_that_wait_share_a_transaction_and_a_refused_one_takes_back_only_its_own() {
    let store = memory().await;
    let before = store.statistics();
    // The thread is held inside a call until everybody else waits.
    let (release, held) = blocking::sync_channel::<()>(1);
    let (enter, entered) = tokio::sync::oneshot::channel();
    let held = Mutex::new((Some(enter), held));
    let holder = task::spawn("holder", {
        let store = store.clone();
        async move {
            let wait = move |_: &rusqlite::Connection| {
                let mut held = held.lock().unwrap();
                held.0.take().unwrap().send(()).unwrap();
                held.1.recv_timeout(Duration::from_secs(30)).unwrap();
                Ok(())
            };
            store.thread.read(wait).await
        }
    });
    within(entered).await.unwrap();
    let mut callers = Vec::new();
    for caller in 0..20 {
        let store = store.clone();
        callers.push(task::spawn("caller", async move {
            if caller % 5 != 0 {
                return store
                    .append(&key("s"), vec![event("message")], vec![], Durability::Synced)
                    .await;
            }
            let refused = move |connection: &rusqlite::Connection| {
                connection.execute("DELETE FROM sessions", params![])?;
                Err(PayloadError::NotFound("on purpose".to_owned()))
            };
            store.thread.write(Durability::Relaxed, refused).await
        }));
    }
    within(async {
        while store.statistics().waiting < 20 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    release.send(()).unwrap();
    within(holder).await.unwrap().unwrap();
    let mut numbers = Vec::new();
    let mut refused = 0;
    for caller in callers {
        match within(caller).await.unwrap() {
            Ok(appended) => numbers.extend(appended),
            Err(error) => {
                assert!(matches!(error, PayloadError::NotFound(_)), "{error}");
                refused += 1;
            }
        }
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=16).collect::<Vec<_>>());
    assert_eq!(refused, 4);
    let after = store.statistics();
    assert!(
        after.transactions - before.transactions <= 2,
        "{before:?} {after:?}"
    );
}

#[tokio::test]
async fn a_disk_error_stores_nothing_and_passes() {
    let broken = Arc::new(AtomicBool::new(false));
    let gate: crate::CommitGate = {
        let broken = Arc::clone(&broken);
        Arc::new(move || {
            if broken.load(Ordering::SeqCst) {
                Err(io::ErrorKind::StorageFull.into())
            } else {
                Ok(())
            }
        })
    };
    let store = PayloadStore::open(PayloadOptions {
        commit_gate: Some(gate),
        ..PayloadOptions::in_memory()
    })
    .unwrap();
    store.create_session(&key("s"), at(0)).await.unwrap();
    broken.store(true, Ordering::SeqCst);
    let error = store
        .append(
            &key("s"),
            vec![event("message")],
            vec![message("m", "user", "x")],
            Durability::Synced,
        )
        .await
        .unwrap_err();
    assert_eq!(error.reason(), "StoreFull");
    broken.store(false, Ordering::SeqCst);
    assert_eq!(store.messages(&key("s"), 10).await.unwrap(), []);
    assert_eq!(
        store
            .append(&key("s"), vec![event("message")], vec![], Durability::Synced)
            .await
            .unwrap(),
        [1]
    );
}

#[tokio::test]
async fn a_deleted_session_is_gone_at_once_and_its_rows_go_in_steps() {
    let store = memory().await;
    store
        .append(
            &key("s"),
            vec![event("turn.started"); 10],
            vec![message("", "user", "x"); 10],
            Durability::Relaxed,
        )
        .await
        .unwrap();
    store.delete_session(&key("s"), at(1)).await.unwrap();
    assert_eq!(store.find_session(&key("s")).await.unwrap(), None);
    assert_eq!(store.open_turns().await.unwrap(), []);
    let limits = RetentionLimits {
        rows_per_step: 6,
        ..RetentionLimits::default()
    };
    let mut steps = 0;
    loop {
        let step = store.enforce_retention(limits, at(2)).await.unwrap();
        assert!(step.rows_removed <= 6, "{step:?}");
        if !step.more {
            break;
        }
        steps += 1;
    }
    assert_eq!(steps, 4, "21 rows in steps of 6");
    let left = store
        .thread
        .read(|connection| {
            Ok(connection.query_row(
                "SELECT (SELECT count(*) FROM sessions) + (SELECT count(*) FROM session_messages) \
                 + (SELECT count(*) FROM execution_event_rows) + (SELECT count(*) FROM event_streams) \
                 + (SELECT count(*) FROM execution_event_session_sequences)",
                [],
                |row| row.get::<_, u64>(0),
            )?)
        })
        .await
        .unwrap();
    assert_eq!(left, 0);
    store.create_session(&key("s"), at(3)).await.unwrap();
}

#[tokio::test]
async fn retention_by_age_spares_sessions_in_use_and_drops_their_old_events() {
    let store = memory().await;
    let day = 24 * 60 * 60;
    for (session, last) in [("old", 0), ("working", 0), ("young", 40 * day)] {
        store.create_session(&key(session), at(0)).await.unwrap();
        store
            .append(&key(session), vec![event("message")], vec![], Durability::Relaxed)
            .await
            .unwrap();
        store.touch(&key(session), at(last)).await.unwrap();
    }
    store
        .append(
            &key("working"),
            vec![event("turn.started")],
            vec![],
            Durability::Relaxed,
        )
        .await
        .unwrap();
    let recent = NewEvent {
        time: at(40 * day),
        ..event("message")
    };
    store
        .append(&key("young"), vec![recent], vec![], Durability::Relaxed)
        .await
        .unwrap();
    while store
        .enforce_retention(RetentionLimits::default(), at(41 * day))
        .await
        .unwrap()
        .more
    {}
    let names: Vec<String> = store
        .list_sessions("default", None, 10)
        .await
        .unwrap()
        .into_iter()
        .map(|row| row.key.session)
        .collect();
    assert_eq!(names, ["young", "working"]);
    let seqs = |events: Vec<StoredEvent>| events.iter().map(|event| event.seq).collect::<Vec<_>>();
    assert_eq!(seqs(store.events_after(&key("young"), 0, 10).await.unwrap()), [2]);
    assert_eq!(
        seqs(store.events_after(&key("working"), 0, 10).await.unwrap()),
        [1, 2]
    );
    // Numbers go on where they were.
    assert_eq!(
        store
            .append(&key("young"), vec![event("message")], vec![], Durability::Relaxed)
            .await
            .unwrap(),
        [3]
    );
}

#[tokio::test]
async fn retention_by_size_drops_the_session_unused_for_longest_first() {
    let world = tempfile::tempdir().unwrap();
    let store = PayloadStore::open(PayloadOptions::file(world.path().join("payload.db"))).unwrap();
    let large = NewEvent {
        data: json!("x".repeat(100_000)),
        ..event("message")
    };
    for (age, session) in ["oldest", "middle", "newest"].iter().enumerate() {
        store.create_session(&key(session), at(age as i64)).await.unwrap();
        store
            .append(&key(session), vec![large.clone(); 5], vec![], Durability::Relaxed)
            .await
            .unwrap();
        store.touch(&key(session), at(10 + age as i64)).await.unwrap();
    }
    let limits = |bytes| RetentionLimits {
        bytes,
        ..RetentionLimits::default()
    };
    assert!(
        !store
            .enforce_retention(limits(10_000_000), at(20))
            .await
            .unwrap()
            .more
    );
    while store
        .enforce_retention(limits(1_200_000), at(20))
        .await
        .unwrap()
        .more
    {}
    let names = |rows: Vec<SessionRow>| rows.into_iter().map(|row| row.key.session).collect::<Vec<_>>();
    assert_eq!(
        names(store.list_sessions("default", None, 10).await.unwrap()),
        ["newest", "middle"]
    );
    assert!(store.used_bytes().await.unwrap() < 1_200_000);
    // The last session stays, but not its oldest events.
    let small = RetentionLimits {
        rows_per_step: 2,
        ..limits(300_000)
    };
    while store.enforce_retention(small, at(20)).await.unwrap().more {}
    assert_eq!(
        names(store.list_sessions("default", None, 10).await.unwrap()),
        ["newest"]
    );
    let events = store.events_after(&key("newest"), 0, 10).await.unwrap();
    assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), [5]);
    assert!(store.used_bytes().await.unwrap() < 300_000);
}

#[tokio::test]
async fn damage_met_later_is_an_error_that_names_payload_db_and_the_way_out() {
    let world = tempfile::tempdir().unwrap();
    let path = world.path().join("payload.db");
    let store = PayloadStore::open(PayloadOptions::file(&path)).unwrap();
    store.create_session(&key("s"), at(0)).await.unwrap();
    for number in 0..200 {
        let mut event = event("message");
        event.data = json!({ "n": number, "text": "x".repeat(3000) });
        store
            .append(&key("s"), vec![event], Vec::new(), Durability::Relaxed)
            .await
            .unwrap();
    }
    store.close().await;
    let store = PayloadStore::open(PayloadOptions::file(&path)).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let half = bytes.len() / 2;
    bytes[half..].fill(0xa5);
    std::fs::write(&path, bytes).unwrap();
    let error = within(store.events_after(&key("s"), 0, 1000)).await.unwrap_err();
    let PayloadError::Storage(fault) = &error else {
        panic!("{error:?}");
    };
    assert!(fault.is_damaged());
    assert!(fault.to_string().contains("payload.db is damaged"), "{fault}");
    store.close().await;
}

#[test]
fn or_273_payload_db_of_a_newer_layout_is_refused_with_its_bytes_unchanged() {
    let world = tempfile::tempdir().unwrap();
    let path = world.path().join("payload.db");
    drop(layout::layouts().open(&path, Upgrade::Allowed, at(0)).unwrap());
    let known = layout::layouts().versions.last().unwrap().number;
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute_batch(&format!(
            "CREATE TABLE newer (x); PRAGMA user_version = {}",
            known + 1
        ))
        .unwrap();
    drop(connection);
    let before = std::fs::read(&path).unwrap();
    let error = PayloadStore::open(PayloadOptions::file(&path)).unwrap_err();
    assert!(
        matches!(
            error,
            OpenError::Layout(LayoutError::Newer { found, newest, .. }) if (found, newest) == (known + 1, known)
        ),
        "{error:?}"
    );
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert_eq!(
        std::fs::read_dir(world.path()).unwrap().count(),
        1,
        "a side file was left"
    );
}
