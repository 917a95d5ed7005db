//! What to do about a ReplicaSet: a pure function from its Pods to what is missing, what is too much, and its status.

use std::cmp::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use crate::owner;
use crate::until;

/// More than this many Pods are not made or removed in one round.
const BURST: usize = 500;
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// What a round comes to.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Pods to make.
    pub(crate) create: usize,
    /// Pods to remove, by name and UID.
    pub(crate) delete: Vec<(String, String)>,
    pub(crate) status: ReplicaSetStatus,
    /// Look again after this long: a Pod becomes available by time alone.
    pub(crate) again_in: Option<Duration>,
}

/// True for a Pod that counts: it has not ended and is not about to.
pub(crate) fn is_active(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_none() && !matches!(phase, Some("Succeeded" | "Failed"))
}

/// Since when the Pod is ready.
pub(crate) fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions
        .iter()
        .find(|condition| condition.type_ == "Ready" && condition.status == "True")?;
    Some(
        ready
            .last_transition_time
            .as_ref()
            .map_or(Timestamp::UNIX_EPOCH, |time| time.0),
    )
}

/// Plans a round over the Pods that the ReplicaSet controls.
pub(crate) fn plan(replica_set: &ReplicaSet, pods: &[Pod], now: Timestamp) -> Plan {
    let spec = replica_set.spec.clone().unwrap_or_default();
    let wanted = usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or(0);
    let mut active: Vec<&Pod> = pods.iter().filter(|pod| is_active(pod)).collect();
    let dying = replica_set.metadata.deletion_timestamp.is_some();
    let create = if dying {
        0
    } else {
        wanted.saturating_sub(active.len()).min(BURST)
    };
    let surplus = if dying {
        0
    } else {
        active.len().saturating_sub(wanted).min(BURST)
    };
    active.sort_by(|left, right| first_to_go(left, right));
    let delete = active
        .iter()
        .take(surplus)
        .map(|pod| (pod.name_any(), pod.uid().unwrap_or_default()))
        .collect();

    let wait = Duration::from_secs(u64::try_from(spec.min_ready_seconds.unwrap_or(0)).unwrap_or(0));
    let template_labels = spec
        .template
        .as_ref()
        .and_then(|template| template.metadata.as_ref());
    let template_labels = template_labels
        .and_then(|metadata| metadata.labels.clone())
        .unwrap_or_default();
    let (mut ready, mut available, mut labelled) = (0, 0, 0);
    let mut again_in: Option<Duration> = None;
    for pod in &active {
        if template_labels
            .iter()
            .all(|(name, value)| pod.labels().get(name) == Some(value))
        {
            labelled += 1;
        }
        if let Some(since) = ready_since(pod) {
            ready += 1;
            let from = since.saturating_add(wait).unwrap_or(Timestamp::MAX);
            if wait.is_zero() || from <= now {
                available += 1;
            } else {
                let left = until(now, from);
                again_in = Some(again_in.map_or(left, |sooner| sooner.min(left)));
            }
        }
    }
    let some = |count: i32| Some(count).filter(|count| *count != 0);
    let before = replica_set.status.clone().unwrap_or_default();
    let status = ReplicaSetStatus {
        replicas: i32::try_from(active.len()).unwrap_or(i32::MAX),
        fully_labeled_replicas: some(labelled),
        ready_replicas: some(ready),
        available_replicas: some(available),
        observed_generation: replica_set.metadata.generation.or(before.observed_generation),
        conditions: before.conditions,
        terminating_replicas: before.terminating_replicas,
    };
    Plan {
        create,
        delete,
        status,
        again_in,
    }
}

/// Which of two Pods goes first when there are too many: the one that serves least.
pub(crate) fn first_to_go(left: &Pod, right: &Pod) -> Ordering {
    let unassigned = |pod: &Pod| {
        pod.spec
            .as_ref()
            .and_then(|spec| spec.node_name.as_ref())
            .is_some()
    };
    let phase = |pod: &Pod| match pod.status.as_ref().and_then(|status| status.phase.as_deref()) {
        Some("Running") => 2,
        Some("Unknown") => 1,
        _ => 0,
    };
    let cost = |pod: &Pod| {
        pod.annotations()
            .get(DELETION_COST)
            .and_then(|cost| cost.parse::<i32>().ok())
            .unwrap_or(0)
    };
    let restarts = |pod: &Pod| {
        let statuses = pod
            .status
            .as_ref()
            .and_then(|status| status.container_statuses.as_ref());
        statuses
            .into_iter()
            .flatten()
            .map(|status| status.restart_count)
            .max()
            .unwrap_or(0)
    };
    let age = |pod: &Pod| pod.creation_timestamp().map(|time| time.0);
    unassigned(left)
        .cmp(&unassigned(right))
        .then(phase(left).cmp(&phase(right)))
        .then(ready_since(left).is_some().cmp(&ready_since(right).is_some()))
        .then(cost(left).cmp(&cost(right)))
        // Ready for a shorter time first.
        .then(ready_since(right).cmp(&ready_since(left)))
        .then(restarts(right).cmp(&restarts(left)))
        .then(age(right).cmp(&age(left)))
        .then_with(|| left.name_any().cmp(&right.name_any()))
}

/// A Pod from the ReplicaSet's template; the API names it.
pub(crate) fn pod_of(replica_set: &ReplicaSet) -> Option<Pod> {
    let PodTemplateSpec { metadata, spec } = replica_set.spec.as_ref()?.template.clone()?;
    let metadata = metadata.unwrap_or_default();
    Some(Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", replica_set.name_any())),
            namespace: replica_set.namespace(),
            labels: metadata.labels,
            annotations: metadata.annotations,
            finalizers: metadata.finalizers,
            owner_references: Some(vec![owner::controller_reference(replica_set)?]),
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    })
}
