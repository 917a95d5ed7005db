//! The fields that only the server writes: uid, times, generation, deletion. Requirement KA-021.

use serde_json::{Value, json};

use crate::{api::Api, builtin::KindInfo, object};

/// Gives a new object its identity.
pub(super) fn begin(api: &Api, kind: &KindInfo, object: &mut Value) {
    object::set_meta(object, "uid", Some(json!(api.random().uuid().to_string())));
    object::set_meta(
        object,
        "creationTimestamp",
        Some(json!(object::format_time(api.clock().now()))),
    );
    for field in [
        "resourceVersion",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        object::set_meta(object, field, None);
    }
    // Where the server does not count generations, one that a client sends stays as it is.
    if has_generation(kind) {
        object::set_meta(object, "generation", Some(json!(1)));
    }
}

/// Keeps the identity of a stored object, and counts its generation.
pub(super) fn carry_over(kind: &KindInfo, prior: &Value, object: &mut Value) {
    for field in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "resourceVersion",
        "generateName",
    ] {
        let value = object::metadata(prior)
            .and_then(|metadata| metadata.get(field))
            .cloned();
        object::set_meta(object, field, value);
    }
    if has_generation(kind) && is_new_generation(kind, prior, object) {
        object::set_meta(object, "generation", Some(json!(object::generation(prior) + 1)));
    }
}

/// Whether objects of the kind have `metadata.generation`: all custom resources, and the built-in kinds whose strategy
/// in the reference counts it.
fn has_generation(kind: &KindInfo) -> bool {
    kind.custom
        || matches!(
            kind.storage_resource.as_str(),
            "/pods"
                | "/podtemplates"
                | "apps/deployments"
                | "apps/replicasets"
                | "apps/statefulsets"
                | "apps/daemonsets"
                | "batch/jobs"
                | "batch/cronjobs"
                | "autoscaling/horizontalpodautoscalers"
                | "networking.k8s.io/ingresses"
                | "networking.k8s.io/networkpolicies"
                | "policy/poddisruptionbudgets"
                | "discovery.k8s.io/endpointslices"
                | "apiextensions.k8s.io/customresourcedefinitions"
                | "admissionregistration.k8s.io/validatingadmissionpolicies"
                | "admissionregistration.k8s.io/validatingadmissionpolicybindings"
        )
}

/// For a built-in kind a change of `spec` (of a PodTemplate its template), of a Deployment of its annotations too; for a custom resource a change of anything but metadata and, where it is a
/// subresource, the status.
fn is_new_generation(kind: &KindInfo, prior: &Value, object: &Value) -> bool {
    if !kind.custom {
        let annotations = |object: &Value| {
            object::metadata(object)
                .and_then(|metadata| metadata.get("annotations"))
                .cloned()
        };
        // Annotations of a Deployment say how it is rolled out.
        let rolled_out =
            kind.storage_resource == "apps/deployments" && annotations(prior) != annotations(object);
        let content = if kind.storage_resource == "/podtemplates" {
            "template"
        } else {
            "spec"
        };
        return rolled_out || prior.get(content) != object.get(content);
    }
    let (Some(before), Some(after)) = (prior.as_object(), object.as_object()) else {
        return false;
    };
    let counts = |field: &String| field != "metadata" && (field != "status" || !kind.status);
    before
        .keys()
        .chain(after.keys())
        .filter(|field| counts(field))
        .any(|field| before.get(field) != after.get(field))
}

/// Whether storing `object` would change nothing but the times in `managedFields`.
pub(super) fn is_unchanged(prior: &Value, object: &Value) -> bool {
    if prior == object {
        return true;
    }
    without_times(prior) == without_times(object)
}

fn without_times(object: &Value) -> Value {
    let mut copy = object.clone();
    object::set_meta(&mut copy, "resourceVersion", None);
    if let Some(entries) = object::metadata_mut(&mut copy)
        .and_then(|metadata| metadata.get_mut("managedFields"))
        .and_then(Value::as_array_mut)
    {
        for entry in entries.iter_mut().filter_map(Value::as_object_mut) {
            entry.remove("time");
        }
    }
    copy
}

/// Whether the object was being deleted and nothing holds it any more.
pub(super) fn is_finished(kind: &KindInfo, prior: Option<&Value>, object: &Value) -> bool {
    let Some(prior) = prior else { return false };
    if !object::is_being_deleted(prior) || !object::finalizers(object).is_empty() {
        return false;
    }
    let grace = object::metadata(object)
        .and_then(|metadata| metadata.get("deletionGracePeriodSeconds"))
        .and_then(Value::as_i64)
        .unwrap_or(0);
    grace == 0 && !(kind.storage_resource == "/namespaces" && has_namespace_finalizers(object))
}

/// Whether a Namespace still has `spec.finalizers`.
pub(crate) fn has_namespace_finalizers(object: &Value) -> bool {
    object
        .pointer("/spec/finalizers")
        .and_then(Value::as_array)
        .is_some_and(|finalizers| !finalizers.is_empty())
}
