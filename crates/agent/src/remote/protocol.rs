//! What an agent's process asks the server, in JSON.

use std::time::Duration;

use jiff::Timestamp;
use mainstay_workload::process::calls::{CallError, Caller};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::Payload;
use crate::journal::{Entry, HistoryMessage, JournalError, SessionKey};

/// How long the server waits for another process to leave a session.
pub(super) const LEAVES_WITHIN: Duration = Duration::from_secs(30);
/// How long the server waits for the end of another process before it says that there was none.
pub(super) const ENDS_WITHIN: Duration = Duration::from_secs(60);
/// How long any other call may take, and what the way to the server may add to a wait.
pub(super) const ANSWERED_WITHIN: Duration = Duration::from_secs(30);
/// Bytes of events or messages in one answer, about; a single one may be longer.
pub(super) const PAGE_BYTES: usize = 4 << 20;

/// A call.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Ask {
    /// Claims a session under a number of the process's choice. Answered with [`Granted`], or nothing when another
    /// process stays in it.
    Claim { key: SessionKey, claim: u64 },
    /// Gives a claim back.
    Release { claim: u64 },
    /// Waits for the end of another process of the agent, when `seen` have ended. Answered with how many have.
    Ends { seen: u64 },
    /// [`crate::journal::Journal::create_session`].
    CreateSession { key: SessionKey, now: Timestamp },
    /// [`crate::journal::Journal::find_session`].
    FindSession { key: SessionKey },
    /// [`crate::journal::Journal::append`].
    Append {
        key: SessionKey,
        turn: String,
        now: Timestamp,
        entry: WrittenEntry,
    },
    /// [`crate::journal::Journal::events_after`]. The answer may end before `limit`, but not without an event that there is.
    EventsAfter {
        key: SessionKey,
        after: u64,
        limit: usize,
    },
    /// [`crate::journal::Journal::messages`] without the newest `had`. Answered with a [`MessagePage`].
    Messages {
        key: SessionKey,
        limit: usize,
        had: usize,
    },
    /// [`crate::journal::Journal::open_turns`].
    OpenTurns { namespace: String, agent: String },
    /// Signs for whom a tool is called; the agent and its namespace are those of the process. Answered with the token.
    Sign {
        end_user: String,
        session: String,
        registry: String,
        handler: String,
    },
}

/// A session that the process has now.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Granted {
    pub(super) last_seq: u64,
    pub(super) open_turns: Vec<String>,
}

/// Some messages, oldest first.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct MessagePage {
    pub(super) messages: Vec<HistoryMessage>,
    /// Whether there are older ones within the limit.
    pub(super) more: bool,
}

/// An [`Entry`] on its way.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WrittenEntry {
    /// Type and facts of each event.
    payloads: Vec<(String, Value)>,
    messages: Vec<HistoryMessage>,
    client_key: Option<String>,
}

impl From<Entry> for WrittenEntry {
    fn from(entry: Entry) -> Self {
        let parts = entry.payloads.iter().map(Payload::to_parts);
        Self {
            payloads: parts.map(|(kind, data)| (kind.to_owned(), data)).collect(),
            messages: entry.messages,
            client_key: entry.client_key,
        }
    }
}

impl WrittenEntry {
    /// The entry; the type of an event that cannot be read where there is one.
    pub(super) fn read(self) -> Result<Entry, String> {
        let payloads = self.payloads.into_iter();
        Ok(Entry {
            payloads: payloads
                .map(|(kind, data)| Payload::from_parts(&kind, &data).ok_or(kind))
                .collect::<Result<_, _>>()?,
            messages: self.messages,
            client_key: self.client_key,
        })
    }
}

/// How a call of the journal failed in the store.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum StoreFailure {
    Duplicate { client_key: String, turn: String },
    NoSession { session: String },
    Unavailable { message: String },
}

impl From<JournalError> for StoreFailure {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::Duplicate { client_key, turn } => Self::Duplicate { client_key, turn },
            JournalError::NoSession { session } => Self::NoSession { session },
            JournalError::Unavailable(cause) => Self::Unavailable {
                message: mainstay_telemetry::text::with_causes(cause.as_ref()),
            },
        }
    }
}

impl From<StoreFailure> for JournalError {
    fn from(failure: StoreFailure) -> Self {
        match failure {
            StoreFailure::Duplicate { client_key, turn } => Self::Duplicate { client_key, turn },
            StoreFailure::NoSession { session } => Self::NoSession { session },
            StoreFailure::Unavailable { message } => Self::Unavailable(message.into()),
        }
    }
}

/// What an answer of the journal holds.
pub(super) type Stored<T> = Result<T, StoreFailure>;

/// Why an answer cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("the server's answer cannot be read: {0}")]
    Unreadable(#[source] serde_json::Error),
}

/// Asks, and reads the answer.
pub(super) async fn ask<T: DeserializeOwned>(
    caller: &Caller,
    ask: &Ask,
    within: Duration,
) -> Result<T, AskError> {
    let ask = serde_json::to_value(ask).map_err(CallError::Unwritable)?;
    let answer = caller.call(ask, within).await?;
    serde_json::from_value(answer).map_err(AskError::Unreadable)
}
