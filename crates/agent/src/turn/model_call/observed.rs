//! What a call of the model tells of itself before its answer.

use std::sync::{Mutex, MutexGuard, PoisonError};

use mainstay_llm::{CallEvent, CallObserver};
use tokio::sync::Notify;

use super::super::driver::milliseconds;
use crate::event::{ModelCooled, ModelFailedOver, ModelWaiting, Payload};
use crate::model_entry::ModelEntry;

/// Keeps what a turn records of a call until the turn takes it.
#[derive(Debug, Default)]
pub(super) struct Observed {
    // A std mutex: held for one push. A call has a handful of these for each of its providers.
    parts: Mutex<Parts>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Parts {
    happened: Vec<CallEvent>,
    /// The provider entry that answers, and the model that it was asked for.
    answering: Option<(String, String)>,
}

/// Who answers a call.
#[derive(Debug)]
pub(super) struct Answering {
    /// The provider entry, for prices.
    pub(super) entry: ModelEntry,
    /// Its name as the model layer knows it: what it signs goes back to it alone.
    pub(super) provider: String,
    /// The model that was asked for.
    pub(super) model: String,
}

impl Observed {
    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is something to take.
    pub(super) async fn told(&self) {
        self.news.notified().await;
    }

    /// What happened since the last time, in order.
    pub(super) fn take(&self) -> Vec<CallEvent> {
        std::mem::take(&mut self.parts().happened)
    }

    /// The provider entry that answers and the model it was asked for, once they are known.
    pub(super) fn answering(&self) -> Option<(String, String)> {
        self.parts().answering.clone()
    }
}

impl CallObserver for Observed {
    fn observe(&self, event: CallEvent) {
        match event {
            CallEvent::Answering { provider, model, .. } => {
                self.parts().answering = Some((provider, model));
            }
            other => {
                self.parts().happened.push(other);
                self.news.notify_one();
            }
        }
    }
}

/// What a turn records of something that happened to its call.
pub(super) fn payload(attempt: u32, event: CallEvent) -> Option<Payload> {
    Some(match event {
        CallEvent::Retrying {
            provider,
            delay,
            error,
            ..
        } => Payload::ModelWaiting(ModelWaiting {
            attempt,
            provider,
            reason: error.reason().to_owned(),
            message: error.message,
            status: error.status,
            delay_ms: Some(milliseconds(delay)),
        }),
        CallEvent::Waiting { provider, reason } => Payload::ModelWaiting(ModelWaiting {
            attempt,
            provider,
            reason: "ModelProviderOnTrial".to_owned(),
            message: reason,
            status: None,
            delay_ms: None,
        }),
        CallEvent::Cooled { provider, cooldown } => Payload::ModelCooled(ModelCooled {
            attempt,
            provider,
            until: cooldown.until,
            failures: cooldown.failures,
            reason: cooldown.reason,
            message: cooldown.message,
            status: cooldown.status,
        }),
        CallEvent::FailedOver { from, to, error } => Payload::ModelFailedOver(ModelFailedOver {
            attempt,
            from,
            to,
            reason: error.reason().to_owned(),
            message: error.message,
            status: error.status,
        }),
        // Others may come; the log and the figures have them.
        _ => return None,
    })
}

impl Answering {
    /// An entry that is asked for its own model.
    pub(super) fn of(entry: &ModelEntry) -> Self {
        Self {
            entry: entry.clone(),
            provider: entry.name.clone(),
            model: entry.model_name.clone(),
        }
    }
}
