//! What a call of the model tells of itself before its answer.

use std::sync::{Mutex, PoisonError};

use mainstay_llm::{CallEvent, CallObserver, Cooldown};

use crate::model_entry::ModelEntry;

/// Keeps what a turn records of a call.
#[derive(Debug, Default)]
pub(super) struct Observed {
    // A std mutex: held for one push. A call has as many of these as it has providers.
    parts: Mutex<Parts>,
}

/// What was kept.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// The provider entries that began to cool down, in order.
    pub(super) cooled: Vec<(String, Cooldown)>,
    /// The provider entry that answers, and the model that it was asked for.
    pub(super) answering: Option<(String, String)>,
}

/// Who answers a call.
#[derive(Debug)]
pub(super) struct Answering {
    /// The provider entry.
    pub(super) entry: ModelEntry,
    /// The model that was asked for.
    pub(super) model: String,
}

impl Observed {
    pub(super) fn into_parts(self) -> Parts {
        self.parts.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallObserver for Observed {
    fn observe(&self, event: CallEvent) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            CallEvent::Cooled { provider, cooldown } => parts.cooled.push((provider, cooldown)),
            CallEvent::Answering { provider, model, .. } => parts.answering = Some((provider, model)),
            _ => {}
        }
    }
}

impl Answering {
    /// An entry that is asked for its own model.
    pub(super) fn of(entry: &ModelEntry) -> Self {
        Self {
            entry: entry.clone(),
            model: entry.model_name.clone(),
        }
    }
}
