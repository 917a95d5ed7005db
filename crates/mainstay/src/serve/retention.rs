//! Forgets old conversations, in small steps.

use std::time::Duration;

use mainstay_store::payload::{PayloadStore, RetentionLimits};
use mainstay_telemetry::clock::SharedClock;
use tokio_util::sync::CancellationToken;

/// How often it is looked whether something is too old or too much.
const EVERY: Duration = Duration::from_secs(10 * 60);
/// The pause between two steps, in which live turns have the store to themselves.
const BETWEEN_STEPS: Duration = Duration::from_millis(200);

/// Runs until `cancellation`.
pub(super) async fn run(payload: PayloadStore, clock: SharedClock, cancellation: CancellationToken) {
    loop {
        let more = match payload
            .enforce_retention(RetentionLimits::default(), clock.now())
            .await
        {
            Ok(step) => {
                if step.sessions_retired > 0 {
                    tracing::info!(
                        sessions = step.sessions_retired,
                        "sessions were forgotten by age or size"
                    );
                }
                step.more
            }
            Err(error) => {
                tracing::warn!(%error, "old sessions could not be forgotten");
                false
            }
        };
        tokio::select! {
            () = tokio::time::sleep(if more { BETWEEN_STEPS } else { EVERY }) => {}
            () = cancellation.cancelled() => return,
        }
    }
}
