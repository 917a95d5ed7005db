//! Pods.

use serde_json::{Map, Value, json};

use super::templates;
use crate::field::{FieldError, FieldPath};

/// What an update of a Pod may change in its spec.
const UPDATE_DETAIL: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

pub(super) fn default(object: &mut Value) {
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        default_addresses(status);
    }
    let Some(spec) = object.get_mut("spec") else {
        return;
    };
    templates::default_spec(spec);
    if let Some(spec) = spec.as_object_mut() {
        spec.entry("enableServiceLinks").or_insert(json!(true));
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

pub(super) fn validate(object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let path = FieldPath::of("spec");
    let Some(spec) = object.get("spec") else {
        errors.push(FieldError::required(&path.child("containers"), ""));
        return;
    };
    match old.and_then(|old| old.get("spec")) {
        Some(old) => {
            if fixed_part(spec) != fixed_part(old) {
                errors.push(FieldError::forbidden(&path, UPDATE_DETAIL));
            }
        }
        None => templates::validate_spec(spec, &path, errors),
    }
}

/// The spec without the fields that may change. The node is not among them: it is set by a binding.
fn fixed_part(spec: &Value) -> Value {
    let mut fixed = spec.clone();
    if let Some(fields) = fixed.as_object_mut() {
        for name in [
            "activeDeadlineSeconds",
            "tolerations",
            "terminationGracePeriodSeconds",
        ] {
            fields.remove(name);
        }
        if fields.get("nodeName").is_some_and(|node| node == "") {
            fields.remove("nodeName");
        }
        for list in ["containers", "initContainers"] {
            for container in fields
                .get_mut(list)
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
            {
                if let Some(container) = container.as_object_mut() {
                    container.remove("image");
                }
            }
        }
    }
    fixed
}
