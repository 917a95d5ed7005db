//! Ending a controller.

use std::time::Duration;

use futures::FutureExt;
use kube::runtime::reflector::{Lookup, Store};
use tokio_util::sync::CancellationToken;

/// How long rounds that are under way may take to end.
const GRACE: Duration = Duration::from_secs(5);

/// Waits for the end of a controller that `cancellation` tells to end.
///
/// kube's controller starts no round before its first list, and one that is told to end before that list waits for it
/// for ever, because nothing reads it any more. Then there is no round to wait for, so it is dropped.
pub(crate) async fn ended<K>(
    running: impl Future<Output = ()>,
    store: Store<K>,
    cancellation: CancellationToken,
) where
    K: Lookup + Clone + 'static,
    K::DynamicType: std::hash::Hash + Eq + Clone,
{
    ended_within(GRACE, running, store, cancellation).await;
}

async fn ended_within<K>(
    grace: Duration,
    running: impl Future<Output = ()>,
    store: Store<K>,
    cancellation: CancellationToken,
) where
    K: Lookup + Clone + 'static,
    K::DynamicType: std::hash::Hash + Eq + Clone,
{
    let given_up = async {
        cancellation.cancelled().await;
        if store.wait_until_ready().now_or_never().is_some() {
            tokio::time::sleep(grace).await;
        }
    };
    tokio::select! {
        biased;
        () = running => {}
        () = given_up => {}
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::runtime::{reflector, watcher};

    use super::*;

    #[tokio::test]
    async fn a_controller_that_never_listed_is_not_waited_for_and_one_that_did_is_for_a_bounded_time() {
        // With the first grace the test itself would not end.
        for (listed, grace) in [(false, Duration::MAX), (true, Duration::from_millis(1))] {
            let (store, mut writer) = reflector::store::<ConfigMap>();
            if listed {
                writer.apply_watcher_event(&watcher::Event::Init);
                writer.apply_watcher_event(&watcher::Event::InitDone);
            }
            let cancellation = CancellationToken::new();
            cancellation.cancel();
            let ending = ended_within(grace, std::future::pending(), store, cancellation);
            let ended = tokio::time::timeout(Duration::from_secs(20), ending).await;
            assert!(ended.is_ok(), "listed: {listed}");
        }
    }
}
