//! Growing gaps between the retries of one object (OM-246).

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, PoisonError},
    time::Duration,
};

const FIRST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_secs(1000);

/// Failures in a row, by object.
#[derive(Debug)]
pub(crate) struct Backoff<Key> {
    failures: Mutex<HashMap<Key, u32>>,
}

impl<Key: Eq + Hash> Backoff<Key> {
    pub(crate) fn new() -> Self {
        Self {
            failures: Mutex::new(HashMap::new()),
        }
    }

    /// Counts a failure and says how long to wait: 5 ms, then twice as long each time, at most 1000 s.
    pub(crate) fn next(&self, key: Key) -> Duration {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let count = failures.entry(key).or_insert(0);
        let delay = FIRST.saturating_mul(1u32.checked_shl(*count).unwrap_or(u32::MAX));
        *count = count.saturating_add(1).min(30);
        delay.min(LONGEST)
    }

    /// Forgets an object's failures, after a success or when it is gone.
    pub(crate) fn reset(&self, key: &Key) {
        self.failures
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gaps_double_up_to_their_cap_and_start_over_after_a_success_om_246() {
        let backoff = Backoff::new();
        let delays: Vec<u128> = (0..20).map(|_| backoff.next("a").as_millis()).collect();
        assert_eq!(delays[..4], [5, 10, 20, 40]);
        assert_eq!(delays[17], 655_360);
        assert_eq!(delays[18..], [1_000_000, 1_000_000]);
        assert_eq!(
            backoff.next("b").as_millis(),
            5,
            "another object has its own count"
        );
        backoff.reset(&"a");
        assert_eq!(backoff.next("a").as_millis(), 5);
        for _ in 0..100 {
            backoff.next("a");
        }
        assert_eq!(backoff.next("a"), LONGEST);
    }
}
