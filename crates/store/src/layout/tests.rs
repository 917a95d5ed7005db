mod log;

use std::collections::BTreeMap;

use super::*;

/// The fingerprint a version's own statements give; what the compiled tables must hold.
pub(crate) fn computed_fingerprint(layouts: &Layouts, number: u32) -> String {
    let mut one = layouts.clone();
    one.versions.retain(|version| version.number <= number);
    let connection = one.open_in_memory().unwrap();
    fingerprint::describe(&connection).unwrap().fingerprint()
}

const CREATE_1: &str = "CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT NOT NULL);";
const CREATE_2: &str =
    "CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT NOT NULL, stars INTEGER NOT NULL DEFAULT 0);
     CREATE INDEX note_by_stars ON note (stars);";
const UPGRADE_2: &str =
    "CREATE TABLE rebuilt (id INTEGER PRIMARY KEY, text TEXT NOT NULL, stars INTEGER NOT NULL DEFAULT 0);
     INSERT INTO rebuilt (id, text) SELECT id, text FROM note;
     DROP TABLE note;
     ALTER TABLE rebuilt RENAME TO note;
     CREATE INDEX note_by_stars ON note (stars);";

/// A table of layouts that no program has: versions 1 to `newest`, at most 2.
fn synthetic(newest: u32, upgrade: &'static str) -> Layouts {
    let version = |number, create, upgrade| Version {
        number,
        create: Cow::Borrowed(create),
        upgrade: Cow::Borrowed(upgrade),
        fingerprint: Cow::Borrowed(""),
    };
    // A rename quotes the table's name in the stored text; the layout is what the text says.
    let create_2 = CREATE_2.replacen("TABLE note", "TABLE \"note\"", 1);
    let mut second = version(2, "", upgrade);
    second.create = Cow::Owned(create_2);
    let mut layouts = Layouts {
        application_id: 77,
        versions: vec![version(1, CREATE_1, ""), second],
    };
    layouts.versions.retain(|version| version.number <= newest);
    for index in 0..layouts.versions.len() {
        let number = layouts.versions[index].number;
        layouts.versions[index].fingerprint = Cow::Owned(computed_fingerprint(&layouts, number));
    }
    layouts
}

fn now() -> Timestamp {
    "2026-11-30T12:00:00Z".parse().unwrap()
}

/// Every file below a folder with its bytes.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            (
                entry.file_name().to_string_lossy().into_owned(),
                std::fs::read(entry.path()).unwrap(),
            )
        })
        .collect()
}

fn refused_untouched(folder: &Path, layouts: &Layouts) -> LayoutError {
    let before = files(folder);
    let error = layouts
        .open(&folder.join("t.db"), Upgrade::Allowed, now())
        .unwrap_err();
    assert_eq!(files(folder), before, "a refusal changed the folder");
    error
}

#[test]
fn or_271_or_274_an_empty_file_gets_the_layout_and_reopening_changes_nothing() {
    let world = tempfile::tempdir().unwrap();
    let path = world.path().join("t.db");
    let layouts = synthetic(1, "");
    let connection = layouts.open(&path, Upgrade::Refused, now()).unwrap();
    connection
        .execute("INSERT INTO note (id, text) VALUES (7, 'kept')", [])
        .unwrap();
    drop(connection);
    let before = files(world.path());
    drop(layouts.open(&path, Upgrade::Refused, now()).unwrap());
    assert_eq!(files(world.path()), before);
}

#[test]
fn or_273_or_279_newer_unknown_modified_and_foreign_files_are_refused_without_a_trace() {
    let world = tempfile::tempdir().unwrap();
    let path = world.path().join("t.db");
    let old = synthetic(1, "");

    drop(
        synthetic(2, UPGRADE_2)
            .open(&path, Upgrade::Allowed, now())
            .unwrap(),
    );
    let error = refused_untouched(world.path(), &old);
    assert!(
        matches!(
            error,
            LayoutError::Newer {
                found: 2,
                newest: 1,
                ..
            }
        ),
        "{error:?}"
    );
    assert!(error.to_string().contains("t.db"), "{error}");

    std::fs::remove_file(&path).unwrap();
    drop(old.open(&path, Upgrade::Allowed, now()).unwrap());
    Connection::open(&path)
        .unwrap()
        .execute_batch("ALTER TABLE note ADD COLUMN extra TEXT")
        .unwrap();
    let error = refused_untouched(world.path(), &old);
    assert!(
        matches!(error, LayoutError::Modified { version: 1, .. }),
        "{error:?}"
    );

    std::fs::remove_file(&path).unwrap();
    Connection::open(&path)
        .unwrap()
        .execute_batch("CREATE TABLE theirs (x)")
        .unwrap();
    assert!(matches!(
        refused_untouched(world.path(), &old),
        LayoutError::Unknown { .. }
    ));

    std::fs::write(
        &path,
        "no database at all, but long enough to look like one".repeat(40),
    )
    .unwrap();
    assert!(matches!(
        refused_untouched(world.path(), &old),
        LayoutError::NotADatabase { .. }
    ));
}

#[test]
fn or_279_a_newer_layout_that_stands_only_in_a_hot_log_is_seen_and_refused_without_a_trace() {
    let world = tempfile::tempdir().unwrap();
    let crashed = world.path().join("crashed");
    std::fs::create_dir(&crashed).unwrap();
    let path = world.path().join("t.db");
    let connection = synthetic(1, "").open(&path, Upgrade::Allowed, now()).unwrap();
    connection
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
    connection
        .execute_batch(&format!("BEGIN; {UPGRADE_2} PRAGMA user_version = 2; COMMIT"))
        .unwrap();
    // What a crash leaves: the file without the change, the log with it, no index of the log.
    for name in ["t.db", "t.db-wal"] {
        std::fs::copy(world.path().join(name), crashed.join(name)).unwrap();
    }
    let error = refused_untouched(&crashed, &synthetic(1, ""));
    assert!(matches!(error, LayoutError::Newer { found: 2, .. }), "{error:?}");
    drop(
        synthetic(2, UPGRADE_2)
            .open(&crashed.join("t.db"), Upgrade::Refused, now())
            .unwrap(),
    );
}

#[test]
fn a_hot_log_with_rows_only_is_recovered() {
    let world = tempfile::tempdir().unwrap();
    let crashed = world.path().join("crashed");
    std::fs::create_dir(&crashed).unwrap();
    let connection = synthetic(1, "")
        .open(&world.path().join("t.db"), Upgrade::Allowed, now())
        .unwrap();
    connection
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
    connection
        .execute("INSERT INTO note (id, text) VALUES (1, 'in the log')", [])
        .unwrap();
    for name in ["t.db", "t.db-wal"] {
        std::fs::copy(world.path().join(name), crashed.join(name)).unwrap();
    }
    let reopened = synthetic(1, "")
        .open(&crashed.join("t.db"), Upgrade::Allowed, now())
        .unwrap();
    let text: String = reopened
        .query_row("SELECT text FROM note", [], |row| row.get(0))
        .unwrap();
    assert_eq!(text, "in the log");
}

#[test]
fn or_280_an_older_layout_is_upgraded_after_a_backup_that_holds_the_old_rows() {
    let world = tempfile::tempdir().unwrap();
    let path = world.path().join("t.db");
    let connection = synthetic(1, "").open(&path, Upgrade::Allowed, now()).unwrap();
    connection
        .execute("INSERT INTO note (id, text) VALUES (7, 'kept')", [])
        .unwrap();
    drop(connection);

    let new = synthetic(2, UPGRADE_2);
    let error = new.open(&path, Upgrade::Refused, now()).unwrap_err();
    assert!(matches!(error, LayoutError::Older { found: 1, .. }), "{error:?}");

    let connection = new.open(&path, Upgrade::Allowed, now()).unwrap();
    let row: (i64, String, i64) = connection
        .query_row("SELECT id, text, stars FROM note", [], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .unwrap();
    assert_eq!(row, (7, "kept".to_owned(), 0));
    let backup = world.path().join("t.db.backup-v1-20261130T120000Z");
    let copy = inspect::open_immutable(&backup).unwrap();
    let text: String = copy
        .query_row("SELECT text FROM note WHERE id = 7", [], |row| row.get(0))
        .unwrap();
    assert_eq!(text, "kept");
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(
        std::fs::metadata(&backup).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

#[test]
fn or_280_a_failed_upgrade_keeps_the_old_content_and_never_overwrites_a_backup() {
    let world = tempfile::tempdir().unwrap();
    let path = world.path().join("t.db");
    let old = synthetic(1, "");
    let connection = old.open(&path, Upgrade::Allowed, now()).unwrap();
    connection
        .execute("INSERT INTO note (id, text) VALUES (7, 'kept')", [])
        .unwrap();
    drop(connection);

    let broken = synthetic(2, "DROP TABLE note; CREATE TABLE note (id INTEGER)");
    for _ in 0..2 {
        let error = broken.open(&path, Upgrade::Allowed, now()).unwrap_err();
        assert!(matches!(error, LayoutError::Upgrade { from: 1, .. }), "{error:?}");
    }
    let connection = old.open(&path, Upgrade::Refused, now()).unwrap();
    let text: String = connection
        .query_row("SELECT text FROM note WHERE id = 7", [], |row| row.get(0))
        .unwrap();
    assert_eq!(text, "kept");
    assert!(world.path().join("t.db.backup-v1-20261130T120000Z").exists());
    assert!(world.path().join("t.db.backup-v1-20261130T120000Z-1").exists());
}
