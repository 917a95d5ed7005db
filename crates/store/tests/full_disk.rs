//! A disk that fills up loses no acknowledged write, fails no close, and is forgotten once there is space again; a
//! checkpoint it cut short does not lock anybody out. Requirements KA-030, KA-033, OR-279.
//!
//! The test runs itself again as a child under a limit of the size of files, which the kernel enforces in the middle of
//! writes just as a full disk does.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};
use std::process::Command;

use bytes::Bytes;
use jiff::Timestamp;
use mainstay_store::kube::{Body, Change, CommitError, Expect, Key, KubeOptions, KubeStore};
use mainstay_store::payload::{Durability, NewEvent, PayloadError, PayloadOptions, PayloadStore, SessionKey};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const FOLDER: &str = "MAINSTAY_TEST_FULL_DISK_FOLDER";
const TEST: &str =
    "ka_030_or_279_a_full_disk_fails_no_close_and_the_checkpoint_it_cut_short_locks_nobody_out";
const VALUE_BYTES: usize = 20_000;
/// What each file holds before the disk is full …
const BEFORE: u64 = 40;
/// … and how many more writes are tried at most.
const TRIES: u64 = 1000;
/// Room that is left in the larger file.
const ROOM: u64 = 50_000;

#[expect(
    clippy::disallowed_methods,
    reason = "how a test tells its own child what to do"
)]
fn folder_of_child() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

fn name(number: u64) -> Key {
    Key::new("/configmaps", "default", format!("{number:04}"))
}

async fn create(store: &KubeStore, number: u64) -> Result<(), CommitError> {
    let change = Change::Put {
        key: name(number),
        expect: Expect::Absent,
        body: Body {
            bytes: Bytes::from(format!(r#"{{"n":"{number}{}"}}"#, "x".repeat(VALUE_BYTES))),
            revision_at: None,
        },
    };
    store.commit(vec![change]).await.map(drop)
}

fn session() -> SessionKey {
    SessionKey::new("default", "agent", "s")
}

async fn append(store: &PayloadStore, number: u64) -> Result<(), PayloadError> {
    let event = NewEvent {
        kind: "message".to_owned(),
        data: serde_json::json!({ "number": number, "text": "x".repeat(VALUE_BYTES) }),
        ..NewEvent::default()
    };
    let durability = Durability::Synced;
    store
        .append(&session(), vec![event], Vec::new(), durability)
        .await
        .map(drop)
}

fn open(folder: &Path) -> (KubeStore, PayloadStore) {
    (
        KubeStore::open(KubeOptions::file(folder.join("kube.db"))).unwrap(),
        PayloadStore::open(PayloadOptions::file(folder.join("payload.db"))).unwrap(),
    )
}

fn limit_files(current: Option<u64>) {
    let maximum = getrlimit(Resource::Fsize).maximum;
    setrlimit(Resource::Fsize, Rlimit { current, maximum }).unwrap();
}

/// How many pages the file has, by its length and by its header.
fn pages(file: &Path) -> (u64, u64) {
    let bytes = std::fs::read(file).unwrap();
    let counted = u32::from_be_bytes(bytes[28..32].try_into().unwrap());
    (bytes.len() as u64 / 4096, u64::from(counted))
}

/// Checks that exactly the acknowledged writes are there.
async fn check(kube: &KubeStore, payload: &PayloadStore, objects: u64, events: u64) {
    assert_eq!(kube.list("/configmaps", None).items.len() as u64, objects);
    for number in 0..objects {
        assert!(kube.get(&name(number)).is_some(), "object {number} is gone");
    }
    let seen = payload
        .events_after(&session(), 0, usize::MAX >> 1)
        .await
        .unwrap();
    let numbers: Vec<u64> = seen
        .iter()
        .map(|event| event.data["number"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, (0..events).collect::<Vec<_>>());
}

async fn fill_up(folder: &Path) {
    let (kube, payload) = open(folder);
    payload
        .create_session(&session(), Timestamp::UNIX_EPOCH)
        .await
        .unwrap();
    for number in 0..BEFORE {
        create(&kube, number).await.unwrap();
        append(&payload, number).await.unwrap();
    }
    kube.close().await;
    payload.close().await;

    let size = |name: &str| std::fs::metadata(folder.join(name)).unwrap().len();
    limit_files(Some(size("kube.db").max(size("payload.db")) + ROOM));
    let (kube, payload) = open(folder);
    let (mut objects, mut events) = (BEFORE, BEFORE);
    let refused = loop {
        match create(&kube, objects).await {
            Ok(()) => objects += 1,
            Err(error) => break error,
        }
        assert!(objects < TRIES, "the limit was never met");
    };
    assert!(
        matches!(refused, CommitError::Full(_) | CommitError::Storage(_)),
        "{refused:?}"
    );
    let refused = loop {
        match append(&payload, events).await {
            Ok(()) => events += 1,
            Err(error) => break error,
        }
        assert!(events < TRIES, "the limit was never met");
    };
    assert!(
        matches!(refused, PayloadError::Full(_) | PayloadError::Storage(_)),
        "{refused:?}"
    );

    // Space comes back while the process runs.
    limit_files(None);
    for _ in 0..2 {
        create(&kube, objects).await.unwrap();
        objects += 1;
        append(&payload, events).await.unwrap();
        events += 1;
    }
    check(&kube, &payload, objects, events).await;

    // And goes again: what is in the logs does not fit into the files.
    limit_files(Some(size("kube.db").max(size("payload.db")) + ROOM));
    kube.close().await;
    payload.close().await;
    for file in ["kube.db", "payload.db"] {
        let (there, counted) = pages(&folder.join(file));
        assert!(
            there < counted,
            "{file}: {there} of {counted} pages; the checkpoint was not cut short"
        );
    }
    // A start on the full disk works too, and so does another close.
    let (kube, payload) = open(folder);
    check(&kube, &payload, objects, events).await;
    kube.close().await;
    payload.close().await;
    std::fs::write(folder.join("acknowledged"), format!("{objects} {events}")).unwrap();
}

#[test]
fn ka_030_or_279_a_full_disk_fails_no_close_and_the_checkpoint_it_cut_short_locks_nobody_out() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    if let Some(folder) = folder_of_child() {
        runtime.block_on(fill_up(&folder));
        return;
    }
    let world = tempfile::tempdir().unwrap();
    // A file that meets the limit raises a signal whose default is death; ignored, the write fails.
    let output = Command::new("/bin/sh")
        .args(["-c", r#"trap '' XFSZ; exec "$0" "$@""#])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", TEST, "--nocapture", "--test-threads=1"])
        .env(FOLDER, world.path())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let acknowledged = std::fs::read_to_string(world.path().join("acknowledged")).unwrap();
    let (objects, events) = acknowledged.split_once(' ').unwrap();
    let (objects, events) = (objects.parse().unwrap(), events.parse().unwrap());
    runtime.block_on(async {
        let (kube, payload) = open(world.path());
        check(&kube, &payload, objects, events).await;
        create(&kube, objects).await.unwrap();
        append(&payload, events).await.unwrap();
        check(&kube, &payload, objects + 1, events + 1).await;
        kube.close().await;
        payload.close().await;
        for file in ["kube.db", "payload.db"] {
            let (there, counted) = pages(&world.path().join(file));
            assert_eq!(
                there, counted,
                "{file} was not made whole by a close with room to do so"
            );
        }
    });
}
