//! `payload.db`: what is marked as synced survives a power cut, everything acknowledged survives kill -9, and in both
//! cases what is there has no gap.

use std::collections::BTreeMap;
use std::path::Path;

use jiff::Timestamp;
use mainstay_power_cut::Loss;
use mainstay_store::payload::{Durability, NewEvent, NewMessage, PayloadOptions, PayloadStore, SessionKey};
use mainstay_telemetry::random::{Random, SeededRandom};
use mainstay_telemetry::task;

use super::child;

/// Makes the log of writes long enough for checkpoints.
const PADDING: usize = 2000;
/// Operations among which one is chosen, and in every other round.
const OPERATIONS: u64 = 5000;
const FIRST_OPERATIONS: u64 = 240;
/// Rounds over the same file.
const SERIES: usize = 10;

fn open(folder: &Path) -> PayloadStore {
    PayloadStore::open(PayloadOptions::file(folder.join("payload.db"))).unwrap()
}

fn session(writer: u64) -> SessionKey {
    SessionKey::new("default", "agent", writer.to_string())
}

async fn write(folder: &Path) {
    let store = open(folder);
    let mut writers = Vec::new();
    for writer in 0..child::WRITERS {
        let store = store.clone();
        writers.push(task::spawn("writer", async move {
            let key = session(writer);
            let mut number = match store.find_session(&key).await.unwrap() {
                Some(row) => row.next_seq,
                None => {
                    store.create_session(&key, Timestamp::UNIX_EPOCH).await.unwrap();
                    child::say(&format!("synced {writer} 0"));
                    1
                }
            };
            loop {
                let event = NewEvent {
                    kind: "message".to_owned(),
                    data: serde_json::json!({ "number": number, "padding": "x".repeat(PADDING) }),
                    ..NewEvent::default()
                };
                let message = NewMessage {
                    role: "user".to_owned(),
                    content: number.to_string(),
                    ..NewMessage::default()
                };
                let (durability, word) = if number.is_multiple_of(3) {
                    (Durability::Synced, "synced")
                } else {
                    (Durability::Relaxed, "relaxed")
                };
                let seqs = store
                    .append(&key, vec![event], vec![message], durability)
                    .await
                    .unwrap();
                assert_eq!(seqs, [number]);
                child::say(&format!("{word} {writer} {number}"));
                number += 1;
            }
        }));
    }
    futures::future::join_all(writers).await;
}

/// What was acknowledged of a session.
#[derive(Debug, Clone, Copy)]
struct Acknowledged {
    /// Marked as synced.
    synced: u64,
    /// At all.
    newest: u64,
}

#[derive(Debug, Default, Clone)]
struct Known(BTreeMap<u64, Acknowledged>);

impl Known {
    fn take(&mut self, told: Vec<String>) {
        for line in told {
            let (word, numbers) = line.split_once(' ').unwrap();
            let (writer, number) = numbers.split_once(' ').unwrap();
            let number = number.parse().unwrap();
            let known = self
                .0
                .entry(writer.parse().unwrap())
                .or_insert(Acknowledged { synced: 0, newest: 0 });
            known.newest = number;
            if word == "synced" {
                known.synced = number;
            }
        }
    }

    /// Opens the store and looks whether all that must have survived is there, and nothing by halves.
    async fn check(&mut self, folder: &Path, loss: Loss, at: &str) {
        let store = open(folder);
        for (writer, known) in &mut self.0 {
            let key = session(*writer);
            let row = store.find_session(&key).await.unwrap();
            let row = row.unwrap_or_else(|| panic!("{at}: an acknowledged session is gone"));
            let events = store.events_after(&key, 0, usize::MAX >> 1).await.unwrap();
            let seqs: Vec<u64> = events.iter().map(|event| event.seq).collect();
            assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>(), "{at}");
            for event in &events {
                assert_eq!(event.data["number"], event.seq, "{at}");
                assert_eq!(event.data["padding"].as_str().unwrap().len(), PADDING, "{at}");
            }
            let last = seqs.len() as u64;
            let least = if loss == Loss::Nothing {
                known.newest
            } else {
                known.synced
            };
            assert!(
                (least..=known.newest + 1).contains(&last),
                "{at}: {last} after {known:?}"
            );
            let messages = store.messages(&key, usize::MAX >> 1).await.unwrap();
            let contents: Vec<String> = messages.into_iter().map(|message| message.content).collect();
            assert_eq!(
                contents,
                (1..=last).map(|number| number.to_string()).collect::<Vec<_>>(),
                "{at}"
            );
            assert_eq!((row.next_seq, row.message_count), (last + 1, last), "{at}");
            // Closing the store syncs it.
            *known = Acknowledged {
                synced: last,
                newest: last,
            };
        }
        store.close().await;
    }
}

#[test]
fn contract_7_kill_9_loses_no_acknowledged_event_and_leaves_none_half_there() {
    let runtime = child::runtime();
    if let Some(folder) = child::folder() {
        return runtime.block_on(write(&folder));
    }
    let name = "events::contract_7_kill_9_loses_no_acknowledged_event_and_leaves_none_half_there";
    let world = tempfile::tempdir().unwrap();
    let random = SeededRandom::new(7);
    let mut known = Known::default();
    for round in 0..child::rounds() {
        let count = 1 + child::below(&random, 200) as usize;
        known.take(child::killed_after(name, world.path(), count));
        let at = format!("round {round}");
        runtime.block_on(known.check(world.path(), Loss::Nothing, &at));
    }
}

#[test]
fn contract_7_a_power_cut_loses_no_synced_event_and_leaves_no_gap() {
    let runtime = child::runtime();
    if let Some(folder) = child::folder() {
        return runtime.block_on(write(&folder));
    }
    let name = "events::contract_7_a_power_cut_loses_no_synced_event_and_leaves_no_gap";
    let random = SeededRandom::new(8);
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
            runtime.block_on(after.check(world.path(), loss, &at));
        }
        known = after;
    }
}
