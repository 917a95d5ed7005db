//! The CronJob controller: CronJob → Jobs at their times. Requirement KA-050.
//!
//! `plan.rs` decides, `schedule.rs` knows the times, this file reads what is there and does the steps.

mod plan;
mod schedule;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, ListParams, Preconditions};
use kube::runtime::controller::{Action as Next, Controller};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use mainstay_telemetry::clock::SharedClock;
use tokio_util::sync::CancellationToken;

use crate::error::ReconcileError;
use crate::events::Events;
use crate::waits::Waits;
use crate::{owner, shutdown, until, writing};
use plan::Plan;

/// The longest time until a CronJob is looked at: a machine that slept has slept through its timers.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

struct Context {
    client: Client,
    clock: SharedClock,
    events: Events,
    waits: Waits,
}

/// Runs the controller until it is cancelled.
pub(crate) async fn run(client: Client, clock: SharedClock, events: Events, cancellation: CancellationToken) {
    let cron_jobs = Api::<CronJob>::all(client.clone());
    let jobs = Api::<Job>::all(client.clone());
    let controller = Controller::new(cron_jobs, watcher::Config::default());
    let listed = controller.store();
    let context = Arc::new(Context {
        client,
        clock,
        events,
        waits: Waits::default(),
    });
    let noted = Arc::clone(&context);
    let running = controller
        .owns(jobs, watcher::Config::default())
        .graceful_shutdown_on(cancellation.clone().cancelled_owned())
        .run(reconcile, retry, context)
        .for_each(move |outcome| {
            noted.waits.note(&outcome);
            if let Err(error) = outcome {
                tracing::debug!(%error, "a CronJob is looked at again");
            }
            futures::future::ready(())
        });
    shutdown::ended(running, listed, cancellation).await;
}

fn retry(cron_job: Arc<CronJob>, error: &ReconcileError, context: Arc<Context>) -> Next {
    if !error.is_race() {
        tracing::warn!(cron_job = %cron_job.name_any(), namespace = ?cron_job.namespace(), %error, "a CronJob could not be brought forward");
    }
    Next::requeue(context.waits.after_failure(&*cron_job))
}

async fn reconcile(cached: Arc<CronJob>, context: Arc<Context>) -> Result<Next, ReconcileError> {
    let namespace = cached.namespace().unwrap_or_default();
    let cron_jobs = Api::<CronJob>::namespaced(context.client.clone(), &namespace);
    let jobs = Api::<Job>::namespaced(context.client.clone(), &namespace);
    let Some(mut cron_job) = cron_jobs.get_opt(&cached.name_any()).await? else {
        return Ok(Next::await_change());
    };
    if cron_job.uid() != cached.uid() {
        return Ok(Next::await_change());
    }
    let uid = cron_job.uid().unwrap_or_default();
    let mut owned = jobs.list(&ListParams::default()).await?.items;
    owned.retain(|job| owner::is_controlled_by(job, &uid));
    let now = context.clock.now();
    let plan = plan::plan(&cron_job, &owned, now);
    write_status(&mut cron_job, plan.status.clone(), &cron_jobs).await?;
    for note in &plan.notes {
        if note.warning {
            context
                .events
                .warning(&cron_job, note.reason, &note.message)
                .await;
        } else {
            context.events.normal(&cron_job, note.reason, &note.message).await;
        }
    }
    remove(&plan, &cron_job, &jobs, &context.events).await?;
    if let Some((job, time)) = &plan.create {
        let status = create(&cron_job, job, *time, &plan, &jobs, &context.events).await?;
        write_status(&mut cron_job, status, &cron_jobs).await?;
    }
    Ok(match plan.again_at {
        Some(at) => Next::requeue(until(now, at).min(LONGEST_WAIT)),
        None => Next::await_change(),
    })
}

/// Writes the status if it says something new.
async fn write_status(
    cron_job: &mut CronJob,
    status: CronJobStatus,
    cron_jobs: &Api<CronJob>,
) -> Result<(), ReconcileError> {
    if cron_job.status.clone().unwrap_or_default() == status {
        return Ok(());
    }
    cron_job.status = Some(status);
    *cron_job = cron_jobs
        .replace_status(&cron_job.name_any(), &writing::post(), cron_job)
        .await?;
    Ok(())
}

async fn remove(
    plan: &Plan,
    cron_job: &CronJob,
    jobs: &Api<Job>,
    events: &Events,
) -> Result<(), ReconcileError> {
    for (name, uid) in &plan.delete {
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(uid.clone()),
                resource_version: None,
            }),
            ..DeleteParams::background()
        };
        match jobs.delete(name, &parameters).await {
            Ok(_) => {
                let note = format!("Deleted job {name}");
                events.normal(cron_job, "SuccessfulDelete", &note).await;
            }
            Err(kube::Error::Api(status)) if status.reason == "NotFound" => {}
            Err(error) => {
                let note = format!("Deleted job: {error}");
                events.warning(cron_job, "FailedDelete", &note).await;
                return Err(error.into());
            }
        }
    }
    Ok(())
}

/// Whether the namespace goes, and the CronJob with it: nobody needs to be told that no Job is made.
fn is_ending_namespace(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    causes.any(|cause| cause.reason == "NamespaceTerminating")
}

/// Makes the Job that is due; the status that says so.
async fn create(
    cron_job: &CronJob,
    job: &Job,
    time: Timestamp,
    plan: &Plan,
    jobs: &Api<Job>,
    events: &Events,
) -> Result<CronJobStatus, ReconcileError> {
    let made = match jobs.create(&writing::post(), job).await {
        Ok(made) => made,
        Err(error) => {
            if !is_ending_namespace(&error) {
                let note = format!("Error creating job: {error}");
                events.warning(cron_job, "FailedCreate", &note).await;
            }
            return Err(error.into());
        }
    };
    events
        .normal(
            cron_job,
            "SuccessfulCreate",
            &format!("Created job {}", made.name_any()),
        )
        .await;
    let mut status = plan.status.clone();
    let removed = |uid: &Option<String>| {
        plan.delete
            .iter()
            .any(|(_, removed)| Some(removed) == uid.as_ref())
    };
    let active = status.active.get_or_insert_default();
    active.retain(|reference| !removed(&reference.uid));
    let mut reference = plan::reference(&made);
    reference.resource_version = None;
    active.push(reference);
    status.last_schedule_time = Some(Time(time));
    Ok(status)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_refused_because_the_namespace_goes_is_not_told() {
        let refused = |details: serde_json::Value| {
            let status = serde_json::json!({ "status": "Failure", "reason": "Forbidden", "code": 403, "message": "no", "details": details });
            kube::Error::Api(serde_json::from_value(status).unwrap())
        };
        let ending = serde_json::json!({ "causes": [{ "reason": "NamespaceTerminating", "field": "metadata.namespace" }] });
        assert!(is_ending_namespace(&refused(ending)));
        // As a policy or a quota refuses it.
        assert!(!is_ending_namespace(&refused(
            serde_json::json!({ "kind": "jobs" })
        )));
    }
}
