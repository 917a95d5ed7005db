//! Pods.

use serde_json::{Map, Value, json};

use super::templates;
use crate::builtin::validation::{Errors, pod_updates, pods, resources};

pub(super) fn default(object: &mut Value) {
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        default_addresses(status);
    }
    let Some(spec) = object.get_mut("spec") else {
        return;
    };
    templates::default_spec(spec);
    let requests = resources::default_pod(spec);
    if let (false, Some(resources)) = (
        requests.is_empty(),
        spec.get_mut("resources").and_then(Value::as_object_mut),
    ) {
        let own = resources.entry("requests").or_insert_with(|| json!({}));
        if let Some(own) = own.as_object_mut() {
            own.extend(requests);
        }
    }
    if let Some(spec) = spec.as_object_mut() {
        spec.entry("enableServiceLinks").or_insert(json!(true));
        // As soon as it may be, which is after a second.
        let period = spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64);
        if period.is_some_and(|seconds| seconds < 0) {
            spec.insert("terminationGracePeriodSeconds".to_owned(), json!(1));
        }
    }
}

/// The first address is told twice; who writes one of the two means both.
fn default_addresses(status: &mut Map<String, Value>) {
    let address = status.get("podIP").filter(|address| !address.is_null()).cloned();
    let addresses = status.get("podIPs").and_then(Value::as_array);
    let first = addresses.and_then(|list| list.first()?.get("ip")).cloned();
    match (address, first) {
        (Some(address), None) => {
            status.insert("podIPs".to_owned(), json!([{"ip": address}]));
        }
        (None, Some(first)) => {
            status.insert("podIP".to_owned(), first);
        }
        _ => {}
    }
}

/// A new Pod is pending; its quality of service follows from its resources. An update keeps the status.
pub(super) fn prepare(object: &mut Value, old: Option<&Value>) {
    let class = quality_of_service(object);
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    if old.is_none() {
        fields.insert(
            "status".to_owned(),
            json!({"phase": "Pending", "qosClass": class}),
        );
        if let Some(spec) = fields.get_mut("spec").and_then(Value::as_object_mut) {
            admit(spec);
        }
    }
}

/// What the admission of the reference adds to every new Pod: its priority, and how long it stays on a node that is lost.
fn admit(spec: &mut Map<String, Value>) {
    spec.entry("priority").or_insert(json!(0));
    spec.entry("preemptionPolicy")
        .or_insert(json!("PreemptLowerPriority"));
    let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
    let Some(tolerations) = tolerations.as_array_mut() else {
        return;
    };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = tolerations.iter().any(|toleration| {
            let text = |name: &str| toleration.get(name).and_then(Value::as_str).unwrap_or_default();
            matches!(text("key"), own if own == key || own.is_empty())
                && matches!(text("effect"), "NoExecute" | "")
        });
        if !tolerated {
            tolerations.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300,
            }));
        }
    }
}

/// `Guaranteed` if every container limits processor and memory to what it requests, `BestEffort` if none asks for any,
/// otherwise `Burstable`.
fn quality_of_service(object: &Value) -> &'static str {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    let containers: Vec<&Value> = templates::list(spec, "containers")
        .chain(templates::list(spec, "initContainers"))
        .collect();
    let amount = |container: &Value, kind: &str, resource: &str| {
        container
            .pointer(&format!("/resources/{kind}/{resource}"))
            .cloned()
    };
    let is_set = |container: &&Value| {
        ["limits", "requests"].iter().any(|kind| {
            ["cpu", "memory"]
                .iter()
                .any(|resource| amount(container, kind, resource).is_some())
        })
    };
    if !containers.iter().any(is_set) {
        return "BestEffort";
    }
    let is_guaranteed = |container: &&Value| {
        ["cpu", "memory"].iter().all(|resource| {
            let limit = amount(container, "limits", resource);
            limit.is_some() && amount(container, "requests", resource) == limit
        })
    };
    if containers.iter().all(is_guaranteed) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

pub(super) fn validate(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    match old {
        Some(old) => pod_updates::check(object, old, errors),
        None => pods::check(object, errors),
    }
}
