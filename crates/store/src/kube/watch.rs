//! Watching: a cursor over the shared window. Requirement KA-026.
//!
//! A watcher owns a revision and a filter, nothing else: no queue that fills up while it is slow. The window's own
//! limits decide how far it may fall behind; beyond that it is told once that it lags, and the client resumes or lists.

use std::sync::Arc;

use tokio::sync::watch as notice;

use super::object::Event;
use super::state::Shared;

/// The watch cannot go on: the events after its position left the window, or the store was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the watch fell behind: the oldest revision to watch from is {oldest}")]
pub struct Lagged {
    /// The oldest revision from which a new watch works.
    pub oldest: u64,
}

/// What a watch brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchItem {
    /// A change that matches.
    Event(Arc<Event>),
    /// Nothing up to this revision matches any more: what a bookmark may carry.
    Progress(u64),
}

/// A running watch. Dropping it costs nothing.
#[derive(Debug)]
pub struct Watch {
    shared: Arc<Shared>,
    notice: notice::Receiver<()>,
    resource: Arc<str>,
    namespace: Option<Arc<str>>,
    // Everything up to here was delivered or does not match.
    cursor: u64,
}

impl Watch {
    pub(super) fn new(
        shared: Arc<Shared>,
        notice: notice::Receiver<()>,
        resource: Arc<str>,
        namespace: Option<&str>,
        after: u64,
    ) -> Self {
        Self {
            shared,
            notice,
            resource,
            namespace: namespace.map(Into::into),
            cursor: after,
        }
    }

    /// The revision up to which everything was delivered.
    pub fn position(&self) -> u64 {
        self.cursor
    }

    /// The next matching event in order, or progress when others' changes were passed over. Waits if there is neither, and
    /// then for a change of this resource: what happens to others ends no wait. May be dropped while waiting without losing
    /// anything.
    pub async fn next(&mut self) -> Result<WatchItem, Lagged> {
        loop {
            // Marked as seen before looking, so a commit between looking and waiting wakes this up.
            self.notice.borrow_and_update();
            if let Some(item) = self.look()? {
                return Ok(item);
            }
            if self.notice.changed().await.is_err() {
                return Err(self.ended());
            }
        }
    }

    /// The next item if there is one now.
    pub fn try_next(&mut self) -> Result<Option<WatchItem>, Lagged> {
        self.look()
    }

    fn look(&mut self) -> Result<Option<WatchItem>, Lagged> {
        let shared = Arc::clone(&self.shared);
        let state = shared.read();
        let oldest = state.window().start();
        let topic = state.topic(&self.resource);
        // Others' events that left the window are no loss.
        if topic.is_some_and(|topic| topic.was_forgotten_after(self.cursor)) {
            return Err(Lagged { oldest });
        }
        if topic.is_some_and(|topic| topic.has_event_after(self.cursor)) {
            for event in state.window().after(self.cursor.max(oldest)) {
                let matches = event.key.resource == self.resource
                    && self
                        .namespace
                        .as_ref()
                        .is_none_or(|namespace| *namespace == event.key.namespace);
                if matches {
                    self.cursor = event.revision;
                    return Ok(Some(WatchItem::Event(Arc::clone(event))));
                }
            }
        }
        if state.revision() > self.cursor {
            self.cursor = state.revision();
            return Ok(Some(WatchItem::Progress(self.cursor)));
        }
        if state.is_closed() {
            return Err(Lagged { oldest });
        }
        Ok(None)
    }

    fn ended(&self) -> Lagged {
        Lagged {
            oldest: self.shared.read().window().start(),
        }
    }
}
