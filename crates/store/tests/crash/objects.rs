//! `kube.db`: every write is synced before it is acknowledged.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use mainstay_power_cut::Loss;
use mainstay_store::kube::{
    Body, Change, Event, EventKind, Expect, Key, KubeOptions, KubeStore, WatchItem, WindowLimits,
};
use mainstay_telemetry::random::{Random, SeededRandom};
use mainstay_telemetry::task;

use super::child;

const RESOURCE: &str = "/configmaps";
/// Events that are kept: few, so that history is forgotten while the child is killed.
const WINDOW: usize = 600;
/// Makes the log of writes so long that it is written back into the file while the child is killed.
const PADDING: usize = 1500;
/// Operations among which one is chosen: some thousands, so that there are checkpoints among them …
const OPERATIONS: u64 = 5000;
/// … and, in every other round, so few that most of what opening does is among them.
const FIRST_OPERATIONS: u64 = 160;
/// Rounds over the same file.
const SERIES: usize = 10;

fn open(folder: &Path) -> KubeStore {
    KubeStore::open(KubeOptions {
        window: WindowLimits {
            events: WINDOW,
            ..WindowLimits::default()
        },
        ..KubeOptions::file(folder.join("kube.db"))
    })
    .unwrap()
}

fn body(number: u64) -> Body {
    let head = r#"{"v":""#;
    let padding = "x".repeat(PADDING);
    Body {
        bytes: Bytes::from(format!(r#"{head}","number":{number},"padding":"{padding}"}}"#)),
        revision_at: Some(head.len()),
    }
}

/// The revision and the number that an object carries.
fn numbers(value: &Bytes) -> (u64, u64) {
    let json: serde_json::Value = serde_json::from_slice(value).unwrap();
    assert_eq!(json["padding"].as_str().unwrap().len(), PADDING);
    (
        json["v"].as_str().unwrap().parse().unwrap(),
        json["number"].as_u64().unwrap(),
    )
}

fn object(writer: u64, side: &str) -> Key {
    Key::new(RESOURCE, "default", format!("{writer}-{side}"))
}

/// What one commit of a writer does: `left` and `right` carry the same number, and `odd` exists while it is odd.
fn step(store: &KubeStore, writer: u64) -> (u64, Vec<Change>) {
    let left = store.get(&object(writer, "left"));
    let number = left.map_or(0, |stored| numbers(&stored.value).1) + 1;
    let mut changes = Vec::new();
    for side in ["left", "right", "odd"] {
        let key = object(writer, side);
        let now = store.get(&key);
        changes.push(match now {
            Some(stored) if side == "odd" => Change::Delete {
                key,
                expect: stored.revision,
                last: body(number),
            },
            now => Change::Put {
                key,
                expect: now.map_or(Expect::Absent, |stored| Expect::Revision(stored.revision)),
                body: body(number),
            },
        });
    }
    (number, changes)
}

async fn write(folder: &Path) {
    let store = open(folder);
    let mut watch = store.watch(RESOURCE, None, store.revision()).unwrap();
    let mut tasks = vec![task::spawn("watcher", async move {
        loop {
            if let WatchItem::Event(event) = watch.next().await.unwrap() {
                child::say(&format!("saw {}", shown(&event)));
            }
        }
    })];
    for writer in 0..child::WRITERS {
        let store = store.clone();
        tasks.push(task::spawn("writer", async move {
            loop {
                let (number, changes) = step(&store, writer);
                let revisions = store.commit(changes).await.unwrap();
                child::say(&format!("wrote {writer} {number} {}", revisions[2]));
            }
        }));
    }
    futures::future::join_all(tasks).await;
}

/// An event in one line.
fn shown(event: &Event) -> String {
    let (revision, number) = numbers(&event.value);
    assert_eq!(revision, event.revision);
    let kind = match event.kind {
        EventKind::Added => "added",
        EventKind::Modified => "modified",
        EventKind::Deleted => "deleted",
    };
    format!("{revision} {kind} {} {number}", event.key.name)
}

/// What was acknowledged or seen by anybody so far.
#[derive(Debug, Default, Clone)]
struct Known {
    /// By writer.
    numbers: BTreeMap<u64, u64>,
    /// The highest revision of all.
    revision: u64,
    /// By revision, as a watcher was shown them.
    events: BTreeMap<u64, String>,
}

impl Known {
    fn take(&mut self, told: Vec<String>) {
        for line in told {
            let (what, rest) = line.split_once(' ').unwrap();
            let mut parts = rest.split(' ').map(|part| part.parse::<u64>());
            let mut number = || parts.next().unwrap().unwrap();
            if what == "saw" {
                let revision = number();
                let earlier = self.events.insert(revision, rest.to_owned());
                assert_eq!(earlier, None, "a watcher was shown a revision twice");
                self.revision = self.revision.max(revision);
            } else {
                let writer = number();
                self.numbers.insert(writer, number());
                self.revision = self.revision.max(number());
            }
        }
    }

    /// Opens the store and looks whether all that is known is there. What more is there is known from then on.
    async fn check(&mut self, folder: &Path, at: &str) {
        let store = open(folder);
        assert!(store.revision() >= self.revision, "{at}: the counter went back");
        for writer in 0..child::WRITERS {
            let carried = |side: &str| {
                let stored = store.get(&object(writer, side))?;
                let (revision, number) = numbers(&stored.value);
                assert_eq!(revision, stored.revision, "{at}");
                Some(number)
            };
            let left = carried("left");
            assert_eq!(left, carried("right"), "{at}: half a commit");
            let number = left.unwrap_or_default();
            assert_eq!(
                carried("odd"),
                Some(number).filter(|number| number % 2 == 1),
                "{at}: half a commit"
            );
            let acknowledged = self.numbers.get(&writer).copied().unwrap_or_default();
            assert!(
                number == acknowledged || number == acknowledged + 1,
                "{at}: {number} after {acknowledged}"
            );
            self.numbers.insert(writer, number);
        }
        // The watcher goes on behind what it saw: every revision comes once, in order.
        let oldest = store.oldest_revision();
        let seen = self
            .events
            .keys()
            .next_back()
            .copied()
            .unwrap_or(1)
            .max(oldest - 1);
        assert_eq!(follow(&store, seen, &mut self.events), store.revision(), "{at}");
        // And what it saw before is what a watcher from further back is shown.
        let mut again = BTreeMap::new();
        follow(&store, oldest - 1, &mut again);
        for (revision, event) in again {
            assert_eq!(self.events.get(&revision).unwrap_or(&event), &event, "{at}");
        }
        self.revision = store.revision();
        store.close().await;
    }
}

/// Watches from `after` on, without waiting; returns the last revision.
fn follow(store: &KubeStore, after: u64, events: &mut BTreeMap<u64, String>) -> u64 {
    let mut watch = store.watch(RESOURCE, None, after).unwrap();
    let mut last = after;
    while let Some(item) = watch.try_next().unwrap() {
        let WatchItem::Event(event) = item else {
            panic!("a revision without an event")
        };
        assert_eq!(event.revision, last + 1, "a gap, or a repeat");
        last = event.revision;
        assert_eq!(events.insert(last, shown(&event)), None);
    }
    last
}

#[test]
fn ka_030_ka_026_kill_9_loses_no_acknowledged_object_and_a_watcher_resumes() {
    let runtime = child::runtime();
    if let Some(folder) = child::folder() {
        return runtime.block_on(write(&folder));
    }
    let name = "objects::ka_030_ka_026_kill_9_loses_no_acknowledged_object_and_a_watcher_resumes";
    let world = tempfile::tempdir().unwrap();
    let random = SeededRandom::new(30);
    let mut known = Known::default();
    for round in 0..child::rounds() {
        let count = 1 + child::below(&random, 600) as usize;
        known.take(child::killed_after(name, world.path(), count));
        let at = format!("round {round}");
        runtime.block_on(known.check(world.path(), &at));
    }
}

#[test]
fn ka_030_ka_026_a_power_cut_loses_no_acknowledged_object_and_a_watcher_resumes() {
    let runtime = child::runtime();
    if let Some(folder) = child::folder() {
        return runtime.block_on(write(&folder));
    }
    let name = "objects::ka_030_ka_026_a_power_cut_loses_no_acknowledged_object_and_a_watcher_resumes";
    let random = SeededRandom::new(31);
    let (mut syncs, mut commits) = (0, 0);
    let mut world = tempfile::tempdir().unwrap();
    let mut known = Known::default();
    for round in 0..child::rounds() {
        if round % SERIES == 0 {
            world = tempfile::tempdir().unwrap();
            known = Known::default();
        }
        let range = if round % 2 == 0 {
            FIRST_OPERATIONS
        } else {
            OPERATIONS
        };
        let operation = 1 + child::below(&random, range);
        let (told, recording) = child::cut_at(name, world.path(), operation);
        syncs += recording.syncs();
        commits += told.iter().filter(|line| line.starts_with("wrote")).count();
        known.take(told);
        let mut after = known.clone();
        // The round goes on from the last of them.
        let losses = [
            Loss::Nothing,
            Loss::Everything,
            Loss::Some(random.bits()),
            Loss::Some(random.bits()),
        ];
        for loss in losses {
            recording.left(loss).unwrap();
            after = known.clone();
            let at = format!("round {round}, operation {operation}, {loss:?}");
            runtime.block_on(after.check(world.path(), &at));
        }
        known = after;
    }
    println!("{commits} commits acknowledged, {syncs} syncs");
}
