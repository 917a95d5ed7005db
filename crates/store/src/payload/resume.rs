//! What a crash leaves open: turns without an end, tool calls without a result. Contract 7.
//!
//! Two small tables follow the events inside the append's own transaction, so they can never disagree with them, and a
//! start reads them instead of the history.

use rusqlite::{Connection, params};

use super::events::NewEvent;
use super::sessions::STREAM_TYPE;
use super::{PayloadError, PayloadStore, SessionKey};

/// A turn that was started and has no `turn.done`, `turn.failed` or `turn.cancelled`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenTurn {
    /// Its session.
    pub key: SessionKey,
    /// Its id.
    pub turn: String,
    /// The number of its `turn.started`.
    pub started_seq: u64,
}

/// A tool call with an intent (`tool.started`) and no `tool.finished`: its outcome is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenToolCall {
    /// The turn that made it.
    pub turn: String,
    /// Its id.
    pub tool_call_id: String,
    /// The number of its `tool.started`, whose data say what was to be sent.
    pub started_seq: u64,
}

impl PayloadStore {
    /// All open turns of all namespaces, oldest first. For the start of the process that owns the store.
    pub async fn open_turns(&self) -> Result<Vec<OpenTurn>, PayloadError> {
        self.thread
            .read(move |connection| {
                let mut statement = connection.prepare_cached(
                    "SELECT s.namespace, s.agent_name, s.session_name, t.turn, t.started_seq \
                     FROM open_turns t JOIN event_streams s ON s.id = t.stream \
                     JOIN execution_event_rows e ON e.stream = t.stream AND e.seq = t.started_seq \
                     WHERE s.stream_type = ?1 ORDER BY e.id",
                )?;
                let rows = statement.query_map([STREAM_TYPE], |row| {
                    Ok(OpenTurn {
                        key: SessionKey {
                            namespace: row.get(0)?,
                            agent: row.get(1)?,
                            session: row.get(2)?,
                        },
                        turn: row.get(3)?,
                        started_seq: row.get(4)?,
                    })
                })?;
                Ok(rows.collect::<Result<_, _>>()?)
            })
            .await
    }

    /// The open tool calls of a session, in the order of their intents.
    pub async fn open_tool_calls(&self, key: &SessionKey) -> Result<Vec<OpenToolCall>, PayloadError> {
        let key = key.clone();
        self.thread
            .read(move |connection| {
                let stream = super::sessions::stream_of(connection, &key)?;
                let mut statement = connection.prepare_cached(
                    "SELECT turn, tool_call_id, started_seq FROM open_tool_calls WHERE stream = ?1 ORDER BY started_seq",
                )?;
                let rows = statement.query_map([stream], |row| {
                    Ok(OpenToolCall { turn: row.get(0)?, tool_call_id: row.get(1)?, started_seq: row.get(2)? })
                })?;
                Ok(rows.collect::<Result<_, _>>()?)
            })
            .await
    }
}

/// Keeps the two tables in step with an event that is being stored.
pub(super) fn follow(
    connection: &Connection,
    stream: i64,
    seq: u64,
    event: &NewEvent,
) -> Result<(), PayloadError> {
    let turn = event.turn.as_deref().unwrap_or("");
    match (event.kind.as_str(), event.tool_call_id.as_deref()) {
        ("turn.started", _) => {
            connection
                .prepare_cached(
                    "INSERT INTO open_turns (stream, turn, started_seq) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
                )?
                .execute(params![stream, turn, seq])?;
        }
        ("turn.done" | "turn.failed" | "turn.cancelled", _) => {
            connection
                .prepare_cached("DELETE FROM open_turns WHERE stream = ?1 AND turn = ?2")?
                .execute(params![stream, turn])?;
            // A call that a finished turn left behind is not asked for again.
            connection
                .prepare_cached("DELETE FROM open_tool_calls WHERE stream = ?1 AND turn = ?2")?
                .execute(params![stream, turn])?;
        }
        ("tool.started", Some(call)) => {
            connection
                .prepare_cached(
                    "INSERT INTO open_tool_calls (stream, turn, tool_call_id, started_seq) VALUES (?1, ?2, ?3, ?4) \
                     ON CONFLICT DO UPDATE SET started_seq = excluded.started_seq",
                )?
                .execute(params![stream, turn, call, seq])?;
        }
        ("tool.finished", Some(call)) => {
            connection
                .prepare_cached(
                    "DELETE FROM open_tool_calls WHERE stream = ?1 AND turn = ?2 AND tool_call_id = ?3",
                )?
                .execute(params![stream, turn, call])?;
        }
        _ => {}
    }
    Ok(())
}
