//! Kinds that are kept and shown, and that nothing here acts upon: HorizontalPodAutoscalers, NetworkPolicies, Ingresses,
//! PodDisruptionBudgets, PersistentVolumeClaims, RuntimeClasses, and EndpointSlices that users write. Requirement KA-010.

use serde_json::{Map, Value, json};

use super::labels;
use crate::{
    builtin::validation::{Errors, Field, amounts, internal, pods, scheduling::check_tolerations},
    field::{FieldError, FieldErrorKind, FieldPath},
    names,
};

/// Fills in the metric and the scaling rules that apply when none are stated.
pub(super) fn default_autoscaler(object: &mut Value) {
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        if is_empty(spec.get("metrics")) {
            let processor = json!([{
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
            }]);
            spec.insert("metrics".to_owned(), processor);
        }
        if let Some(behavior) = spec.get_mut("behavior").and_then(Value::as_object_mut) {
            let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
            let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
            let up =
                json!({"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [pods, percent]});
            let down = json!({"selectPolicy": "Max", "policies": [percent]});
            fill(behavior, "scaleUp", up);
            fill(behavior, "scaleDown", down);
        }
    }
    if let Some(fields) = object.as_object_mut() {
        fill(
            fields,
            "status",
            json!({"desiredReplicas": 0, "currentMetrics": null}),
        );
    }
}

/// A policy applies to incoming connections, and to outgoing ones if it has rules for them.
pub(super) fn default_network_policy(object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    if is_empty(spec.get("policyTypes")) {
        let types = if is_empty(spec.get("egress")) {
            json!(["Ingress"])
        } else {
            json!(["Ingress", "Egress"])
        };
        spec.insert("policyTypes".to_owned(), types);
    }
}

pub(super) fn default_ingress(object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        fill(fields, "status", json!({"loadBalancer": {}}));
    }
}

pub(super) fn default_disruption_budget(object: &mut Value) {
    let none = json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0});
    if let Some(fields) = object.as_object_mut() {
        fill(fields, "status", none);
    }
}

pub(super) fn validate_disruption_budget(object: &Value, _old: Option<&Value>, errors: &mut Errors) {
    let spec = Field::of(object, "spec");
    if spec.has("minAvailable") && spec.has("maxUnavailable") {
        let fields = [
            ("minAvailable", "MinAvailable", Value::Null),
            ("selector", "Selector", Value::Null),
            ("maxUnavailable", "MaxUnavailable", Value::Null),
            (
                "unhealthyPodEvictionPolicy",
                "UnhealthyPodEvictionPolicy",
                Value::Null,
            ),
        ];
        let detail = "minAvailable and maxUnavailable cannot be both set";
        spec.invalid_structure(errors, &internal(spec.value, &fields), detail);
    }
    for name in ["minAvailable", "maxUnavailable"] {
        amounts::check(&spec.child(name), errors);
        amounts::check_share(&spec.child(name), errors);
    }
    let selector = spec.child("selector");
    labels::validate_selector(selector.value, &selector.path, errors);
    spec.child("unhealthyPodEvictionPolicy")
        .one_of_if_set(errors, &["AlwaysAllow", "IfHealthyBudget"]);
}

pub(super) fn default_claim(object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        fill(fields, "spec", json!({"resources": {}}));
        fill(fields, "status", json!({"phase": "Pending"}));
    }
}

/// A new claim waits. What it is filled from stands in two fields: the older one takes claims and snapshots only, and one
/// in another namespace is behind a feature that a server does not have on by default.
pub(super) fn prepare_claim(object: &mut Value, old: Option<&Value>) {
    if let (None, Some(fields)) = (old, object.as_object_mut()) {
        fields.insert("status".to_owned(), json!({"phase": "Pending"}));
    }
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    let had = |name: &str| old.is_some_and(|old| old.pointer(&format!("/spec/{name}")).is_some());
    let text = |source: &Value, name: &str| {
        source
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let elsewhere = |source: &Value| !text(source, "namespace").is_empty();
    if spec.get("dataSourceRef").is_some_and(elsewhere) && !had("dataSourceRef") {
        spec.remove("dataSourceRef");
    }
    let is_usual = |source: &Value| {
        matches!(
            (text(source, "kind").as_str(), text(source, "apiGroup").as_str()),
            ("PersistentVolumeClaim", "") | ("VolumeSnapshot", "snapshot.storage.k8s.io")
        )
    };
    match (
        spec.get("dataSource").cloned(),
        spec.get("dataSourceRef").cloned(),
    ) {
        (Some(source), None) if is_usual(&source) || had("dataSource") || had("dataSourceRef") => {
            spec.insert("dataSourceRef".to_owned(), source);
        }
        (Some(_), None) => {
            spec.remove("dataSource");
        }
        (None, Some(reference)) if !elsewhere(&reference) => {
            let mut source = reference;
            if let Some(fields) = source.as_object_mut() {
                fields.remove("namespace");
            }
            spec.insert("dataSource".to_owned(), source);
        }
        _ => {}
    }
}

pub(super) fn validate_runtime_class(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let handler = Field::of(object, "handler");
    if let Some(old) = old {
        handler.declared_immutable(old.get("handler").unwrap_or(&Value::Null), errors);
        return;
    }
    let overhead = Field::of(object, "overhead").child("podFixed");
    if overhead.is_set() {
        let overhead = overhead.at(FieldPath::of("overhead"));
        pods::check_overhead(&overhead, errors);
    }
    let scheduling = Field::of(object, "scheduling");
    let selector = scheduling.child("nodeSelector");
    labels::validate_labels(selector.value, &selector.path, errors);
    let tolerations = scheduling.child("tolerations");
    check_tolerations(&tolerations, errors);
    let mut seen = Vec::new();
    for toleration in tolerations.items() {
        let key = ["key", "operator", "value", "effect"].map(|name| toleration.text_of(name));
        if seen.contains(&key) {
            let fields = [
                ("key", "Key", json!("")),
                ("operator", "Operator", json!("")),
                ("value", "Value", json!("")),
                ("effect", "Effect", json!("")),
                ("tolerationSeconds", "TolerationSeconds", Value::Null),
            ];
            errors.push(FieldError {
                kind: FieldErrorKind::Duplicate,
                path: toleration.path.clone(),
                value: None,
                detail: internal(toleration.value, &fields),
            });
        }
        seen.push(key);
    }
    // This is declared, and told last.
    handler.demand_as(errors, names::label);
}

/// Gives `parent` the fields of `defaults` below `name` that it does not have.
fn fill(parent: &mut Map<String, Value>, name: &str, defaults: Value) {
    match (parent.get_mut(name), defaults) {
        (Some(Value::Object(present)), Value::Object(defaults)) => {
            for (field, value) in defaults {
                present.entry(field).or_insert(value);
            }
        }
        (None | Some(Value::Null), defaults) => {
            parent.insert(name.to_owned(), defaults);
        }
        _ => {}
    }
}

fn is_empty(list: Option<&Value>) -> bool {
    list.and_then(Value::as_array).is_none_or(Vec::is_empty)
}
