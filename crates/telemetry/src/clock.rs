//! Wall-clock time as a value that is handed in.

use std::{
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;

/// Tells the wall-clock time. Waiting is done with tokio's timers, which tests pause.
pub trait Clock: Debug + Send + Sync {
    /// The present moment.
    fn now(&self) -> Timestamp;
}

/// A clock that several parts share.
pub type SharedClock = Arc<dyn Clock>;

/// The operating system's clock.
pub fn system() -> SharedClock {
    Arc::new(SystemClock)
}

#[derive(Debug)]
struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the machine's clock"
    )]
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A clock that stands still until it is moved; for tests.
#[derive(Debug)]
pub struct ManualClock {
    // A std mutex: held for one assignment, never across an await.
    now: Mutex<Timestamp>,
}

impl ManualClock {
    /// A clock that shows `now`.
    pub fn at(now: Timestamp) -> Arc<Self> {
        Arc::new(Self { now: Mutex::new(now) })
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        *now = now.saturating_add(by).unwrap_or(Timestamp::MAX);
    }

    /// Sets the clock, backwards too: a machine's clock may jump.
    pub fn set(&self, to: Timestamp) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = to;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let clock = ManualClock::at(Timestamp::UNIX_EPOCH);
        clock.advance(Duration::from_secs(5));
        assert_eq!(clock.now().as_second(), 5);
        clock.set(Timestamp::UNIX_EPOCH);
        assert_eq!(clock.now(), Timestamp::UNIX_EPOCH);
    }
}
