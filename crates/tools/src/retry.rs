//! Which attempts are made again, and when (OM-392…OM-394).

use std::time::Duration;

use mainstay_telemetry::random::Random;

use crate::config::RetryPolicy;

/// What a failed attempt says about another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// It would fail the same way, or must not be made.
    Never,
    /// No status arrived.
    Network,
    /// The backend answered with a status.
    Status {
        code: u16,
        retry_after: Option<Duration>,
    },
}

/// The wait before retry `retry` (counted from 1), or `None` when it is not made (OM-393, OM-398).
pub(crate) fn wait(
    policy: Option<&RetryPolicy>,
    retry: u32,
    again: Again,
    random: &dyn Random,
) -> Option<Duration> {
    let policy = policy.filter(|policy| retry < policy.max_attempts)?;
    let asked = match again {
        Again::Never => return None,
        Again::Network if policy.retry_on_network_error => None,
        Again::Network => return None,
        Again::Status { code, retry_after } if policy.retry_on.contains(&code) => {
            retry_after.filter(|_| policy.respect_retry_after)
        }
        Again::Status { .. } => return None,
    };
    let exponent = i32::try_from(retry.saturating_sub(1)).unwrap_or(i32::MAX);
    let grown = policy.initial_backoff.as_secs_f64() * policy.backoff_multiplier.powi(exponent);
    let capped = grown.min(policy.max_backoff.as_secs_f64());
    let jittered =
        Duration::try_from_secs_f64(capped * (0.9 + 0.2 * random.fraction())).unwrap_or(policy.max_backoff);
    // The cap is applied last: neither jitter nor the backend may exceed it (OM-394).
    Some(jittered.max(asked.unwrap_or_default()).min(policy.max_backoff))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use mainstay_telemetry::random::SeededRandom;
    use proptest::prelude::*;

    use super::*;

    const BUSY: Again = Again::Status {
        code: 503,
        retry_after: None,
    };

    #[test]
    fn without_a_policy_there_is_one_attempt_om_398() {
        let random = SeededRandom::new(1);
        assert_eq!(wait(None, 1, BUSY, &*random), None);
        assert_eq!(wait(Some(&RetryPolicy::new(1)), 1, BUSY, &*random), None);
        assert!(wait(Some(&RetryPolicy::new(2)), 1, BUSY, &*random).is_some());
        assert_eq!(wait(Some(&RetryPolicy::new(2)), 2, BUSY, &*random), None);
    }

    #[test]
    fn each_kind_of_failure_follows_its_switch_om_393() {
        let random = SeededRandom::new(1);
        let mut policy = RetryPolicy::new(9);
        let retried = |policy: &RetryPolicy, again| wait(Some(policy), 1, again, &*random).is_some();
        let not_found = Again::Status {
            code: 404,
            retry_after: None,
        };
        assert!(retried(&policy, BUSY) && retried(&policy, Again::Network));
        assert!(!retried(&policy, not_found) && !retried(&policy, Again::Never));
        policy.retry_on = vec![];
        assert!(!retried(&policy, BUSY) && retried(&policy, Again::Network));
        policy.retry_on_network_error = false;
        assert!(!retried(&policy, Again::Network));
    }

    #[test]
    fn retry_after_can_be_switched_off_om_063() {
        let random = SeededRandom::new(1);
        let mut policy = RetryPolicy::new(2);
        let asked = Again::Status {
            code: 503,
            retry_after: Some(Duration::from_secs(5)),
        };
        assert_eq!(
            wait(Some(&policy), 1, asked, &*random),
            Some(Duration::from_secs(5))
        );
        policy.respect_retry_after = false;
        assert!(wait(Some(&policy), 1, asked, &*random).unwrap() < Duration::from_secs(1));
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
            let again = Again::Status { code: 429, retry_after: Some(asked) };
            let wait = wait(Some(&policy), retry, again, &*SeededRandom::new(seed)).unwrap();
            prop_assert!(wait <= policy.max_backoff);
            prop_assert!(wait >= asked.min(policy.max_backoff));
        }
    }
}
