//! Growing waits between the failing rounds of one object.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::controller::{Action, Error};
use kube::runtime::reflector::{Lookup, ObjectRef};

/// The first wait; the others double. A race, which is all that fails most often, costs no more than this.
const FIRST: Duration = Duration::from_millis(50);
/// The longest wait of a controller: what refused it may be there again, and nothing says so.
const LONGEST: Duration = Duration::from_secs(30);

type Key = (Option<String>, String);

/// Failures in a row, by namespace and name.
#[derive(Debug)]
pub(crate) struct Waits {
    longest: Duration,
    // A std mutex: never held across an await.
    failures: Mutex<HashMap<Key, u32>>,
}

impl Default for Waits {
    fn default() -> Self {
        Self::up_to(LONGEST)
    }
}

impl Waits {
    pub(crate) fn up_to(longest: Duration) -> Self {
        Self {
            longest,
            failures: Mutex::default(),
        }
    }

    /// Counts a failure and says how long to wait.
    pub(crate) fn after_failure<K: ResourceExt>(&self, object: &K) -> Duration {
        let key = (object.namespace(), object.name_any());
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let count = failures.entry(key).or_insert(0);
        let wait = FIRST.saturating_mul(1_u32.checked_shl(*count).unwrap_or(u32::MAX));
        *count = count.saturating_add(1).min(u32::BITS);
        wait.min(self.longest)
    }

    /// Forgets the failures of an object whose round succeeded, or that is gone.
    pub(crate) fn note<K, E, Q>(&self, outcome: &Result<(ObjectRef<K>, Action), Error<E, Q>>)
    where
        K: Lookup,
        E: std::error::Error + 'static,
        Q: std::error::Error + 'static,
    {
        let key = match outcome {
            Ok((object, _)) => (object.namespace.clone(), object.name.clone()),
            Err(Error::ObjectNotFound(object)) => (object.namespace.clone(), object.name.clone()),
            Err(_) => return,
        };
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.remove(&key);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;

    fn pod(name: &str) -> Pod {
        serde_json::from_value(serde_json::json!({ "metadata": { "name": name, "namespace": "n" } })).unwrap()
    }

    #[test]
    fn the_waits_of_an_object_double_up_to_the_longest_and_start_over_after_a_success_or_its_end() {
        let waits = Waits::up_to(Duration::from_secs(5));
        let wait = |name: &str| waits.after_failure(&pod(name)).as_millis();
        let grown: Vec<_> = (0..9).map(|_| wait("a")).collect();
        assert_eq!(grown, [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        for _ in 0..100 {
            assert_eq!(wait("a"), 5000);
        }
        assert_eq!(wait("b"), 50, "another object");
        type Outcome = Result<(ObjectRef<Pod>, Action), Error<std::io::Error, std::io::Error>>;
        let done: Outcome = Ok((ObjectRef::from_obj(&pod("a")), Action::await_change()));
        waits.note(&done);
        assert_eq!(wait("a"), 50);
        let gone: Outcome = Err(Error::ObjectNotFound(Box::new(
            ObjectRef::from_obj(&pod("b")).erase(),
        )));
        waits.note(&gone);
        assert_eq!(wait("b"), 50);
    }
}
