//! Binds Pods to the one Node.

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::PostParams,
    runtime::{WatchStreamExt, watcher},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{NODE, events::Events};

/// Runs until `cancellation`.
pub async fn run(client: Client, events: Events, cancellation: CancellationToken) {
    let unbound = watcher::Config::default().fields("spec.nodeName=");
    let binding = watcher(Api::<Pod>::all(client.clone()), unbound)
        .default_backoff()
        .applied_objects()
        .try_for_each(|pod| {
            let (client, events) = (client.clone(), events.clone());
            async move {
                bind(&client, &pod, &events).await;
                Ok(())
            }
        });
    tokio::select! {
        ended = binding => {
            if let Err(error) = ended {
                tracing::error!(%error, "the watch of unbound Pods ended");
            }
        }
        () = cancellation.cancelled() => {}
    }
}

async fn bind(client: &Client, pod: &Pod, events: &Events) {
    let bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.as_ref().is_some_and(|node| !node.is_empty()));
    if bound || pod.metadata.deletion_timestamp.is_some() {
        return;
    }
    let namespace = pod.namespace().unwrap_or_default();
    let name = pod.name_any();
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": { "name": name, "namespace": namespace, "uid": pod.uid() },
        "target": { "apiVersion": "v1", "kind": "Node", "name": NODE },
    });
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let body = binding.to_string().into_bytes();
    match pods.create_subresource::<Vec<u8>, serde_json::Value>("binding", &name, &PostParams::default(), body).await {
        Ok(_) => {
            let note = format!("Successfully assigned {namespace}/{name} to {NODE}");
            events.normal(pod, "Scheduled", &note).await;
        }
        // Bound or gone meanwhile: the watch brings what is left to do.
        Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {}
        Err(error) => {
            tracing::warn!(pod = name, namespace, %error, "a Pod could not be bound");
            events.warning(pod, "FailedScheduling", &format!("binding failed: {error}")).await;
        }
    }
}
