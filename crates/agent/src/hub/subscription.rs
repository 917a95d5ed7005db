//! Reading a session: what is stored, then the live attempt's text so far, then what comes.
//!
//! A subscription never loses or repeats a stored event. It checks numbers rather than trusting the
//! channel, so a lagging listener, a number that was stored but not announced, and a replaced engine all
//! lead to the same repair: read the store from the last number on.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::Stream;
use tokio::sync::broadcast::{self, error::RecvError};

use super::{Hub, LiveAttempt, Notice, ends_attempt};
use crate::event::{Event, ModelDelta, Payload};
use crate::journal::{Journal, JournalError};

const PAGE: usize = 256;

/// Why a subscription ended. A new one may be made from the last number seen.
#[derive(Debug, thiserror::Error)]
pub enum SubscriptionError {
    /// The store could not be read.
    #[error("the session's events cannot be read")]
    Journal(#[from] JournalError),
    /// The running turn could not be stored any further; it is continued when the agent starts again.
    #[error("the running turn cannot be stored and was suspended")]
    TurnSuspended,
}

/// Where the reader is.
struct Reader {
    hub: Arc<Hub>,
    journal: Arc<dyn Journal>,
    /// Number of the last event handed out.
    cursor: u64,
    /// Attempt whose text is being handed out, and how much of it was.
    shown: Option<(String, u32, usize)>,
    /// Attempt that ended last: late pieces of it are dropped.
    ended: Option<(String, u32)>,
}

/// The stream of a session's events after `after`; `None` begins with what comes next, preceded by the live
/// attempt's text so far.
pub(crate) fn subscribe(
    hub: Arc<Hub>,
    journal: Arc<dyn Journal>,
    after: Option<u64>,
) -> impl Stream<Item = Result<Arc<Event>, SubscriptionError>> + Send + 'static {
    // The receiver exists before this function returns: a caller that subscribes and then sends sees all.
    let first = hub.snapshot();
    let mut reader = Reader {
        cursor: after.unwrap_or(first.1.last_seq),
        hub,
        journal,
        shown: None,
        ended: None,
    };
    async_stream::try_stream! {
        let mut snapshot = Some(first);
        loop {
            let (mut receiver, live) = snapshot.take().unwrap_or_else(|| reader.hub.snapshot());
            // Order matters: what was stored before the snapshot, then the attempt as it was then, then what
            // the receiver has got since.
            while let Some(page) = reader.stored(live.last_seq).await? {
                for event in page {
                    yield Arc::new(event);
                }
            }
            if let Some(event) = live.attempt.as_ref().and_then(|attempt| reader.catch_up(attempt)) {
                yield Arc::new(event);
            }
            loop {
                match reader.next(&mut receiver).await? {
                    Step::Nothing => {}
                    Step::Event(event) => yield event,
                    Step::Stored(events) => {
                        for event in events {
                            yield Arc::new(event);
                        }
                    }
                    Step::Again => break,
                }
            }
        }
    }
}

enum Step {
    /// The reader has it already.
    Nothing,
    /// Shared with every other reader.
    Event(Arc<Event>),
    /// Read from the store.
    Stored(VecDeque<Event>),
    /// The receiver is behind; start over from a new snapshot.
    Again,
}

impl Reader {
    /// The next page of stored events up to `until`; `None` at the end.
    async fn stored(&mut self, until: u64) -> Result<Option<VecDeque<Event>>, SubscriptionError> {
        if until <= self.cursor {
            return Ok(None);
        }
        let page = self
            .journal
            .events_after(&self.hub.key, self.cursor, PAGE)
            .await?;
        let mut events = VecDeque::with_capacity(page.len());
        for event in page.into_iter().take_while(|event| event.seq <= Some(until)) {
            self.account(&event);
            events.push_back(event);
        }
        Ok((!events.is_empty()).then_some(events))
    }

    /// Waits for a notice and turns it into what the reader has not seen.
    async fn next(&mut self, receiver: &mut broadcast::Receiver<Notice>) -> Result<Step, SubscriptionError> {
        let event = match receiver.recv().await {
            Ok(Notice::Event(event)) => event,
            Ok(Notice::Broken) => return Err(SubscriptionError::TurnSuspended),
            Err(RecvError::Lagged(_) | RecvError::Closed) => return Ok(Step::Again),
        };
        match event.seq {
            Some(seq) if seq <= self.cursor => Ok(Step::Nothing),
            Some(seq) if seq == self.cursor + 1 => {
                self.account(&event);
                Ok(Step::Event(event))
            }
            Some(seq) => {
                let mut events = VecDeque::new();
                while let Some(mut page) = self.stored(seq).await? {
                    events.append(&mut page);
                }
                Ok(Step::Stored(events))
            }
            None => Ok(match self.piece(&event) {
                Piece::New => Step::Event(event),
                Piece::Seen => Step::Nothing,
                Piece::Gap => Step::Again,
            }),
        }
    }

    /// Remembers what was handed out.
    fn account(&mut self, event: &Event) {
        self.cursor = self.cursor.max(event.seq.unwrap_or(0));
        if ends_attempt(&event.kind) {
            let attempt = event.data.get("attempt").and_then(serde_json::Value::as_u64);
            let turn = event.turn.clone().unwrap_or_default();
            self.shown = None;
            // The end of a turn ends whatever attempt it had.
            self.ended = Some((
                turn,
                attempt
                    .and_then(|number| u32::try_from(number).ok())
                    .unwrap_or(u32::MAX),
            ));
        }
    }

    fn has_ended(&self, turn: &str, attempt: u32) -> bool {
        self.ended
            .as_ref()
            .is_some_and(|(ended, last)| ended == turn && attempt <= *last)
    }

    /// The part of a live attempt's text that the reader does not have, as one delta.
    fn catch_up(&mut self, live: &LiveAttempt) -> Option<Event> {
        if self.has_ended(&live.turn, live.attempt) {
            return None;
        }
        let known = match &self.shown {
            Some((turn, attempt, length)) if *turn == live.turn && *attempt == live.attempt => *length,
            _ => 0,
        };
        let text = live.text.get(known..).filter(|text| !text.is_empty())?;
        self.shown = Some((live.turn.clone(), live.attempt, live.text.len()));
        let payload = Payload::ModelDelta(ModelDelta {
            attempt: live.attempt,
            offset: known as u64,
            text: text.to_owned(),
        });
        Some(Event::new(&self.hub.key.session, &live.turn, live.time, &payload))
    }

    fn piece(&mut self, event: &Event) -> Piece {
        // Read in place: this is done for every piece and every reader.
        let number = |field: &str| event.data.get(field).and_then(serde_json::Value::as_u64);
        let text = event.data.get("text").and_then(serde_json::Value::as_str);
        let (Some(attempt), Some(offset), Some(text)) = (number("attempt"), number("offset"), text) else {
            return Piece::Seen;
        };
        let (attempt, start) = (attempt as u32, offset as usize);
        let end = start + text.len();
        let turn = event.turn.as_deref().unwrap_or_default();
        if self.has_ended(turn, attempt) {
            return Piece::Seen;
        }
        let known = match &self.shown {
            Some((shown, of, length)) if shown == turn && *of == attempt => *length,
            _ => 0,
        };
        if end <= known {
            return Piece::Seen;
        }
        // Pieces are handed out whole and a snapshot is taken between two of them, so a piece is never half
        // known.
        if start != known {
            return Piece::Gap;
        }
        match &mut self.shown {
            Some((shown, of, length)) if shown == turn && *of == attempt => *length = end,
            shown => *shown = Some((turn.to_owned(), attempt, end)),
        }
        Piece::New
    }
}

enum Piece {
    New,
    Seen,
    Gap,
}
