//! The payload store (`payload.db`): sessions, messages, events and what is needed to resume after a crash.
//! Requirements OR-270 … OR-292, OR-306, OR-315; contracts 1, 2, 7 and 9.
//!
//! One thread owns the only connection and runs closures from a bounded queue (`thread.rs`); whatever waits shares one
//! transaction. A call that marks itself [`Durability::Synced`] is on the disk when it returns; others survive the death
//! of the process, but not of the machine.
//!
//! [`PayloadStore`] is the handle. `sessions.rs` has sessions, locks and messages, `events.rs` the append that the turn
//! engine lives on, `resume.rs` what a crash left open, `retention.rs` what is forgotten, `cooldowns.rs` which model providers
//! are left alone, `budgets.rs` what was spent.

mod budgets;
mod cooldowns;
mod events;
mod layout;
mod messages;
mod resume;
mod retention;
mod sessions;
mod thread;

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use mainstay_telemetry::clock::{self, SharedClock};

pub use budgets::StoredSpending;
pub use cooldowns::{CooldownKey, StoredCooldown};
pub use events::{NewEvent, StoredEvent};
pub use messages::{NewMessage, StoredMessage};
pub use resume::{OpenToolCall, OpenTurn};
pub use retention::{RetentionLimits, RetentionStep};
pub use sessions::SessionRow;
pub use thread::Durability;

use crate::layout::{LayoutError, Upgrade};
use crate::{CommitGate, StorageFault};

/// Names one session. Sessions of different agents never see each other, whatever their names (OR-287).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey {
    /// The namespace of the agent.
    pub namespace: String,
    /// The agent: the session's owner.
    pub agent: String,
    /// The session's name, unique in the namespace.
    pub session: String,
}

impl SessionKey {
    /// A key from its parts.
    pub fn new(namespace: impl Into<String>, agent: impl Into<String>, session: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            agent: agent.into(),
            session: session.into(),
        }
    }
}

impl std::fmt::Display for SessionKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "session {} of {}/{}",
            self.session, self.namespace, self.agent
        )
    }
}

/// Why a call to the payload store failed. Nothing of the call was stored.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PayloadError {
    /// There is no such session, or it belongs to another agent, or it was retired.
    #[error("{0} does not exist")]
    NotFound(String),
    /// The name is taken.
    #[error("{0} exists already")]
    Exists(String),
    /// Somebody else holds the session's lock (OR-315).
    #[error("session {session} is locked by {holder}")]
    Locked {
        /// The session.
        session: String,
        /// Who holds it.
        holder: String,
    },
    /// A message with this client key is stored already (contract 9).
    #[error("a message with this client key was stored before")]
    Repeated {
        /// The turn that the message began then.
        turn: String,
    },
    /// The disk or the quota is full. The same call works when there is space again.
    #[error("the disk that holds the sessions is full")]
    Full(#[source] StorageFault),
    /// The disk failed. A later call may work.
    #[error("the session store failed")]
    Storage(#[source] StorageFault),
    /// The store is closed.
    #[error("the session store is closed")]
    Closed,
}

impl From<rusqlite::Error> for PayloadError {
    fn from(error: rusqlite::Error) -> Self {
        let fault = StorageFault::from(error);
        if fault.is_full() {
            Self::Full(fault)
        } else {
            Self::Storage(fault)
        }
    }
}

impl PayloadError {
    /// Stable reason for conditions and logs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "SessionNotFound",
            Self::Exists(_) => "SessionExists",
            Self::Locked { .. } => "SessionLocked",
            Self::Repeated { .. } => "MessageRepeated",
            Self::Full(_) => "StoreFull",
            Self::Storage(_) => "StoreFailed",
            Self::Closed => "StoreClosed",
        }
    }

    /// Adds the file of `connection` to what the disk answered.
    fn named(self, connection: &rusqlite::Connection) -> Self {
        match self {
            Self::Full(fault) => Self::Full(fault.named(connection)),
            Self::Storage(fault) => Self::Storage(fault.named(connection)),
            other => other,
        }
    }

    /// True if the disk refused, as opposed to an answer about the data.
    fn is_storage(&self) -> bool {
        matches!(self, Self::Full(_) | Self::Storage(_))
    }
}

/// Why the payload store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file's layout does not allow it, or the file cannot be read.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// SQLite failed while it was set up.
    #[error("cannot set up the session store")]
    Setup(#[source] StorageFault),
    /// The store's thread could not be started.
    #[error("cannot start the thread of the session store")]
    Thread(#[source] std::io::Error),
}

/// Options of [`PayloadStore::open`].
#[derive(Clone)]
pub struct PayloadOptions {
    /// The file; `None` keeps everything in memory.
    pub path: Option<PathBuf>,
    /// Whether an older layout may be upgraded. Needs the data directory's lock (OR-272, OR-275).
    pub upgrade: Upgrade,
    /// Dates an upgrade's backup.
    pub clock: SharedClock,
    /// Calls that may wait for the thread; more callers wait for a place.
    pub queue: usize,
    /// Makes commits fail; for tests.
    pub commit_gate: Option<CommitGate>,
}

impl PayloadOptions {
    /// The defaults for a file in a locked data directory.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self {
            path: Some(path.into()),
            ..Self::in_memory()
        }
    }

    /// The defaults for a store without a file; for tests.
    pub fn in_memory() -> Self {
        Self {
            path: None,
            upgrade: Upgrade::Allowed,
            clock: clock::system(),
            queue: 1024,
            commit_gate: None,
        }
    }
}

impl std::fmt::Debug for PayloadOptions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("PayloadOptions")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// Figures for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PayloadStatistics {
    /// Calls that wait for the thread.
    pub waiting: usize,
    /// Writes committed since the store was opened.
    pub writes: u64,
    /// Transactions they took; fewer than writes when callers shared one.
    pub transactions: u64,
}

/// Handle to the store; clones share it. The thread ends when the last handle is gone or [`PayloadStore::close`] is called.
#[derive(Clone, Debug)]
pub struct PayloadStore {
    thread: thread::Handle,
}

impl PayloadStore {
    /// Opens `payload.db` and starts its thread. Blocks for as long as recognition takes. The caller holds the data
    /// directory's lock, or asks for [`Upgrade::Refused`].
    pub fn open(options: PayloadOptions) -> Result<Self, OpenError> {
        let setup = |error: rusqlite::Error| {
            let fault = StorageFault::from(error);
            OpenError::Setup(match &options.path {
                Some(path) => fault.at(&path.to_string_lossy()),
                None => fault,
            })
        };
        let connection = match &options.path {
            Some(path) => layout::layouts().open(path, options.upgrade, options.clock.now())?,
            None => layout::layouts().open_in_memory().map_err(setup)?,
        };
        // OR-286: none of these is kept in the file.
        connection
            .busy_timeout(Duration::from_millis(5000))
            .map_err(setup)?;
        connection
            .pragma_update(None, "synchronous", "NORMAL")
            .map_err(setup)?;
        connection
            .pragma_update(None, "foreign_keys", true)
            .map_err(setup)?;
        connection.pragma_update(None, "fullfsync", true).map_err(setup)?;
        // Otherwise SQLite compiles a statement anew for each value that it could compare with the condition of a partial
        // index, which took a quarter of the thread's time.
        connection
            .set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)
            .map_err(setup)?;
        connection.set_prepared_statement_cache_capacity(64);
        let thread = thread::start(connection, options.queue.max(1), options.commit_gate)
            .map_err(OpenError::Thread)?;
        Ok(Self { thread })
    }

    /// Finishes what is waiting, writes the log back into the file and ends the thread.
    pub async fn close(&self) {
        self.thread.close().await;
    }

    /// Figures for metrics.
    pub fn statistics(&self) -> PayloadStatistics {
        self.thread.statistics()
    }
}

/// Times are stored exactly: an event that is replayed carries the time with which it was shown.
fn to_nanoseconds(time: Timestamp) -> i64 {
    // Times beyond the year 2262 are no times of events.
    i64::try_from(time.as_nanosecond()).unwrap_or(i64::MAX)
}

fn from_nanoseconds(nanoseconds: i64) -> Timestamp {
    // Every i64 of nanoseconds is inside the range of a timestamp.
    Timestamp::from_nanosecond(i128::from(nanoseconds)).unwrap_or(Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;
