//! Upgrade in place after a verified backup. Requirement OR-280.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rusqlite::{Connection, TransactionBehavior, backup::Backup};

use super::inspect::{open_immutable, side_file};
use super::{Found, LayoutError, Layouts, fingerprint};

/// Brings the open database from layout `from` to the newest one, step by step in one transaction, after the backup is
/// written and verified. Any failure leaves the old content.
pub(super) fn upgrade(
    connection: &mut Connection,
    path: &Path,
    layouts: &Layouts,
    from: u32,
    now: Timestamp,
) -> Result<(), LayoutError> {
    let failed = |step: String| LayoutError::Upgrade {
        path: path.to_owned(),
        from,
        step,
    };
    let backup = back_up(connection, path, from, now).map_err(|error| failed(format!("backup: {error}")))?;
    tracing::info!(from, backup = %backup.display(), "upgrading the layout of a database after its backup");
    migrate(connection, layouts, from).map_err(|error| failed(format!("migration: {error}")))
}

#[derive(Debug, thiserror::Error)]
enum StepError {
    #[error(transparent)]
    Storage(#[from] rusqlite::Error),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{0}")]
    Check(String),
}

/// Writes `<db>.backup-v<from>-<time>` beside the database and proves that it holds the same.
fn back_up(connection: &Connection, path: &Path, from: u32, now: Timestamp) -> Result<PathBuf, StepError> {
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    let backup = create_backup_file(path, from, now)?;
    {
        let mut copy = Connection::open(&backup)?;
        Backup::new(connection, &mut copy)?.run_to_completion(1024, std::time::Duration::ZERO, None)?;
    }
    verify(connection, &backup)?;
    File::open(&backup)?.sync_all()?;
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(backup)
}

fn create_backup_file(path: &Path, from: u32, now: Timestamp) -> Result<PathBuf, StepError> {
    let stamp = now.strftime("%Y%m%dT%H%M%SZ");
    for attempt in 0..100 {
        let suffix = if attempt == 0 {
            String::new()
        } else {
            format!("-{attempt}")
        };
        let backup = side_file(path, &format!(".backup-v{from}-{stamp}{suffix}"));
        match OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&backup)
        {
            Ok(_) => return Ok(backup),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(StepError::Check(
        "a hundred backups of this second exist already".to_owned(),
    ))
}

fn verify(original: &Connection, backup: &Path) -> Result<(), StepError> {
    let copy = open_immutable(backup)?;
    let verdict: String = copy.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    if verdict != "ok" {
        return Err(StepError::Check(format!("the backup is damaged: {verdict}")));
    }
    check_foreign_keys(&copy)?;
    if fingerprint::describe(&copy)?.fingerprint() != fingerprint::describe(original)?.fingerprint() {
        return Err(StepError::Check("the backup has another layout".to_owned()));
    }
    for table in tables(original)? {
        let (there, here) = (count(original, &table)?, count(&copy, &table)?);
        if there != here {
            return Err(StepError::Check(format!(
                "the backup has {here} rows in {table}, not {there}"
            )));
        }
    }
    Ok(())
}

fn tables(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    connection
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")?
        .query_map([], |row| row.get(0))?
        .collect()
}

fn count(connection: &Connection, table: &str) -> rusqlite::Result<i64> {
    let quoted = table.replace('"', "\"\"");
    connection.query_row(&format!("SELECT count(*) FROM \"{quoted}\""), [], |row| {
        row.get(0)
    })
}

fn check_foreign_keys(connection: &Connection) -> Result<(), StepError> {
    match connection
        .prepare("PRAGMA foreign_key_check")?
        .query([])?
        .next()?
    {
        None => Ok(()),
        Some(row) => Err(StepError::Check(format!(
            "a row of {} points nowhere",
            row.get::<_, String>(0)?
        ))),
    }
}

fn migrate(connection: &mut Connection, layouts: &Layouts, from: u32) -> Result<(), StepError> {
    // Rebuilding a table drops the old one, which would fire the foreign keys that point to it.
    connection.pragma_update(None, "foreign_keys", false)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Exclusive)?;
    for version in layouts.versions.iter().filter(|version| version.number > from) {
        transaction.execute_batch(&version.upgrade)?;
        transaction.pragma_update(None, "user_version", version.number)?;
    }
    if layouts.recognise(&transaction)? != Found::Current {
        return Err(StepError::Check(
            "the result is not the current layout".to_owned(),
        ));
    }
    check_foreign_keys(&transaction)?;
    transaction.commit()?;
    Ok(())
}
