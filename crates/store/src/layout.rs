//! Whether a database file may be opened: recognition of its layout, creation, upgrade.
//! Requirements OR-271 … OR-281, KA-033.
//!
//! A layout is recognised by the fingerprint of its canonical description (`fingerprint.rs`), looked up in a compiled
//! table. What is not in the table is refused, and a refusal leaves no trace: the file is inspected without locks and
//! side files (`inspect.rs`) before anything opens it for writing. An older layout of ours is upgraded in place after a
//! verified backup (`upgrade.rs`).
//!
//! Opening does not check every page: the time would grow with the file, at every start. All objects are read on start
//! anyway; damage in a page that is read later fails that read with an error that names the file and the way out
//! ([`crate::StorageFault::is_damaged`]).

mod fingerprint;
mod inspect;
mod upgrade;

use std::borrow::Cow;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::StorageFault;

/// Why a database file cannot be opened. But for `Upgrade`, `Full` and `Storage` midway, the file is exactly as it was.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// The file is not an SQLite database.
    #[error("{} is not a database", path.display())]
    NotADatabase {
        /// The file.
        path: PathBuf,
    },
    /// A database whose content is wrong, its log included: cut off, or overwritten.
    #[error(
        "{} is damaged: {detail}; it was not changed. Restore it from a backup, or move it and its -wal away to start empty",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What SQLite answered.
        detail: String,
    },
    /// The log of a database that is not there.
    #[error(
        "{} is missing or empty, but its log {} holds changes; nothing was changed. Put the file back beside its log, or \
         move the log away to start empty",
        path.display(),
        log.display()
    )]
    LogWithoutFile {
        /// The file.
        path: PathBuf,
        /// Its log.
        log: PathBuf,
    },
    /// There is no room for what opening writes.
    #[error("no space is left on the disk to open {}; nothing is lost. Free some space and start again", path.display())]
    Full {
        /// The file.
        path: PathBuf,
        /// What SQLite answered.
        #[source]
        source: StorageFault,
    },
    /// A database, but none of ours.
    #[error("{} holds a database of another program; it was not changed", path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
    },
    /// It says it is of a version we know, but its tables are not those of that version.
    #[error(
        "{} says layout {version}, but its tables were changed; it was not touched. Restore the file from a backup",
        path.display()
    )]
    Modified {
        /// The file.
        path: PathBuf,
        /// The version it claims.
        version: u32,
    },
    /// Written by a newer program.
    #[error(
        "{} has layout {found}, this program knows {newest} at most; it was not changed. Run the newer program",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version it has.
        found: u32,
        /// The newest version this program knows.
        newest: u32,
    },
    /// An older layout, met by an opener that may not upgrade (OR-275).
    #[error("{} has the older layout {found}; opening it here would upgrade it, which was not asked for", path.display())]
    Older {
        /// The file.
        path: PathBuf,
        /// The version it has.
        found: u32,
    },
    /// The backup or the upgrade failed; the file still has its old content.
    #[error("cannot upgrade {} from layout {from}: {step}", path.display())]
    Upgrade {
        /// The file.
        path: PathBuf,
        /// The version it has.
        from: u32,
        /// The step that failed.
        step: String,
    },
    /// The file system refused.
    #[error("cannot open {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system answered.
        #[source]
        source: io::Error,
    },
    /// SQLite refused.
    #[error("cannot open {}", path.display())]
    Storage {
        /// The file.
        path: PathBuf,
        /// What SQLite answered.
        #[source]
        source: StorageFault,
    },
}

impl LayoutError {
    /// What an error of SQLite means for the file it was opening.
    fn of(path: &Path, error: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) if !inspect::has_magic(&path) => Self::NotADatabase { path },
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Self::Damaged {
                path,
                detail: error.to_string(),
            },
            _ => {
                let source = StorageFault::from(error);
                if source.is_full() {
                    Self::Full { path, source }
                } else {
                    Self::Storage { path, source }
                }
            }
        }
    }

    /// Stable reason for logs and exit messages.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotADatabase { .. } => "NotADatabase",
            Self::Damaged { .. } => "DatabaseDamaged",
            Self::LogWithoutFile { .. } => "DatabaseLogWithoutFile",
            Self::Full { .. } => "DiskFull",
            Self::Unknown { .. } => "LayoutUnknown",
            Self::Modified { .. } => "LayoutModified",
            Self::Newer { .. } => "LayoutNewer",
            Self::Older { .. } => "LayoutOlder",
            Self::Upgrade { .. } => "LayoutUpgradeFailed",
            Self::Io { .. } | Self::Storage { .. } => "DatabaseUnusable",
        }
    }
}

/// Whether an opener may upgrade an older layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upgrade {
    /// The caller holds the exclusive lock of the file's directory: upgrade after a verified backup (OR-272).
    Allowed,
    /// Only validate (OR-275).
    Refused,
}

/// One layout version: the statements that create it from nothing and those that lead to it from the version before.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) number: u32,
    pub(crate) create: Cow<'static, str>,
    /// Empty for the first version.
    pub(crate) upgrade: Cow<'static, str>,
    pub(crate) fingerprint: Cow<'static, str>,
}

/// All layouts of one kind of file, oldest first. Never empty.
#[derive(Clone, Debug)]
pub(crate) struct Layouts {
    /// Marks the file as ours and says which of our files it is.
    pub(crate) application_id: u32,
    pub(crate) versions: Vec<Version>,
}

/// What was found in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Empty,
    Current,
    Older(u32),
    Newer(u32),
    Modified(u32),
    Unknown,
}

impl Layouts {
    fn newest(&self) -> Option<&Version> {
        self.versions.last()
    }

    /// Looks up what `connection` sees.
    fn recognise(&self, connection: &Connection) -> rusqlite::Result<Found> {
        let seen = fingerprint::describe(connection)?;
        if seen.is_empty() {
            return Ok(Found::Empty);
        }
        let newest = self.newest().map_or(0, |version| version.number);
        if seen.application_id != self.application_id {
            return Ok(Found::Unknown);
        }
        if seen.user_version > newest {
            return Ok(Found::Newer(seen.user_version));
        }
        let fingerprint = seen.fingerprint();
        Ok(
            match self
                .versions
                .iter()
                .find(|version| version.fingerprint == fingerprint)
            {
                Some(version) if version.number == newest => Found::Current,
                Some(version) => Found::Older(version.number),
                None => Found::Modified(seen.user_version),
            },
        )
    }

    /// Creates the newest layout in one transaction (OR-271).
    fn create(&self, connection: &mut Connection) -> rusqlite::Result<()> {
        let Some(newest) = self.newest() else {
            return Ok(());
        };
        let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        transaction.execute_batch(&newest.create)?;
        transaction.pragma_update(None, "application_id", self.application_id)?;
        transaction.pragma_update(None, "user_version", newest.number)?;
        transaction.commit()
    }

    /// A database in memory with the newest layout.
    pub(crate) fn open_in_memory(&self) -> rusqlite::Result<Connection> {
        let mut connection = Connection::open_in_memory()?;
        self.create(&mut connection)?;
        Ok(connection)
    }

    /// Opens the file for writing if its layout is the current one, is empty, or may be upgraded.
    pub(crate) fn open(
        &self,
        path: &Path,
        upgrade: Upgrade,
        now: Timestamp,
    ) -> Result<Connection, LayoutError> {
        let storage = |error: rusqlite::Error| LayoutError::of(path, error);
        let found = inspect::inspect(path, self)?;
        match found {
            Found::Empty => {
                create_private_file(path)?;
                let mut connection = open_for_writing(path).map_err(storage)?;
                // Must precede the first table: it decides the file's page map, and without it a file never shrinks.
                connection
                    .pragma_update(None, "auto_vacuum", "INCREMENTAL")
                    .map_err(storage)?;
                set_write_ahead_log(&connection).map_err(storage)?;
                self.create(&mut connection).map_err(storage)?;
                Ok(connection)
            }
            Found::Current => {
                let connection = open_for_writing(path).map_err(storage)?;
                set_write_ahead_log(&connection).map_err(storage)?;
                Ok(connection)
            }
            Found::Older(from) if upgrade == Upgrade::Allowed => {
                let mut connection = open_for_writing(path).map_err(storage)?;
                upgrade::upgrade(&mut connection, path, self, from, now)?;
                set_write_ahead_log(&connection).map_err(storage)?;
                Ok(connection)
            }
            Found::Older(found) => Err(LayoutError::Older {
                path: path.to_owned(),
                found,
            }),
            Found::Newer(found) => Err(LayoutError::Newer {
                path: path.to_owned(),
                found,
                newest: self.newest().map_or(0, |version| version.number),
            }),
            Found::Modified(version) => Err(LayoutError::Modified {
                path: path.to_owned(),
                version,
            }),
            Found::Unknown => Err(LayoutError::Unknown {
                path: path.to_owned(),
            }),
        }
    }
}

fn open_for_writing(path: &Path) -> rusqlite::Result<Connection> {
    Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )
}

fn set_write_ahead_log(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    // What a savepoint may take back is as small as its transaction; a temporary file would be written for each.
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // Keeps the log file from staying as large as its largest burst.
    connection.pragma_update_and_check(None, "journal_size_limit", 16 * 1024 * 1024, |_| Ok(()))
}

/// SQLite gives side files the mode of the database, so it is enough that the database is private.
fn create_private_file(path: &Path) -> Result<(), LayoutError> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map(drop)
        .map_err(|source| LayoutError::Io {
            path: path.to_owned(),
            source,
        })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
pub(crate) mod tests;
