//! Data that a newer program has written: refused with what to do, and not changed (KA-033, OR-273).

use std::{fs, os::unix::fs::FileExt, path::Path};

use crate::support::world::{World, assert_ran};

/// Where an SQLite file has the number of its layout, which is big-endian.
const USER_VERSION: u64 = 60;

#[tokio::test]
async fn ka_033_databases_of_a_newer_version_are_refused_and_not_changed() {
    let world = World::new();
    assert!(world.up(&[]).end().success());
    refused_with(&world, &world.data().join("kube.db"), "kube").await;
    refused_with(&world, &world.data().join("payload.db"), "payload").await;
    // What the newer program would have found is what it left.
    assert!(world.up(&[]).end().success());
}

async fn refused_with(world: &World, database: &Path, which: &str) {
    let before = fs::read(database).unwrap();
    assert!(
        !database.with_extension("db-wal").exists(),
        "a server that ended has written its log back"
    );
    let file = fs::File::options().write(true).open(database).unwrap();
    file.write_all_at(&9_999_u32.to_be_bytes(), USER_VERSION).unwrap();
    let newer = fs::read(database).unwrap();
    let arguments = ["up", "--listen", "127.0.0.1:0", "--kube-listen", "127.0.0.1:0"];
    let ran = world.run(&arguments).await.failed();
    if which == "kube" {
        assert_ran!("newer_kube_db", ran);
    } else {
        assert_ran!("newer_payload_db", ran);
    }
    let detached = world
        .run(&[&arguments[..], &["--detach"]].concat())
        .await
        .failed();
    assert!(detached.stderr.contains("9999"), "{detached}");
    assert!(fs::read(database).unwrap() == newer, "it was changed");
    fs::write(database, before).unwrap();
}
