//! The error of the database itself, opaque to callers.

use std::sync::Arc;

/// What SQLite or the file system answered. Cheap to clone, because one failed transaction fails several callers.
///
/// The text is for logs; no caller may branch on it. [`StorageFault::is_full`] is the one distinction that matters.
#[derive(Clone, Debug, thiserror::Error)]
#[error(transparent)]
pub struct StorageFault(Arc<rusqlite::Error>);

impl StorageFault {
    /// True when the disk or the quota is full, so that freeing space makes the same write succeed.
    pub fn is_full(&self) -> bool {
        self.0.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull)
    }
}

impl From<rusqlite::Error> for StorageFault {
    fn from(error: rusqlite::Error) -> Self {
        Self(Arc::new(error))
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
