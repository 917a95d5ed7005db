//! Kinds that are kept and shown, and that nothing here acts upon: HorizontalPodAutoscalers, NetworkPolicies, Ingresses,
//! PodDisruptionBudgets, PersistentVolumeClaims, RuntimeClasses, and EndpointSlices that users write. Requirement KA-010.

use serde_json::{Map, Value, json};

use crate::{
    field::{FieldError, FieldPath},
    names,
};

/// The most endpoints of one EndpointSlice.
const ENDPOINTS: usize = 1000;

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

pub(super) fn validate_autoscaler(object: &Value, _old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let path = FieldPath::of("spec");
    let number = |name: &str| object.pointer(&format!("/spec/{name}")).and_then(Value::as_i64);
    let (least, most) = (
        number("minReplicas").unwrap_or(1),
        number("maxReplicas").unwrap_or(0),
    );
    let mut refuse = |name: &str, value: i64, detail: &str| {
        errors.push(FieldError::invalid(&path.child(name), json!(value), detail));
    };
    if least < 1 {
        refuse("minReplicas", least, "must be greater than or equal to 1");
    }
    if most < 1 {
        refuse("maxReplicas", most, "must be greater than 0");
    }
    if most < least {
        refuse(
            "maxReplicas",
            most,
            "must be greater than or equal to `minReplicas`",
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

pub(super) fn validate_ingress(object: &Value, _old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    if is_empty(spec.get("rules")) && spec.get("defaultBackend").is_none_or(Value::is_null) {
        errors.push(FieldError::invalid(
            &FieldPath::of("spec"),
            spec.get("rules").cloned().unwrap_or_default(),
            "either `defaultBackend` or `rules` must be specified",
        ));
    }
}

pub(super) fn default_disruption_budget(object: &mut Value) {
    let none = json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0});
    if let Some(fields) = object.as_object_mut() {
        fill(fields, "status", none);
    }
}

pub(super) fn validate_disruption_budget(object: &Value, _old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    let is_set = |name: &str| spec.get(name).is_some_and(|value| !value.is_null());
    if is_set("minAvailable") && is_set("maxUnavailable") {
        errors.push(FieldError::invalid(
            &FieldPath::of("spec"),
            spec.clone(),
            "minAvailable and maxUnavailable cannot be both set",
        ));
    }
}

pub(super) fn default_claim(object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        fill(fields, "spec", json!({"resources": {}}));
        fill(fields, "status", json!({"phase": "Pending"}));
    }
}

pub(super) fn validate_claim(object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let path = FieldPath::of("spec");
    let spec = object.get("spec").unwrap_or(&Value::Null);
    if is_empty(spec.get("accessModes")) {
        errors.push(FieldError::required(
            &path.child("accessModes"),
            "at least 1 access mode is required",
        ));
    }
    if spec.pointer("/resources/requests/storage").is_none() {
        errors.push(FieldError::required(&path.child("resources").key("storage"), ""));
    }
    let Some(old) = old.and_then(|old| old.get("spec")) else {
        return;
    };
    // A bound claim may ask for more space, and nothing else.
    let rest = |spec: &Value| {
        let mut rest = spec.clone();
        if let Some(fields) = rest.as_object_mut() {
            for name in ["resources", "volumeName", "volumeAttributesClassName"] {
                fields.remove(name);
            }
        }
        rest
    };
    if rest(old) != rest(spec) {
        errors.push(FieldError::forbidden(
            &path,
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
        ));
    }
}

pub(super) fn validate_runtime_class(object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let path = FieldPath::of("handler");
    let handler = object.get("handler").and_then(Value::as_str).unwrap_or_default();
    if !handler.is_empty() {
        for detail in names::label(handler) {
            errors.push(FieldError::invalid(&path, json!(handler), detail));
        }
    }
    keeps(object, old, "handler", errors);
}

pub(super) fn validate_endpoint_slice(object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let endpoints = object.get("endpoints").and_then(Value::as_array);
    if endpoints.is_some_and(|endpoints| endpoints.len() > ENDPOINTS) {
        errors.push(FieldError {
            kind: crate::field::FieldErrorKind::TooMany,
            path: FieldPath::of("endpoints"),
            value: endpoints.map(|endpoints| json!(endpoints.len())),
            detail: format!("must have at most {ENDPOINTS} items"),
        });
    }
    keeps(object, old, "addressType", errors);
}

/// A field that never changes.
fn keeps(object: &Value, old: Option<&Value>, name: &str, errors: &mut Vec<FieldError>) {
    if old.is_some_and(|old| old.get(name) != object.get(name)) {
        let value = object.get(name).cloned().unwrap_or_default();
        errors.push(FieldError::invalid(
            &FieldPath::of(name),
            value,
            "field is immutable",
        ));
    }
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
