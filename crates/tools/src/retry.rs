//! Which attempts are made again, and when (OM-392…OM-398). The kinds of backend differ in what they say about a
//! failed attempt ([`over_http`] for those over HTTP), not in the waits between attempts ([`Attempts`]).

use std::time::Duration;

use mainstay_telemetry::random::Random;

use crate::{
    config::{Backoff, RetryPolicy},
    executor::{CallContext, Failure},
    invocation::FailureReason,
};

/// What a failed attempt says about another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// It would fail the same way, or must not be made.
    Never,
    /// It may succeed, after this wait at the earliest; the back-off's own wait applies where it is longer.
    After(Duration),
}

/// A failed attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) failure: Failure,
    pub(crate) again: Again,
}

impl Failed {
    /// An attempt that is not made again.
    pub(crate) fn never(reason: FailureReason, message: impl ToString) -> Self {
        Self {
            failure: Failure {
                reason,
                message: message.to_string(),
            },
            again: Again::Never,
        }
    }
}

/// How an attempt over HTTP failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HttpFault {
    /// No status arrived.
    Network,
    /// The backend answered with a status.
    Status {
        code: u16,
        retry_after: Option<Duration>,
    },
}

/// What `policy` says about another attempt after `fault` (OM-393, OM-394).
pub(crate) fn over_http(policy: Option<&RetryPolicy>, fault: HttpFault) -> Again {
    let Some(policy) = policy else {
        return Again::Never;
    };
    match fault {
        HttpFault::Network if policy.retry_on_network_error => Again::After(Duration::ZERO),
        HttpFault::Status { code, retry_after } if policy.retry_on.contains(&code) => {
            let asked = retry_after.filter(|_| policy.respect_retry_after);
            Again::After(asked.unwrap_or_default())
        }
        HttpFault::Network | HttpFault::Status { .. } => Again::Never,
    }
}

/// The attempts of one call.
pub(crate) struct Attempts<'a> {
    // `None`: one attempt, whatever the failure (OM-398).
    backoff: Option<Backoff>,
    context: &'a CallContext<'a>,
    failed: u32,
}

impl<'a> Attempts<'a> {
    pub(crate) fn new(backoff: Option<Backoff>, context: &'a CallContext<'a>) -> Self {
        Self {
            backoff,
            context,
            failed: 0,
        }
    }

    /// Returns when the next attempt is due.
    ///
    /// # Errors
    /// There is none: why the call failed (OM-397), or that it was cancelled during the wait (OM-392).
    pub(crate) async fn another(&mut self, failed: Failed) -> Result<(), Failure> {
        self.failed += 1;
        let Some(wait) = wait(
            self.backoff.as_ref(),
            self.failed,
            failed.again,
            &**self.context.random,
        ) else {
            return Err(with_attempts(failed.failure, self.failed));
        };
        tracing::debug!(
            attempt = self.failed,
            reason = ?failed.failure.reason,
            wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            "tool call failed, trying again"
        );
        let slept = tokio::time::sleep(wait);
        match self.context.cancel.run_until_cancelled(slept).await {
            Some(()) => Ok(()),
            None => Err(cancelled()),
        }
    }
}

/// The turn was cancelled.
pub(crate) fn cancelled() -> Failure {
    Failure {
        reason: FailureReason::Cancelled,
        message: "the call was cancelled".to_owned(),
    }
}

/// OM-397.
fn with_attempts(failure: Failure, attempts: u32) -> Failure {
    if attempts < 2 {
        return failure;
    }
    Failure {
        message: format!("failed after {attempts} attempts: {}", failure.message),
        ..failure
    }
}

/// The wait before retry `retry` (counted from 1), or `None` when it is not made (OM-392, OM-398).
fn wait(backoff: Option<&Backoff>, retry: u32, again: Again, random: &dyn Random) -> Option<Duration> {
    let backoff = backoff.filter(|backoff| retry < backoff.max_attempts)?;
    let Again::After(asked) = again else {
        return None;
    };
    let exponent = i32::try_from(retry.saturating_sub(1)).unwrap_or(i32::MAX);
    let grown = backoff.initial.as_secs_f64() * backoff.multiplier.powi(exponent);
    let capped = grown.min(backoff.longest.as_secs_f64());
    let jittered =
        Duration::try_from_secs_f64(capped * (0.9 + 0.2 * random.fraction())).unwrap_or(backoff.longest);
    // The cap is applied last: neither jitter nor the backend may exceed it (OM-394).
    Some(jittered.max(asked).min(backoff.longest))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use mainstay_telemetry::random::SeededRandom;
    use proptest::prelude::*;

    use super::*;

    const BUSY: HttpFault = HttpFault::Status {
        code: 503,
        retry_after: None,
    };

    fn wait_over_http(
        policy: Option<&RetryPolicy>,
        retry: u32,
        fault: HttpFault,
        random: &dyn Random,
    ) -> Option<Duration> {
        let backoff = policy.map(RetryPolicy::backoff);
        wait(backoff.as_ref(), retry, over_http(policy, fault), random)
    }

    #[test]
    fn without_a_policy_there_is_one_attempt_om_398() {
        let random = SeededRandom::new(1);
        assert_eq!(wait_over_http(None, 1, BUSY, &*random), None);
        assert_eq!(
            wait_over_http(Some(&RetryPolicy::new(1)), 1, BUSY, &*random),
            None
        );
        assert!(wait_over_http(Some(&RetryPolicy::new(2)), 1, BUSY, &*random).is_some());
        assert_eq!(
            wait_over_http(Some(&RetryPolicy::new(2)), 2, BUSY, &*random),
            None
        );
    }

    #[test]
    fn each_kind_of_failure_follows_its_switch_om_393() {
        let random = SeededRandom::new(1);
        let mut policy = RetryPolicy::new(9);
        let retried =
            |policy: &RetryPolicy, fault| wait_over_http(Some(policy), 1, fault, &*random).is_some();
        let not_found = HttpFault::Status {
            code: 404,
            retry_after: None,
        };
        assert!(retried(&policy, BUSY) && retried(&policy, HttpFault::Network));
        assert!(!retried(&policy, not_found));
        assert_eq!(wait(Some(&policy.backoff()), 1, Again::Never, &*random), None);
        policy.retry_on = vec![];
        assert!(!retried(&policy, BUSY) && retried(&policy, HttpFault::Network));
        policy.retry_on_network_error = false;
        assert!(!retried(&policy, HttpFault::Network));
    }

    #[test]
    fn retry_after_can_be_switched_off_om_063() {
        let random = SeededRandom::new(1);
        let mut policy = RetryPolicy::new(2);
        let asked = HttpFault::Status {
            code: 503,
            retry_after: Some(Duration::from_secs(5)),
        };
        assert_eq!(
            wait_over_http(Some(&policy), 1, asked, &*random),
            Some(Duration::from_secs(5))
        );
        policy.respect_retry_after = false;
        assert!(wait_over_http(Some(&policy), 1, asked, &*random).unwrap() < Duration::from_secs(1));
    }

    proptest! {
        #[test]
        fn a_wait_never_exceeds_the_cap_nor_undercuts_the_header_om_394(
            retry in 1u32..10, initial in 0u64..5_000, multiplier in 1.0f64..100.0, cap in 1u64..60_000, asked in 0u64..200, seed: u64,
        ) {
            let policy = RetryPolicy {
                initial_backoff: Duration::from_millis(initial),
                backoff_multiplier: multiplier,
                max_backoff: Duration::from_millis(cap),
                ..RetryPolicy::new(10)
            };
            let asked = Duration::from_secs(asked);
            let fault = HttpFault::Status { code: 429, retry_after: Some(asked) };
            let wait = wait_over_http(Some(&policy), retry, fault, &*SeededRandom::new(seed)).unwrap();
            prop_assert!(wait <= policy.max_backoff);
            prop_assert!(wait >= asked.min(policy.max_backoff));
        }
    }
}
