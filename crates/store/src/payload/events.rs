//! Events: the append that a turn lives on, and reading from a sequence number. Requirement OR-306, contract 2.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::Value;

use super::messages::{self, NewMessage, parse};
use super::thread::Durability;
use super::{PayloadError, PayloadStore, SessionKey, from_nanoseconds, resume, sessions, to_nanoseconds};

/// An event to append.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewEvent {
    /// The envelope's `type`, such as `turn.started`.
    pub kind: String,
    /// The turn it belongs to.
    pub turn: Option<String>,
    /// When it happened.
    pub time: Timestamp,
    /// The envelope's `data`.
    pub data: Value,
    /// Appending the same key twice gives the first one's number and stores nothing.
    pub dedupe: Option<String>,
    /// The tool call it is about. `tool.started` with it is an intent, `tool.finished` its end (contract 7).
    pub tool_call_id: Option<String>,
    /// The tool it is about.
    pub tool: Option<String>,
}

/// An event as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredEvent {
    /// Its number in the session; rises by one, starting at 1.
    pub seq: u64,
    /// The envelope's `type`.
    pub kind: String,
    /// The turn it belongs to.
    pub turn: Option<String>,
    /// When it happened.
    pub time: Timestamp,
    /// The envelope's `data`.
    pub data: Value,
    /// The tool call it is about.
    pub tool_call_id: Option<String>,
}

impl PayloadStore {
    /// Appends events and messages to a session in one transaction and returns the events' numbers in order.
    ///
    /// What returns is stored: show it only then ("stored before shown"). Intents and what was acknowledged to a client
    /// are [`Durability::Synced`].
    pub async fn append(
        &self,
        key: &SessionKey,
        events: Vec<NewEvent>,
        messages: Vec<NewMessage>,
        durability: Durability,
    ) -> Result<Vec<u64>, PayloadError> {
        self.append_checked(key, None, events, messages, durability).await
    }

    /// As [`PayloadStore::append`], for a message that its client may send again: the key is looked up in the same
    /// transaction, so of two that come at once one is stored (contract 9).
    ///
    /// # Errors
    /// [`PayloadError::Repeated`] with the turn that the first one began; nothing is stored then.
    pub async fn append_once(
        &self,
        key: &SessionKey,
        client_key: &str,
        mut events: Vec<NewEvent>,
        messages: Vec<NewMessage>,
        durability: Durability,
    ) -> Result<Vec<u64>, PayloadError> {
        // The 0 is the event's place in its transaction: all had a key once, and messages of then are known by it.
        let dedupe = format!("client/0/{client_key}");
        if let Some(first) = events.first_mut() {
            first.dedupe = Some(dedupe.clone());
        }
        self.append_checked(key, Some(dedupe), events, messages, durability)
            .await
    }

    async fn append_checked(
        &self,
        key: &SessionKey,
        once: Option<String>,
        events: Vec<NewEvent>,
        messages: Vec<NewMessage>,
        durability: Durability,
    ) -> Result<Vec<u64>, PayloadError> {
        let key = key.clone();
        // Rendered here, not on the store's thread, which all sessions share.
        let contents: Vec<String> = events.iter().map(|event| event.data.to_string()).collect();
        self.thread
            .write(durability, move |connection| {
                let stream = sessions::stream_of(connection, &key)?;
                if let Some(turn) = once.as_deref().map(|once| turn_of(connection, stream, once)).transpose()?.flatten() {
                    return Err(PayloadError::Repeated { turn });
                }
                let numbers = append(connection, &key, stream, &events, &contents)?;
                messages::append(connection, &key, &messages)?;
                let latest = events.iter().map(|event| event.time).chain(messages.iter().map(|m| m.created_at)).max();
                if let Some(latest) = latest {
                    connection
                        .prepare_cached(
                            "UPDATE sessions SET updated_at = max(updated_at, ?3) WHERE namespace = ?1 AND name = ?2",
                        )?
                        .execute(params![key.namespace, key.session, to_nanoseconds(latest)])?;
                }
                Ok(numbers)
            })
            .await
    }

    /// The events of a session after `after_seq`, in order, at most `limit`.
    pub async fn events_after(
        &self,
        key: &SessionKey,
        after_seq: u64,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, PayloadError> {
        let key = key.clone();
        self.thread
            .read(move |connection| {
                let stream = sessions::stream_of(connection, &key)?;
                let mut statement = connection.prepare_cached(
                    "SELECT seq, type, turn, created_at, content_json, tool_call_id FROM execution_event_rows \
                     WHERE stream = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3",
                )?;
                let rows = statement.query_map(params![stream, after_seq, limit], |row| {
                    Ok(StoredEvent {
                        seq: row.get(0)?,
                        kind: row.get(1)?,
                        turn: row.get(2)?,
                        time: from_nanoseconds(row.get(3)?),
                        data: row.get_ref(4)?.as_str_or_null()?.map_or(Ok(Value::Null), |text| parse(4, text))?,
                        tool_call_id: Some(row.get::<_, String>(5)?).filter(|id| !id.is_empty()),
                    })
                })?;
                Ok(rows.collect::<Result<_, _>>()?)
            })
            .await
    }
}

/// The turn of the event with this key.
fn turn_of(connection: &Connection, stream: i64, dedupe: &str) -> rusqlite::Result<Option<String>> {
    connection
        .prepare_cached(
            "SELECT coalesce(turn, '') FROM execution_event_rows WHERE stream = ?1 AND dedupe_key = ?2",
        )?
        .query_row(params![stream, dedupe], |row| row.get(0))
        .optional()
}

fn append(
    connection: &Connection,
    key: &SessionKey,
    stream: i64,
    events: &[NewEvent],
    contents: &[String],
) -> Result<Vec<u64>, PayloadError> {
    if events.is_empty() {
        return Ok(Vec::new());
    }
    let latest: u64 = connection
        .prepare_cached(
            "SELECT latest_seq FROM execution_event_session_sequences WHERE namespace = ?1 AND session_name = ?2",
        )?
        .query_row([&key.namespace, &key.session], |row| row.get(0))?;
    let mut seq = latest;
    let mut numbers = Vec::with_capacity(events.len());
    let mut insert = connection.prepare_cached(
        "INSERT INTO execution_event_rows (stream, seq, session_seq, dedupe_key, type, turn, tool_name, tool_call_id, \
         content_json, created_at) VALUES (?1, ?2, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?;
    for (event, content) in events.iter().zip(contents) {
        if let Some(dedupe) = &event.dedupe {
            let known: Option<u64> = connection
                .prepare_cached("SELECT seq FROM execution_event_rows WHERE stream = ?1 AND dedupe_key = ?2")?
                .query_row(params![stream, dedupe], |row| row.get(0))
                .optional()?;
            if let Some(known) = known {
                numbers.push(known);
                continue;
            }
        }
        seq += 1;
        insert.execute(params![
            stream,
            seq,
            event.dedupe,
            event.kind,
            event.turn,
            event.tool.as_deref().unwrap_or(""),
            event.tool_call_id.as_deref().unwrap_or(""),
            content,
            to_nanoseconds(event.time),
        ])?;
        resume::follow(connection, stream, seq, event)?;
        numbers.push(seq);
    }
    if seq != latest {
        connection
            .prepare_cached(
                "UPDATE execution_event_session_sequences SET latest_seq = ?3 \
                 WHERE namespace = ?1 AND session_name = ?2",
            )?
            .execute(params![key.namespace, key.session, seq])?;
    }
    Ok(numbers)
}
