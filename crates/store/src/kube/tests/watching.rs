//! Watches: order, progress, lag, and what the window keeps.

use super::*;

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
async fn ka_026_what_happens_to_other_resources_wakes_no_watch_and_makes_none_lag() {
    let store = KubeStore::open(KubeOptions {
        window: WindowLimits {
            events: 5,
            ..WindowLimits::default()
        },
        ..KubeOptions::in_memory()
    })
    .unwrap();
    let elsewhere = |name: String| Change::Put {
        key: Key::new("/secrets", "default", name),
        body: body(""),
        expect: Expect::Absent,
    };
    let mut watch = store.watch(RESOURCE, None, store.revision()).unwrap();
    let mut slow = store.watch(RESOURCE, None, store.revision()).unwrap();
    {
        let mut wait = std::pin::pin!(watch.next());
        assert!(futures::poll!(wait.as_mut()).is_pending());
        let waker = futures::task::noop_waker();
        let mut context = std::task::Context::from_waker(&waker);
        for object in 0..10 {
            one(&store, elsewhere(format!("s{object}"))).await;
            assert!(wait.as_mut().poll(&mut context).is_pending());
        }
    }
    // It stands before the window, where there was nothing for it.
    assert!(watch.position() < store.oldest_revision() - 1);
    let expected = one(&store, create("a", "")).await;
    assert!(matches!(within(watch.next()).await, Ok(WatchItem::Event(event)) if event.revision == expected));
    // How far the others went it hears when it looks.
    let passed = one(&store, elsewhere("late".to_owned())).await;
    assert_eq!(watch.try_next(), Ok(Some(WatchItem::Progress(passed))));
    // Of its own resource it lags as ever.
    for object in 0..5 {
        one(&store, elsewhere(format!("t{object}"))).await;
    }
    assert!(matches!(slow.try_next(), Err(Lagged { .. })));
}

#[tokio::test]
async fn ka_030_a_watch_from_before_a_restart_finds_what_was_written_then() {
    let world = tempfile::tempdir().unwrap();
    let open = || KubeStore::open(KubeOptions::file(world.path().join("kube.db"))).unwrap();
    let store = open();
    let start = store.revision();
    let written = one(&store, create("a", "")).await;
    store.close().await;
    let store = open();
    let mut watch = store.watch(RESOURCE, None, start).unwrap();
    assert!(matches!(within(watch.next()).await, Ok(WatchItem::Event(event)) if event.revision == written));
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
async fn ka_030_ka_031_a_clock_set_back_by_an_hour_loses_no_event_and_ages_from_the_new_time() {
    let world = tempfile::tempdir().unwrap();
    let hour = Duration::from_secs(60 * 60);
    let noon: jiff::Timestamp = "2026-11-30T12:00:00Z".parse().unwrap();
    let clock = ManualClock::at(noon);
    let open = || {
        KubeStore::open(KubeOptions {
            window: WindowLimits {
                age: hour,
                ..WindowLimits::default()
            },
            clock: clock.clone(),
            ..KubeOptions::file(world.path().join("kube.db"))
        })
        .unwrap()
    };
    let revisions = |mut watch: Watch| {
        let mut seen = Vec::new();
        while let Some(WatchItem::Event(event)) = watch.try_next().unwrap() {
            seen.push(event.revision);
        }
        seen
    };
    let store = open();
    let start = store.revision();
    let before = one(&store, create("before", "x")).await;
    clock.set(noon.checked_sub(hour).unwrap());
    let after = one(&store, create("after", "x")).await;
    assert_eq!(after, before + 1);
    assert_eq!(
        revisions(store.watch(RESOURCE, None, start).unwrap()),
        [before, after]
    );
    store.close().await;

    // A start at the earlier time: the newest event is an hour younger than the one before it, and both can be watched.
    let store = open();
    assert_eq!(store.revision(), after);
    let last = one(&store, create("last", "x")).await;
    assert_eq!(last, after + 1);
    assert_eq!(
        revisions(store.watch(RESOURCE, None, start).unwrap()),
        [before, after, last]
    );
    // They age all the same.
    clock.set(noon.checked_add(2 * hour).unwrap());
    store.compact(None).await.unwrap();
    assert_eq!(store.statistics().window_events, 0);
    assert!(matches!(
        store.watch(RESOURCE, None, start),
        Err(HistoryError::Compacted { .. })
    ));
    store.close().await;
    let store = open();
    assert_eq!((store.revision(), store.statistics().objects), (last, 3));
}
