//! Which process may go on with a session.
//!
//! In one process the session's [`Hubs`](crate::Hubs) say so. Where agents are processes of their own, an old and a new one
//! live side by side while an agent's Pod is replaced: a turn runs only under a claim, which one process has at a time.

use std::any::Any;
use std::fmt::{self, Debug};

use async_trait::async_trait;

use crate::journal::SessionKey;

/// Gives claims.
#[async_trait]
pub trait SessionClaims: Debug + Send + Sync {
    /// Waits until no other process is busy in the session, and keeps others out until what it returns is dropped. A
    /// process that has a claim gets further ones at once.
    ///
    /// # Errors
    ///
    /// [`ClaimError`].
    async fn claim(&self, key: &SessionKey) -> Result<Claimed, ClaimError>;
}

/// A session that nobody else goes on with.
pub struct Claimed {
    /// Number of the newest event that is stored; 0 where only this process stores any, which knows it.
    pub last_seq: u64,
    /// Turns that another process may have left open, in order.
    pub open_turns: Vec<String>,
    /// What keeps others out.
    held: Option<Box<dyn Any + Send + Sync>>,
}

impl Claimed {
    /// A claim that ends when `held` is dropped.
    pub fn new(last_seq: u64, open_turns: Vec<String>, held: Box<dyn Any + Send + Sync>) -> Self {
        Self {
            last_seq,
            open_turns,
            held: Some(held),
        }
    }
}

impl Debug for Claimed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Claimed")
            .field("last_seq", &self.last_seq)
            .field("open_turns", &self.open_turns)
            .field("held", &self.held.is_some())
            .finish()
    }
}

/// Why there is no claim. May be retried.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Another process was busy in it for as long as is waited.
    #[error("session `{session}` is still busy in another process")]
    Elsewhere {
        /// The session.
        session: String,
    },
    /// Nobody could say.
    #[error("it cannot be found out who goes on with the session")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// For the only process: there is nobody to keep out.
#[derive(Debug, Clone, Copy, Default)]
pub struct OnlyProcess;

#[async_trait]
impl SessionClaims for OnlyProcess {
    async fn claim(&self, _: &SessionKey) -> Result<Claimed, ClaimError> {
        Ok(Claimed {
            last_seq: 0,
            open_turns: Vec::new(),
            held: None,
        })
    }
}
