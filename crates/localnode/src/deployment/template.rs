//! Which ReplicaSet belongs to a template, and how a new one looks.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use sha2::{Digest, Sha256};

use crate::owner;

/// Tells the Pods of one template from those of another.
pub(crate) const HASH_LABEL: &str = "pod-template-hash";
/// The number of the rollout, on the Deployment and on its ReplicaSets.
pub(crate) const REVISION: &str = "deployment.kubernetes.io/revision";
/// Numbers a ReplicaSet had before it was used again.
pub(crate) const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// The Deployment's size when a ReplicaSet was last scaled: how a change of size is told from a rollout.
pub(crate) const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
/// The same with the surge.
pub(crate) const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
const NOT_COPIED: [&str; 5] = [
    LAST_APPLIED,
    REVISION,
    REVISION_HISTORY,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
];
/// Characters that cannot form a word or be taken for one another.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// A hash of the template, stable across versions of this program; `collisions` makes another one of it.
pub(crate) fn hash(template: &PodTemplateSpec, collisions: i32) -> String {
    // Keys of a JSON value are in order, so equal templates have equal texts.
    let text = serde_json::to_value(template)
        .map(|value| value.to_string())
        .unwrap_or_default();
    let mut digest = Sha256::new();
    digest.update(text.as_bytes());
    if collisions > 0 {
        digest.update(collisions.to_be_bytes());
    }
    digest
        .finalize()
        .iter()
        .take(10)
        .map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]))
        .collect()
}

/// True if the ReplicaSet was made for this template: its hash label aside, they are equal.
pub(crate) fn is_for(replica_set: &ReplicaSet, template: &PodTemplateSpec) -> bool {
    let Some(found) = replica_set.spec.as_ref().and_then(|spec| spec.template.as_ref()) else {
        return false;
    };
    without_hash(found) == without_hash(template)
}

fn without_hash(template: &PodTemplateSpec) -> PodTemplateSpec {
    let mut template = template.clone();
    if let Some(metadata) = &mut template.metadata {
        // The API may drop or keep it; it says nothing about the Pods.
        metadata.creation_timestamp = None;
        if let Some(labels) = &mut metadata.labels {
            labels.remove(HASH_LABEL);
        }
        if metadata.labels.as_ref().is_some_and(BTreeMap::is_empty) {
            metadata.labels = None;
        }
        if *metadata == ObjectMeta::default() {
            template.metadata = None;
        }
    }
    template
}

/// A ReplicaSet for the Deployment's template.
pub(crate) fn new_replica_set(
    deployment: &Deployment,
    replicas: i32,
    annotations: BTreeMap<String, String>,
    collisions: i32,
) -> Option<ReplicaSet> {
    let spec = deployment.spec.as_ref()?;
    let hash = hash(&spec.template, collisions);
    let mut template = spec.template.clone();
    let labels = template
        .metadata
        .get_or_insert_default()
        .labels
        .get_or_insert_default();
    labels.insert(HASH_LABEL.to_owned(), hash.clone());
    let labels = labels.clone();
    let mut selector = spec.selector.clone();
    selector
        .match_labels
        .get_or_insert_default()
        .insert(HASH_LABEL.to_owned(), hash.clone());
    Some(ReplicaSet {
        metadata: ObjectMeta {
            name: Some(format!("{}-{hash}", deployment.name_any())),
            namespace: deployment.namespace(),
            labels: Some(labels),
            annotations: Some(annotations),
            owner_references: Some(vec![owner::controller_reference(deployment)?]),
            ..ObjectMeta::default()
        },
        spec: Some(ReplicaSetSpec {
            replicas: Some(replicas),
            min_ready_seconds: spec.min_ready_seconds,
            selector,
            template: Some(template),
        }),
        status: None,
    })
}

/// The annotations a ReplicaSet takes over from its Deployment.
pub(crate) fn copied_annotations(deployment: &Deployment) -> BTreeMap<String, String> {
    deployment
        .annotations()
        .iter()
        .filter(|(name, _)| !NOT_COPIED.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// The rollout's number on an object; 0 if there is none.
pub(crate) fn revision(object: &impl ResourceExt) -> i64 {
    number(object, REVISION).unwrap_or(0)
}

/// A number in an annotation.
pub(crate) fn number(object: &impl ResourceExt, annotation: &str) -> Option<i64> {
    object.annotations().get(annotation)?.parse().ok()
}
