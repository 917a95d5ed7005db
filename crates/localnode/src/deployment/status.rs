//! The status of a Deployment, as `kubectl rollout status` and `kubectl describe` read it.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{
    Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet, ReplicaSetCondition,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::plan::{desired, size};

/// Sums over the ReplicaSets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) replicas: i32,
    pub(crate) updated: i32,
    pub(crate) ready: i32,
    pub(crate) available: i32,
    pub(crate) unavailable: i32,
}

pub(crate) fn count(deployment: &Deployment, all: &[ReplicaSet], new: Option<&ReplicaSet>) -> Counts {
    let status = |replica_set: &ReplicaSet| replica_set.status.clone().unwrap_or_default();
    let available: i32 = all
        .iter()
        .map(|one| status(one).available_replicas.unwrap_or(0))
        .sum();
    let wanted = all
        .iter()
        .map(size)
        .sum::<i32>()
        .max(deployment.spec.as_ref().map_or(0, desired));
    Counts {
        replicas: all.iter().map(|one| status(one).replicas).sum(),
        updated: new.map_or(0, |new| status(new).replicas),
        ready: all
            .iter()
            .map(|one| status(one).ready_replicas.unwrap_or(0))
            .sum(),
        available,
        unavailable: (wanted - available).max(0),
    }
}

/// Every Pod is of the new template and available.
pub(crate) fn is_complete(deployment: &Deployment, counts: &Counts) -> bool {
    let wanted = deployment.spec.as_ref().map_or(0, desired);
    counts.updated == wanted && counts.replicas == wanted && counts.available == wanted
}

/// What a round knows of the rollout.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rollout {
    /// The new ReplicaSet's name.
    pub(crate) new: Option<String>,
    /// It is being created in this round.
    pub(crate) created: bool,
    pub(crate) least_available: i32,
    pub(crate) failure: Option<DeploymentCondition>,
}

/// The failure that a ReplicaSet reports, as the Deployment's own condition.
pub(crate) fn failure(replica_set: &ReplicaSet) -> Option<DeploymentCondition> {
    let conditions = replica_set.status.as_ref()?.conditions.as_ref()?;
    let ReplicaSetCondition {
        type_,
        status,
        reason,
        message,
        last_transition_time,
    } = conditions
        .iter()
        .find(|condition| condition.type_ == "ReplicaFailure")?
        .clone();
    Some(DeploymentCondition {
        type_,
        status,
        reason,
        message,
        last_update_time: last_transition_time.clone(),
        last_transition_time,
    })
}

/// The status after a round, and when its progress deadline passes.
pub(crate) fn status(
    deployment: &Deployment,
    counts: &Counts,
    rollout: Rollout,
    now: Timestamp,
) -> (DeploymentStatus, Option<Timestamp>) {
    let before = deployment.status.clone().unwrap_or_default();
    let mut conditions = before.conditions.clone().unwrap_or_default();
    let available = if counts.available >= rollout.least_available {
        (
            "True",
            "MinimumReplicasAvailable",
            "Deployment has minimum availability.",
        )
    } else {
        (
            "False",
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.",
        )
    };
    set(
        &mut conditions,
        "Available",
        available.0,
        available.1,
        available.2.to_owned(),
        now,
        false,
    );
    let deadline = progress(deployment, &before, counts, &rollout, &mut conditions, now);
    conditions.retain(|condition| condition.type_ != "ReplicaFailure");
    conditions.extend(rollout.failure);
    let some = |count: i32| Some(count).filter(|count| *count != 0);
    let status = DeploymentStatus {
        observed_generation: deployment.metadata.generation.or(before.observed_generation),
        replicas: some(counts.replicas),
        updated_replicas: some(counts.updated),
        ready_replicas: some(counts.ready),
        available_replicas: some(counts.available),
        unavailable_replicas: some(counts.unavailable),
        collision_count: before.collision_count,
        conditions: Some(conditions),
        terminating_replicas: before.terminating_replicas,
    };
    (status, deadline)
}

/// Sets the `Progressing` condition and says when its deadline passes.
fn progress(
    deployment: &Deployment,
    before: &DeploymentStatus,
    counts: &Counts,
    rollout: &Rollout,
    conditions: &mut Vec<DeploymentCondition>,
    now: Timestamp,
) -> Option<Timestamp> {
    let spec = deployment.spec.as_ref()?;
    let name = rollout.new.clone().unwrap_or_default();
    let current = conditions
        .iter()
        .find(|condition| condition.type_ == "Progressing")
        .cloned();
    let reason = current
        .as_ref()
        .and_then(|condition| condition.reason.as_deref())
        .unwrap_or("")
        .to_owned();
    if spec.paused == Some(true) {
        if reason != "DeploymentPaused" {
            let message = "Deployment is paused".to_owned();
            set(
                conditions,
                "Progressing",
                "Unknown",
                "DeploymentPaused",
                message,
                now,
                false,
            );
        }
        return None;
    }
    if reason == "DeploymentPaused" {
        let message = "Deployment is resumed".to_owned();
        set(
            conditions,
            "Progressing",
            "Unknown",
            "DeploymentResumed",
            message,
            now,
            false,
        );
    }
    if rollout.created {
        let message = format!("Created new replica set \"{name}\"");
        set(
            conditions,
            "Progressing",
            "True",
            "NewReplicaSetCreated",
            message,
            now,
            true,
        );
    } else if is_complete(deployment, counts) && rollout.new.is_some() {
        if reason != "NewReplicaSetAvailable" || !mentions(current.as_ref(), &name) {
            let message = format!("ReplicaSet \"{name}\" has successfully progressed.");
            set(
                conditions,
                "Progressing",
                "True",
                "NewReplicaSetAvailable",
                message,
                now,
                true,
            );
        }
        return None;
    } else if has_moved(before, counts) || current.is_none() || !mentions(current.as_ref(), &name) {
        let message = format!("ReplicaSet \"{name}\" is progressing.");
        set(
            conditions,
            "Progressing",
            "True",
            "ReplicaSetUpdated",
            message,
            now,
            true,
        );
    } else if reason == "NewReplicaSetAvailable" {
        // Complete once: what fails later is no rollout.
        return None;
    }
    let current = conditions
        .iter()
        .find(|condition| condition.type_ == "Progressing")?;
    let since = current.last_update_time.as_ref()?.0;
    let limit =
        Duration::from_secs(u64::try_from(spec.progress_deadline_seconds.unwrap_or(600)).unwrap_or(600));
    let deadline = since.saturating_add(limit).unwrap_or(Timestamp::MAX);
    if current.status == "False" {
        return None;
    }
    if now >= deadline {
        let message = format!("ReplicaSet \"{name}\" has timed out progressing.");
        set(
            conditions,
            "Progressing",
            "False",
            "ProgressDeadlineExceeded",
            message,
            now,
            false,
        );
        return None;
    }
    Some(deadline)
}

fn mentions(condition: Option<&DeploymentCondition>, replica_set: &str) -> bool {
    let message = condition
        .and_then(|condition| condition.message.as_deref())
        .unwrap_or("");
    message.contains(&format!("\"{replica_set}\"")) || !message.contains('"')
}

fn has_moved(before: &DeploymentStatus, counts: &Counts) -> bool {
    let (updated, replicas) = (before.updated_replicas.unwrap_or(0), before.replicas.unwrap_or(0));
    counts.updated > updated
        || counts.replicas - counts.updated < replicas - updated
        || counts.ready > before.ready_replicas.unwrap_or(0)
        || counts.available > before.available_replicas.unwrap_or(0)
}

/// Sets a condition. Its transition time changes with its status only; its update time when it says something new, or
/// always with `touch`.
fn set(
    conditions: &mut Vec<DeploymentCondition>,
    type_: &str,
    status: &str,
    reason: &str,
    message: String,
    now: Timestamp,
    touch: bool,
) {
    let old = conditions.iter().find(|condition| condition.type_ == type_);
    let same_status = old.filter(|old| old.status == status);
    let says_the_same = same_status.is_some_and(|old| {
        old.reason.as_deref() == Some(reason) && old.message.as_deref() == Some(message.as_str())
    });
    if says_the_same && !touch {
        return;
    }
    let new = DeploymentCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_update_time: Some(Time(now)),
        last_transition_time: same_status
            .and_then(|old| old.last_transition_time.clone())
            .or(Some(Time(now))),
    };
    match conditions.iter_mut().find(|condition| condition.type_ == type_) {
        Some(condition) => *condition = new,
        None => conditions.push(new),
    }
}
