//! The error of the database itself, opaque to callers.

use std::fmt;
use std::sync::Arc;

use rusqlite::{Connection, ErrorCode};

/// What SQLite or the file system answered. Cheap to clone, because one failed transaction fails several callers.
///
/// The text is for logs; no caller may branch on it. [`StorageFault::is_full`] and [`StorageFault::is_damaged`] are the
/// distinctions that matter. A damaged file is named in the text, with the way out.
#[derive(Clone, Debug)]
pub struct StorageFault {
    error: Arc<rusqlite::Error>,
    file: Option<Arc<str>>,
}

impl StorageFault {
    /// True when the disk or the quota is full, so that freeing space makes the same write succeed.
    pub fn is_full(&self) -> bool {
        is_full(&self.error)
    }

    /// True when the file's own content is wrong, so that trying again is of no use.
    pub fn is_damaged(&self) -> bool {
        matches!(
            self.error.sqlite_error_code(),
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
        )
    }

    /// An error of `connection`, which knows its file.
    pub(crate) fn of(error: rusqlite::Error, connection: &Connection) -> Self {
        Self::from(error).named(connection)
    }

    /// Adds the file of `connection`, unless it is in memory.
    pub(crate) fn named(self, connection: &Connection) -> Self {
        match connection.path() {
            Some(path) if !path.is_empty() => self.at(path),
            _ => self,
        }
    }

    pub(crate) fn at(self, file: &str) -> Self {
        Self {
            file: Some(file.into()),
            ..self
        }
    }
}

impl fmt::Display for StorageFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) if self.is_damaged() => write!(
                formatter,
                "{file} is damaged ({}). Stop the server and restore the file from a backup, or move it and its -wal away \
                 to start empty",
                self.error
            ),
            _ => fmt::Display::fmt(&self.error, formatter),
        }
    }
}

impl std::error::Error for StorageFault {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl From<rusqlite::Error> for StorageFault {
    fn from(error: rusqlite::Error) -> Self {
        Self {
            error: Arc::new(error),
            file: None,
        }
    }
}

fn is_full(error: &rusqlite::Error) -> bool {
    // The index of the log could not be made as large as it must be: the same cause with another code.
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
        || error
            .sqlite_error()
            .is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE)
}

/// Writes the log back into the file before a connection closes, as far as nobody is in the way. A failure loses
/// nothing, since the log stays and the next start reads it; on a full disk it is the rule. SQLite itself does the same
/// on closing, but says nothing.
pub(crate) fn write_back_log(connection: &Connection) {
    let written = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
    if let Err(error) = written {
        let fault = StorageFault::of(error, connection);
        tracing::warn!(
            %fault,
            file = connection.path().unwrap_or_default(),
            "the log of a database could not be written back into its file; it stays beside it and nothing is lost"
        );
    }
}

/// Turns an input/output error that was injected or met outside SQLite into the error SQLite would have given.
pub(crate) fn from_io(error: &std::io::Error) -> rusqlite::Error {
    let code = match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => rusqlite::ffi::SQLITE_FULL,
        _ => rusqlite::ffi::SQLITE_IOERR,
    };
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), Some(error.to_string()))
}

/// Called inside each write transaction just before it commits; an error makes the commit fail as if the disk had
/// given it. Exists so that faults can be made in tests of everything above this crate.
pub type CommitGate = Arc<dyn Fn() -> std::io::Result<()> + Send + Sync>;
