//! Binding: gives each Pod that waits for a Node the one Node there is, through the API's `pods/binding`.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Binding, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Status};
use kube::runtime::controller::{Action as Next, Config, Controller};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use tokio_util::sync::CancellationToken;

use crate::error::ReconcileError;
use crate::events::Events;
use crate::waits::Waits;
use crate::{shutdown, writing};

/// The longest wait between attempts to bind one Pod: nothing else wakes a Pod that waits for its Node.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

const ATTEMPTS_AT_ONCE: u16 = 16;

struct Context {
    client: Client,
    node: String,
    events: Events,
    waits: Waits,
}

/// Runs until it is cancelled.
pub(crate) async fn run(client: Client, node: String, events: Events, cancellation: CancellationToken) {
    let pods = Api::<Pod>::all(client.clone());
    let waiting = watcher::Config::default().fields("spec.nodeName=");
    let controller = Controller::new(pods, waiting);
    let listed = controller.store();
    let context = Arc::new(Context {
        client,
        node,
        events,
        waits: Waits::up_to(LONGEST_WAIT),
    });
    let noted = Arc::clone(&context);
    let running = controller
        .with_config(Config::default().concurrency(ATTEMPTS_AT_ONCE))
        .graceful_shutdown_on(cancellation.clone().cancelled_owned())
        .run(reconcile, retry, context)
        .for_each(move |outcome| {
            noted.waits.note(&outcome);
            if let Err(error) = outcome {
                tracing::debug!(%error, "a Pod is looked at again");
            }
            futures::future::ready(())
        });
    shutdown::ended(running, listed, cancellation).await;
}

fn retry(pod: Arc<Pod>, error: &ReconcileError, context: Arc<Context>) -> Next {
    tracing::warn!(pod = %pod.name_any(), namespace = ?pod.namespace(), %error, "a Pod could not be bound");
    Next::requeue(context.waits.after_failure(&*pod))
}

async fn reconcile(pod: Arc<Pod>, context: Arc<Context>) -> Result<Next, ReconcileError> {
    if !is_waiting(&pod) {
        return Ok(Next::await_change());
    }
    let Context {
        client, node, events, ..
    } = &*context;
    match bind(client, &pod, node).await {
        Ok(()) => {
            let name = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
            let note = format!("Successfully assigned {name} to {node}");
            events.normal(&*pod, "Scheduled", &note).await;
        }
        // Gone, or bound by somebody else.
        Err(kube::Error::Api(status)) if matches!(status.reason.as_str(), "NotFound" | "Conflict") => {}
        Err(error) => {
            let note = format!("binding failed: {error}");
            events.warning(&*pod, "FailedScheduling", &note).await;
            return Err(error.into());
        }
    }
    Ok(Next::await_change())
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
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::http;
    use kube::client::Body;

    use super::*;

    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(serde_json::json!({ "metadata": { "name": "p" }, "spec": spec })).unwrap()
    }

    /// An API with one Pod, which nobody may bind and which is changed ten times.
    #[derive(Clone, Default)]
    struct Refusing {
        watches: Arc<AtomicUsize>,
        attempts: Arc<AtomicUsize>,
    }

    impl Refusing {
        async fn answer(
            self,
            request: http::Request<Body>,
        ) -> Result<http::Response<Body>, std::convert::Infallible> {
            use serde_json::json;
            let (path, query) = (request.uri().path(), request.uri().query().unwrap_or(""));
            let mut pod = json!({ "apiVersion": "v1", "kind": "Pod",
                "metadata": { "name": "p", "namespace": "n", "uid": "u", "resourceVersion": "1" },
                "spec": { "containers": [] } });
            let (code, text) = if path.ends_with("/binding") {
                self.attempts.fetch_add(1, Ordering::Relaxed);
                let refused = json!({ "kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "no" });
                (403, refused.to_string())
            } else if query.contains("watch=true") {
                if self.watches.fetch_add(1, Ordering::Relaxed) > 0 {
                    return std::future::pending().await;
                }
                let changes = (2..12).map(|version| {
                    pod["metadata"]["resourceVersion"] = json!(version.to_string());
                    format!("{}\n", json!({ "type": "MODIFIED", "object": pod }))
                });
                (200, changes.collect())
            } else if path.ends_with("/pods") {
                let list = json!({ "kind": "PodList", "apiVersion": "v1", "metadata": { "resourceVersion": "1" }, "items": [pod] });
                (200, list.to_string())
            } else {
                (
                    404,
                    json!({ "status": "Failure", "reason": "NotFound", "code": 404, "message": "" })
                        .to_string(),
                )
            };
            let mut answer = http::Response::new(Body::from(text.into_bytes()));
            *answer.status_mut() = http::StatusCode::from_u16(code).unwrap();
            Ok(answer)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_changes_while_it_cannot_be_bound_is_tried_no_more_often_for_it() {
        let api = Refusing::default();
        let asked = api.clone();
        let client = Client::new(tower::service_fn(move |request| api.clone().answer(request)), "n");
        let events = Events::new(
            client.clone(),
            mainstay_telemetry::clock::system(),
            mainstay_telemetry::random::system(),
        );
        let binding = run(client, "node".to_owned(), events, CancellationToken::new());
        let minute = Duration::from_secs(60);
        assert!(tokio::time::timeout(minute, binding).await.is_err(), "it goes on");
        // Each change may have been one attempt; then there are the growing waits and one every five seconds.
        let attempts = asked.attempts.load(Ordering::Relaxed);
        assert!((10..=11 + 8 + 12).contains(&attempts), "{attempts}");
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
