//! The journal of an agent's process: each call goes to the server.

use async_trait::async_trait;
use jiff::Timestamp;
use mainstay_workload::process::calls::Caller;
use serde::de::DeserializeOwned;

use super::protocol::{ANSWERED_WITHIN, Ask, MessagePage, Stored, ask};
use crate::event::Event;
use crate::journal::{Entry, HistoryMessage, Journal, JournalError, OpenTurn, SessionFacts, SessionKey};

/// Sessions that the server keeps. Where its answer does not come in time a write may have happened all the same: the turn is
/// then continued from what is stored, as behind a store that failed.
#[derive(Debug, Clone)]
pub struct RemoteJournal {
    caller: Caller,
}

impl RemoteJournal {
    /// A journal that asks by `caller`.
    pub fn new(caller: Caller) -> Self {
        Self { caller }
    }

    async fn ask<T: DeserializeOwned>(&self, asked: Ask) -> Result<T, JournalError> {
        let stored: Stored<T> = ask(&self.caller, &asked, ANSWERED_WITHIN)
            .await
            .map_err(|error| JournalError::Unavailable(Box::new(error)))?;
        Ok(stored?)
    }
}

#[async_trait]
impl Journal for RemoteJournal {
    async fn create_session(&self, key: &SessionKey, now: Timestamp) -> Result<(), JournalError> {
        let key = key.clone();
        self.ask(Ask::CreateSession { key, now }).await
    }

    async fn find_session(&self, key: &SessionKey) -> Result<Option<SessionFacts>, JournalError> {
        let key = key.clone();
        self.ask(Ask::FindSession { key }).await
    }

    async fn append(
        &self,
        key: &SessionKey,
        turn: &str,
        now: Timestamp,
        entry: Entry,
    ) -> Result<Vec<Event>, JournalError> {
        // The answer is numbers only: the events are known here.
        let mut events: Vec<Event> = entry
            .payloads
            .iter()
            .map(|payload| Event::new(&key.session, turn, now, payload))
            .collect();
        let asked = Ask::Append {
            key: key.clone(),
            turn: turn.to_owned(),
            now,
            entry: entry.into(),
        };
        let numbers: Vec<Option<u64>> = self.ask(asked).await?;
        for (event, number) in events.iter_mut().zip(numbers) {
            event.seq = number;
        }
        Ok(events)
    }

    async fn events_after(
        &self,
        key: &SessionKey,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Event>, JournalError> {
        let key = key.clone();
        self.ask(Ask::EventsAfter { key, after, limit }).await
    }

    async fn messages(&self, key: &SessionKey, limit: usize) -> Result<Vec<HistoryMessage>, JournalError> {
        // Newest page first; each page is oldest first.
        let mut pages: Vec<Vec<HistoryMessage>> = Vec::new();
        let mut had = 0;
        loop {
            let key = key.clone();
            let page: MessagePage = self.ask(Ask::Messages { key, limit, had }).await?;
            had += page.messages.len();
            let ends = !page.more || page.messages.is_empty();
            pages.push(page.messages);
            if ends {
                return Ok(pages.into_iter().rev().flatten().collect());
            }
        }
    }

    async fn open_turns(&self, namespace: &str, agent: &str) -> Result<Vec<OpenTurn>, JournalError> {
        let (namespace, agent) = (namespace.to_owned(), agent.to_owned());
        self.ask(Ask::OpenTurns { namespace, agent }).await
    }
}
