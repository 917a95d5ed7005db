//! Commits that fail, and callers that give up.

use super::*;

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
