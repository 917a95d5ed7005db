//! The messages of a session. Requirement OR-292.

use jiff::Timestamp;
use rusqlite::{Connection, params};
use serde_json::Value;

use super::{PayloadError, PayloadStore, SessionKey, from_nanoseconds, sessions, to_nanoseconds};

/// Orders leave gaps so that a message can be put between two others.
const ORDER_STEP: i64 = 1024;

/// A message to append.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewMessage {
    /// Appending the same id twice is a no-op; empty means that the message has none.
    pub message_id: String,
    /// `user`, `assistant`, `tool`, `system`.
    pub role: String,
    /// Its text.
    pub content: String,
    /// The name of the tool or participant.
    pub name: Option<String>,
    /// The input of a tool call.
    pub input: Option<String>,
    /// The tool calls of an assistant's message, as JSON.
    pub tool_calls: Option<Value>,
    /// The call that a tool's message answers.
    pub tool_call_id: Option<String>,
    /// Where it came from: a kind.
    pub source_type: String,
    /// Where it came from: a name.
    pub source_ref: String,
    /// Anything else, as a JSON object; null counts as empty.
    pub metadata: Value,
    /// Tokens that the model call behind it took, added to the session's counters.
    pub input_tokens: u64,
    /// Tokens that the model call behind it gave, added to the session's counters.
    pub output_tokens: u64,
    /// When it was written.
    pub created_at: Timestamp,
}

/// A message as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredMessage {
    /// Its id, or empty.
    pub message_id: String,
    /// Its place in the session.
    pub sort_order: i64,
    /// `user`, `assistant`, `tool`, `system`.
    pub role: String,
    /// Its text.
    pub content: String,
    /// The name of the tool or participant.
    pub name: Option<String>,
    /// The input of a tool call.
    pub input: Option<String>,
    /// The tool calls of an assistant's message, as JSON.
    pub tool_calls: Option<Value>,
    /// The call that a tool's message answers.
    pub tool_call_id: Option<String>,
    /// Where it came from: a kind.
    pub source_type: String,
    /// Where it came from: a name.
    pub source_ref: String,
    /// Anything else.
    pub metadata: Value,
    /// When it was written.
    pub created_at: Timestamp,
}

impl PayloadStore {
    /// The last `limit` messages of a session, oldest first.
    pub async fn messages(&self, key: &SessionKey, limit: usize) -> Result<Vec<StoredMessage>, PayloadError> {
        let key = key.clone();
        self.thread
            .read(move |connection| {
                sessions::stream_of(connection, &key)?;
                let mut statement = connection.prepare_cached(
                    "SELECT message_id, sort_order, role, content, name, input, tool_calls, tool_call_id, source_type, \
                     source_ref, metadata_json, created_at FROM session_messages \
                     WHERE namespace = ?1 AND session_name = ?2 AND sort_order > 0 ORDER BY sort_order DESC LIMIT ?3",
                )?;
                let rows = statement.query_map(params![key.namespace, key.session, limit], |row| {
                    Ok(StoredMessage {
                        message_id: row.get(0)?,
                        sort_order: row.get(1)?,
                        role: row.get(2)?,
                        content: row.get(3)?,
                        name: row.get(4)?,
                        input: row.get(5)?,
                        tool_calls: row.get::<_, Option<String>>(6)?.map(|text| parse(6, &text)).transpose()?,
                        tool_call_id: row.get(7)?,
                        source_type: row.get(8)?,
                        source_ref: row.get(9)?,
                        metadata: parse(10, row.get_ref(10)?.as_str()?)?,
                        created_at: from_nanoseconds(row.get(11)?),
                    })
                })?;
                let mut messages = rows.collect::<Result<Vec<_>, _>>()?;
                messages.reverse();
                Ok(messages)
            })
            .await
    }
}

/// Appends inside the caller's transaction and counts; a known id changes nothing.
pub(super) fn append(
    connection: &Connection,
    key: &SessionKey,
    messages: &[NewMessage],
) -> Result<(), PayloadError> {
    if messages.is_empty() {
        return Ok(());
    }
    let mut order: i64 = connection
        .prepare_cached(
            "SELECT coalesce(max(sort_order), 0) FROM session_messages \
             WHERE namespace = ?1 AND session_name = ?2 AND sort_order > 0",
        )?
        .query_row([&key.namespace, &key.session], |row| row.get(0))?;
    let mut insert = connection.prepare_cached(
        "INSERT INTO session_messages (namespace, session_name, message_id, sort_order, role, content, name, input, \
         tool_calls, tool_call_id, source_type, source_ref, metadata_json, created_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14) ON CONFLICT DO NOTHING",
    )?;
    let (mut count, mut input_tokens, mut output_tokens) = (0u64, 0u64, 0u64);
    for message in messages {
        let metadata = if message.metadata.is_null() {
            "{}".to_owned()
        } else {
            message.metadata.to_string()
        };
        let inserted = insert.execute(params![
            key.namespace,
            key.session,
            message.message_id,
            order + ORDER_STEP,
            message.role,
            message.content,
            message.name,
            message.input,
            message.tool_calls.as_ref().map(Value::to_string),
            message.tool_call_id,
            message.source_type,
            message.source_ref,
            metadata,
            to_nanoseconds(message.created_at),
        ])?;
        if inserted == 1 {
            order += ORDER_STEP;
            count += 1;
            input_tokens += message.input_tokens;
            output_tokens += message.output_tokens;
        }
    }
    connection
        .prepare_cached(
            "UPDATE sessions SET message_count = message_count + ?3, input_tokens = input_tokens + ?4, \
             output_tokens = output_tokens + ?5 WHERE namespace = ?1 AND name = ?2",
        )?
        .execute(params![
            key.namespace,
            key.session,
            count,
            input_tokens,
            output_tokens
        ])?;
    Ok(())
}

/// Reads JSON that this store wrote.
pub(super) fn parse(column: usize, text: &str) -> rusqlite::Result<Value> {
    serde_json::from_str(text).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, Box::new(error))
    })
}
