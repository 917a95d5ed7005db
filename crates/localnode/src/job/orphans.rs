//! Lets go of Pods whose Job is gone: nobody will count them, and their finalizer would keep them for ever.

use futures::StreamExt;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Patch;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::pods;
use crate::{owner, writing};

const ATTEMPTS_AT_ONCE: usize = 16;
/// How often a Pod is tried; its next change tries it again.
const ATTEMPTS: usize = 3;

/// Runs until it is cancelled.
pub(super) async fn run(client: Client, cancellation: CancellationToken) {
    let all = Api::<Pod>::all(client.clone());
    let stream = watcher(all, watcher::Config::default())
        .default_backoff()
        .applied_objects();
    let looking = stream.for_each_concurrent(ATTEMPTS_AT_ONCE, |pod| {
        let client = client.clone();
        async move {
            match pod {
                Ok(pod) if pods::is_tracked(&pod) => look(&client, &pod).await,
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "the watch for Pods of Jobs was interrupted"),
            }
        }
    });
    cancellation.run_until_cancelled(looking).await;
}

async fn look(client: &Client, pod: &Pod) {
    for attempt in 1..=ATTEMPTS {
        match let_go(client, pod).await {
            Ok(()) => return,
            Err(error) if attempt == ATTEMPTS => {
                tracing::warn!(pod = %pod.name_any(), namespace = ?pod.namespace(), %error, "a Pod whose Job is gone could not be let go");
            }
            Err(_) => {}
        }
    }
}

async fn let_go(client: &Client, pod: &Pod) -> kube::Result<()> {
    let namespace = pod.namespace().unwrap_or_default();
    if let Some(reference) = owner::controller_of(pod).filter(|reference| reference.kind == "Job") {
        let jobs = Api::<Job>::namespaced(client.clone(), &namespace);
        let job = jobs.get_opt(&reference.name).await?;
        if job.is_some_and(|job| job.uid().as_deref() == Some(reference.uid.as_str())) {
            return Ok(());
        }
    } else if !pods::is_dying(pod) && !pods::has_ended(pod) {
        // One that lost its owner may find another, which adopts it.
        return Ok(());
    }
    let patch = json!({ "metadata": { "uid": pod.uid(), "finalizers": pods::released(pod) } });
    let pods = Api::<Pod>::namespaced(client.clone(), &namespace);
    match pods
        .patch(&pod.name_any(), &writing::patch(), &Patch::Merge(patch))
        .await
    {
        Err(kube::Error::Api(status)) if matches!(status.reason.as_str(), "NotFound" | "Conflict") => Ok(()),
        other => other.map(|_| ()),
    }
}
