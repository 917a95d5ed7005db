//! The writer's thread: checks, group commit, publication, compaction. Requirements KA-030, KA-031, KA-032.
//!
//! The order of one round: take every request that waits; check each against the current view and what this round
//! already accepted; write all accepted changes in one transaction; when it is durable, publish them in memory; then
//! answer. A failed transaction publishes nothing and uses up no revision.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use rusqlite::{Connection, TransactionBehavior, params};
use tokio::sync::{mpsc, oneshot};

use super::object::{Change, Event, EventKind, Expect, Key};
use super::options::KubeOptions;
use super::state::{self, Shared, State};
use super::{CommitError, OpenError, load_error};
use crate::StorageFault;
use crate::storage::{from_io, write_back_log};

/// One transaction holds at most this many callers, so that its first caller does not wait for a crowd.
const GROUP_CALLERS: usize = 512;
/// … and about this many bytes of values.
const GROUP_BYTES: usize = 8 * 1024 * 1024;
/// Automatic compaction waits until this many revisions can go: each step costs a sync of the disk.
const COMPACTION_BACKLOG: u64 = 256;
/// With this many, a step is done although commits wait: else a store that is never idle would never compact.
const COMPACTION_OVERDUE: u64 = 4 * COMPACTION_BACKLOG;

type Reply<T> = oneshot::Sender<Result<T, CommitError>>;

pub(super) enum Request {
    Commit {
        changes: Vec<Change>,
        reply: Reply<Vec<u64>>,
    },
    Read(Box<dyn FnOnce(&Connection) + Send>),
    Compact {
        through: Option<u64>,
        reply: Reply<CompactionStep>,
    },
    Close(oneshot::Sender<()>),
}

impl std::fmt::Debug for Request {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Commit { .. } => "Commit",
            Self::Read(_) => "Read",
            Self::Compact { .. } => "Compact",
            Self::Close(_) => "Close",
        })
    }
}

/// How far compaction came and where it is going.
#[derive(Debug)]
pub(super) struct CompactionStep {
    pub(super) compacted: u64,
    pub(super) target: u64,
}

/// A caller of the current round.
struct Caller {
    changes: Vec<Change>,
    reply: Reply<Vec<u64>>,
}

/// A change that passed its checks.
struct Accepted {
    event: Event,
    create_revision: u64,
    previous_revision: u64,
}

/// What this round already accepted about an object: `None` = deleted.
type Overlay = BTreeMap<Key, Option<Slot>>;

#[derive(Clone)]
struct Slot {
    revision: u64,
    create_revision: u64,
    value: Bytes,
}

struct Refused {
    error: CommitError,
    // The object's state stems from this round, so the refusal holds only if the round commits.
    depends_on_round: bool,
}

/// Ends every watch when the writer ends, by itself or by a panic.
struct WatchesEnd(Arc<Shared>);

impl Drop for WatchesEnd {
    fn drop(&mut self) {
        let wake = self.0.write().close();
        wake.everybody();
    }
}

pub(super) struct Writer {
    connection: Connection,
    queue: mpsc::Receiver<Request>,
    shared: Arc<Shared>,
    watches: WatchesEnd,
    options: KubeOptions,
    compacted: u64,
    // Set when a compaction step failed: not tried again before the next commit worked.
    compaction_paused: bool,
}

impl Writer {
    pub(super) fn new(
        connection: Connection,
        queue: mpsc::Receiver<Request>,
        shared: Arc<Shared>,
        options: KubeOptions,
    ) -> Result<Self, OpenError> {
        let compacted = prepare(&connection, &options).map_err(|error| load_error(&options, error))?;
        Ok(Self {
            connection,
            queue,
            watches: WatchesEnd(Arc::clone(&shared)),
            shared,
            options,
            compacted,
            compaction_paused: false,
        })
    }

    pub(super) fn run(mut self) {
        let closing = self.serve();
        // Callers still in the queue get `Closed` when their reply is dropped.
        self.queue.close();
        drop(self.watches);
        write_back_log(&self.connection);
        if let Err((_, error)) = self.connection.close() {
            tracing::warn!(%error, "closing the store of objects failed; the next start recovers it");
        }
        if let Some(closed) = closing {
            // Nobody waits if the caller gave up.
            let _ = closed.send(());
        }
    }

    /// Serves requests until the store is closed or the last handle is gone.
    fn serve(&mut self) -> Option<oneshot::Sender<()>> {
        loop {
            let backlog = self.compaction_backlog();
            if backlog >= COMPACTION_OVERDUE {
                self.compact_by_itself();
            }
            let request = if backlog >= COMPACTION_BACKLOG {
                match self.queue.try_recv() {
                    Ok(request) => request,
                    Err(mpsc::error::TryRecvError::Empty) => {
                        self.compact_by_itself();
                        continue;
                    }
                    Err(mpsc::error::TryRecvError::Disconnected) => return None,
                }
            } else {
                self.queue.blocking_recv()?
            };
            let mut next = Some(request);
            while let Some(request) = next.take() {
                match request {
                    Request::Commit { changes, reply } => next = self.round(Caller { changes, reply }),
                    Request::Read(read) => read(&self.connection),
                    Request::Compact { through, reply } => {
                        // The caller may have gone; the step is done all the same.
                        let _ = reply.send(self.compact(through));
                    }
                    Request::Close(closed) => return Some(closed),
                }
            }
        }
    }

    /// Collects the callers that wait, commits them, and returns the request at which collecting ended, if any.
    fn round(&mut self, first: Caller) -> Option<Request> {
        let mut bytes = size(&first.changes);
        let mut callers = vec![first];
        let mut other = None;
        while callers.len() < GROUP_CALLERS && bytes < GROUP_BYTES {
            match self.queue.try_recv() {
                Ok(Request::Commit { changes, reply }) => {
                    bytes += size(&changes);
                    callers.push(Caller { changes, reply });
                }
                Ok(request) => {
                    other = Some(request);
                    break;
                }
                Err(_) => break,
            }
        }
        self.commit(callers);
        other
    }

    fn commit(&mut self, callers: Vec<Caller>) {
        let now = self.options.clock.now();
        let mut accepted = Vec::new();
        let mut verdicts = Vec::with_capacity(callers.len());
        {
            let state = self.shared.read();
            let mut overlay = Overlay::new();
            let mut revision = state.revision();
            for caller in &callers {
                let checked = check(&state, &overlay, &caller.changes, revision, now.as_millisecond());
                verdicts.push(checked.map(|(changes, effects)| {
                    overlay.extend(effects);
                    let revisions: Vec<u64> = changes.iter().map(|change| change.event.revision).collect();
                    revision += revisions.len() as u64;
                    accepted.extend(changes);
                    revisions
                }));
            }
        }
        let written = if accepted.is_empty() {
            Ok(())
        } else {
            self.write(&accepted)
        };
        match written {
            Ok(()) => {
                if !accepted.is_empty() {
                    let events = accepted
                        .into_iter()
                        .map(|change| (change.event, change.create_revision))
                        .collect();
                    let wake = self.shared.write().publish(events, &self.options.window, now);
                    wake.everybody();
                    self.compaction_paused = false;
                }
                for (caller, verdict) in callers.into_iter().zip(verdicts) {
                    // A caller that stopped waiting does not undo its write.
                    let _ = caller.reply.send(verdict.map_err(|refused| refused.error));
                }
            }
            Err(error) => self.commit_failed(callers, verdicts, error),
        }
    }

    /// One caller's change may be what cannot be written (too large, or the last one to fit on the disk), so each tries
    /// alone before all are told that the disk failed.
    fn commit_failed(
        &mut self,
        callers: Vec<Caller>,
        verdicts: Vec<Result<Vec<u64>, Refused>>,
        error: rusqlite::Error,
    ) {
        let alone = callers.len() == 1;
        let fault = StorageFault::of(error, &self.connection);
        for (caller, verdict) in callers.into_iter().zip(verdicts) {
            match verdict {
                Err(Refused {
                    error,
                    depends_on_round: false,
                }) => {
                    let _ = caller.reply.send(Err(error));
                }
                _ if alone => {
                    tracing::error!(%fault, "a commit of objects failed");
                    let _ = caller.reply.send(Err(CommitError::storage(fault.clone())));
                }
                _ => self.commit(vec![caller]),
            }
        }
    }

    fn write(&mut self, accepted: &[Accepted]) -> rusqlite::Result<()> {
        let sealing = self.options.sealing();
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        {
            let mut insert = transaction.prepare_cached(
                "INSERT INTO revisions (revision, resource, namespace, name, create_revision, previous_revision, \
                 deleted, written_at, value) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?;
            for Accepted {
                event,
                create_revision,
                previous_revision,
            } in accepted
            {
                let value = sealing.to_file(&event.key, event.revision, &event.value)?;
                insert.execute(params![
                    event.revision,
                    event.key.resource,
                    event.key.namespace,
                    event.key.name,
                    create_revision,
                    previous_revision,
                    event.kind == EventKind::Deleted,
                    event.written_at,
                    &value[..],
                ])?;
            }
        }
        if let Some(gate) = &self.options.commit_gate {
            gate().map_err(|error| from_io(&error))?;
        }
        transaction.commit()
    }

    /// How many revisions may go; none while compaction is paused.
    fn compaction_backlog(&self) -> u64 {
        let start = self.shared.read().window().start();
        if self.compaction_paused {
            0
        } else {
            start.saturating_sub(self.compacted)
        }
    }

    fn compact_by_itself(&mut self) {
        let target = self.shared.read().window().start();
        if let Err(error) = self.compaction_step(target) {
            let fault = StorageFault::of(error, &self.connection);
            tracing::warn!(%fault, "compaction failed; it goes on after the next commit");
            self.compaction_paused = true;
        }
    }

    /// One step of a compaction that was asked for.
    fn compact(&mut self, through: Option<u64>) -> Result<CompactionStep, CommitError> {
        let (wake, target) = {
            let mut state = self.shared.write();
            let through = through.map(|through| through.min(state.revision()));
            let wake = state.trim(through, &self.options.window, self.options.clock.now());
            (wake, state.window().start().max(self.compacted))
        };
        // Watchers that stand before the new start learn it now, not with the next commit.
        wake.everybody();
        self.compaction_step(target)
            .map_err(|error| CommitError::storage(StorageFault::of(error, &self.connection)))?;
        Ok(CompactionStep {
            compacted: self.compacted,
            target,
        })
    }

    /// Forgets the rows that no list at a revision from `target` on needs, a bounded number of them.
    ///
    /// Each write names the write it replaced, so going through the log once is enough: the replaced row goes, and so
    /// does a deletion itself.
    fn compaction_step(&mut self, target: u64) -> rusqlite::Result<()> {
        if self.compacted >= target {
            return Ok(());
        }
        let step = self.options.compaction_step.max(1);
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut reached = self.compacted;
        let mut doomed = Vec::new();
        let mut visited = 0;
        {
            let mut statement = transaction.prepare_cached(
                "SELECT revision, previous_revision, deleted FROM revisions \
                 WHERE revision > ?1 AND revision <= ?2 ORDER BY revision LIMIT ?3",
            )?;
            let mut rows = statement.query(params![self.compacted, target, step])?;
            while let Some(row) = rows.next()? {
                visited += 1;
                reached = row.get(0)?;
                let previous: u64 = row.get(1)?;
                if previous != 0 {
                    doomed.push(previous);
                }
                if row.get(2)? {
                    doomed.push(reached);
                }
            }
        }
        if visited < step {
            reached = target;
        }
        {
            let mut delete = transaction.prepare_cached("DELETE FROM revisions WHERE revision = ?1")?;
            for revision in doomed {
                delete.execute([revision])?;
            }
            transaction.execute("UPDATE progress SET compacted = ?1", [reached])?;
        }
        transaction.commit()?;
        self.compacted = reached;
        // Gives a bounded number of the freed pages back, so that a burst does not make the file large for ever.
        self.connection.execute_batch("PRAGMA incremental_vacuum(256)")
    }
}

fn prepare(connection: &Connection, options: &KubeOptions) -> rusqlite::Result<u64> {
    connection.busy_timeout(options.busy_timeout)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // Has an effect on macOS only, where an ordinary sync does not reach the disk.
    connection.pragma_update(None, "fullfsync", true)?;
    connection.pragma_update(None, "checkpoint_fullfsync", true)?;
    state::compacted(connection)
}

fn size(changes: &[Change]) -> usize {
    changes
        .iter()
        .map(|change| match change {
            Change::Put { body, .. } => body.bytes.len(),
            Change::Delete { last, .. } => last.bytes.len(),
        })
        .sum()
}

/// Checks one caller's changes, in order: each sees those before it.
fn check(
    state: &State,
    overlay: &Overlay,
    changes: &[Change],
    newest: u64,
    written_at: i64,
) -> Result<(Vec<Accepted>, Overlay), Refused> {
    let mut own = Overlay::new();
    let mut accepted = Vec::with_capacity(changes.len());
    for (revision, change) in (newest + 1..).zip(changes) {
        let (key, body, expect) = match change {
            Change::Put { key, body, expect } => (key, body, *expect),
            Change::Delete { key, expect, last } => (key, last, Expect::Revision(*expect)),
        };
        let pending = own.get(key).or_else(|| overlay.get(key));
        let depends_on_round = pending.is_some();
        let now = match pending {
            Some(slot) => slot.clone(),
            None => state.get(key).map(|stored| Slot {
                revision: stored.revision,
                create_revision: stored.create_revision,
                value: stored.value.clone(),
            }),
        };
        let holds = match (&now, expect) {
            (None, Expect::Absent) => true,
            (Some(slot), Expect::Revision(expected)) => slot.revision == expected,
            _ => false,
        };
        if !holds {
            let current = now.map(|slot| slot.revision);
            return Err(Refused {
                error: CommitError::Conflict {
                    key: key.clone(),
                    current,
                },
                depends_on_round,
            });
        }
        let value = body.with_revision(revision);
        let create_revision = now.as_ref().map_or(revision, |slot| slot.create_revision);
        let kind = match (change, &now) {
            (Change::Delete { .. }, _) => EventKind::Deleted,
            (Change::Put { .. }, None) => EventKind::Added,
            (Change::Put { .. }, Some(_)) => EventKind::Modified,
        };
        let after = match kind {
            EventKind::Deleted => None,
            _ => Some(Slot {
                revision,
                create_revision,
                value: value.clone(),
            }),
        };
        own.insert(key.clone(), after);
        accepted.push(Accepted {
            create_revision,
            previous_revision: now.as_ref().map_or(0, |slot| slot.revision),
            event: Event {
                revision,
                kind,
                key: key.clone(),
                value,
                previous: now.map(|slot| slot.value),
                written_at,
            },
        });
    }
    Ok((accepted, own))
}
