//! Binding: gives each Pod that waits for a Node the one Node there is, through the API's `pods/binding`.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Binding, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Status};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::events::Events;
use crate::writing;

/// Waits between attempts to bind one Pod. The last one is also that of all further attempts: nothing else wakes a Pod that
/// waits for its Node.
const WAITS: [Duration; 4] = [
    Duration::from_millis(50),
    Duration::from_millis(250),
    Duration::from_secs(1),
    Duration::from_secs(5),
];

const ATTEMPTS_AT_ONCE: usize = 16;

/// Runs until it is cancelled.
pub(crate) async fn run(client: Client, node: String, events: Events, cancellation: CancellationToken) {
    let pods = Api::<Pod>::all(client.clone());
    let waiting = watcher::Config::default().fields("spec.nodeName=");
    let stream = watcher(pods, waiting).default_backoff().applied_objects();
    let attempts = Arc::new(Semaphore::new(ATTEMPTS_AT_ONCE));
    // All of them, since one that waits for its next attempt must not keep another from its first.
    let bind_all = stream.for_each_concurrent(None, |pod| {
        let (client, node, events) = (client.clone(), node.clone(), events.clone());
        let attempts = Arc::clone(&attempts);
        async move {
            match pod {
                Ok(pod) if is_waiting(&pod) => {
                    bind_with_retries(&client, &pod, &node, &events, &attempts).await;
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "the watch for Pods to bind was interrupted"),
            }
        }
    });
    cancellation.run_until_cancelled(bind_all).await;
}

fn is_waiting(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let ours = matches!(
        spec.scheduler_name.as_deref(),
        None | Some("" | "default-scheduler")
    );
    let gated = spec
        .scheduling_gates
        .as_ref()
        .is_some_and(|gates| !gates.is_empty());
    ours && !gated
        && spec.node_name.as_deref().unwrap_or("").is_empty()
        && pod.metadata.deletion_timestamp.is_none()
}

async fn bind_with_retries(client: &Client, pod: &Pod, node: &str, events: &Events, attempts: &Semaphore) {
    let mut failures = 0;
    loop {
        let attempt = async {
            let _permit = attempts.acquire().await;
            bind(client, pod, node).await
        };
        let error = match attempt.await {
            Ok(()) => {
                let name = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
                events
                    .normal(
                        pod,
                        "Scheduled",
                        &format!("Successfully assigned {name} to {node}"),
                    )
                    .await;
                return;
            }
            // Gone, or bound by somebody else.
            Err(kube::Error::Api(status)) if matches!(status.reason.as_str(), "NotFound" | "Conflict") => {
                return;
            }
            Err(error) => error,
        };
        tracing::warn!(pod = %pod.name_any(), namespace = ?pod.namespace(), %error, "a Pod could not be bound");
        // Told once: what goes on failing is in the log.
        if failures == 0 {
            events
                .warning(pod, "FailedScheduling", &format!("binding failed: {error}"))
                .await;
        }
        tokio::time::sleep(wait_after(failures)).await;
        failures += 1;
    }
}

/// The wait after a failed attempt that so many others preceded.
fn wait_after(failures: usize) -> Duration {
    WAITS[failures.min(WAITS.len() - 1)]
}

async fn bind(client: &Client, pod: &Pod, node: &str) -> kube::Result<()> {
    let pods = Api::<Pod>::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let binding = Binding {
        metadata: ObjectMeta {
            name: pod.metadata.name.clone(),
            namespace: pod.metadata.namespace.clone(),
            uid: pod.metadata.uid.clone(),
            ..ObjectMeta::default()
        },
        target: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(node.to_owned()),
            ..ObjectReference::default()
        },
    };
    pods.create_subresource::<Binding, Status>("binding", &pod.name_any(), &writing::post(), &binding)
        .await?;
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(serde_json::json!({ "metadata": { "name": "p" }, "spec": spec })).unwrap()
    }

    #[test]
    fn the_waits_grow_and_the_last_one_stays() {
        assert!(WAITS.is_sorted());
        assert_eq!(wait_after(0), WAITS[0]);
        assert_eq!(wait_after(1_000), Duration::from_secs(5));
    }

    #[test]
    fn only_pods_that_wait_for_the_default_scheduler_are_bound() {
        use serde_json::json;
        let containers = json!([{ "name": "c" }]);
        assert!(is_waiting(&pod(json!({ "containers": containers }))));
        assert!(is_waiting(&pod(
            json!({ "containers": containers, "schedulerName": "default-scheduler" })
        )));
        assert!(!is_waiting(&pod(
            json!({ "containers": containers, "schedulerName": "theirs" })
        )));
        assert!(!is_waiting(&pod(
            json!({ "containers": containers, "nodeName": "n" })
        )));
        assert!(!is_waiting(&pod(
            json!({ "containers": containers, "schedulingGates": [{ "name": "g" }] })
        )));
    }
}
