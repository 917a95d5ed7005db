//! The Pods of a Job: what each of them is for the Job, and how new ones look.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{
    ContainerStateTerminated, EnvVar, EnvVarSource, ObjectFieldSelector, Pod, PodTemplateSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use crate::owner;

/// Keeps a Pod until the Job's status has counted it.
pub(super) const TRACKING: &str = "batch.kubernetes.io/job-tracking";
pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// How often Pods of this index failed before; with a limit of failures of each index.
pub(super) const INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";

pub(super) fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or("Pending")
}

pub(super) fn is_dying(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

pub(super) fn has_ended(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Counts as running for the Job.
pub(super) fn is_active(pod: &Pod) -> bool {
    !has_ended(pod) && !is_dying(pod)
}

/// Is about to end and has not ended.
pub(super) fn is_terminating(pod: &Pod) -> bool {
    is_dying(pod) && !has_ended(pod)
}

/// Failed for the Job. A Pod that is deleted never reports an end in some cases, so that it counts at once, unless the
/// Job replaces failed Pods only.
pub(super) fn has_failed(pod: &Pod, only_replaces_failed: bool) -> bool {
    phase(pod) == "Failed" || (!only_replaces_failed && is_terminating(pod))
}

pub(super) fn is_tracked(pod: &Pod) -> bool {
    pod.finalizers().iter().any(|finalizer| finalizer == TRACKING)
}

/// The finalizers without that of the Job.
pub(super) fn released(pod: &Pod) -> Vec<String> {
    let others = pod.finalizers().iter().filter(|finalizer| *finalizer != TRACKING);
    others.cloned().collect()
}

pub(super) fn index_of(pod: &Pod) -> Option<i32> {
    pod.annotations()
        .get(INDEX)?
        .parse()
        .ok()
        .filter(|index| *index >= 0)
}

/// How often Pods of this Pod's index failed before it.
pub(super) fn failures_before(pod: &Pod) -> i32 {
    let count = pod.annotations().get(INDEX_FAILURES);
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// How often the containers of a Pod were restarted.
pub(super) fn restarts(pod: &Pod) -> i32 {
    let Some(status) = &pod.status else { return 0 };
    [&status.init_container_statuses, &status.container_statuses]
        .into_iter()
        .flatten()
        .flatten()
        .map(|container| container.restart_count)
        .sum()
}

/// The containers that ended, by name.
pub(super) fn ends(pod: &Pod) -> impl Iterator<Item = (&str, &ContainerStateTerminated)> {
    let statuses = pod.status.iter().flat_map(|status| {
        [&status.init_container_statuses, &status.container_statuses]
            .into_iter()
            .flatten()
            .flatten()
    });
    statuses.filter_map(|container| {
        let ended = container.state.as_ref()?.terminated.as_ref()?;
        Some((container.name.as_str(), ended))
    })
}

/// When a Pod ended: with its last container, else when it was deleted or made.
pub(super) fn ended_at(pod: &Pod) -> Option<Timestamp> {
    ends(pod)
        .filter_map(|(_, ended)| ended.finished_at.as_ref())
        .map(|time| time.0)
        .max()
        .or_else(|| pod.metadata.deletion_timestamp.as_ref().map(|time| time.0))
        .or_else(|| pod.creation_timestamp().map(|time| time.0))
}

/// A Pod to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NewPod {
    /// Its index, in an indexed Job.
    pub(super) index: Option<i32>,
    /// How often Pods of that index failed before, where that is limited.
    pub(super) failures: Option<i32>,
}

/// A Pod from the Job's template; the API completes its name.
pub(super) fn make(job: &Job, new: NewPod) -> Option<Pod> {
    let PodTemplateSpec { metadata, spec } = job.spec.as_ref()?.template.clone();
    let metadata = metadata.unwrap_or_default();
    let mut spec = spec.unwrap_or_default();
    let mut labels = metadata.labels.unwrap_or_default();
    let mut annotations = metadata.annotations.unwrap_or_default();
    let mut finalizers = metadata.finalizers.unwrap_or_default();
    finalizers.push(TRACKING.to_owned());
    let name = job.name_any();
    let mut base = name.clone();
    if let Some(index) = new.index {
        base = format!("{name}-{index}");
        labels.insert(INDEX.to_owned(), index.to_string());
        annotations.insert(INDEX.to_owned(), index.to_string());
        spec.hostname.get_or_insert_with(|| base.clone());
        let containers = spec
            .init_containers
            .iter_mut()
            .flatten()
            .chain(&mut spec.containers);
        for container in containers {
            let environment = container.env.get_or_insert_default();
            if environment.iter().all(|variable| variable.name != INDEX_VARIABLE) {
                environment.push(index_variable());
            }
        }
    }
    if let Some(failures) = new.failures {
        annotations.insert(INDEX_FAILURES.to_owned(), failures.to_string());
    }
    let some = |map: BTreeMap<String, String>| Some(map).filter(|map| !map.is_empty());
    Some(Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{base}-")),
            namespace: job.namespace(),
            labels: some(labels),
            annotations: some(annotations),
            finalizers: Some(finalizers),
            owner_references: Some(vec![owner::controller_reference(job)?]),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    })
}

fn index_variable() -> EnvVar {
    EnvVar {
        name: INDEX_VARIABLE.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                api_version: None,
                field_path: format!("metadata.labels['{INDEX}']"),
            }),
            ..EnvVarSource::default()
        }),
    }
}
