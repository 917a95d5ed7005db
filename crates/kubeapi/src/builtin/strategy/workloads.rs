//! Deployments and ReplicaSets.

use serde_json::{Value, json};

use super::{labels, templates};
use crate::field::{FieldError, FieldPath};

pub(super) fn default_deployment(object: &mut Value) {
    default_template(object);
    let Some(strategy) = object
        .pointer_mut("/spec/strategy")
        .and_then(Value::as_object_mut)
    else {
        return;
    };
    if strategy.get("type").and_then(Value::as_str) != Some("RollingUpdate") {
        return;
    }
    let rolling = strategy.entry("rollingUpdate").or_insert_with(|| json!({}));
    if rolling.is_null() {
        *rolling = json!({});
    }
    if let Some(rolling) = rolling.as_object_mut() {
        for name in ["maxUnavailable", "maxSurge"] {
            let amount = rolling.entry(name).or_insert(Value::Null);
            if amount.is_null() {
                *amount = json!("25%");
            }
        }
    }
}

pub(super) fn default_replica_set(object: &mut Value) {
    default_template(object);
}

fn default_template(object: &mut Value) {
    if let Some(spec) = object.pointer_mut("/spec/template/spec") {
        templates::default_spec(spec);
    }
}

/// A new workload has no status yet.
pub(super) fn prepare(object: &mut Value, old: Option<&Value>) {
    if let (None, Some(fields)) = (old, object.as_object_mut()) {
        fields.insert("status".to_owned(), json!({}));
    }
}

/// The same for a ReplicaSet, whose status always has a count.
pub(super) fn prepare_replica_set(object: &mut Value, old: Option<&Value>) {
    if let (None, Some(fields)) = (old, object.as_object_mut()) {
        fields.insert("status".to_owned(), json!({"replicas": 0}));
    }
}

pub(super) fn validate_deployment(object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    validate_workload(object, old, "deployment", errors);
    let path = FieldPath::of("spec");
    let spec = object.get("spec").unwrap_or(&Value::Null);
    let strategy = spec.get("strategy").unwrap_or(&Value::Null);
    let rolling = strategy.get("rollingUpdate").filter(|rolling| !rolling.is_null());
    match (strategy.get("type").and_then(Value::as_str), rolling) {
        (Some("Recreate"), Some(_)) => {
            let detail = "may not be specified when strategy `type` is 'Recreate'";
            errors.push(FieldError::forbidden(
                &path.child("strategy").child("rollingUpdate"),
                detail,
            ));
        }
        (Some("RollingUpdate"), Some(rolling)) => {
            validate_rolling(rolling, &path.child("strategy").child("rollingUpdate"), errors);
        }
        _ => {}
    }
    let number = |name: &str| spec.get(name).and_then(Value::as_i64);
    if let (Some(deadline), Some(ready)) = (
        number("progressDeadlineSeconds"),
        number("minReadySeconds").or(Some(0)),
    ) && deadline <= ready
    {
        let detail = "must be greater than minReadySeconds";
        errors.push(FieldError::invalid(
            &path.child("progressDeadlineSeconds"),
            json!(deadline),
            detail,
        ));
    }
}

fn validate_rolling(rolling: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut zero = Vec::new();
    for name in ["maxUnavailable", "maxSurge"] {
        let Some(amount) = rolling.get(name) else { continue };
        let at = path.child(name);
        let value = match amount {
            Value::String(text) => match text
                .strip_suffix('%')
                .and_then(|digits| digits.parse::<i64>().ok())
            {
                Some(percent) => {
                    if name == "maxUnavailable" && percent > 100 {
                        errors.push(FieldError::invalid(
                            &at,
                            amount.clone(),
                            "must not be greater than 100%",
                        ));
                    }
                    percent
                }
                None => {
                    let detail = "a valid percent string must be a numeric string followed by an ending '%' (e.g. \
                                  '1%',  or '93%', regex used for validation is '[0-9]+%')";
                    errors.push(FieldError::invalid(&at, amount.clone(), detail));
                    continue;
                }
            },
            other => other.as_i64().unwrap_or_default(),
        };
        if value < 0 {
            errors.push(FieldError::invalid(
                &at,
                amount.clone(),
                "must be greater than or equal to 0",
            ));
        }
        if value == 0 {
            zero.push(name);
        }
    }
    if zero.len() == 2 {
        let value = rolling.get("maxUnavailable").cloned().unwrap_or_default();
        let detail = "may not be 0 when `maxSurge` is 0";
        errors.push(FieldError::invalid(&path.child("maxUnavailable"), value, detail));
    }
}

pub(super) fn validate_replica_set(object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    validate_workload(object, old, "replicaset", errors);
}

fn validate_workload(object: &Value, old: Option<&Value>, kind: &str, errors: &mut Vec<FieldError>) {
    let path = FieldPath::of("spec");
    let Some(spec) = object.get("spec") else {
        errors.push(FieldError::required(&path.child("selector"), ""));
        return;
    };
    let template = spec.get("template").unwrap_or(&Value::Null);
    if let Some(selector) = spec.get("selector") {
        let at = path.child("selector");
        labels::validate_selector(selector, &at, errors);
        if labels::selects_everything(selector) {
            let detail = format!("empty selector is invalid for {kind}");
            errors.push(FieldError::invalid(&at, selector.clone(), detail));
        } else {
            let template_labels = template.pointer("/metadata/labels");
            if !labels::matches(selector, template_labels.and_then(Value::as_object)) {
                errors.push(FieldError::invalid(
                    &path.child("template").child("metadata").child("labels"),
                    template_labels.cloned().unwrap_or(Value::Null),
                    "`selector` does not match template `labels`",
                ));
            }
        }
    }
    if let Some(template_labels) = template.pointer("/metadata/labels") {
        labels::validate_labels(template_labels, &FieldPath::of("spec.template.labels"), errors);
    }
    let pod = template.get("spec").unwrap_or(&Value::Null);
    let at = path.child("template").child("spec");
    if pod.is_null() {
        errors.push(FieldError::required(&at.child("containers"), ""));
    }
    templates::validate_spec(pod, &at, errors);
    let restart = templates::text(pod, "restartPolicy");
    if matches!(restart, "Never" | "OnFailure") {
        errors.push(FieldError::not_supported(
            &at.child("restartPolicy"),
            json!(restart),
            &["Always"],
        ));
    }
    if pod
        .get("activeDeadlineSeconds")
        .is_some_and(|value| !value.is_null())
    {
        let detail = format!(
            "activeDeadlineSeconds in {} is not Supported",
            if kind == "deployment" {
                "Deployment"
            } else {
                "ReplicaSet"
            }
        );
        errors.push(FieldError::forbidden(&at.child("activeDeadlineSeconds"), detail));
    }
    if let Some(old) = old.and_then(|old| old.pointer("/spec/selector"))
        && Some(old) != spec.get("selector")
    {
        let value = spec.get("selector").cloned().unwrap_or_default();
        errors.push(FieldError::invalid(
            &path.child("selector"),
            value,
            "field is immutable",
        ));
    }
}
