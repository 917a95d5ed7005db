//! Which Events were written lately, so that the same said again is counted and not written anew.

use std::collections::HashMap;

/// Events that are remembered at most; the one that was said longest ago is forgotten first.
const MOST: usize = 1024;

/// What makes two Events the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// Of the object that it is about.
    pub(super) uid: String,
    pub(super) type_: &'static str,
    pub(super) reason: String,
    pub(super) message: String,
}

/// An Event in the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) name: String,
    /// How often it was said.
    pub(super) count: i32,
}

#[derive(Debug, Default)]
pub(super) struct Known {
    events: HashMap<Key, (Written, u64)>,
    /// Rises with each use: the least one was used longest ago.
    uses: u64,
}

impl Known {
    /// The Event that says this, with the count that it gets now.
    pub(super) fn again(&mut self, key: &Key) -> Option<Written> {
        let (written, used) = self.events.get_mut(key)?;
        self.uses += 1;
        *used = self.uses;
        written.count = written.count.saturating_add(1);
        Some(written.clone())
    }

    /// Remembers an Event that was said for the first time.
    pub(super) fn insert(&mut self, key: Key, name: String) {
        self.uses += 1;
        self.events.insert(key, (Written { name, count: 1 }, self.uses));
        if self.events.len() > MOST {
            let oldest = self.events.iter().min_by_key(|(_, (_, used))| *used);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.events.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(message: &str) -> Key {
        Key {
            uid: "u".to_owned(),
            type_: "Warning",
            reason: "FailedCreate".to_owned(),
            message: message.to_owned(),
        }
    }

    #[test]
    fn the_same_said_again_is_counted_and_what_was_said_longest_ago_is_forgotten() {
        let mut known = Known::default();
        assert_eq!(known.again(&key("first")), None);
        known.insert(key("first"), "event".to_owned());
        for count in 2..5 {
            let name = "event".to_owned();
            assert_eq!(known.again(&key("first")), Some(Written { name, count }));
        }
        for number in 1..MOST {
            known.insert(key(&number.to_string()), String::new());
        }
        assert!(known.again(&key("first")).is_some(), "all of them still fit");
        known.insert(key("one more"), String::new());
        assert_eq!(known.events.len(), MOST);
        assert!(known.again(&key("first")).is_some(), "used lately");
        assert_eq!(known.again(&key("1")), None);
    }
}
