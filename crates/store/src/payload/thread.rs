//! The thread that owns the connection. Requirements OR-285 … OR-288.
//!
//! Calls are closures over the connection. What waits is run in one transaction, each closure in a savepoint of its
//! own, so that one that fails takes back only its own changes. Answers leave after the commit. A call that stopped
//! waiting does not undo its write.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::{PayloadError, PayloadStatistics};
use crate::CommitGate;
use crate::storage::{from_io, write_back_log};

/// One transaction takes at most this many calls, so that its first caller does not wait for a crowd.
const GROUP: usize = 256;

/// What a write must survive when its call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// The death of the process (`synchronous=NORMAL`).
    Relaxed,
    /// The death of the machine (`synchronous=FULL`): side-effect intents and acknowledged chat events.
    Synced,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Read,
    Write(Durability),
}

/// A call whose types are hidden from the queue.
trait Call: Send {
    fn access(&self) -> Access;
    /// Runs the closure; `Err` means that its changes must be taken back. May be called again after a rollback.
    fn run(&mut self, connection: &Connection) -> Result<(), PayloadError>;
    /// Answers with what the last run gave, or with the error that undid it.
    fn answer(self: Box<Self>, undone: Option<PayloadError>);
}

struct TypedCall<T, F> {
    access: Access,
    work: F,
    result: Option<Result<T, PayloadError>>,
    reply: oneshot::Sender<Result<T, PayloadError>>,
}

impl<T: Send, F: Fn(&Connection) -> Result<T, PayloadError> + Send> Call for TypedCall<T, F> {
    fn access(&self) -> Access {
        self.access
    }

    fn run(&mut self, connection: &Connection) -> Result<(), PayloadError> {
        let result = (self.work)(connection).map_err(|error| error.named(connection));
        let verdict = result.as_ref().map(|_| ()).map_err(Clone::clone);
        self.result = Some(result);
        verdict
    }

    fn answer(self: Box<Self>, undone: Option<PayloadError>) {
        let result = match undone {
            Some(error) => Err(error),
            None => self.result.unwrap_or(Err(PayloadError::Closed)),
        };
        // Nobody waits if the caller gave up; the write stands.
        let _ = self.reply.send(result);
    }
}

enum Message {
    Call(Box<dyn Call>),
    Close(oneshot::Sender<()>),
}

#[derive(Debug, Default)]
struct Counters {
    writes: AtomicU64,
    transactions: AtomicU64,
}

/// The way to the thread.
#[derive(Clone)]
pub(super) struct Handle {
    queue: mpsc::Sender<Message>,
    counters: Arc<Counters>,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Handle")
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

impl Handle {
    /// Runs a closure that changes nothing.
    pub(super) async fn read<T, F>(&self, work: F) -> Result<T, PayloadError>
    where
        T: Send + 'static,
        F: Fn(&Connection) -> Result<T, PayloadError> + Send + 'static,
    {
        self.call(Access::Read, work).await
    }

    /// Runs a closure that changes something; all of it is stored when this returns, or nothing. The closure may run
    /// more than once, each time after its former changes were taken back.
    pub(super) async fn write<T, F>(&self, durability: Durability, work: F) -> Result<T, PayloadError>
    where
        T: Send + 'static,
        F: Fn(&Connection) -> Result<T, PayloadError> + Send + 'static,
    {
        self.call(Access::Write(durability), work).await
    }

    async fn call<T, F>(&self, access: Access, work: F) -> Result<T, PayloadError>
    where
        T: Send + 'static,
        F: Fn(&Connection) -> Result<T, PayloadError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let call = Box::new(TypedCall {
            access,
            work,
            result: None,
            reply,
        });
        self.queue
            .send(Message::Call(call))
            .await
            .map_err(|_| PayloadError::Closed)?;
        answer.await.unwrap_or(Err(PayloadError::Closed))
    }

    pub(super) async fn close(&self) {
        let (reply, answer) = oneshot::channel();
        if self.queue.send(Message::Close(reply)).await.is_ok() {
            // An error means that the thread is gone already, which is what was asked for.
            let _ = answer.await;
        }
    }

    pub(super) fn statistics(&self) -> PayloadStatistics {
        PayloadStatistics {
            waiting: self.queue.max_capacity() - self.queue.capacity(),
            writes: self.counters.writes.load(Ordering::Relaxed),
            transactions: self.counters.transactions.load(Ordering::Relaxed),
        }
    }
}

/// Starts the thread.
pub(super) fn start(
    connection: Connection,
    capacity: usize,
    gate: Option<CommitGate>,
) -> std::io::Result<Handle> {
    let (queue, messages) = mpsc::channel(capacity);
    let counters = Arc::new(Counters::default());
    let owner = Owner {
        connection,
        messages,
        gate,
        counters: Arc::clone(&counters),
        level: Durability::Relaxed,
    };
    std::thread::Builder::new()
        .name("payload-store".to_owned())
        .spawn(move || owner.run())?;
    Ok(Handle { queue, counters })
}

struct Owner {
    connection: Connection,
    messages: mpsc::Receiver<Message>,
    gate: Option<CommitGate>,
    counters: Arc<Counters>,
    // What `synchronous` is set to now: it can only be changed between transactions, and costs a statement.
    level: Durability,
}

impl Owner {
    fn run(mut self) {
        let mut closing = None;
        while closing.is_none() {
            let Some(message) = self.messages.blocking_recv() else {
                break;
            };
            let mut calls = Vec::new();
            let mut next = Some(message);
            while let Some(message) = next.take() {
                match message {
                    Message::Call(call) => calls.push(call),
                    Message::Close(closed) => {
                        closing = Some(closed);
                        break;
                    }
                }
                if calls.len() < GROUP {
                    next = self.messages.try_recv().ok();
                }
            }
            self.serve(calls);
        }
        // Calls still in the queue are answered `Closed` when their reply is dropped.
        self.messages.close();
        write_back_log(&self.connection);
        if let Err((_, error)) = self.connection.close() {
            tracing::warn!(%error, "closing the session store failed; the next start recovers it");
        }
        if let Some(closed) = closing {
            // Nobody waits if the caller gave up.
            let _ = closed.send(());
        }
    }

    fn serve(&mut self, mut calls: Vec<Box<dyn Call>>) {
        let writes = calls.iter().filter(|call| call.access() != Access::Read).count();
        if writes == 0 {
            for mut call in calls {
                // The error is in the call's own result.
                let _ = call.run(&self.connection);
                call.answer(None);
            }
            return;
        }
        match self.transaction(&mut calls) {
            Ok(()) => {
                self.counters.writes.fetch_add(writes as u64, Ordering::Relaxed);
                self.counters.transactions.fetch_add(1, Ordering::Relaxed);
                for call in calls {
                    call.answer(None);
                }
            }
            // One call may be what the disk refuses, so each tries alone before all are told.
            Err(_) if calls.len() > 1 => {
                for call in calls {
                    self.serve(vec![call]);
                }
            }
            Err(error) => {
                let error = error.named(&self.connection);
                tracing::error!(%error, source = std::error::Error::source(&error).map(tracing::field::display), "a write to the session store failed");
                for call in calls {
                    call.answer(Some(error.clone()));
                }
            }
        }
    }

    fn transaction(&mut self, calls: &mut [Box<dyn Call>]) -> Result<(), PayloadError> {
        let synced = calls
            .iter()
            .any(|call| call.access() == Access::Write(Durability::Synced));
        self.set_level(if synced {
            Durability::Synced
        } else {
            Durability::Relaxed
        })?;
        let transaction =
            rusqlite::Transaction::new_unchecked(&self.connection, rusqlite::TransactionBehavior::Immediate)?;
        for call in calls {
            if call.access() == Access::Read {
                // The error is in the call's own result.
                let _ = call.run(&transaction);
                continue;
            }
            step(&transaction, "SAVEPOINT call")?;
            if let Err(error) = call.run(&transaction) {
                // A disk error may have rolled back everything already; then nothing of the group can be kept.
                if error.is_storage() {
                    return Err(error);
                }
                step(&transaction, "ROLLBACK TO call")?;
            }
            step(&transaction, "RELEASE call")?;
        }
        if let Some(gate) = &self.gate {
            gate().map_err(|error| from_io(&error))?;
        }
        transaction.commit()?;
        Ok(())
    }

    fn set_level(&mut self, level: Durability) -> rusqlite::Result<()> {
        if self.level != level {
            let value = match level {
                Durability::Relaxed => "NORMAL",
                Durability::Synced => "FULL",
            };
            self.connection.pragma_update(None, "synchronous", value)?;
            self.level = level;
        }
        Ok(())
    }
}

/// Runs a statement without parameters that every call runs, compiled once.
fn step(connection: &Connection, statement: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(statement)?.execute([]).map(|_| ())
}
