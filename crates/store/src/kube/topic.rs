//! Who waits for which resource. Requirement KA-026.
//!
//! Every watcher looks at the one window, but a commit wakes those alone whose resource it touched: a server has dozens of
//! watches of its own, and most commits concern two of them. What else was written a watcher learns when it looks the next
//! time.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::watch as notice;

use super::object::Event;

/// What watchers of one resource need to know.
#[derive(Debug)]
pub(super) struct Topic {
    /// The revision of its newest event since the store was opened; 0 without one.
    newest: u64,
    /// The newest revision of its events that left the window since the store was opened; 0 without one.
    forgotten: u64,
    wake: notice::Sender<()>,
}

impl Topic {
    fn new() -> Self {
        Self {
            newest: 0,
            forgotten: 0,
            wake: notice::Sender::new(()),
        }
    }

    /// Whether an event above `cursor` left the window, which whoever stands there will never see.
    pub(super) fn was_forgotten_after(&self, cursor: u64) -> bool {
        self.forgotten > cursor
    }

    /// Whether there was an event above `cursor`.
    pub(super) fn has_event_after(&self, cursor: u64) -> bool {
        self.newest > cursor
    }
}

/// The resources that were watched or written.
#[derive(Debug, Default)]
pub(super) struct Topics(HashMap<Arc<str>, Topic>);

/// Whom a commit concerns. Woken when the lock on the state is gone, so that nobody runs into it.
#[derive(Debug, Default)]
#[must_use]
pub(super) struct Wake(Vec<notice::Sender<()>>);

impl Wake {
    pub(super) fn everybody(self) {
        for topic in self.0 {
            topic.send_modify(|()| {});
        }
    }
}

impl Topics {
    pub(super) fn get(&self, resource: &str) -> Option<&Topic> {
        self.0.get(resource)
    }

    pub(super) fn subscribe(&mut self, resource: &Arc<str>) -> notice::Receiver<()> {
        self.topic(resource).wake.subscribe()
    }

    pub(super) fn published(&mut self, event: &Event) {
        self.topic(&event.key.resource).newest = event.revision;
    }

    pub(super) fn forgotten(&mut self, event: &Event) {
        self.topic(&event.key.resource).forgotten = event.revision;
    }

    /// The watchers of the resources whose newest event is above `revision`.
    pub(super) fn changed_since(&self, revision: u64) -> Wake {
        self.watched(|topic| topic.has_event_after(revision))
    }

    /// All watchers.
    pub(super) fn all(&self) -> Wake {
        self.watched(|_| true)
    }

    fn watched(&self, concerned: impl Fn(&Topic) -> bool) -> Wake {
        let concerned = self
            .0
            .values()
            .filter(|topic| topic.wake.receiver_count() > 0 && concerned(topic));
        Wake(concerned.map(|topic| topic.wake.clone()).collect())
    }

    fn topic(&mut self, resource: &Arc<str>) -> &mut Topic {
        self.0.entry(Arc::clone(resource)).or_insert_with(Topic::new)
    }
}
