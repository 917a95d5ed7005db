//! One session as a facade uses it.

use std::sync::Arc;

use futures::Stream;
use serde_json::{Map, Value};
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::claims::ClaimError;
use crate::engine::Shared;
use crate::event::{Caller, Event};
use crate::hub::{self, ClientAttachment, ClientReply, FirstCopy, Hub, SubscriptionError};
use crate::journal::{JournalError, collect_events};
use crate::pack_source::LoadedPack;
use crate::turn;

/// Why a session cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// It does not exist, or its last activity is too long ago (OM-528, OM-587). Not to be retried.
    #[error("session {session} has expired")]
    Expired {
        /// The session.
        session: Uuid,
    },
    /// The store cannot tell; never reported as expiry (OM-528). May be retried.
    #[error("session storage is unavailable")]
    Unavailable(#[source] JournalError),
    /// Another Pod of the agent, which is being replaced, is still busy in it. To be retried.
    #[error("session {session} is still busy in another Pod of the agent")]
    Elsewhere {
        /// The session.
        session: String,
    },
    /// The agent is about to end.
    #[error("the agent is draining")]
    Draining,
}

impl From<ClaimError> for SessionError {
    fn from(error: ClaimError) -> Self {
        match error {
            ClaimError::Elsewhere { session } => Self::Elsewhere { session },
            ClaimError::Unavailable(cause) => Self::Unavailable(JournalError::Unavailable(cause)),
        }
    }
}

/// Why a message was not accepted. Nothing of it was stored.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// A turn runs and another message waits (contract 9). To be retried when one has ended.
    #[error("the session is busy: a turn is running and another message is waiting")]
    Busy,
    /// A message with this client key was accepted before.
    #[error("the message was accepted before")]
    Duplicate {
        /// The turn it began.
        turn: String,
    },
    /// A message with this client key is waiting to be stored.
    #[error("the message was sent before and is waiting")]
    Waiting(FirstCopy),
    /// The message or its client key is too long.
    #[error("{what} is longer than {limit} bytes")]
    TooLong {
        /// Which part.
        what: &'static str,
        /// The limit in bytes.
        limit: usize,
    },
    /// Another Pod of the agent, which is being replaced, is still busy in the session. To be retried.
    #[error("the session is still busy in another Pod of the agent")]
    Elsewhere,
    /// The store did not take it.
    #[error("the message could not be stored")]
    Unavailable(#[source] JournalError),
    /// The agent is about to end, or ended before the message's turn came.
    #[error("the agent is draining")]
    Draining,
}

impl From<ClaimError> for SendError {
    fn from(error: ClaimError) -> Self {
        match error {
            ClaimError::Elsewhere { .. } => Self::Elsewhere,
            ClaimError::Unavailable(cause) => Self::Unavailable(JournalError::Unavailable(cause)),
        }
    }
}

impl From<JournalError> for SendError {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::Duplicate { turn, .. } => Self::Duplicate { turn },
            other => Self::Unavailable(other),
        }
    }
}

/// What a user sends.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct IncomingMessage {
    /// The text; never rendered as a template (OM-563).
    pub content: String,
    /// Key by which a repeated message is recognised.
    pub client_key: Option<String>,
    /// Values for the prompt's variables (OM-562).
    pub metadata: Map<String, Value>,
    /// Who sent it.
    pub caller: Caller,
    /// Whether the sender's connection can run client tools (OM-435).
    pub client_tools: bool,
}

/// A message that was admitted.
#[derive(Debug)]
pub struct Ticket {
    /// The turn that answers it.
    pub turn: String,
    /// Whether another turn runs first.
    pub queued: bool,
    started: oneshot::Receiver<Result<(), SendError>>,
}

impl Ticket {
    /// Waits until the message is stored. For a queued message that is when the turn before it has ended;
    /// until then it is not acknowledged.
    ///
    /// # Errors
    ///
    /// [`SendError`]; the turn does not run then.
    pub async fn started(&mut self) -> Result<(), SendError> {
        (&mut self.started).await.unwrap_or(Err(SendError::Draining))
    }
}

/// A session. Clones are the same session; dropping all of them does not stop its turn.
#[derive(Debug, Clone)]
pub struct SessionHandle {
    shared: Arc<Shared>,
    hub: Arc<Hub>,
    pack: Arc<LoadedPack>,
    id: Uuid,
    resumed: bool,
}

impl SessionHandle {
    pub(crate) fn new(
        shared: Arc<Shared>,
        hub: Arc<Hub>,
        pack: Arc<LoadedPack>,
        id: Uuid,
        resumed: bool,
    ) -> Self {
        Self {
            shared,
            hub,
            pack,
            id,
            resumed,
        }
    }

    /// The session's id.
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// Whether it existed before it was opened.
    pub fn resumed(&self) -> bool {
        self.resumed
    }

    /// The turn that runs now.
    pub fn running_turn(&self) -> Option<String> {
        self.hub.running_turn()
    }

    /// Number of the newest event that was shown.
    pub fn last_seq(&self) -> u64 {
        self.hub.last_seq()
    }

    /// Admits a message. Its turn goes on whatever becomes of the caller (contract 9).
    ///
    /// # Errors
    ///
    /// [`SendError`], as far as it can be told at once; the rest comes from [`Ticket::started`].
    pub fn send(&self, message: IncomingMessage) -> Result<Ticket, SendError> {
        let limits = &self.shared.options.limits;
        if self.shared.is_draining() {
            return Err(SendError::Draining);
        }
        if message.content.len() > limits.message_bytes {
            return Err(SendError::TooLong {
                what: "the message",
                limit: limits.message_bytes,
            });
        }
        if message
            .client_key
            .as_ref()
            .is_some_and(|key| key.len() > limits.client_key_bytes)
        {
            return Err(SendError::TooLong {
                what: "the client key",
                limit: limits.client_key_bytes,
            });
        }
        let reservation = match &message.client_key {
            Some(key) => Some(self.hub.reserve_key(key).map_err(SendError::Waiting)?),
            None => None,
        };
        // Behind the key: a message that is sent again while its first waits is not one too many.
        let permit = Arc::clone(&self.hub.admission)
            .try_acquire_owned()
            .map_err(|_| SendError::Busy)?;
        let turn = self.shared.options.random.uuid().to_string();
        let queued = self.hub.turn.try_lock().is_err();
        let (sender, started) = oneshot::channel();
        let future = turn::begin(turn::Beginning {
            shared: Arc::clone(&self.shared),
            hub: Arc::clone(&self.hub),
            pack: Arc::clone(&self.pack),
            turn: turn.clone(),
            message,
            started: sender,
            reservation,
            permit,
        });
        self.shared.spawn("turn", future);
        Ok(Ticket {
            turn,
            queued,
            started,
        })
    }

    /// The session's events: those after `after`, then the live attempt's text so far, then what comes.
    /// Without `after` it begins with the live attempt. No stored event is lost or repeated.
    pub fn subscribe(
        &self,
        after: Option<u64>,
    ) -> impl Stream<Item = Result<Arc<Event>, SubscriptionError>> + Send + use<> {
        hub::subscribe(
            Arc::clone(&self.hub),
            Arc::clone(&self.shared.options.journal),
            after,
        )
    }

    /// The stored events of one turn, in order.
    ///
    /// # Errors
    ///
    /// When the store cannot be read.
    pub async fn events_of(&self, turn: &str) -> Result<Vec<Event>, JournalError> {
        let journal = self.shared.options.journal.as_ref();
        collect_events(journal, &self.hub.key, |event| {
            event.turn.as_deref() == Some(turn)
        })
        .await
    }

    /// Cancels the turn that runs; `false` when none does. A message that waits is not touched.
    pub fn cancel(&self) -> bool {
        self.hub.cancel()
    }

    /// Registers the caller as able to run client tools, until the guard is dropped.
    pub fn attach_client(&self) -> ClientAttachment {
        self.hub.attach_client()
    }

    /// Hands over what a client says about a call; `false` when no such call waits (any more).
    pub fn client_reply(&self, call_id: &str, reply: ClientReply) -> bool {
        self.hub.reply(call_id, reply)
    }
}
