//! What every wire format's reader of answers can do, so that one transport reads them all.

use mainstay_telemetry::random::Random;
use serde_json::Value;

use super::tool_calls::TooMuch;
use crate::event::ModelEvent;

/// What one event of a stream brought.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Progress {
    /// What the consumer gets.
    pub(crate) events: Vec<ModelEvent>,
    /// Whether the answer came forward; events that only keep the connection busy do not (OM-371).
    pub(crate) token: bool,
    /// The protocol's last event: nothing follows it.
    pub(crate) done: bool,
}

/// Why an event could not be read. The stream ends with it.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum ReadError {
    /// Not what the protocol says.
    #[error("{0}")]
    Unreadable(String),
    /// More than is kept of one answer.
    #[error(transparent)]
    TooMuch(#[from] TooMuch),
}

impl ReadError {
    pub(crate) fn unreadable(what: &str, error: &serde_json::Error) -> Self {
        Self::Unreadable(format!("{what}: {error}"))
    }
}

/// What the bytes of a stream amount to once they have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The answer is whole.
    Complete,
    /// A part of an answer: nothing of it may be acted upon.
    Cut,
    /// No piece of an answer: whatever was sent, it was not in this format.
    Nothing,
}

/// Turns the events of one streamed answer, or one plain answer, into [`ModelEvent`]s.
///
/// Errors that a server reports inside a stream never get here: the transport looks for them first.
pub(crate) trait Reader: Send {
    /// Takes the data of the next event. `name` is its `event` field, empty where there is none.
    ///
    /// # Errors
    /// [`ReadError`].
    fn event(&mut self, name: &str, data: Value) -> Result<Progress, ReadError>;

    /// Takes a whole answer that was not streamed.
    ///
    /// # Errors
    /// [`ReadError`], also for JSON that is no answer of this format.
    fn plain(&mut self, body: Value) -> Result<Vec<ModelEvent>, ReadError>;

    /// Whether the provider has said why the answer ended. What may still come is token counts.
    fn is_complete(&self) -> bool;

    /// What was read so far, if nothing follows it. `marked` says that the stream ended with
    /// `[DONE]`, which ends an answer only where the format has that mark (D10).
    fn ending(&self, marked: bool) -> Ending;

    /// The last events. Called once, so that the turn ends once.
    fn finish(self: Box<Self>, random: &dyn Random) -> Vec<ModelEvent>;
}
