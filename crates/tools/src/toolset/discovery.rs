//! Handlers whose tools are found out at run time (OM-017, OM-424, OM-431).

use std::time::Duration;

use async_trait::async_trait;
use mainstay_telemetry::random::{Random, SharedRandom};
use tokio::time::Instant;

use super::surface::{Publisher, Tool};

/// Wait after the first failure; each further one doubles it (OM-422, OM-431).
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

// A backend that says all the time that its tools changed is not asked more often than this.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);

/// Finds out the tools of one handler.
#[async_trait]
pub(crate) trait ToolSource: std::fmt::Debug + Send + Sync {
    /// The tools as they are now. Ends within a bounded time of its own.
    ///
    /// # Errors
    /// Why they are not known.
    async fn discover(&self) -> Result<Vec<Tool>, Undiscovered>;

    /// Returns when the tools may have changed since they were discovered: the connection was lost, or
    /// the backend says so. Never, for a source that is read once.
    async fn stale(&self) {
        std::future::pending().await
    }
}

/// Why a handler's tools are not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Undiscovered {
    /// Stable word for logs.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Undiscovered {
    pub(crate) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }
}

/// Keeps the tools of one handler up to date, until dropped. A failure leaves the last known tools in
/// place; their calls fail on their own while the backend is away.
pub(crate) async fn keep(source: Box<dyn ToolSource>, publisher: Publisher, random: SharedRandom) {
    let mut failures = 0;
    loop {
        let began = Instant::now();
        match source.discover().await {
            Ok(tools) => {
                failures = 0;
                publisher.publish(tools);
                source.stale().await;
                tokio::time::sleep_until(began + SHORTEST_INTERVAL).await;
            }
            Err(problem) => {
                failures += 1;
                publisher.fail(problem);
                tokio::time::sleep(wait(failures, &*random)).await;
            }
        }
    }
}

/// The wait after so many failures in a row: doubled each time, with a jitter of a tenth so that the
/// agents of a cluster do not ask a recovering backend together, and never above the cap.
fn wait(failures: u32, random: &dyn Random) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let grown = FIRST_WAIT.saturating_mul(1 << doublings).min(LONGEST_WAIT);
    grown.mul_f64(0.9 + 0.2 * random.fraction()).min(LONGEST_WAIT)
}

#[cfg(test)]
mod tests {
    use mainstay_telemetry::random::SeededRandom;

    use super::*;

    #[test]
    fn waits_double_from_one_second_to_half_a_minute_om_431() {
        let random = SeededRandom::new(3);
        for (failures, expected) in [
            (1, 1.0),
            (2, 2.0),
            (3, 4.0),
            (5, 16.0),
            (6, 30.0),
            (4_000_000, 30.0),
        ] {
            let wait = wait(failures, &*random).as_secs_f64();
            assert!(
                (expected * 0.9..=(expected * 1.1_f64).min(30.0)).contains(&wait),
                "{failures}: {wait}"
            );
        }
    }
}
