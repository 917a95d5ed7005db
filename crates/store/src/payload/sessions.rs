//! Sessions and their locks. Requirements OR-291, OR-315.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::thread::Durability;
use super::{PayloadError, PayloadStore, SessionKey, from_nanoseconds, to_nanoseconds};

/// A conversation's session is owned by an agent of this kind.
pub(super) const OWNER_TYPE: &str = "AgentRuntime";
/// The stream of events of a conversation.
pub(super) const STREAM_TYPE: &str = "session";

/// A session as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRow {
    /// Its name.
    pub key: SessionKey,
    /// When it was created.
    pub created_at: Timestamp,
    /// When something was last appended to it or it was touched.
    pub last_activity: Timestamp,
    /// The number the next event gets. The first is 1.
    pub next_seq: u64,
    /// Messages in its history.
    pub message_count: u64,
    /// Tokens sent to models.
    pub input_tokens: u64,
    /// Tokens received from models.
    pub output_tokens: u64,
}

impl PayloadStore {
    /// Creates a session. [`PayloadError::Exists`] if its name is taken in the namespace, by whatever agent.
    pub async fn create_session(&self, key: &SessionKey, now: Timestamp) -> Result<(), PayloadError> {
        let key = key.clone();
        self.thread
            .write(Durability::Synced, move |connection| {
                let inserted = connection
                    .prepare_cached(
                        "INSERT INTO sessions (namespace, name, session_type, owner_type, owner_ref, created_at, updated_at) \
                         VALUES (?1, ?2, 'chat', ?3, ?4, ?5, ?5) ON CONFLICT DO NOTHING",
                    )?
                    .execute(params![key.namespace, key.session, OWNER_TYPE, key.agent, to_nanoseconds(now)])?;
                if inserted == 0 {
                    return Err(PayloadError::Exists(key.to_string()));
                }
                connection
                    .prepare_cached(
                        "INSERT INTO event_streams (namespace, stream_type, stream_id, session_name, agent_name) \
                         VALUES (?1, ?2, ?3, ?3, ?4)",
                    )?
                    .execute(params![key.namespace, STREAM_TYPE, key.session, key.agent])?;
                connection
                    .prepare_cached(
                        "INSERT INTO execution_event_session_sequences (namespace, session_name, latest_seq) \
                         VALUES (?1, ?2, 0)",
                    )?
                    .execute(params![key.namespace, key.session])?;
                Ok(())
            })
            .await
    }

    /// The session, if it exists and belongs to the agent.
    pub async fn find_session(&self, key: &SessionKey) -> Result<Option<SessionRow>, PayloadError> {
        let key = key.clone();
        self.thread
            .read(move |connection| {
                let sql = format!("{SELECT} AND s.owner_ref = ?2 AND s.name = ?3");
                let mut statement = connection.prepare_cached(&sql)?;
                Ok(statement
                    .query_row([&key.namespace, &key.agent, &key.session], read_row)
                    .optional()?)
            })
            .await
    }

    /// The sessions of a namespace (of one agent, or of all), the last used first, at most `limit`.
    pub async fn list_sessions(
        &self,
        namespace: &str,
        agent: Option<&str>,
        limit: usize,
    ) -> Result<Vec<SessionRow>, PayloadError> {
        let (namespace, agent) = (namespace.to_owned(), agent.map(str::to_owned));
        self.thread
            .read(move |connection| {
                let sql =
                    format!("{SELECT} AND (?2 IS NULL OR s.owner_ref = ?2) ORDER BY s.updated_at DESC, s.name LIMIT ?3");
                let mut statement = connection.prepare_cached(&sql)?;
                let rows = statement.query_map(params![namespace, agent, limit], read_row)?;
                Ok(rows.collect::<Result<_, _>>()?)
            })
            .await
    }

    /// The sessions of a namespace (of one agent, or of all) whose names begin with `prefix`, the last used first, at most
    /// `limit`.
    pub async fn sessions_beginning(
        &self,
        namespace: &str,
        agent: Option<&str>,
        prefix: &str,
        limit: usize,
    ) -> Result<Vec<SessionRow>, PayloadError> {
        let (namespace, agent, prefix) = (namespace.to_owned(), agent.map(str::to_owned), prefix.to_owned());
        self.thread
            .read(move |connection| {
                let sql = format!(
                    "{SELECT} AND (?2 IS NULL OR s.owner_ref = ?2) AND substr(s.name, 1, length(?3)) = ?3 \
                     ORDER BY s.updated_at DESC, s.name LIMIT ?4"
                );
                let mut statement = connection.prepare_cached(&sql)?;
                let rows = statement.query_map(params![namespace, agent, prefix, limit], read_row)?;
                Ok(rows.collect::<Result<_, _>>()?)
            })
            .await
    }

    /// Notes that the session is in use.
    pub async fn touch(&self, key: &SessionKey, now: Timestamp) -> Result<(), PayloadError> {
        let key = key.clone();
        self.thread
            .write(Durability::Relaxed, move |connection| {
                let touched = connection
                    .prepare_cached(
                        "UPDATE sessions SET updated_at = max(updated_at, ?4) \
                         WHERE namespace = ?1 AND name = ?2 AND owner_ref = ?3 AND retired_at IS NULL",
                    )?
                    .execute(params![
                        key.namespace,
                        key.session,
                        key.agent,
                        to_nanoseconds(now)
                    ])?;
                if touched == 0 {
                    Err(PayloadError::NotFound(key.to_string()))
                } else {
                    Ok(())
                }
            })
            .await
    }

    /// Deletes a session: it cannot be found from now on, and [`PayloadStore::enforce_retention`] removes its rows in
    /// small steps.
    pub async fn delete_session(&self, key: &SessionKey, now: Timestamp) -> Result<(), PayloadError> {
        let key = key.clone();
        self.thread
            .write(Durability::Synced, move |connection| {
                let stream = stream_of(connection, &key)?;
                connection
                    .prepare_cached("UPDATE sessions SET retired_at = ?3 WHERE namespace = ?1 AND name = ?2")?
                    .execute(params![key.namespace, key.session, to_nanoseconds(now)])?;
                // A deleted session's turn is not resumed.
                connection
                    .prepare_cached("DELETE FROM open_turns WHERE stream = ?1")?
                    .execute([stream])?;
                connection
                    .prepare_cached("DELETE FROM open_tool_calls WHERE stream = ?1")?
                    .execute([stream])?;
                Ok(())
            })
            .await
    }

    /// Takes the session's lock for a task. The holder may take it again (OR-315).
    pub async fn acquire_lock(
        &self,
        namespace: &str,
        session: &str,
        task: &str,
        task_uid: &str,
    ) -> Result<(), PayloadError> {
        let (namespace, session) = (namespace.to_owned(), session.to_owned());
        let (task, task_uid) = (task.to_owned(), task_uid.to_owned());
        self.thread
            .write(Durability::Synced, move |connection| {
                let updated = connection
                    .prepare_cached(
                        "UPDATE sessions SET active_task = ?3, active_task_uid = ?4 \
                         WHERE namespace = ?1 AND name = ?2 AND retired_at IS NULL \
                         AND (active_task = '' OR (active_task = ?3 AND active_task_uid = ?4))",
                    )?
                    .execute([&namespace, &session, &task, &task_uid])?;
                if updated == 1 {
                    return Ok(());
                }
                let holder = connection
                    .prepare_cached(
                        "SELECT active_task FROM sessions WHERE namespace = ?1 AND name = ?2 AND retired_at IS NULL",
                    )?
                    .query_row([&namespace, &session], |row| row.get::<_, String>(0))
                    .optional()?;
                Err(match holder {
                    Some(holder) => PayloadError::Locked { session: format!("{namespace}/{session}"), holder },
                    None => PayloadError::NotFound(format!("session {namespace}/{session}")),
                })
            })
            .await
    }

    /// Gives the lock back. `false` if the task does not hold it.
    pub async fn release_lock(
        &self,
        namespace: &str,
        session: &str,
        task: &str,
        task_uid: &str,
    ) -> Result<bool, PayloadError> {
        let (namespace, session) = (namespace.to_owned(), session.to_owned());
        let (task, task_uid) = (task.to_owned(), task_uid.to_owned());
        self.thread
            .write(Durability::Synced, move |connection| {
                let updated = connection
                    .prepare_cached(
                        "UPDATE sessions SET active_task = '', active_task_uid = '', active_task_expires_at = NULL \
                         WHERE namespace = ?1 AND name = ?2 AND active_task = ?3 AND active_task_uid = ?4",
                    )?
                    .execute([&namespace, &session, &task, &task_uid])?;
                Ok(updated == 1)
            })
            .await
    }
}

const SELECT: &str = "SELECT s.namespace, s.owner_ref, s.name, s.created_at, s.updated_at, coalesce(q.latest_seq, 0) + 1, \
     s.message_count, s.input_tokens, s.output_tokens FROM sessions s \
     LEFT JOIN execution_event_session_sequences q ON q.namespace = s.namespace AND q.session_name = s.name \
     WHERE s.namespace = ?1 AND s.retired_at IS NULL";

fn read_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<SessionRow> {
    Ok(SessionRow {
        key: SessionKey {
            namespace: row.get(0)?,
            agent: row.get(1)?,
            session: row.get(2)?,
        },
        created_at: from_nanoseconds(row.get(3)?),
        last_activity: from_nanoseconds(row.get(4)?),
        next_seq: row.get(5)?,
        message_count: row.get(6)?,
        input_tokens: row.get(7)?,
        output_tokens: row.get(8)?,
    })
}

/// The session's stream of events, if the session exists and is the agent's.
pub(super) fn stream_of(connection: &Connection, key: &SessionKey) -> Result<i64, PayloadError> {
    connection
        .prepare_cached(
            "SELECT e.id FROM sessions s JOIN event_streams e \
             ON e.namespace = s.namespace AND e.stream_type = ?4 AND e.stream_id = s.name \
             WHERE s.namespace = ?1 AND s.name = ?2 AND s.owner_ref = ?3 AND s.retired_at IS NULL",
        )?
        .query_row([&key.namespace, &key.session, &key.agent, STREAM_TYPE], |row| {
            row.get(0)
        })
        .optional()?
        .ok_or_else(|| PayloadError::NotFound(key.to_string()))
}
