//! What a call tells of itself before its answer begins, for whoever records it.

use std::time::Duration;

use crate::{cooldown::Cooldown, error::ModelError};

/// Something that happened to one call. Nothing of it is an error of the call yet.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum CallEvent {
    /// An attempt failed and is made again after `delay` (OR-211).
    Retrying {
        /// The provider entry.
        provider: String,
        /// How many attempts were made.
        attempts: u32,
        /// Wait before the next one.
        delay: Duration,
        /// Why it failed.
        error: ModelError,
    },
    /// Another call is finding out whether the provider answers; this one waits for what it finds.
    Waiting {
        /// The provider entry.
        provider: String,
        /// Why, for people.
        reason: String,
    },
    /// The provider is left alone for a while: the `model.cooled` event.
    Cooled {
        /// The provider entry.
        provider: String,
        /// Until when, and why.
        cooldown: Cooldown,
    },
    /// The call goes on with another provider (OR-220, OR-221).
    FailedOver {
        /// The provider entry that failed or cools down.
        from: String,
        /// The one that is tried next.
        to: String,
        /// Why.
        error: ModelError,
    },
    /// The answer begins.
    Answering {
        /// The provider entry that answers; prices and records go by it.
        provider: String,
        /// The model that was asked for; empty means the provider's configured one.
        model: String,
        /// Attempts at this provider.
        attempts: u32,
    },
}

/// Sees the events of one call. Called on the call's own task, so it must not block.
pub trait CallObserver: Send + Sync {
    /// Takes the next event.
    fn observe(&self, event: CallEvent);
}

/// Looks away.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unobserved;

impl CallObserver for Unobserved {
    fn observe(&self, _event: CallEvent) {}
}
