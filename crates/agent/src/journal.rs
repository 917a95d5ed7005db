//! What the engine needs of a store: sessions, their events and their messages.
//!
//! The engine talks to this trait rather than to one store, so that a test can make the store fail, and so
//! that payloads can live elsewhere on a cluster. `journal/stored.rs` implements it for `payload.db`.

mod stored;

use std::fmt::Debug;

use async_trait::async_trait;
use jiff::Timestamp;
use mainstay_llm::Message;
use serde::{Deserialize, Serialize};

use crate::event::{Event, Payload};

/// Which session of which agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SessionKey {
    /// Namespace of the agent.
    pub namespace: String,
    /// Name of the agent.
    pub agent: String,
    /// The session's UUID.
    pub session: String,
}

/// What is known of a stored session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionFacts {
    /// Last time something was stored in it.
    pub last_activity: Timestamp,
    /// Sequence number of its newest event; 0 without any.
    pub last_seq: u64,
}

/// A message of the conversation as models see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HistoryMessage {
    /// Unique within the session.
    pub message_id: String,
    /// The message.
    pub message: Message,
}

/// What one transaction stores.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    /// Events in order.
    pub payloads: Vec<Payload>,
    /// Messages in order.
    pub messages: Vec<HistoryMessage>,
    /// Key of the client's message, accepted once per session; refused with [`JournalError::Duplicate`].
    pub client_key: Option<String>,
}

impl Entry {
    /// Whether there is nothing to store.
    pub fn is_empty(&self) -> bool {
        self.payloads.is_empty() && self.messages.is_empty()
    }
}

/// A turn that was started and has no end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenTurn {
    /// Its session.
    pub key: SessionKey,
    /// Its id.
    pub turn: String,
}

/// Why the store did not do as asked.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A message with this client key was accepted before. Not to be retried.
    #[error("a message with the client key `{client_key}` was accepted before")]
    Duplicate {
        /// The key.
        client_key: String,
        /// The turn that the message began then.
        turn: String,
    },
    /// The session does not exist (any more). Not to be retried.
    #[error("session `{session}` does not exist")]
    NoSession {
        /// Its id.
        session: String,
    },
    /// The store did not answer or refused; may be retried.
    #[error("the session store is unavailable")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The store of sessions. Every method is safe to drop half way: what was committed stays.
#[async_trait]
pub trait Journal: Debug + Send + Sync {
    /// Creates a session; one that exists is left as it is.
    ///
    /// # Errors
    ///
    /// [`JournalError::Unavailable`].
    async fn create_session(&self, key: &SessionKey, now: Timestamp) -> Result<(), JournalError>;

    /// Looks a session up; `None` means that it is definitely absent (OM-528).
    ///
    /// # Errors
    ///
    /// [`JournalError::Unavailable`] when the store cannot tell.
    async fn find_session(&self, key: &SessionKey) -> Result<Option<SessionFacts>, JournalError>;

    /// Stores events and messages in one transaction and returns the events with their numbers. Durable
    /// before it returns when an event demands it ([`Payload::must_be_durable`]).
    ///
    /// # Errors
    ///
    /// See [`JournalError`]; nothing is stored then.
    async fn append(
        &self,
        key: &SessionKey,
        turn: &str,
        now: Timestamp,
        entry: Entry,
    ) -> Result<Vec<Event>, JournalError>;

    /// Events with a number above `after`, in order, at most `limit`.
    ///
    /// # Errors
    ///
    /// [`JournalError::Unavailable`].
    async fn events_after(
        &self,
        key: &SessionKey,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Event>, JournalError>;

    /// The newest messages of the session, oldest first, at most `limit`.
    ///
    /// # Errors
    ///
    /// [`JournalError::Unavailable`].
    async fn messages(&self, key: &SessionKey, limit: usize) -> Result<Vec<HistoryMessage>, JournalError>;

    /// Turns of one agent that have a beginning and no end.
    ///
    /// # Errors
    ///
    /// [`JournalError::Unavailable`].
    async fn open_turns(&self, namespace: &str, agent: &str) -> Result<Vec<OpenTurn>, JournalError>;
}

/// Events of the session, read to the end in pages and narrowed by `keep`.
pub(crate) async fn collect_events(
    journal: &dyn Journal,
    key: &SessionKey,
    keep: impl Fn(&Event) -> bool,
) -> Result<Vec<Event>, JournalError> {
    const PAGE: usize = 512;
    let mut kept = Vec::new();
    let mut after = 0;
    loop {
        let page = journal.events_after(key, after, PAGE).await?;
        let Some(last) = page.last().and_then(|event| event.seq) else {
            return Ok(kept);
        };
        after = last;
        kept.extend(page.into_iter().filter(|event| keep(event)));
    }
}
