//! Lets a failing backend rest (OM-373).

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Failures in a row that open the circuit.
const FAILURES: u32 = 5;

/// How long it stays open.
const REST: Duration = Duration::from_secs(30);

/// One tool's circuit.
#[derive(Debug)]
pub(crate) struct Breaker {
    // A std mutex: held to look and to change, never across an await.
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// Calls go through; so many failed in a row.
    Closed { failures: u32 },
    /// Calls are refused until then.
    Open { until: Instant },
    /// One call is on trial; the others are refused until its end.
    Trial,
}

/// How a call ended, as far as the circuit cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The backend works, also when it refused the call.
    Works,
    /// The backend does not work.
    Fails,
    /// The call says nothing about the backend.
    Unknown,
}

/// The right to make one call. Dropping it without a verdict counts as [`Verdict::Unknown`], so that
/// a cancelled trial does not keep the circuit shut for ever.
#[derive(Debug)]
pub(crate) struct Permit<'a> {
    breaker: &'a Breaker,
    verdict: Verdict,
}

impl Permit<'_> {
    pub(crate) fn settle(mut self, verdict: Verdict) {
        self.verdict = verdict;
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.breaker.settle(self.verdict);
    }
}

impl Breaker {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(State::Closed { failures: 0 }),
        }
    }

    /// The right to make a call, or how long the backend still rests.
    pub(crate) fn admit(&self) -> Result<Permit<'_>, Duration> {
        let now = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match *state {
            State::Closed { .. } => {}
            State::Open { until } if now >= until => *state = State::Trial,
            State::Open { until } => return Err(until - now),
            State::Trial => return Err(Duration::ZERO),
        }
        drop(state);
        Ok(Permit {
            breaker: self,
            verdict: Verdict::Unknown,
        })
    }

    fn settle(&self, verdict: Verdict) {
        let now = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = match (*state, verdict) {
            (State::Closed { failures }, Verdict::Fails) if failures + 1 >= FAILURES => {
                State::Open { until: now + REST }
            }
            (State::Closed { failures }, Verdict::Fails) => State::Closed {
                failures: failures + 1,
            },
            (State::Trial, Verdict::Fails) => State::Open { until: now + REST },
            // The next call is the trial.
            (State::Trial, Verdict::Unknown) => State::Open { until: now },
            (State::Closed { .. } | State::Trial, Verdict::Works) => State::Closed { failures: 0 },
            // A call that began before the circuit opened.
            (unchanged, _) => unchanged,
        };
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    fn call(breaker: &Breaker, verdict: Verdict) -> bool {
        match breaker.admit() {
            Ok(permit) => {
                permit.settle(verdict);
                true
            }
            Err(_) => false,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn five_failures_open_the_circuit_and_one_trial_closes_it_om_373() {
        let breaker = Breaker::new();
        for _ in 0..FAILURES {
            assert!(call(&breaker, Verdict::Fails));
        }
        assert!(!call(&breaker, Verdict::Works));
        tokio::time::advance(REST).await;
        let trial = breaker.admit().unwrap();
        assert!(breaker.admit().is_err());
        trial.settle(Verdict::Works);
        assert!(call(&breaker, Verdict::Fails));
        assert!(call(&breaker, Verdict::Works));
    }

    #[tokio::test(start_paused = true)]
    async fn a_trial_that_fails_opens_it_again_and_one_that_is_dropped_does_not_block_om_373() {
        let breaker = Breaker::new();
        for _ in 0..FAILURES {
            call(&breaker, Verdict::Fails);
        }
        tokio::time::advance(REST).await;
        assert!(call(&breaker, Verdict::Fails));
        assert!(!call(&breaker, Verdict::Works));
        tokio::time::advance(REST).await;
        drop(breaker.admit().unwrap());
        assert!(call(&breaker, Verdict::Works));
    }

    #[test]
    fn only_failures_in_a_row_count_om_373() {
        let breaker = Breaker::new();
        for _ in 0..10 {
            for _ in 0..FAILURES - 1 {
                assert!(call(&breaker, Verdict::Fails));
            }
            assert!(call(&breaker, Verdict::Works));
        }
    }
}
