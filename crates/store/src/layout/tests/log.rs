//! Files whose log was left by a crash or a full disk. Requirements OR-279, KA-030, KA-033.

use super::*;

const PAGE: usize = 4096;
const ROWS: i64 = 300;

/// What a crash in the middle of a checkpoint can leave: the file before it and after it, and the log.
struct Checkpoint {
    before: Vec<u8>,
    after: Vec<u8>,
    log: Vec<u8>,
}

/// Half of the rows are in the file `before`, all of them in the file `after`, the other half in the log; then `last`
/// runs, into the log too.
fn checkpoint(layouts: &Layouts, last: &str) -> Checkpoint {
    let world = tempfile::tempdir().unwrap();
    let path = world.path().join("t.db");
    let connection = layouts.open(&path, Upgrade::Allowed, now()).unwrap();
    let insert = |ids: std::ops::Range<i64>| {
        for id in ids {
            connection
                .execute("INSERT INTO note (id, text) VALUES (?1, ?2)", (id, text(id)))
                .unwrap();
        }
    };
    insert(0..ROWS / 2);
    connection
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
    let before = std::fs::read(&path).unwrap();
    insert(ROWS / 2..ROWS);
    connection.execute_batch(last).unwrap();
    let log = std::fs::read(world.path().join("t.db-wal")).unwrap();
    connection
        .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
        .unwrap();
    let after = std::fs::read(&path).unwrap();
    assert!(before.len() + 10 * PAGE < after.len() && !log.is_empty());
    Checkpoint { before, after, log }
}

fn text(id: i64) -> String {
    format!("{id} {}", "x".repeat(800))
}

fn lay_out(file: Option<&[u8]>, log: Option<&[u8]>) -> tempfile::TempDir {
    let world = tempfile::tempdir().unwrap();
    for (name, bytes) in [("t.db", file), ("t.db-wal", log)] {
        if let Some(bytes) = bytes {
            std::fs::write(world.path().join(name), bytes).unwrap();
        }
    }
    world
}

/// Looks at the file, which must leave no trace, and opens it, which must show every row.
fn opens_whole(world: &Path, layouts: &Layouts, what: &str) {
    let path = world.join("t.db");
    let before = files(world);
    let found = inspect::inspect(&path, layouts);
    assert!(matches!(found, Ok(Found::Current)), "{what}: {found:?}");
    assert!(files(world) == before, "{what}: looking at it changed the folder");
    let connection = layouts.open(&path, Upgrade::Refused, now()).unwrap();
    let rows: Vec<(i64, String)> = connection
        .prepare("SELECT id, text FROM note ORDER BY id")
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(rows.len() as i64, ROWS, "{what}");
    assert!(
        rows.iter()
            .zip(0..)
            .all(|((id, row), number)| *id == number && *row == text(number)),
        "{what}"
    );
    let verdict: String = connection
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(verdict, "ok", "{what}");
}

#[test]
fn ka_030_or_279_a_checkpoint_cut_short_anywhere_is_no_damage() {
    let layouts = synthetic(1, "");
    let Checkpoint { before, after, log } = checkpoint(&layouts, "");
    for pages in 0..=after.len() / PAGE {
        // Pages are written in their order: those before the cut are new, the rest is as it was, or not there yet.
        let mut file = after[..pages * PAGE].to_vec();
        if file.len() < before.len() {
            file.extend_from_slice(&before[file.len()..]);
        }
        let world = lay_out(Some(&file), Some(&log));
        opens_whole(world.path(), &layouts, &format!("{pages} pages"));
        // A page that is written in part.
        file.extend_from_slice(&after[file.len()..after.len().min(file.len() + 700)]);
        let world = lay_out(Some(&file), Some(&log));
        opens_whole(world.path(), &layouts, &format!("{pages} pages and a bit"));
    }
}

#[test]
fn or_279_a_header_that_stands_whole_in_the_log_may_be_anything_in_the_file() {
    let layouts = synthetic(1, "");
    let Checkpoint { mut after, log, .. } = checkpoint(&layouts, "");
    for (at, byte) in after[..100].iter_mut().enumerate() {
        *byte = (at as u8).wrapping_mul(37) ^ 0x5a;
    }
    let world = lay_out(Some(&after), Some(&log));
    opens_whole(world.path(), &layouts, "a header of noise");
}

#[test]
fn ka_033_or_279_refusals_with_a_log_change_nothing_and_tell_the_cases_apart() {
    let old = synthetic(1, "");
    let newer = checkpoint(
        &old,
        &format!("BEGIN; {UPGRADE_2} PRAGMA user_version = 2; COMMIT"),
    );
    let modified = checkpoint(&old, "ALTER TABLE note ADD COLUMN extra TEXT");
    let ours = checkpoint(&old, "");
    let cut = |file: &[u8]| file[..file.len() - 6 * PAGE].to_vec();
    let noise = b"no database at all, but long enough to look like one".repeat(400);

    for file in [&newer.before, &newer.after, &cut(&newer.after)] {
        let world = lay_out(Some(file), Some(&newer.log));
        let error = refused_untouched(world.path(), &old);
        assert!(matches!(error, LayoutError::Newer { found: 2, .. }), "{error:?}");
    }
    for file in [&modified.before, &modified.after, &cut(&modified.after)] {
        let world = lay_out(Some(file), Some(&modified.log));
        let error = refused_untouched(world.path(), &old);
        assert!(
            matches!(error, LayoutError::Modified { version: 1, .. }),
            "{error:?}"
        );
    }
    for file in [None, Some(&[] as &[u8])] {
        let world = lay_out(file, Some(&ours.log));
        let error = refused_untouched(world.path(), &old);
        assert_eq!(error.reason(), "DatabaseLogWithoutFile", "{error:?}");
        assert!(error.to_string().contains("t.db-wal"), "{error}");
    }
    let cut_without_log = lay_out(Some(&cut(&ours.after)), None);
    let error = refused_untouched(cut_without_log.path(), &old);
    assert_eq!(error.reason(), "DatabaseDamaged", "{error:?}");
    assert!(error.to_string().contains("t.db is damaged"), "{error}");

    for log in [None, Some(&noise[..])] {
        let world = lay_out(Some(&noise), log);
        let error = refused_untouched(world.path(), &old);
        assert_eq!(error.reason(), "NotADatabase", "{error:?}");
    }
}

#[test]
fn or_279_a_log_of_noise_or_without_a_commit_counts_for_nothing() {
    let layouts = synthetic(1, "");
    let ours = checkpoint(&layouts, "");
    let noise = b"not a log".repeat(1000);
    let world = lay_out(Some(&ours.after), Some(&noise));
    opens_whole(world.path(), &layouts, "a whole file with a log of noise");
    for log in [&noise[..], &ours.log[..32], &ours.log[..PAGE]] {
        let world = lay_out(None, Some(log));
        let path = world.path().join("t.db");
        assert_eq!(inspect::inspect(&path, &layouts).unwrap(), Found::Empty);
        drop(layouts.open(&path, Upgrade::Refused, now()).unwrap());
    }
}

#[test]
fn or_279_a_file_that_somebody_has_open_is_seen_with_its_log() {
    let world = tempfile::tempdir().unwrap();
    let path = world.path().join("t.db");
    let old = synthetic(1, "");
    let connection = old.open(&path, Upgrade::Allowed, now()).unwrap();
    assert_eq!(inspect::inspect(&path, &old).unwrap(), Found::Current);
    connection
        .execute_batch(&format!("BEGIN; {UPGRADE_2} PRAGMA user_version = 2; COMMIT"))
        .unwrap();
    assert_eq!(inspect::inspect(&path, &old).unwrap(), Found::Newer(2));
    connection
        .execute("INSERT INTO note (id, text) VALUES (1, 'still mine')", [])
        .unwrap();
}

#[test]
fn a_creation_that_was_cut_short_starts_again() {
    let world = tempfile::tempdir().unwrap();
    let path = world.path().join("t.db");
    // The journal of the transaction that makes the first page: the database had no pages before.
    let mut journal = vec![0u8; 512];
    journal[..8].copy_from_slice(&[0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7]);
    journal[20..24].copy_from_slice(&512u32.to_be_bytes());
    journal[24..28].copy_from_slice(&4096u32.to_be_bytes());
    std::fs::write(world.path().join("t.db-journal"), journal).unwrap();
    std::fs::write(&path, vec![0u8; PAGE]).unwrap();
    let layouts = synthetic(1, "");
    let connection = layouts.open(&path, Upgrade::Refused, now()).unwrap();
    connection
        .execute("INSERT INTO note (id, text) VALUES (1, 'kept')", [])
        .unwrap();
}
