//! How long a container that ended waits before it runs again.

use std::time::Duration;

use jiff::Timestamp;

/// The arithmetic of restarts, as the kubelet's: at once after the first end, then doubling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackOffOptions {
    /// The first wait.
    pub initial: Duration,
    /// The longest wait.
    pub limit: Duration,
    /// A run at least this long forgets the waits before it.
    pub reset_after: Duration,
}

impl Default for BackOffOptions {
    fn default() -> Self {
        Self {
            initial: Duration::from_secs(10),
            limit: Duration::from_secs(5 * 60),
            reset_after: Duration::from_secs(10 * 60),
        }
    }
}

/// The state of one container.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BackOff {
    next: Option<Duration>,
}

impl BackOff {
    /// The wait after a run from `started` to `ended`.
    pub(super) fn after_run(
        &mut self,
        started: Timestamp,
        ended: Timestamp,
        options: &BackOffOptions,
    ) -> Duration {
        let ran = Duration::try_from(ended.duration_since(started)).unwrap_or_default();
        if ran >= options.reset_after {
            self.next = None;
        }
        let wait = self.next.unwrap_or(Duration::ZERO);
        self.next = Some(
            self.next
                .map_or(options.initial, |wait| wait.saturating_mul(2).min(options.limit)),
        );
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_limit_and_a_long_run_forgets_them() {
        let options = BackOffOptions::default();
        let mut back_off = BackOff::default();
        let start = Timestamp::UNIX_EPOCH;
        let end = |seconds| {
            start
                .saturating_add(Duration::from_secs(seconds))
                .unwrap_or(start)
        };
        let waits: Vec<u64> = (0..8)
            .map(|_| back_off.after_run(start, end(1), &options).as_secs())
            .collect();
        assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(back_off.after_run(start, end(600), &options).as_secs(), 0);
        assert_eq!(back_off.after_run(start, end(1), &options).as_secs(), 10);
    }

    #[test]
    fn a_clock_that_jumps_back_counts_as_a_short_run() {
        let options = BackOffOptions::default();
        let mut back_off = BackOff::default();
        let late = Timestamp::UNIX_EPOCH
            .saturating_add(Duration::from_secs(9_999))
            .unwrap_or(Timestamp::UNIX_EPOCH);
        back_off.after_run(late, Timestamp::UNIX_EPOCH, &options);
        assert_eq!(
            back_off
                .after_run(late, Timestamp::UNIX_EPOCH, &options)
                .as_secs(),
            10
        );
    }
}
