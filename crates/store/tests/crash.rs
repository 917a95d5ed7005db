//! kill -9 at any moment loses no acknowledged write and leaves no half write. Requirements KA-030, OR-271, contract 7.
//!
//! Each test runs itself again as a child process that writes and says on its standard output what was acknowledged,
//! kills it after a number of acknowledgements, and looks at what is there. Rounds go on over the same files.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use mainstay_store::kube::{Body, Change, Expect, Key, KubeOptions, KubeStore};
use mainstay_store::payload::{Durability, NewEvent, NewMessage, PayloadOptions, PayloadStore, SessionKey};
use mainstay_telemetry::random::{Random, SeededRandom};
use mainstay_telemetry::task;

const FOLDER: &str = "MAINSTAY_TEST_CRASH_FOLDER";
const ROUNDS: usize = 20;
const WRITERS: u64 = 4;

#[expect(
    clippy::disallowed_methods,
    reason = "how a test tells its own child what to do"
)]
fn folder_of_child() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

fn acknowledge(line: &str) {
    let mut stdout = std::io::stdout().lock();
    // The reader is gone only when this process is about to be killed.
    let _ = stdout.write_all(format!("ack {line}\n").as_bytes());
    let _ = stdout.flush();
}

/// Runs `test` of this executable as a child, kills it after `acknowledgements`, and returns all it acknowledged.
fn run_and_kill(test: &str, folder: &Path, acknowledgements: usize) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut acknowledged = Vec::new();
    let mut killed = false;
    loop {
        let mut line = String::new();
        let read = lines.read_line(&mut line).unwrap();
        if read == 0 || !line.ends_with('\n') {
            break;
        }
        if let Some((_, acknowledgement)) = line.trim_end().split_once("ack ") {
            acknowledged.push(acknowledgement.to_owned());
        }
        if acknowledged.len() >= acknowledgements && !killed {
            child.kill().unwrap();
            killed = true;
        }
    }
    child.wait().unwrap();
    assert!(killed, "the child ended by itself after {acknowledged:?}");
    acknowledged
}

fn body(text: &str) -> Body {
    let head = r#"{"v":""#;
    Body {
        bytes: Bytes::from(format!(r#"{head}","text":"{text}"}}"#)),
        revision_at: Some(head.len()),
    }
}

fn text(value: &Bytes) -> (u64, String) {
    let json: serde_json::Value = serde_json::from_slice(value).unwrap();
    (
        json["v"].as_str().unwrap().parse().unwrap(),
        json["text"].as_str().unwrap().to_owned(),
    )
}

fn object(writer: u64, side: &str) -> Key {
    Key::new("/configmaps", "default", format!("{writer}-{side}"))
}

/// Each writer keeps two objects that always carry the same number, changed by one commit.
async fn write_objects(folder: &Path) {
    let store = Arc::new(KubeStore::open(KubeOptions::file(folder.join("kube.db"))).unwrap());
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let store = Arc::clone(&store);
        writers.push(task::spawn("writer", async move {
            loop {
                let mut changes = Vec::new();
                let mut number = 0u64;
                for side in ["left", "right"] {
                    let key = object(writer, side);
                    let now = store.get(&key);
                    let expect = now
                        .as_ref()
                        .map_or(Expect::Absent, |stored| Expect::Revision(stored.revision));
                    number = now.map_or(0, |stored| text(&stored.value).1.parse().unwrap()) + 1;
                    changes.push((key, expect));
                }
                let changes = changes
                    .into_iter()
                    .map(|(key, expect)| Change::Put {
                        key,
                        expect,
                        body: body(&number.to_string()),
                    })
                    .collect();
                let revisions = store.commit(changes).await.unwrap();
                acknowledge(&format!("{writer} {number} {}", revisions[1]));
            }
        }));
    }
    futures::future::join_all(writers).await;
}

#[test]
fn ka_030_no_acknowledged_object_is_lost_and_no_commit_is_half_there_after_kill_9() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    if let Some(folder) = folder_of_child() {
        runtime.block_on(write_objects(&folder));
        return;
    }
    let world = tempfile::tempdir().unwrap();
    let random = SeededRandom::new(30);
    let mut newest: BTreeMap<u64, u64> = BTreeMap::new();
    let mut revision = 0;
    for round in 0..ROUNDS {
        let acknowledgements = 1 + (random.fraction() * 40.0) as usize;
        let name = "ka_030_no_acknowledged_object_is_lost_and_no_commit_is_half_there_after_kill_9";
        for line in run_and_kill(name, world.path(), acknowledgements) {
            let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
            newest.insert(numbers[0], numbers[1]);
            revision = revision.max(numbers[2]);
        }
        runtime.block_on(async {
            let store = KubeStore::open(KubeOptions::file(world.path().join("kube.db"))).unwrap();
            assert!(
                store.revision() >= revision,
                "round {round}: the counter went back"
            );
            for (writer, number) in &mut newest {
                let left = store
                    .get(&object(*writer, "left"))
                    .expect("an acknowledged object is gone");
                let right = store
                    .get(&object(*writer, "right"))
                    .expect("an acknowledged object is gone");
                let (left_text, right_text) = (text(&left.value), text(&right.value));
                assert_eq!(left_text.1, right_text.1, "round {round}: half a commit");
                assert_eq!((left_text.0, right_text.0), (left.revision, right.revision));
                let stored: u64 = left_text.1.parse().unwrap();
                assert!(
                    stored == *number || stored == *number + 1,
                    "round {round}: {stored} after {number}"
                );
                *number = stored;
            }
            // Every revision is there once, in order, since nothing was compacted.
            let mut watch = store.watch("/configmaps", None, 1).unwrap();
            let mut expected = 2;
            while let Ok(Some(item)) = watch.try_next() {
                if let mainstay_store::kube::WatchItem::Event(event) = item {
                    assert_eq!(event.revision, expected, "round {round}");
                    expected += 1;
                }
            }
            assert_eq!(expected, store.revision() + 1);
            revision = store.revision();
            store.close().await;
        });
    }
}

fn session(writer: u64) -> SessionKey {
    SessionKey::new("default", "agent", writer.to_string())
}

async fn write_events(folder: &Path) {
    let store = Arc::new(PayloadStore::open(PayloadOptions::file(folder.join("payload.db"))).unwrap());
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let store = Arc::clone(&store);
        writers.push(task::spawn("writer", async move {
            let key = session(writer);
            let mut number = match store.find_session(&key).await.unwrap() {
                Some(row) => row.next_seq,
                None => {
                    store.create_session(&key, Timestamp::UNIX_EPOCH).await.unwrap();
                    1
                }
            };
            loop {
                let event = NewEvent {
                    kind: "message".to_owned(),
                    data: serde_json::json!({ "number": number }),
                    ..NewEvent::default()
                };
                let message = NewMessage {
                    role: "user".to_owned(),
                    content: number.to_string(),
                    ..NewMessage::default()
                };
                let durability = if number.is_multiple_of(3) {
                    Durability::Synced
                } else {
                    Durability::Relaxed
                };
                let seqs = store
                    .append(&key, vec![event], vec![message], durability)
                    .await
                    .unwrap();
                assert_eq!(seqs, [number]);
                acknowledge(&format!("{writer} {number}"));
                number += 1;
            }
        }));
    }
    futures::future::join_all(writers).await;
}

#[test]
fn contract_7_no_acknowledged_event_is_lost_or_half_there_after_kill_9() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    if let Some(folder) = folder_of_child() {
        runtime.block_on(write_events(&folder));
        return;
    }
    let world = tempfile::tempdir().unwrap();
    let random = SeededRandom::new(7);
    let mut newest: BTreeMap<u64, u64> = BTreeMap::new();
    for round in 0..ROUNDS {
        let acknowledgements = 1 + (random.fraction() * 60.0) as usize;
        let name = "contract_7_no_acknowledged_event_is_lost_or_half_there_after_kill_9";
        for line in run_and_kill(name, world.path(), acknowledgements) {
            let (writer, number) = line.split_once(' ').unwrap();
            newest.insert(writer.parse().unwrap(), number.parse().unwrap());
        }
        runtime.block_on(async {
            let store = PayloadStore::open(PayloadOptions::file(world.path().join("payload.db"))).unwrap();
            for (writer, number) in &mut newest {
                let events = store
                    .events_after(&session(*writer), 0, usize::MAX >> 1)
                    .await
                    .unwrap();
                let seqs: Vec<u64> = events.iter().map(|event| event.seq).collect();
                assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>(), "round {round}");
                assert!(events.iter().all(|event| event.data["number"] == event.seq));
                let last = seqs.len() as u64;
                assert!(
                    last == *number || last == *number + 1,
                    "round {round}: {last} after {number}"
                );
                let messages = store.messages(&session(*writer), usize::MAX >> 1).await.unwrap();
                let contents: Vec<String> = messages.into_iter().map(|message| message.content).collect();
                assert_eq!(
                    contents,
                    (1..=last).map(|number| number.to_string()).collect::<Vec<_>>()
                );
                let row = store.find_session(&session(*writer)).await.unwrap().unwrap();
                assert_eq!((row.next_seq, row.message_count), (last + 1, last));
                *number = last;
            }
            store.close().await;
        });
    }
}
