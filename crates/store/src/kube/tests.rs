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

mod faults;
mod watching;

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
