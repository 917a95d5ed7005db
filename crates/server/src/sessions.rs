//! What is kept of conversations: which there are, and what happened in each. Over REST, and without a server for whoever
//! holds the store.
//!
//! Everything is read as it was stored: events hold no credential (OM-389, OM-590), so neither does what is given here.

mod routes;

use jiff::Timestamp;
use mainstay_agent::event::{Event, Payload};
use mainstay_store::payload::{PayloadError, PayloadStore, SessionKey, SessionRow, StoredEvent};
use mainstay_telemetry::text::escape;
use serde::{Deserialize, Serialize};

pub use routes::router;

/// The word for the session that was used last.
pub const LAST: &str = "LAST";
/// The form of an exported session.
const FORMAT: &str = "mainstay.dev/session/v1";
/// Most events of a page.
pub const PAGE: usize = 100;
/// A page ends behind the event that fills it, in bytes.
const PAGE_BYTES: usize = 8 << 20;
/// How many sessions an ambiguous beginning may name before it is given up.
const AMBIGUOUS: usize = 3;

/// A session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionSummary {
    /// Its id.
    pub session: String,
    /// Namespace of its agent.
    pub namespace: String,
    /// Its agent.
    pub agent: String,
    /// When it was begun.
    pub started: Timestamp,
    /// When something last happened in it.
    pub last_activity: Timestamp,
    /// Messages that its model reads: of the user, of the agent, and results of tools.
    pub messages: u64,
    /// Number of its newest event.
    pub events: u64,
}

/// A part of a session's events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventPage {
    /// The events, in order.
    pub events: Vec<Event>,
    /// Whether there are more behind them.
    pub more: bool,
}

/// All of a session in one document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionExport {
    /// The form of this document.
    pub format: String,
    /// The session.
    pub session: SessionSummary,
    /// Sums over its events.
    pub totals: SessionTotals,
    /// Everything that happened, in order.
    pub events: Vec<Event>,
}

/// Sums over a session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionTotals {
    /// Turns that were begun.
    pub turns: u64,
    /// Tool calls that were asked for.
    pub tool_calls: u64,
    /// Tool calls that a policy refused.
    pub denied: u64,
    /// Tokens of all requests to models.
    pub input_tokens: u64,
    /// Tokens of all answers.
    pub output_tokens: u64,
    /// Cost by the providers' prices; absent without prices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

/// Why a session is not shown.
#[derive(Debug, thiserror::Error)]
pub enum SessionsError {
    /// There is none of that id.
    #[error("there is no session {wanted} in namespace {namespace}")]
    NotFound {
        /// What was asked for.
        wanted: String,
        /// Where.
        namespace: String,
    },
    /// Several begin like that.
    #[error("several sessions begin with {wanted}: {}", found.join(", "))]
    Ambiguous {
        /// What was asked for.
        wanted: String,
        /// Some of them.
        found: Vec<String>,
    },
    /// The store does not answer.
    #[error("the sessions cannot be read")]
    Store(#[from] PayloadError),
}

/// The sessions of a store.
#[derive(Debug, Clone)]
pub struct Sessions {
    store: PayloadStore,
}

impl Sessions {
    /// Those of `store`.
    pub fn new(store: PayloadStore) -> Self {
        Self { store }
    }

    /// The sessions of a namespace (of one agent, or of all), the last used first.
    ///
    /// # Errors
    ///
    /// [`SessionsError::Store`].
    pub async fn list(
        &self,
        namespace: &str,
        agent: Option<&str>,
        limit: usize,
    ) -> Result<Vec<SessionSummary>, SessionsError> {
        let rows = self.store.list_sessions(namespace, agent, limit).await?;
        Ok(rows.into_iter().map(summary).collect())
    }

    /// The session `wanted`: its id, the beginning of one, or [`LAST`].
    ///
    /// # Errors
    ///
    /// [`SessionsError`].
    pub async fn find(
        &self,
        namespace: &str,
        agent: Option<&str>,
        wanted: &str,
    ) -> Result<SessionSummary, SessionsError> {
        let mut rows = if wanted == LAST {
            self.store.list_sessions(namespace, agent, 1).await?
        } else if wanted.is_empty() {
            Vec::new()
        } else {
            self.store
                .sessions_beginning(namespace, agent, wanted, AMBIGUOUS)
                .await?
        };
        if let Some(exact) = rows.iter().position(|row| row.key.session == wanted) {
            return Ok(summary(rows.swap_remove(exact)));
        }
        match rows.len() {
            0 => Err(SessionsError::NotFound {
                wanted: escape(wanted, 64),
                namespace: escape(namespace, 64),
            }),
            1 => Ok(summary(rows.swap_remove(0))),
            _ => Err(SessionsError::Ambiguous {
                wanted: escape(wanted, 64),
                found: rows.into_iter().map(|row| row.key.session).collect(),
            }),
        }
    }

    /// The events of a session after `after`, at most `limit` and at most [`PAGE`].
    ///
    /// # Errors
    ///
    /// [`SessionsError::Store`].
    pub async fn events(
        &self,
        session: &SessionSummary,
        after: u64,
        limit: usize,
    ) -> Result<EventPage, SessionsError> {
        let key = SessionKey::new(&session.namespace, &session.agent, &session.session);
        let limit = limit.clamp(1, PAGE);
        // One more than is given: it tells whether there are more.
        let mut stored = self.store.events_after(&key, after, limit + 1).await?;
        let mut more = stored.len() > limit;
        stored.truncate(limit);
        let mut bytes = 0;
        let mut events = Vec::with_capacity(stored.len());
        let count = stored.len();
        for event in stored {
            bytes += event.data.to_string().len();
            events.push(read(session, event));
            if bytes >= PAGE_BYTES {
                more |= events.len() < count;
                break;
            }
        }
        Ok(EventPage { events, more })
    }
}

impl SessionExport {
    /// The document of a session and all its events.
    pub fn new(session: SessionSummary, events: Vec<Event>) -> Self {
        Self {
            format: FORMAT.to_owned(),
            totals: SessionTotals::of(&events),
            session,
            events,
        }
    }
}

impl SessionTotals {
    fn of(events: &[Event]) -> Self {
        let mut totals = Self::default();
        for payload in events.iter().filter_map(Event::payload) {
            match payload {
                Payload::TurnStarted(_) => totals.turns += 1,
                Payload::ModelDone(done) => totals.tool_calls += done.tool_calls.len() as u64,
                Payload::PolicyDecided(decided) => totals.denied += u64::from(!decided.allow),
                Payload::Usage(usage) => {
                    totals.input_tokens += usage.input_tokens;
                    totals.output_tokens += usage.output_tokens;
                    if let Some(cost) = usage.cost_usd {
                        *totals.cost_usd.get_or_insert(0.0) += cost;
                    }
                }
                _ => {}
            }
        }
        totals
    }
}

fn summary(row: SessionRow) -> SessionSummary {
    SessionSummary {
        session: row.key.session,
        namespace: row.key.namespace,
        agent: row.key.agent,
        started: row.created_at,
        last_activity: row.last_activity,
        messages: row.message_count,
        events: row.next_seq.saturating_sub(1),
    }
}

fn read(session: &SessionSummary, event: StoredEvent) -> Event {
    Event {
        seq: Some(event.seq),
        session: session.session.clone(),
        turn: event.turn,
        time: event.time,
        kind: event.kind,
        data: event.data,
    }
}

#[cfg(test)]
mod tests;
