//! The store of Kubernetes objects (`kube.db`). Requirements KA-021, KA-025, KA-026, KA-030 … KA-032.
//!
//! One table holds every write in order; the write's number is the object's `resourceVersion` and is never used twice.
//! One writer thread owns the only connection that writes and commits whatever callers are waiting in one transaction.
//! After the commit is durable, and not before, the change appears in the current view in memory and in the window of
//! recent events that all watchers share. Values are bytes: nothing here reads an object's JSON.
//!
//! [`KubeStore`] is the handle; [`Change`] says what to write and what must hold for it; [`Watch`] is a cursor.

mod history;
mod layout;
mod object;
mod options;
mod seal;
mod state;
mod topic;
mod watch;
mod writer;

use std::sync::Arc;
use std::thread;

use tokio::sync::{mpsc, oneshot};

pub use object::{Body, Change, Event, EventKind, Expect, Key, Page, Snapshot, Stored};
pub use options::{KubeOptions, WindowLimits};
pub use seal::{SealError, ValueSeal};
pub use watch::{Lagged, Watch, WatchItem};

use crate::StorageFault;
use crate::layout::LayoutError;
use state::Shared;
use writer::{Request, Writer};

/// Why the store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file's layout does not allow it, or the file cannot be read.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// SQLite failed while the objects were loaded.
    #[error("cannot load the objects of {path}")]
    Load {
        /// The file.
        path: String,
        /// What SQLite answered.
        #[source]
        source: StorageFault,
    },
    /// The writer's thread could not be started.
    #[error("cannot start the thread that writes objects")]
    Thread(#[source] std::io::Error),
}

/// Why a commit did not happen. None of its changes can be seen.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CommitError {
    /// What the caller expected of an object does not hold.
    #[error("{key} is not in the expected state: its revision is {}", current.map_or("none".to_owned(), |r| r.to_string()))]
    Conflict {
        /// The object.
        key: Key,
        /// Its revision now; `None` if it does not exist.
        current: Option<u64>,
    },
    /// The disk or the quota is full. The same commit works when there is space again.
    #[error("the disk that holds the objects is full")]
    Full(#[source] StorageFault),
    /// The disk failed. The store goes on; a later commit may work.
    #[error("the objects could not be written")]
    Storage(#[source] StorageFault),
    /// The store is closed.
    #[error("the store of objects is closed")]
    Closed,
}

/// Why history cannot be read or watched from a revision.
#[derive(Clone, Debug, thiserror::Error)]
pub enum HistoryError {
    /// The revision is older than what is kept.
    #[error("revision {revision} is compacted, the oldest kept is {oldest}")]
    Compacted {
        /// The revision asked for.
        revision: u64,
        /// The oldest that can be asked for.
        oldest: u64,
    },
    /// The revision does not exist yet.
    #[error("revision {revision} is in the future, the newest is {current}")]
    Future {
        /// The revision asked for.
        revision: u64,
        /// The newest revision.
        current: u64,
    },
    /// The disk failed.
    #[error("the history of objects could not be read")]
    Storage(#[source] StorageFault),
    /// The store is closed.
    #[error("the store of objects is closed")]
    Closed,
}

impl CommitError {
    fn storage(fault: StorageFault) -> Self {
        if fault.is_full() {
            Self::Full(fault)
        } else {
            Self::Storage(fault)
        }
    }
}

/// Figures for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KubeStatistics {
    /// Objects that exist.
    pub objects: usize,
    /// Events kept in memory for watchers.
    pub window_events: usize,
    /// Bytes of the values those events hold.
    pub window_bytes: usize,
    /// Requests waiting for the writer.
    pub waiting: usize,
    /// Changes committed since the store was opened.
    pub changes: u64,
    /// Transactions they took; fewer than changes when callers shared one (KA-032).
    pub transactions: u64,
}

/// Handle to the store; clones share it. The writer ends when the last handle is gone or [`KubeStore::close`] is called.
#[derive(Clone, Debug)]
pub struct KubeStore {
    shared: Arc<Shared>,
    requests: mpsc::Sender<Request>,
    readers: history::Readers,
}

impl KubeStore {
    /// Opens `kube.db`, loads the current view and the window of recent events, and starts the writer's thread.
    ///
    /// Blocks for as long as loading takes; call it before serving. The caller holds the data directory's lock.
    pub fn open(options: KubeOptions) -> Result<Self, OpenError> {
        let connection = match &options.path {
            Some(path) => layout::layouts().open(path, options.upgrade, options.clock.now())?,
            None => layout::layouts()
                .open_in_memory()
                .map_err(|error| load_error(&options, error))?,
        };
        let readers = history::Readers::new(options.path.clone(), options.readers, options.sealing());
        let capacity = options.queue.max(1);
        let (requests, queue) = mpsc::channel(capacity);
        let loaded = state::load(
            &connection,
            &options.window,
            &options.sealing(),
            options.clock.now(),
        );
        let shared = Arc::new(Shared::new(loaded.map_err(|error| load_error(&options, error))?));
        let writer = Writer::new(connection, queue, Arc::clone(&shared), options)?;
        thread::Builder::new()
            .name("kube-store-writer".to_owned())
            .spawn(move || writer.run())
            .map_err(OpenError::Thread)?;
        Ok(Self {
            shared,
            requests,
            readers,
        })
    }

    /// Writes the changes, all or none, and returns their revisions in order once they are durable.
    ///
    /// Other callers may share the transaction; one caller's conflict does not concern them. A caller that stops
    /// waiting does not undo what it asked for.
    pub async fn commit(&self, changes: Vec<Change>) -> Result<Vec<u64>, CommitError> {
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        let (reply, answer) = oneshot::channel();
        self.requests
            .send(Request::Commit { changes, reply })
            .await
            .map_err(|_| CommitError::Closed)?;
        answer.await.unwrap_or(Err(CommitError::Closed))
    }

    /// The newest committed revision.
    pub fn revision(&self) -> u64 {
        self.shared.read().revision()
    }

    /// The oldest revision whose event is still in the window. Watching from the revision before it still works.
    pub fn oldest_revision(&self) -> u64 {
        self.shared.read().window().start() + 1
    }

    /// The object as it is now.
    pub fn get(&self, key: &Key) -> Option<Stored> {
        self.shared.read().get(key).cloned()
    }

    /// All objects of a resource (in one namespace, or in all), ordered by namespace and name, at one revision (KA-025).
    pub fn list(&self, resource: &str, namespace: Option<&str>) -> Snapshot {
        let state = self.shared.read();
        Snapshot {
            revision: state.revision(),
            items: state.list(resource, namespace, None).cloned().collect(),
        }
    }

    /// The objects as they were at `revision`, after the object `after` (namespace, name), at most `limit` of them.
    pub async fn list_at(
        &self,
        resource: &str,
        namespace: Option<&str>,
        revision: u64,
        after: Option<(&str, &str)>,
        limit: usize,
    ) -> Result<Page, HistoryError> {
        {
            let state = self.shared.read();
            if revision > state.revision() {
                return Err(HistoryError::Future {
                    revision,
                    current: state.revision(),
                });
            }
            if revision == state.revision() {
                let mut matching = state.list(resource, namespace, after);
                let items: Vec<Stored> = matching.by_ref().take(limit).cloned().collect();
                return Ok(Page {
                    revision,
                    items,
                    remaining: matching.count(),
                });
            }
        }
        let query = history::Query {
            resource: resource.to_owned(),
            namespace: namespace.map(str::to_owned),
            after: after.map(|(namespace, name)| (namespace.to_owned(), name.to_owned())),
            revision,
            limit,
        };
        self.readers.list(query, &self.requests).await
    }

    /// Watches a resource (in one namespace, or in all) for events with a revision above `after` (KA-026). A revision
    /// ahead of the store is accepted: the watch waits for what comes after it.
    pub fn watch(&self, resource: &str, namespace: Option<&str>, after: u64) -> Result<Watch, HistoryError> {
        let resource: Arc<str> = resource.into();
        let notice = {
            let mut state = self.shared.write();
            let oldest = state.window().start();
            if after < oldest {
                return Err(HistoryError::Compacted {
                    revision: after,
                    oldest,
                });
            }
            state.subscribe(&resource)
        };
        Ok(Watch::new(
            Arc::clone(&self.shared),
            notice,
            resource,
            namespace,
            after,
        ))
    }

    /// Forgets history up to `through` (or, without it, up to what the window's limits allow now) and returns the
    /// revision compacted to. Works in bounded steps between which commits go on (KA-031).
    pub async fn compact(&self, through: Option<u64>) -> Result<u64, CommitError> {
        let mut target = through;
        loop {
            let (reply, answer) = oneshot::channel();
            self.requests
                .send(Request::Compact {
                    through: target,
                    reply,
                })
                .await
                .map_err(|_| CommitError::Closed)?;
            let step = answer.await.unwrap_or(Err(CommitError::Closed))?;
            if step.compacted >= step.target {
                return Ok(step.compacted);
            }
            target = Some(step.target);
        }
    }

    /// Commits what is waiting, writes the log back into the file and ends the writer. Later commits get
    /// [`CommitError::Closed`]; watches end.
    pub async fn close(&self) {
        let (reply, answer) = oneshot::channel();
        if self.requests.send(Request::Close(reply)).await.is_ok() {
            // An error means that the writer is gone already, which is what was asked for.
            let _ = answer.await;
        }
        self.readers.close();
    }

    /// Figures for metrics.
    pub fn statistics(&self) -> KubeStatistics {
        let waiting = self.requests.max_capacity() - self.requests.capacity();
        let mut statistics = self.shared.read().statistics();
        statistics.waiting = waiting;
        statistics
    }
}

fn load_error(options: &KubeOptions, error: rusqlite::Error) -> OpenError {
    let path = options
        .path
        .as_ref()
        .map_or_else(|| "memory".to_owned(), |path| path.display().to_string());
    let source = StorageFault::from(error).at(&path);
    OpenError::Load { path, source }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;
