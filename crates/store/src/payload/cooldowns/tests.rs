use crate::layout::{LayoutError, Upgrade};
use crate::payload::{NewEvent, OpenError, PayloadOptions, RetentionLimits, SessionKey, layout};

use super::*;

fn key(namespace: &str, provider: &str, provider_type: &str) -> CooldownKey {
    CooldownKey {
        namespace: namespace.to_owned(),
        provider: provider.to_owned(),
        provider_type: provider_type.to_owned(),
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::new(1_780_000_000 + seconds, 123_456_789).unwrap()
}

fn cooldown(failures: u32, ends_at: Timestamp) -> StoredCooldown {
    StoredCooldown {
        failures,
        ends_at,
        reason: "ModelRateLimited".to_owned(),
        status: Some(429),
        message: "slow down".to_owned(),
    }
}

#[tokio::test]
async fn contract_8_a_cooldown_survives_a_restart_and_belongs_to_one_provider() {
    let world = tempfile::tempdir().unwrap();
    let path = world.path().join("payload.db");
    let store = PayloadStore::open(PayloadOptions::file(&path)).unwrap();
    let (one, other_type) = (key("default", "main", "openai"), key("default", "main", "vllm"));
    let mut network = cooldown(1, at(60));
    network.status = None;
    store.set_cooldown(&one, Some(cooldown(1, at(60)))).await.unwrap();
    store
        .set_cooldown(&one, Some(cooldown(2, at(300))))
        .await
        .unwrap();
    store
        .set_cooldown(&other_type, Some(network.clone()))
        .await
        .unwrap();
    store.close().await;

    let store = PayloadStore::open(PayloadOptions::file(&path)).unwrap();
    assert_eq!(store.cooldown(&one).await.unwrap(), Some(cooldown(2, at(300))));
    assert_eq!(store.cooldown(&other_type).await.unwrap(), Some(network));
    for stranger in [key("team", "main", "openai"), key("default", "spare", "openai")] {
        assert_eq!(store.cooldown(&stranger).await.unwrap(), None, "{stranger:?}");
    }
    store.set_cooldown(&one, None).await.unwrap();
    assert_eq!(store.cooldown(&one).await.unwrap(), None);
    assert!(store.cooldown(&other_type).await.unwrap().is_some());
}

#[tokio::test]
async fn or_280_a_file_of_the_first_layout_is_upgraded_with_its_rows_after_a_backup() {
    let world = tempfile::tempdir().unwrap();
    let path = world.path().join("payload.db");
    let mut first = layout::layouts();
    first.versions.truncate(1);
    let connection = first.open(&path, Upgrade::Allowed, at(0)).unwrap();
    connection
        .execute_batch(
            "INSERT INTO sessions (namespace, name, owner_type, owner_ref) VALUES ('default', 'gone', 'agent', 'x')",
        )
        .unwrap();
    drop(connection);

    let mut only_reads = PayloadOptions::file(&path);
    only_reads.upgrade = Upgrade::Refused;
    let error = PayloadStore::open(only_reads).unwrap_err();
    assert!(
        matches!(error, OpenError::Layout(LayoutError::Older { found: 1, .. })),
        "{error:?}"
    );

    let store = PayloadStore::open(PayloadOptions::file(&path)).unwrap();
    let rows: i64 = store
        .thread
        .read(|connection| {
            Ok(
                connection.query_row("SELECT count(*) FROM sessions WHERE name = 'gone'", [], |row| {
                    row.get(0)
                })?,
            )
        })
        .await
        .unwrap();
    assert_eq!(rows, 1);
    // The whole of the store works on the upgraded file.
    let one = key("default", "main", "openai");
    store.set_cooldown(&one, Some(cooldown(1, at(60)))).await.unwrap();
    let session = SessionKey::new("default", "helpdesk", "s");
    store.create_session(&session, at(0)).await.unwrap();
    let event = NewEvent {
        kind: "turn.started".to_owned(),
        turn: Some("t".to_owned()),
        time: at(0),
        ..NewEvent::default()
    };
    store
        .append(&session, vec![event], Vec::new(), Durability::Synced)
        .await
        .unwrap();
    store.close().await;
    let store = PayloadStore::open(PayloadOptions::file(&path)).unwrap();
    assert_eq!(store.cooldown(&one).await.unwrap(), Some(cooldown(1, at(60))));

    let backups: Vec<_> = std::fs::read_dir(world.path())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_name().to_string_lossy().contains(".backup-v1-"))
        .collect();
    assert_eq!(backups.len(), 1, "one backup, by the one upgrade");
    // The backup is a store of the first layout that the program of that time opens.
    let backup = first.open(&backups[0].path(), Upgrade::Refused, at(0)).unwrap();
    let kept: String = backup
        .query_row("SELECT owner_ref FROM sessions WHERE name = 'gone'", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(kept, "x");
}

#[tokio::test]
async fn retention_forgets_cooldowns_of_providers_that_nobody_asks_any_more() {
    let store = PayloadStore::open(PayloadOptions::in_memory()).unwrap();
    let day = 24 * 60 * 60;
    let (old, recent) = (
        key("default", "old", "openai"),
        key("default", "recent", "openai"),
    );
    store.set_cooldown(&old, Some(cooldown(3, at(0)))).await.unwrap();
    store
        .set_cooldown(&recent, Some(cooldown(3, at(20 * day))))
        .await
        .unwrap();
    let step = store
        .enforce_retention(RetentionLimits::default(), at(31 * day))
        .await
        .unwrap();
    assert_eq!(step.rows_removed, 1);
    assert_eq!(store.cooldown(&old).await.unwrap(), None);
    assert!(store.cooldown(&recent).await.unwrap().is_some());
}
