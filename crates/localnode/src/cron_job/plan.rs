//! What to do about a CronJob: a pure function from its Jobs and the time. Requirement KA-050.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::{Resource, ResourceExt};

use super::schedule::{Schedule, ScheduleError};
use crate::{job, owner};

/// More missed times than this are worth a warning.
const MANY_MISSED: usize = 100;
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// An Event to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) warning: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// What a round comes to.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) status: CronJobStatus,
    /// Jobs to remove, by name and UID.
    pub(super) delete: Vec<(String, String)>,
    /// The Job that is due, and since when.
    pub(super) create: Option<(Box<Job>, Timestamp)>,
    pub(super) notes: Vec<Note>,
    /// When the next one is due.
    pub(super) again_at: Option<Timestamp>,
}

impl Plan {
    fn note(&mut self, warning: bool, reason: &'static str, message: String) {
        self.notes.push(Note {
            warning,
            reason,
            message,
        });
    }
}

pub(super) fn reference(job: &Job) -> ObjectReference {
    ObjectReference {
        resource_version: job.resource_version(),
        ..job.object_ref(&())
    }
}

fn is_finished(job: &Job) -> bool {
    job.status
        .as_ref()
        .is_some_and(|status| job::holds(status, "Complete") || job::holds(status, "Failed"))
}

fn is_complete(job: &Job) -> bool {
    job.status
        .as_ref()
        .is_some_and(|status| job::holds(status, "Complete"))
}

/// Plans a round over the Jobs that the CronJob controls.
pub(super) fn plan(cron_job: &CronJob, jobs: &[Job], now: Timestamp) -> Plan {
    let mut plan = Plan {
        status: cron_job.status.clone().unwrap_or_default(),
        ..Plan::default()
    };
    follow(jobs, &mut plan);
    forget(cron_job, jobs, &mut plan);
    let Some(spec) = &cron_job.spec else { return plan };
    if cron_job.metadata.deletion_timestamp.is_some() || spec.suspend == Some(true) {
        return plan;
    }
    let schedule = match Schedule::parse(&spec.schedule, spec.time_zone.as_deref()) {
        Ok(schedule) => schedule,
        Err(error) => {
            let reason = match error {
                ScheduleError::Zone(_) => "UnknownTimeZone",
                ScheduleError::Words { .. } => "UnparseableSchedule",
            };
            plan.note(true, reason, error.to_string());
            return plan;
        }
    };
    due(cron_job, jobs, &schedule, now, &mut plan);
    plan
}

/// Which Jobs run, and what became of those that ran.
fn follow(jobs: &[Job], plan: &mut Plan) {
    for known in plan.status.active.take().unwrap_or_default() {
        let uid = known.uid.as_deref().unwrap_or_default();
        let name = known.name.clone().unwrap_or_default();
        match jobs.iter().find(|job| job.uid().as_deref() == Some(uid)) {
            None => plan.note(false, "MissingJob", format!("Active job went missing: {name}")),
            Some(job) if is_finished(job) => {
                let end = if is_complete(job) { "Complete" } else { "Failed" };
                plan.note(
                    false,
                    "SawCompletedJob",
                    format!("Saw completed job: {name}, condition: {end}"),
                );
            }
            Some(_) => {}
        }
    }
    let running = jobs
        .iter()
        .filter(|job| !is_finished(job))
        .map(|job| ObjectReference {
            // It would change with each step of the Job.
            resource_version: None,
            ..reference(job)
        });
    plan.status.active = Some(running.collect::<Vec<_>>()).filter(|active| !active.is_empty());
    let ends = jobs.iter().filter(|job| is_complete(job));
    let last = ends
        .filter_map(|job| job.status.as_ref()?.completion_time.clone())
        .max();
    if last > plan.status.last_successful_time {
        plan.status.last_successful_time = last;
    }
}

/// Removes the oldest of the Jobs that ended.
fn forget(cron_job: &CronJob, jobs: &[Job], plan: &mut Plan) {
    let Some(spec) = &cron_job.spec else { return };
    let keep = |limit: Option<i32>, default: usize| {
        limit.map_or(default, |limit| usize::try_from(limit).unwrap_or(0))
    };
    let limits = [
        (true, keep(spec.successful_jobs_history_limit, 3)),
        (false, keep(spec.failed_jobs_history_limit, 1)),
    ];
    for (complete, limit) in limits {
        let mut ended: Vec<&Job> = jobs
            .iter()
            .filter(|job| {
                is_finished(job) && is_complete(job) == complete && job.metadata.deletion_timestamp.is_none()
            })
            .collect();
        ended.sort_by_key(|job| {
            let started = job.status.as_ref().and_then(|status| status.start_time.as_ref());
            (started.map(|time| time.0), job.name_any())
        });
        let surplus = ended.len().saturating_sub(limit);
        plan.delete.extend(
            ended
                .into_iter()
                .take(surplus)
                .map(|job| (job.name_any(), job.uid().unwrap_or_default())),
        );
    }
}

/// Whether a Job is to be made now.
fn due(cron_job: &CronJob, jobs: &[Job], schedule: &Schedule, now: Timestamp, plan: &mut Plan) {
    let Some(spec) = &cron_job.spec else { return };
    let created = cron_job.creation_timestamp().map_or(now, |time| time.0);
    let last = plan.status.last_schedule_time.as_ref().map(|time| time.0);
    let start = last.unwrap_or(created);
    let mut earliest = start;
    plan.again_at = schedule.next(start, now.max(start));
    let tolerance = spec
        .starting_deadline_seconds
        .map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)));
    if let Some(tolerance) = tolerance {
        let bound = now.saturating_sub(tolerance).unwrap_or(Timestamp::MIN);
        earliest = earliest.max(bound);
    }
    let Some(time) = schedule.last(start, earliest, now) else {
        // A time that passed too long ago to be made up for.
        if let Some(time) = schedule.last(start, start, now) {
            let message = format!("Missed scheduled time to start a job: {}", schedule.shown(time));
            plan.note(true, "MissSchedule", message);
        }
        return;
    };
    let mut missed =
        std::iter::successors(schedule.next(start, earliest), |time| schedule.next(start, *time));
    if missed.nth(MANY_MISSED).is_some_and(|time| time <= now) {
        let message =
            "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
        plan.note(true, "TooManyMissedTimes", message.to_owned());
    }
    let name = format!("{}-{}", cron_job.name_any(), time.as_second() / 60);
    if jobs.iter().any(|job| job.name_any() == name) {
        plan.status.last_schedule_time = Some(Time(time));
        return;
    }
    let running: Vec<&Job> = jobs.iter().filter(|job| !is_finished(job)).collect();
    match spec.concurrency_policy.as_deref() {
        Some("Forbid") if !running.is_empty() => {
            let message =
                "Not starting job because prior execution is running and concurrency policy is Forbid";
            plan.note(false, "JobAlreadyActive", message.to_owned());
            return;
        }
        Some("Replace") => {
            let replaced = running
                .iter()
                .map(|job| (job.name_any(), job.uid().unwrap_or_default()));
            plan.delete.extend(replaced);
        }
        _ => {}
    }
    plan.create = job_of(cron_job, name, schedule, time).map(|job| (Box::new(job), time));
}

/// A Job from the CronJob's template.
fn job_of(cron_job: &CronJob, name: String, schedule: &Schedule, time: Timestamp) -> Option<Job> {
    let template = cron_job.spec.as_ref()?.job_template.clone();
    let metadata = template.metadata.unwrap_or_default();
    let mut annotations = metadata.annotations.unwrap_or_default();
    annotations.insert(SCHEDULED.to_owned(), schedule.shown(time));
    Some(Job {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: cron_job.namespace(),
            labels: metadata.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![owner::controller_reference(cron_job)?]),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;
