use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc as blocking;
use std::time::Duration;

use bytes::Bytes;
use mainstay_telemetry::clock::ManualClock;
use mainstay_telemetry::task;
use proptest::prelude::*;

use super::*;
use crate::CommitGate;

const RESOURCE: &str = "/configmaps";

fn key(name: &str) -> Key {
    Key::new(RESOURCE, "default", name)
}

fn body(text: &str) -> Body {
    let head = r#"{"metadata":{"resourceVersion":""#;
    let json = format!(r#"{head}"}},"data":"{text}"}}"#);
    Body {
        bytes: Bytes::from(json),
        revision_at: Some(head.len()),
    }
}

fn create(name: &str, text: &str) -> Change {
    Change::Put {
        key: key(name),
        body: body(text),
        expect: Expect::Absent,
    }
}

fn update(name: &str, text: &str, revision: u64) -> Change {
    Change::Put {
        key: key(name),
        body: body(text),
        expect: Expect::Revision(revision),
    }
}

fn delete(name: &str, revision: u64) -> Change {
    Change::Delete {
        key: key(name),
        expect: revision,
        last: body("last"),
    }
}

fn text_of(value: &Bytes) -> (u64, String) {
    let json: serde_json::Value = serde_json::from_slice(value).unwrap();
    let revision = json["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    (revision, json["data"].as_str().unwrap().to_owned())
}

async fn one(store: &KubeStore, change: Change) -> u64 {
    store.commit(vec![change]).await.unwrap()[0]
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), future)
        .await
        .expect("not within the deadline")
}

/// Runs a closure on the writer's connection, to make faults that a disk would make.
async fn on_connection(store: &KubeStore, work: impl FnOnce(&rusqlite::Connection) + Send + 'static) {
    let (done, wait) = oneshot::channel();
    let read = Request::Read(Box::new(move |connection| {
        work(connection);
        done.send(()).unwrap();
    }));
    assert!(store.requests.send(read).await.is_ok());
    wait.await.unwrap();
}

/// Holds the writer inside its first commit until `release` is called, so that everybody else queues up behind it.
struct HeldGate {
    entered: Option<oneshot::Receiver<()>>,
    release: blocking::SyncSender<()>,
}

fn held_gate() -> (CommitGate, HeldGate) {
    let (release, held) = blocking::sync_channel::<()>(1);
    let (enter, entered) = oneshot::channel();
    let first = Mutex::new(Some((enter, held)));
    let gate: CommitGate = Arc::new(move || {
        let taken = first.lock().unwrap().take();
        if let Some((enter, held)) = taken {
            let _ = enter.send(());
            held.recv_timeout(Duration::from_secs(30))
                .map_err(io::Error::other)?;
        }
        Ok(())
    });
    (
        gate,
        HeldGate {
            entered: Some(entered),
            release,
        },
    )
}

impl HeldGate {
    /// Until the first commit is held.
    async fn entered(&mut self) {
        within(self.entered.take().unwrap()).await.unwrap();
    }

    fn release(&self) {
        self.release.send(()).unwrap();
    }
}

async fn until_waiting(store: &KubeStore, callers: usize) {
    within(async {
        while store.statistics().waiting < callers {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn ka_021_the_revision_stands_in_the_stored_object() {
    let store = KubeStore::open(KubeOptions::in_memory()).unwrap();
    let first = one(&store, create("a", "one")).await;
    let second = one(&store, update("a", "two", first)).await;
    assert_eq!(second, first + 1);
    let stored = store.get(&key("a")).unwrap();
    assert_eq!((stored.revision, stored.create_revision), (second, first));
    assert_eq!(text_of(&stored.value), (second, "two".to_owned()));
    assert_eq!(store.revision(), second);
    assert!(
        first > 1,
        "an empty store must not list at a revision clients give a meaning of their own"
    );
}

#[tokio::test]
async fn ka_025_a_list_is_ordered_and_keeps_to_its_resource_and_namespace() {
    let store = KubeStore::open(KubeOptions::in_memory()).unwrap();
    for (resource, namespace, name) in [
        ("/configmaps", "b", "x"),
        ("/configmaps", "a", "y"),
        ("/configmaps", "a", "x"),
        ("/configmaps2", "a", "z"),
        ("/configmap", "a", "z"),
    ] {
        let change = Change::Put {
            key: Key::new(resource, namespace, name),
            body: body(""),
            expect: Expect::Absent,
        };
        one(&store, change).await;
    }
    let names = |snapshot: Snapshot| -> Vec<String> {
        snapshot
            .items
            .iter()
            .map(|stored| format!("{}/{}", stored.key.namespace, stored.key.name))
            .collect()
    };
    assert_eq!(names(store.list(RESOURCE, None)), ["a/x", "a/y", "b/x"]);
    assert_eq!(names(store.list(RESOURCE, Some("a"))), ["a/x", "a/y"]);
    assert_eq!(names(store.list(RESOURCE, Some("c"))), [""; 0]);
}

#[tokio::test]
async fn a_commit_is_all_or_nothing_and_a_conflict_names_the_object() {
    let store = KubeStore::open(KubeOptions::in_memory()).unwrap();
    let first = one(&store, create("a", "one")).await;
    let error = store
        .commit(vec![create("b", "new"), update("a", "two", first + 7)])
        .await
        .unwrap_err();
    let CommitError::Conflict {
        key: in_conflict,
        current,
    } = error
    else {
        panic!("{error}")
    };
    assert_eq!((in_conflict, current), (key("a"), Some(first)));
    assert_eq!(store.get(&key("b")), None);
    assert_eq!(store.revision(), first);

    let error = store.commit(vec![delete("missing", 5)]).await.unwrap_err();
    assert!(
        error.to_string().contains("configmaps default/missing"),
        "{error}"
    );
    let error = store.commit(vec![create("a", "again")]).await.unwrap_err();
    assert!(matches!(error, CommitError::Conflict { current: Some(revision), .. } if revision == first));
    // Replacing an object by another of its name in one commit.
    let revisions = store
        .commit(vec![delete("a", first), create("a", "reborn")])
        .await
        .unwrap();
    assert_eq!(revisions, [first + 1, first + 2]);
    assert_eq!(store.get(&key("a")).unwrap().create_revision, first + 2);
}

#[tokio::test]
async fn ka_032_callers_that_wait_share_a_transaction_and_a_conflict_fails_alone() {
    let (gate, mut held) = held_gate();
    let store = KubeStore::open(KubeOptions {
        commit_gate: Some(gate),
        ..KubeOptions::in_memory()
    })
    .unwrap();
    let commit = |name: String| {
        let store = store.clone();
        task::spawn(
            "caller",
            async move { store.commit(vec![create(&name, "x")]).await },
        )
    };
    let mut callers = vec![commit("first".to_owned())];
    held.entered().await;
    // Five callers want each of ten names; one of them gets it.
    callers.extend((0..50).map(|caller| commit(format!("n{}", caller % 10))));
    until_waiting(&store, 50).await;
    held.release();
    let mut revisions = Vec::new();
    let mut conflicts = 0;
    for caller in callers {
        match within(caller).await.unwrap() {
            Ok(committed) => revisions.extend(committed),
            Err(CommitError::Conflict { current: Some(_), .. }) => conflicts += 1,
            Err(other) => panic!("{other}"),
        }
    }
    revisions.sort_unstable();
    assert_eq!(revisions, (2..13).collect::<Vec<_>>());
    assert_eq!(conflicts, 40);
    assert_eq!(store.statistics().changes, 11);
    assert_eq!(store.statistics().transactions, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ka_026_concurrent_writers_lose_no_event_and_send_none_twice() {
    let world = tempfile::tempdir().unwrap();
    let store = KubeStore::open(KubeOptions::file(world.path().join("kube.db"))).unwrap();
    const WRITERS: usize = 24;
    const WRITES: usize = 20;
    let start = store.revision();
    let mut watchers = Vec::new();
    for _ in 0..8 {
        let mut watch = store.watch(RESOURCE, None, start).unwrap();
        watchers.push(task::spawn("watcher", async move {
            let mut seen = Vec::new();
            while seen.len() < WRITERS * WRITES {
                if let WatchItem::Event(event) = watch.next().await.unwrap() {
                    assert_eq!(text_of(&event.value).0, event.revision);
                    seen.push(event.revision);
                }
            }
            seen
        }));
    }
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let store = store.clone();
        writers.push(task::spawn("writer", async move {
            let name = format!("w{writer}");
            let mut revision = one(&store, create(&name, "0")).await;
            for round in 1..WRITES {
                revision = one(&store, update(&name, &round.to_string(), revision)).await;
                // Visible to its writer as soon as it is acknowledged.
                assert_eq!(store.get(&key(&name)).unwrap().revision, revision);
            }
        }));
    }
    for writer in writers {
        within(writer).await.unwrap();
    }
    let expected: Vec<u64> = (start + 1..=start + (WRITERS * WRITES) as u64).collect();
    for watcher in watchers {
        assert_eq!(within(watcher).await.unwrap(), expected);
    }
}

#[tokio::test]
async fn ka_026_a_watch_filters_and_reports_progress_over_what_it_passes() {
    let store = KubeStore::open(KubeOptions::in_memory()).unwrap();
    let mut watch = store.watch(RESOURCE, Some("default"), store.revision()).unwrap();
    assert_eq!(watch.try_next(), Ok(None));
    let other = Change::Put {
        key: Key::new(RESOURCE, "other", "a"),
        body: body(""),
        expect: Expect::Absent,
    };
    let passed = one(&store, other).await;
    let added = one(&store, create("a", "one")).await;
    let modified = one(&store, update("a", "two", added)).await;
    let deleted = one(&store, delete("a", modified)).await;
    let mut kinds = Vec::new();
    for _ in 0..3 {
        let WatchItem::Event(event) = within(watch.next()).await.unwrap() else {
            panic!("no event")
        };
        kinds.push((
            event.revision,
            event.kind,
            event.previous.as_ref().map(|value| text_of(value).1),
        ));
    }
    assert_eq!(
        kinds,
        [
            (added, EventKind::Added, None),
            (modified, EventKind::Modified, Some("one".to_owned())),
            (deleted, EventKind::Deleted, Some("two".to_owned())),
        ]
    );
    let mut nothing = store.watch("/secrets", None, passed - 1).unwrap();
    assert_eq!(within(nothing.next()).await, Ok(WatchItem::Progress(deleted)));
    assert_eq!(nothing.position(), deleted);
}

#[tokio::test]
async fn ka_026_a_watch_ahead_of_the_store_waits_and_a_dropped_wait_loses_nothing() {
    let store = KubeStore::open(KubeOptions::in_memory()).unwrap();
    let mut watch = store.watch(RESOURCE, None, store.revision() + 1).unwrap();
    {
        let mut wait = std::pin::pin!(watch.next());
        assert!(futures::poll!(wait.as_mut()).is_pending());
    }
    one(&store, create("not-yet", "")).await;
    let expected = one(&store, create("a", "")).await;
    let WatchItem::Event(event) = within(watch.next()).await.unwrap() else {
        panic!("no event")
    };
    assert_eq!(event.revision, expected);
}

#[tokio::test]
async fn a_slow_watcher_lags_while_others_go_on() {
    let window = WindowLimits {
        events: 5,
        ..WindowLimits::default()
    };
    let store = KubeStore::open(KubeOptions {
        window,
        ..KubeOptions::in_memory()
    })
    .unwrap();
    let mut slow = store.watch(RESOURCE, None, store.revision()).unwrap();
    let mut newest = 0;
    for object in 0..10 {
        newest = one(&store, create(&format!("o{object}"), "")).await;
    }
    let oldest = newest - 5;
    assert_eq!(within(slow.next()).await, Err(Lagged { oldest }));
    assert_eq!(store.oldest_revision(), oldest + 1);
    // The revision before the oldest kept still works, the one before it does not.
    let mut resumed = store.watch(RESOURCE, None, oldest).unwrap();
    assert!(
        matches!(within(resumed.next()).await, Ok(WatchItem::Event(event)) if event.revision == oldest + 1)
    );
    let error = store.watch(RESOURCE, None, oldest - 1).unwrap_err();
    assert!(matches!(error, HistoryError::Compacted { oldest: kept, .. } if kept == oldest));
}

#[tokio::test]
async fn ka_031_the_window_is_bounded_by_bytes_and_age_too() {
    let clock = ManualClock::at("2026-11-30T12:00:00Z".parse().unwrap());
    let bytes = body("x").bytes.len() * 4;
    let window = WindowLimits {
        events: 1000,
        bytes,
        age: Duration::from_secs(60),
    };
    let options = KubeOptions {
        window,
        clock: clock.clone(),
        ..KubeOptions::in_memory()
    };
    let store = KubeStore::open(options).unwrap();
    for object in 0..20 {
        one(&store, create(&format!("o{object}"), "x")).await;
    }
    let statistics = store.statistics();
    assert!(
        statistics.window_bytes <= bytes && statistics.window_events >= 2,
        "{statistics:?}"
    );
    clock.advance(Duration::from_secs(61));
    one(&store, create("late", "x")).await;
    assert_eq!(store.statistics().window_events, 1);
    assert_eq!(store.statistics().objects, 21);
}

#[tokio::test]
async fn ka_030_a_restart_continues_the_counter_and_lets_watchers_resume() {
    let world = tempfile::tempdir().unwrap();
    let path = world.path().join("kube.db");
    let store = KubeStore::open(KubeOptions::file(&path)).unwrap();
    let first = one(&store, create("a", "one")).await;
    let second = one(&store, update("a", "two", first)).await;
    let third = one(&store, delete("a", second)).await;
    let fourth = one(&store, create("b", "stays")).await;
    let before = store.list(RESOURCE, None);
    store.close().await;
    assert!(matches!(
        store.commit(vec![create("c", "")]).await,
        Err(CommitError::Closed)
    ));

    let store = KubeStore::open(KubeOptions::file(&path)).unwrap();
    assert_eq!(store.list(RESOURCE, None), before);
    let mut watch = store.watch(RESOURCE, None, first).unwrap();
    let fifth = one(&store, create("a", "again")).await;
    let mut seen = Vec::new();
    for _ in 0..4 {
        let WatchItem::Event(event) = within(watch.next()).await.unwrap() else {
            panic!("no event")
        };
        seen.push((
            event.revision,
            event.kind,
            event.previous.as_ref().map(|value| text_of(value).1),
        ));
    }
    assert_eq!(
        seen,
        [
            (second, EventKind::Modified, Some("one".to_owned())),
            (third, EventKind::Deleted, Some("two".to_owned())),
            (fourth, EventKind::Added, None),
            (fifth, EventKind::Added, None),
        ]
    );
    assert_eq!(fifth, fourth + 1);
}

#[tokio::test]
async fn ka_030_no_revision_is_used_twice_even_when_everything_was_deleted_and_compacted() {
    let world = tempfile::tempdir().unwrap();
    let path = world.path().join("kube.db");
    let store = KubeStore::open(KubeOptions::file(&path)).unwrap();
    let first = one(&store, create("a", "one")).await;
    let last = one(&store, delete("a", first)).await;
    assert_eq!(store.compact(Some(last)).await.unwrap(), last);
    store.close().await;
    let rows: u64 = rusqlite::Connection::open(&path)
        .unwrap()
        .query_row("SELECT count(*) FROM revisions", [], |row| row.get(0))
        .unwrap();
    assert_eq!(rows, 0);
    let store = KubeStore::open(KubeOptions::file(&path)).unwrap();
    assert_eq!(store.revision(), last);
    assert_eq!(one(&store, create("a", "two")).await, last + 1);
}

#[tokio::test]
async fn ka_025_history_is_read_in_pages_until_it_is_compacted() {
    let world = tempfile::tempdir().unwrap();
    let file = KubeOptions::file(world.path().join("kube.db"));
    for options in [KubeOptions::in_memory(), file] {
        let store = KubeStore::open(KubeOptions {
            compaction_step: 2,
            ..options
        })
        .unwrap();
        let mut revisions = BTreeMap::new();
        for name in ["a", "b", "c", "d"] {
            revisions.insert(name, one(&store, create(name, "old")).await);
        }
        let at = store.revision();
        one(&store, update("a", "new", revisions["a"])).await;
        one(&store, delete("b", revisions["b"])).await;
        one(&store, create("e", "new")).await;

        let page = store.list_at(RESOURCE, None, at, None, 3).await.unwrap();
        let names = |page: &Page| -> Vec<String> {
            page.items.iter().map(|item| item.key.name.to_string()).collect()
        };
        assert_eq!(
            (names(&page), page.remaining),
            (vec!["a".to_owned(), "b".to_owned(), "c".to_owned()], 1)
        );
        assert_eq!(text_of(&page.items[0].value).1, "old");
        let rest = store
            .list_at(RESOURCE, Some("default"), at, Some(("default", "c")), 3)
            .await
            .unwrap();
        assert_eq!((names(&rest), rest.remaining), (vec!["d".to_owned()], 0));
        let now = store
            .list_at(RESOURCE, None, store.revision(), Some(("default", "a")), 2)
            .await
            .unwrap();
        assert_eq!(
            (names(&now), now.remaining),
            (vec!["c".to_owned(), "d".to_owned()], 1)
        );
        let future = store
            .list_at(RESOURCE, None, store.revision() + 1, None, 3)
            .await
            .unwrap_err();
        assert!(matches!(future, HistoryError::Future { .. }));

        assert_eq!(store.compact(Some(at + 1)).await.unwrap(), at + 1);
        let gone = store.list_at(RESOURCE, None, at, None, 3).await.unwrap_err();
        assert!(matches!(gone, HistoryError::Compacted { oldest, .. } if oldest == at + 1));
        let kept = store.list_at(RESOURCE, None, at + 1, None, 9).await.unwrap();
        assert_eq!(names(&kept), ["a", "b", "c", "d"]);
        store.close().await;
    }
}

#[tokio::test]
async fn ka_031_compaction_follows_the_window_by_itself_and_keeps_the_file_bounded() {
    let world = tempfile::tempdir().unwrap();
    let path = world.path().join("kube.db");
    let window = WindowLimits {
        events: 50,
        ..WindowLimits::default()
    };
    let store = KubeStore::open(KubeOptions {
        window,
        compaction_step: 100,
        ..KubeOptions::file(&path)
    })
    .unwrap();
    let mut revision = one(&store, create("busy", "0")).await;
    let kept = one(&store, create("kept", "first")).await;
    for _ in 0..40 {
        // Many changes per commit, because each commit costs a sync of the disk.
        let mut changes = Vec::new();
        for _ in 0..25 {
            let next = store.revision() + 1 + changes.len() as u64;
            changes.push(update("busy", "again", revision));
            revision = next;
        }
        store.commit(changes).await.unwrap();
    }
    // Steps are taken while nothing waits, until what may go is not worth a step.
    within(async {
        loop {
            let (count, counted) = oneshot::channel();
            on_connection(&store, move |connection| {
                let rows =
                    connection.query_row("SELECT count(*) FROM revisions", [], |row| row.get::<_, u64>(0));
                count.send(rows.unwrap()).unwrap();
            })
            .await;
            if counted.await.unwrap() < 400 {
                break;
            }
        }
    })
    .await;
    store.compact(None).await.unwrap();
    store.close().await;
    let store = KubeStore::open(KubeOptions {
        window,
        ..KubeOptions::file(&path)
    })
    .unwrap();
    assert_eq!(store.get(&key("busy")).unwrap().revision, revision);
    assert_eq!(store.get(&key("kept")).unwrap().revision, kept);
    assert_eq!(store.oldest_revision(), revision - 49);
}

#[tokio::test]
async fn a_disk_error_fails_the_commit_shows_nothing_and_passes() {
    let world = tempfile::tempdir().unwrap();
    let broken = Arc::new(AtomicBool::new(false));
    let full = Arc::new(AtomicBool::new(false));
    let gate: CommitGate = {
        let (broken, full) = (Arc::clone(&broken), Arc::clone(&full));
        Arc::new(move || {
            if full.load(Ordering::SeqCst) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            if broken.load(Ordering::SeqCst) {
                Err(io::Error::other("the disk is gone"))
            } else {
                Ok(())
            }
        })
    };
    let path = world.path().join("kube.db");
    let store = KubeStore::open(KubeOptions {
        commit_gate: Some(gate),
        ..KubeOptions::file(&path)
    })
    .unwrap();
    let first = one(&store, create("a", "one")).await;
    let mut watch = store.watch(RESOURCE, None, first).unwrap();

    broken.store(true, Ordering::SeqCst);
    let error = store.commit(vec![create("b", "lost")]).await.unwrap_err();
    assert!(matches!(error, CommitError::Storage(_)), "{error:?}");
    // A conflict is a conflict, whatever the disk says.
    let error = store.commit(vec![create("a", "again")]).await.unwrap_err();
    assert!(matches!(error, CommitError::Conflict { .. }), "{error:?}");
    full.store(true, Ordering::SeqCst);
    let error = store.commit(vec![create("b", "lost")]).await.unwrap_err();
    assert!(matches!(error, CommitError::Full(_)), "{error:?}");
    assert_eq!(
        (store.get(&key("b")), store.revision(), watch.try_next()),
        (None, first, Ok(None))
    );

    full.store(false, Ordering::SeqCst);
    broken.store(false, Ordering::SeqCst);
    let second = one(&store, create("b", "kept")).await;
    assert_eq!(second, first + 1);
    store.close().await;
    let store = KubeStore::open(KubeOptions::file(&path)).unwrap();
    assert_eq!(
        text_of(&store.get(&key("b")).unwrap().value),
        (second, "kept".to_owned())
    );
}

#[tokio::test]
async fn a_full_database_file_fails_as_full_and_works_again_with_space() {
    let world = tempfile::tempdir().unwrap();
    let store = KubeStore::open(KubeOptions::file(world.path().join("kube.db"))).unwrap();
    one(&store, create("a", "one")).await;
    on_connection(&store, |connection| {
        let pages: u32 = connection
            .pragma_query_value(None, "page_count", |row| row.get(0))
            .unwrap();
        connection
            .pragma_update_and_check(None, "max_page_count", pages + 2, |_| Ok(()))
            .unwrap();
    })
    .await;
    let large = "x".repeat(100_000);
    let error = store.commit(vec![create("large", &large)]).await.unwrap_err();
    assert!(matches!(error, CommitError::Full(_)), "{error:?}");
    assert_eq!(store.get(&key("large")), None);
    on_connection(&store, |connection| {
        connection
            .pragma_update_and_check(None, "max_page_count", 1_000_000, |_| Ok(()))
            .unwrap();
    })
    .await;
    let revision = one(&store, create("large", &large)).await;
    assert_eq!(
        text_of(&store.get(&key("large")).unwrap().value),
        (revision, large)
    );
}

#[tokio::test]
async fn a_change_that_cannot_be_written_does_not_fail_those_that_shared_its_transaction() {
    let (gate, mut held) = held_gate();
    let store = KubeStore::open(KubeOptions {
        commit_gate: Some(gate),
        ..KubeOptions::in_memory()
    })
    .unwrap();
    on_connection(&store, |connection| {
        connection
            .set_limit(rusqlite::limits::Limit::SQLITE_LIMIT_LENGTH, 10_000)
            .unwrap();
    })
    .await;
    let commit = |name: &'static str, size: usize| {
        let store = store.clone();
        task::spawn("caller", async move {
            store.commit(vec![create(name, &"x".repeat(size))]).await
        })
    };
    let mut callers = vec![commit("first", 1)];
    held.entered().await;
    callers.extend([commit("small", 1), commit("large", 20_000), commit("other", 1)]);
    until_waiting(&store, 3).await;
    held.release();
    let mut results = Vec::new();
    for caller in callers {
        results.push(within(caller).await.unwrap().is_ok());
    }
    assert_eq!(results, [true, true, false, true]);
    assert_eq!(store.revision(), 1 + 3, "the failed change used up a revision");
}

#[tokio::test]
async fn a_caller_that_stops_waiting_does_not_undo_its_write() {
    let (gate, mut held) = held_gate();
    let store = KubeStore::open(KubeOptions {
        commit_gate: Some(gate),
        ..KubeOptions::in_memory()
    })
    .unwrap();
    let mut watch = store.watch(RESOURCE, None, store.revision()).unwrap();
    {
        let mut commit = std::pin::pin!(store.commit(vec![create("a", "kept")]));
        assert!(futures::poll!(commit.as_mut()).is_pending());
    }
    held.entered().await;
    held.release();
    assert!(matches!(within(watch.next()).await, Ok(WatchItem::Event(_))));
    assert!(store.get(&key("a")).is_some());
}

#[tokio::test]
async fn a_watch_ends_when_the_store_is_closed() {
    let store = KubeStore::open(KubeOptions::in_memory()).unwrap();
    let mut watch = store.watch(RESOURCE, None, store.revision()).unwrap();
    store.close().await;
    assert!(within(watch.next()).await.is_err());
}

/// Overwrites every page but the first.
fn damage(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[4096..].fill(0xa5);
    std::fs::write(path, bytes).unwrap();
}

#[tokio::test]
async fn ka_030_damage_met_later_is_an_error_that_names_the_file_and_the_way_out() {
    let world = tempfile::tempdir().unwrap();
    let path = world.path().join("kube.db");
    let store = KubeStore::open(KubeOptions::file(&path)).unwrap();
    for number in 0..50 {
        one(&store, create(&number.to_string(), &"x".repeat(3000))).await;
    }
    store.close().await;
    let store = KubeStore::open(KubeOptions::file(&path)).unwrap();
    damage(&path);
    let error = within(store.list_at(RESOURCE, None, 10, None, 100))
        .await
        .unwrap_err();
    let HistoryError::Storage(fault) = &error else {
        panic!("{error:?}");
    };
    assert!(fault.is_damaged());
    assert!(fault.to_string().contains("kube.db is damaged"), "{fault}");
    assert!(fault.to_string().contains("from a backup"), "{fault}");
    store.close().await;

    let error = KubeStore::open(KubeOptions::file(&path)).unwrap_err();
    let mut chain = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        chain.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    assert!(chain.contains("kube.db is damaged"), "{chain}");
}

#[test]
fn ka_033_kube_db_of_a_newer_layout_is_refused_with_its_bytes_unchanged() {
    let world = tempfile::tempdir().unwrap();
    let path = world.path().join("kube.db");
    drop(
        layout::layouts()
            .open(
                &path,
                crate::layout::Upgrade::Allowed,
                jiff::Timestamp::UNIX_EPOCH,
            )
            .unwrap(),
    );
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute_batch("ALTER TABLE progress ADD COLUMN newer INTEGER; PRAGMA user_version = 99")
        .unwrap();
    drop(connection);
    let before = std::fs::read(&path).unwrap();
    let error = KubeStore::open(KubeOptions::file(&path)).unwrap_err();
    assert!(
        matches!(error, OpenError::Layout(LayoutError::Newer { found: 99, .. })),
        "{error:?}"
    );
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert_eq!(
        std::fs::read_dir(world.path()).unwrap().count(),
        1,
        "a side file was left"
    );
}

/// One step of the random history below.
#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8),
    Delete(u8),
    StaleWrite(u8),
    Compact(u8),
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0u8..5, any::<u8>()).prop_map(|(object, text)| Step::Put(object, text)),
        3 => (0u8..5).prop_map(Step::Delete),
        2 => (0u8..5).prop_map(Step::StaleWrite),
        1 => any::<u8>().prop_map(Step::Compact),
        1 => Just(Step::Restart),
    ];
    proptest::collection::vec(step, 1..60)
}

type Model = BTreeMap<String, (u64, String)>;

fn contents(items: &[Stored]) -> Model {
    items
        .iter()
        .map(|item| (item.key.name.to_string(), (item.revision, text_of(&item.value).1)))
        .collect()
}

async fn check_history(path: &Path, steps: Vec<Step>) {
    let open = || {
        KubeStore::open(KubeOptions {
            compaction_step: 3,
            ..KubeOptions::file(path)
        })
        .unwrap()
    };
    let mut store = open();
    // The state at each revision since the last compaction.
    let mut past: BTreeMap<u64, Model> = BTreeMap::from([(store.revision(), Model::new())]);
    let mut now = Model::new();
    for step in steps {
        match step {
            Step::Put(object, text) => {
                let (name, text) = (format!("o{object}"), text.to_string());
                let change = match now.get(&name) {
                    Some((revision, _)) => update(&name, &text, *revision),
                    None => create(&name, &text),
                };
                let revision = one(&store, change).await;
                now.insert(name, (revision, text));
                past.insert(revision, now.clone());
            }
            Step::Delete(object) => {
                let name = format!("o{object}");
                if let Some((revision, _)) = now.remove(&name) {
                    let revision = one(&store, delete(&name, revision)).await;
                    past.insert(revision, now.clone());
                }
            }
            Step::StaleWrite(object) => {
                let name = format!("o{object}");
                let change = if now.contains_key(&name) {
                    create(&name, "stale")
                } else {
                    delete(&name, 1)
                };
                assert!(matches!(
                    store.commit(vec![change]).await,
                    Err(CommitError::Conflict { .. })
                ));
            }
            Step::Compact(part) => {
                let (oldest, newest) = (*past.keys().next().unwrap(), store.revision());
                let through = oldest + (newest - oldest) * u64::from(part) / 255;
                store.compact(Some(through)).await.unwrap();
                past = past.split_off(&through);
            }
            Step::Restart => {
                store.close().await;
                store = open();
            }
        }
        assert_eq!(contents(&store.list(RESOURCE, None).items), now);
    }
    for (revision, expected) in &past {
        let page = store.list_at(RESOURCE, None, *revision, None, 100).await.unwrap();
        assert_eq!(&contents(&page.items), expected, "at {revision}");
    }
    // Events replayed over the oldest state give the newest.
    let (oldest, mut replayed) = past.pop_first().unwrap();
    let mut watch = store.watch(RESOURCE, None, oldest).unwrap();
    while let Some(item) = watch.try_next().unwrap() {
        let WatchItem::Event(event) = item else { continue };
        let name = event.key.name.to_string();
        let before = replayed.get(&name).map(|(_, text)| text.clone());
        assert_eq!(event.previous.as_ref().map(|value| text_of(value).1), before);
        match event.kind {
            EventKind::Deleted => replayed.remove(&name),
            _ => replayed.insert(name, (event.revision, text_of(&event.value).1)),
        };
    }
    assert_eq!(replayed, now);
    store.close().await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn ka_030_every_history_reads_back_as_it_was_written(steps in steps()) {
        let world = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(check_history(&world.path().join("kube.db"), steps));
    }
}
