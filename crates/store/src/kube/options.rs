//! How the store is opened.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mainstay_telemetry::clock::{self, SharedClock};

use super::seal::{Sealing, ValueSeal};
use crate::CommitGate;
use crate::layout::Upgrade;

/// How much history is kept, in memory for watchers and in the file for lists (KA-031). What exceeds any of the three
/// is forgotten, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowLimits {
    /// Number of events.
    pub events: usize,
    /// Bytes of the values the events hold.
    pub bytes: usize,
    /// Age of an event.
    pub age: Duration,
}

impl Default for WindowLimits {
    fn default() -> Self {
        Self {
            events: 10_000,
            bytes: 32 * 1024 * 1024,
            age: Duration::from_secs(60 * 60),
        }
    }
}

/// Options of [`super::KubeStore::open`].
#[derive(Clone)]
pub struct KubeOptions {
    /// The file; `None` keeps everything in memory.
    pub path: Option<PathBuf>,
    /// Whether an older layout may be upgraded. Needs the data directory's lock.
    pub upgrade: Upgrade,
    /// Dates revisions and ages the window.
    pub clock: SharedClock,
    /// How much history is kept.
    pub window: WindowLimits,
    /// Rows a compaction step deletes at most before the writer looks for commits again.
    pub compaction_step: usize,
    /// Requests that may wait for the writer; more callers wait for a place.
    pub queue: usize,
    /// Connections that read history at the same time.
    pub readers: usize,
    /// How long SQLite waits for a lock that another connection holds.
    pub busy_timeout: Duration,
    /// Seals values of some resources in the file (KA-034); `None` leaves all open.
    pub seal: Option<Arc<dyn ValueSeal>>,
    /// Makes commits fail; for tests.
    pub commit_gate: Option<CommitGate>,
}

impl KubeOptions {
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
            window: WindowLimits::default(),
            compaction_step: 512,
            queue: 1024,
            readers: 2,
            busy_timeout: Duration::from_secs(5),
            seal: None,
            commit_gate: None,
        }
    }

    pub(super) fn sealing(&self) -> Sealing {
        Sealing(self.seal.clone())
    }
}

impl std::fmt::Debug for KubeOptions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("KubeOptions")
            .field("path", &self.path)
            .field("window", &self.window)
            .finish_non_exhaustive()
    }
}
