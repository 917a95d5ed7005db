//! The Job controller: Job → Pods that run to their end. Requirement KA-050.
//!
//! `plan.rs` decides, this file reads what is there and does the steps. Each round reads the API itself, not a cache, so
//! it never makes a Pod twice because it has not seen the first one yet. `orphans.rs` lets go of Pods whose Job is gone.

mod conditions;
mod failures;
mod indexes;
mod orphans;
mod plan;
mod pods;

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, Preconditions};
use kube::runtime::controller::{Action as Next, Controller};
use kube::runtime::{reflector::ObjectRef, watcher};
use kube::{Api, Client, ResourceExt};
use mainstay_telemetry::clock::SharedClock;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::error::ReconcileError;
use crate::events::Events;
use crate::waits::Waits;
use crate::{owner, shutdown, until, writing};
use plan::{Plan, Seen, Target};

pub(crate) use conditions::holds;
pub use failures::JobBackOffOptions;

/// The longest time until a Job that waits for something is looked at: a machine that slept has slept through its timers.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Pods made, removed or let go at the same time.
const PARALLEL: usize = 16;

struct Context {
    client: Client,
    clock: SharedClock,
    events: Events,
    waits: Waits,
    back_off: JobBackOffOptions,
}

/// Runs the controller until it is cancelled.
pub(crate) async fn run(
    client: Client,
    clock: SharedClock,
    events: Events,
    back_off: JobBackOffOptions,
    cancellation: CancellationToken,
) {
    let jobs = Api::<Job>::all(client.clone());
    let pods = Api::<Pod>::all(client.clone());
    let controller = Controller::new(jobs, watcher::Config::default());
    let listed = controller.store();
    let let_go = orphans::run(client.clone(), cancellation.clone());
    let context = Arc::new(Context {
        client,
        clock,
        events,
        waits: Waits::default(),
        back_off,
    });
    let noted = Arc::clone(&context);
    let running = controller
        .watches(pods, watcher::Config::default(), |pod: Pod| {
            let reference = owner::controller_of(&pod).filter(|reference| reference.kind == "Job")?;
            let namespace = pod.namespace().unwrap_or_default();
            Some(ObjectRef::<Job>::new(&reference.name).within(&namespace))
        })
        .graceful_shutdown_on(cancellation.clone().cancelled_owned())
        .run(reconcile, retry, context)
        .for_each(move |outcome| {
            noted.waits.note(&outcome);
            if let Err(error) = outcome {
                tracing::debug!(%error, "a Job is looked at again");
            }
            futures::future::ready(())
        });
    futures::future::join(shutdown::ended(running, listed, cancellation), let_go).await;
}

fn retry(job: Arc<Job>, error: &ReconcileError, context: Arc<Context>) -> Next {
    if !error.is_race() {
        tracing::warn!(job = %job.name_any(), namespace = ?job.namespace(), %error, "a Job could not be brought forward");
    }
    Next::requeue(context.waits.after_failure(&*job))
}

async fn reconcile(cached: Arc<Job>, context: Arc<Context>) -> Result<Next, ReconcileError> {
    let namespace = cached.namespace().unwrap_or_default();
    let jobs = Api::<Job>::namespaced(context.client.clone(), &namespace);
    let pods = Api::<Pod>::namespaced(context.client.clone(), &namespace);
    let Some(mut job) = jobs.get_opt(&cached.name_any()).await? else {
        return Ok(Next::await_change());
    };
    if job.uid() != cached.uid() {
        return Ok(Next::await_change());
    }
    let owned = owned_pods(&job, &pods).await?;
    let now = context.clock.now();
    let seen = Seen {
        job: &job,
        pods: &owned,
        now,
        back_off: context.back_off,
    };
    let Some(plan) = plan::plan(&seen) else {
        return Ok(Next::await_change());
    };
    if job.status.as_ref() != Some(&plan.status) {
        job.status = Some(plan.status.clone());
        job = jobs
            .replace_status(&job.name_any(), &writing::post(), &job)
            .await?;
    }
    if plan.expired {
        remove(&job, &jobs).await?;
        return Ok(Next::await_change());
    }
    let done = carry_out(&plan, &job, &pods, &context.events).await;
    for note in &plan.notes {
        if note.warning {
            context.events.warning(&job, &note.reason, &note.message).await;
        } else {
            context.events.normal(&job, &note.reason, &note.message).await;
        }
    }
    done?;
    Ok(match plan.again_at {
        Some(at) => Next::requeue(until(now, at).min(LONGEST_WAIT)),
        None => Next::await_change(),
    })
}

/// The Pods that the Job controls; orphans that match are taken.
async fn owned_pods(job: &Job, pods: &Api<Pod>) -> Result<Vec<Pod>, ReconcileError> {
    let Some(selector) = job.spec.as_ref().and_then(|spec| spec.selector.as_ref()) else {
        return Ok(Vec::new());
    };
    let Some(parameters) = owner::list_parameters(selector) else {
        return Ok(Vec::new());
    };
    let uid = job.uid().unwrap_or_default();
    let mut owned = Vec::new();
    for pod in pods.list(&parameters).await? {
        if owner::is_controlled_by(&pod, &uid) {
            owned.push(pod);
        } else if owner::selects(selector, pod.labels())
            && owner::controller_of(&pod).is_none()
            && pod.metadata.deletion_timestamp.is_none()
            && job.metadata.deletion_timestamp.is_none()
            && let Some(reference) = owner::controller_reference(job)
        {
            let mut adoption = owner::adoption(&pod, &reference);
            if !pods::is_tracked(&pod)
                && let Some(metadata) = adoption.get_mut("metadata")
            {
                let tracking = pods::TRACKING.to_owned();
                let finalizers: Vec<String> = pod.finalizers().iter().cloned().chain([tracking]).collect();
                metadata["finalizers"] = json!(finalizers);
            }
            let patch = Patch::Merge(adoption);
            owned.push(pods.patch(&pod.name_any(), &writing::patch(), &patch).await?);
        }
    }
    Ok(owned)
}

/// Removes a Job whose time after its end is over, its Pods first.
async fn remove(job: &Job, jobs: &Api<Job>) -> Result<(), ReconcileError> {
    let parameters = DeleteParams {
        preconditions: Some(Preconditions {
            uid: job.uid(),
            resource_version: job.resource_version(),
        }),
        ..DeleteParams::foreground()
    };
    match jobs.delete(&job.name_any(), &parameters).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.reason == "NotFound" => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn carry_out(plan: &Plan, job: &Job, pods: &Api<Pod>, events: &Events) -> Result<(), ReconcileError> {
    let releases = plan.release.clone().into_iter();
    in_parallel(releases.map(|target| async move { release(&target, pods).await })).await?;
    let removals = plan.delete.clone().into_iter().map(|target| async move {
        release(&target, pods).await?;
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(target.uid.clone()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match pods.delete(&target.name, &parameters).await {
            Ok(_) => {
                let note = format!("Deleted pod: {}", target.name);
                events.normal(job, "SuccessfulDelete", &note).await;
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.reason == "NotFound" => Ok(()),
            Err(error) => Err(error),
        }
    });
    in_parallel(removals).await?;
    let mut new = plan.create.clone().into_iter();
    // One first: if it is refused, the others would be too.
    if let Some(first) = new.next()
        && let Err(error) = create(first, job, pods, events).await
    {
        let note = format!("Error creating: {error}");
        events.warning(job, "FailedCreate", &note).await;
        return Err(error.into());
    }
    in_parallel(new.map(|new| create(new, job, pods, events))).await
}

async fn in_parallel(
    steps: impl Iterator<Item = impl Future<Output = Result<(), kube::Error>>>,
) -> Result<(), ReconcileError> {
    futures::stream::iter(steps)
        .buffer_unordered(PARALLEL)
        .try_for_each(futures::future::ok)
        .await?;
    Ok(())
}

async fn create(new: pods::NewPod, job: &Job, pods: &Api<Pod>, events: &Events) -> Result<(), kube::Error> {
    let Some(pod) = pods::make(job, new) else {
        return Ok(());
    };
    let made = pods.create(&writing::post(), &pod).await?;
    let note = format!("Created pod: {}", made.name_any());
    events.normal(job, "SuccessfulCreate", &note).await;
    Ok(())
}

/// Takes the Job's finalizer from a Pod, if that is to be done.
async fn release(target: &Target, pods: &Api<Pod>) -> Result<(), kube::Error> {
    let Some(finalizers) = &target.finalizers else {
        return Ok(());
    };
    let patch = json!({ "metadata": { "uid": target.uid, "finalizers": finalizers } });
    match pods
        .patch(&target.name, &writing::patch(), &Patch::Merge(patch))
        .await
    {
        Ok(_) => Ok(()),
        // Gone, or another one of the same name.
        Err(kube::Error::Api(status)) if matches!(status.reason.as_str(), "NotFound" | "Conflict") => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;
