//! The journal over `payload.db`.

use async_trait::async_trait;
use jiff::Timestamp;
use mainstay_llm::{Message, Role, SignedThought, ToolCall};
use mainstay_store::payload::{
    self, Durability, NewEvent, NewMessage, PayloadError, PayloadStore, StoredEvent, StoredMessage,
};
use mainstay_telemetry::text::escape;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Entry, HistoryMessage, Journal, JournalError, OpenTurn, SessionFacts, SessionKey};
use crate::event::{Event, Payload};

#[async_trait]
impl Journal for PayloadStore {
    async fn create_session(&self, key: &SessionKey, now: Timestamp) -> Result<(), JournalError> {
        match PayloadStore::create_session(self, &stored_key(key), now).await {
            Ok(()) | Err(PayloadError::Exists(_)) => Ok(()),
            Err(error) => Err(translate(key, error)),
        }
    }

    async fn find_session(&self, key: &SessionKey) -> Result<Option<SessionFacts>, JournalError> {
        let row = PayloadStore::find_session(self, &stored_key(key))
            .await
            .map_err(|error| translate(key, error))?;
        Ok(row.map(|row| SessionFacts {
            last_activity: row.last_activity,
            last_seq: row.next_seq.saturating_sub(1),
        }))
    }

    async fn append(
        &self,
        key: &SessionKey,
        turn: &str,
        now: Timestamp,
        entry: Entry,
    ) -> Result<Vec<Event>, JournalError> {
        let durable = entry.payloads.iter().any(Payload::must_be_durable);
        let mut events = Vec::with_capacity(entry.payloads.len());
        let mut stored = Vec::with_capacity(entry.payloads.len());
        for payload in &entry.payloads {
            let event = Event::new(&key.session, turn, now, payload);
            let (tool_call_id, tool) = call_of(payload);
            stored.push(NewEvent {
                kind: event.kind.clone(),
                turn: Some(turn.to_owned()),
                time: now,
                data: event.data.clone(),
                dedupe: None,
                tool_call_id,
                tool,
            });
            events.push(event);
        }
        let messages = entry
            .messages
            .into_iter()
            .map(|message| write_message(message, now))
            .collect();
        let durability = if durable {
            Durability::Synced
        } else {
            Durability::Relaxed
        };
        let session = stored_key(key);
        let numbers = match entry.client_key {
            None => PayloadStore::append(self, &session, stored, messages, durability).await,
            Some(client_key) => {
                match PayloadStore::append_once(self, &session, &client_key, stored, messages, durability)
                    .await
                {
                    Err(PayloadError::Repeated { turn }) => {
                        return Err(JournalError::Duplicate {
                            client_key: escape(&client_key, 128),
                            turn,
                        });
                    }
                    other => other,
                }
            }
        };
        let numbers = numbers.map_err(|error| translate(key, error))?;
        for (event, seq) in events.iter_mut().zip(&numbers) {
            event.seq = Some(*seq);
        }
        Ok(events)
    }

    async fn events_after(
        &self,
        key: &SessionKey,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Event>, JournalError> {
        match PayloadStore::events_after(self, &stored_key(key), after, limit).await {
            Ok(events) => Ok(events.into_iter().map(|event| read_event(key, event)).collect()),
            // A session is created with its first message; until then it has no events.
            Err(PayloadError::NotFound(_)) => Ok(Vec::new()),
            Err(error) => Err(translate(key, error)),
        }
    }

    async fn messages(&self, key: &SessionKey, limit: usize) -> Result<Vec<HistoryMessage>, JournalError> {
        let stored = PayloadStore::messages(self, &stored_key(key), limit)
            .await
            .map_err(|error| translate(key, error))?;
        Ok(stored.into_iter().filter_map(read_message).collect())
    }

    async fn open_turns(&self, namespace: &str, agent: &str) -> Result<Vec<OpenTurn>, JournalError> {
        let open = PayloadStore::open_turns(self)
            .await
            .map_err(|error| JournalError::Unavailable(Box::new(error)))?;
        Ok(open
            .into_iter()
            .filter(|turn| turn.key.namespace == namespace && turn.key.agent == agent)
            .map(|turn| OpenTurn {
                key: SessionKey {
                    namespace: turn.key.namespace,
                    agent: turn.key.agent,
                    session: turn.key.session,
                },
                turn: turn.turn,
            })
            .collect())
    }
}

fn stored_key(key: &SessionKey) -> payload::SessionKey {
    payload::SessionKey::new(&key.namespace, &key.agent, &key.session)
}

fn translate(key: &SessionKey, error: PayloadError) -> JournalError {
    match error {
        PayloadError::NotFound(_) => JournalError::NoSession {
            session: key.session.clone(),
        },
        other => JournalError::Unavailable(Box::new(other)),
    }
}

/// The columns by which the store follows open calls.
fn call_of(payload: &Payload) -> (Option<String>, Option<String>) {
    let (call_id, tool) = match payload {
        Payload::PolicyDecided(data) => (&data.call_id, &data.tool),
        Payload::ToolStarted(data) => (&data.call_id, &data.tool),
        Payload::ToolFinished(data) => (&data.call_id, &data.tool),
        Payload::ClientToolRequested(data) => (&data.call_id, &data.tool),
        _ => return (None, None),
    };
    (Some(call_id.clone()), Some(tool.clone()))
}

fn read_event(key: &SessionKey, event: StoredEvent) -> Event {
    Event {
        seq: Some(event.seq),
        session: key.session.clone(),
        turn: event.turn,
        time: event.time,
        kind: event.kind,
        data: event.data,
    }
}

fn write_message(entry: HistoryMessage, now: Timestamp) -> NewMessage {
    let message = entry.message;
    let role = match message.role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    };
    NewMessage {
        message_id: entry.message_id,
        role: role.to_owned(),
        content: message.content,
        name: message.name,
        tool_calls: (!message.tool_calls.is_empty()).then(|| json!(message.tool_calls)),
        tool_call_id: message.tool_call_id,
        metadata: metadata_of(message.is_error, message.author, &message.thoughts),
        created_at: now,
        ..NewMessage::default()
    }
}

/// What has no column of its own; null where there is nothing of it.
fn metadata_of(is_error: bool, author: Option<String>, thoughts: &[SignedThought]) -> Value {
    let mut metadata = Map::new();
    if is_error {
        metadata.insert("is_error".to_owned(), Value::Bool(true));
    }
    if let Some(author) = author {
        metadata.insert("author".to_owned(), Value::String(author));
    }
    if !thoughts.is_empty() {
        metadata.insert("thoughts".to_owned(), json!(thoughts));
    }
    if metadata.is_empty() {
        Value::Null
    } else {
        Value::Object(metadata)
    }
}

/// `None` for roles that are no part of a model's conversation.
fn read_message(stored: StoredMessage) -> Option<HistoryMessage> {
    let role = match stored.role.as_str() {
        "system" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "tool" => Role::Tool,
        _ => return None,
    };
    let tool_calls: Vec<ToolCall> = stored
        .tool_calls
        .and_then(|calls| serde_json::from_value(calls).ok())
        .unwrap_or_default();
    Some(HistoryMessage {
        message_id: stored.message_id,
        message: Message {
            role,
            content: stored.content,
            tool_calls,
            tool_call_id: stored.tool_call_id,
            name: stored.name,
            is_error: stored
                .metadata
                .get("is_error")
                .and_then(Value::as_bool)
                .unwrap_or(false),
            thoughts: stored
                .metadata
                .get("thoughts")
                .and_then(|thoughts| Vec::deserialize(thoughts).ok())
                .unwrap_or_default(),
            author: stored
                .metadata
                .get("author")
                .and_then(Value::as_str)
                .map(str::to_owned),
        },
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use mainstay_store::payload::PayloadOptions;

    use super::*;

    #[tokio::test]
    async fn a_message_is_read_as_it_was_written_with_what_its_provider_signed() {
        let store = PayloadStore::open(PayloadOptions::in_memory()).unwrap();
        let key = SessionKey {
            namespace: "default".to_owned(),
            agent: "helpdesk".to_owned(),
            session: "s".to_owned(),
        };
        Journal::create_session(&store, &key, Timestamp::UNIX_EPOCH)
            .await
            .unwrap();
        let call = ToolCall {
            signature: Some("sig".to_owned()),
            ..ToolCall::new("c", "t", "{}")
        };
        let written = [
            Message::user("hi"),
            Message {
                thoughts: vec![
                    SignedThought::Thought {
                        text: "hm".to_owned(),
                        signature: "x".to_owned(),
                    },
                    SignedThought::Redacted {
                        data: "sealed".to_owned(),
                    },
                ],
                author: Some("main".to_owned()),
                ..Message::assistant("", vec![call])
            },
            Message::tool_result("c", "t", "no", true),
        ];
        let messages = written.iter().enumerate().map(|(index, message)| HistoryMessage {
            message_id: index.to_string(),
            message: message.clone(),
        });
        let entry = Entry {
            messages: messages.collect(),
            ..Entry::default()
        };
        Journal::append(&store, &key, "turn", Timestamp::UNIX_EPOCH, entry)
            .await
            .unwrap();
        let read = Journal::messages(&store, &key, 10).await.unwrap();
        let read: Vec<Message> = read.into_iter().map(|message| message.message).collect();
        assert_eq!(read, written);
    }
}
