//! Deployments, ReplicaSets and PodTemplates.

use serde_json::{Value, json};

use super::{labels, templates};
use crate::{
    builtin::validation::{Errors, Field, amounts, internal, pods},
    field::{FieldError, FieldErrorKind},
};

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

pub(super) fn default_pod_template(object: &mut Value) {
    if let Some(spec) = object.pointer_mut("/template/spec") {
        templates::default_spec(spec);
    }
}

pub(super) fn validate_pod_template(object: &Value, _old: Option<&Value>, errors: &mut Errors) {
    pods::check_template(&Field::of(object, "template"), errors);
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

pub(super) fn validate_deployment(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = Field::of(object, "spec");
    spec.child("replicas").not_negative(errors);
    validate_selector(&spec, errors);
    validate_strategy(&spec.child("strategy"), errors);
    for name in ["minReadySeconds", "revisionHistoryLimit"] {
        spec.child(name).not_negative(errors);
    }
    let deadline = spec.child("progressDeadlineSeconds");
    deadline.not_negative(errors);
    if deadline
        .number()
        .is_some_and(|seconds| seconds <= spec.number_of("minReadySeconds"))
    {
        deadline.invalid(errors, "must be greater than minReadySeconds");
    }
    keep_selector(&spec, old, errors);
}

pub(super) fn validate_replica_set(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = Field::of(object, "spec");
    for name in ["replicas", "minReadySeconds"] {
        spec.child(name).not_negative(errors);
    }
    validate_selector(&spec, errors);
    keep_selector(&spec, old, errors);
}

fn validate_strategy(strategy: &Field<'_>, errors: &mut Errors) {
    let rolling = strategy.child("rollingUpdate");
    match strategy.text_of("type") {
        "Recreate" if rolling.is_set() => {
            rolling.forbidden(errors, "may not be specified when strategy `type` is 'Recreate'");
        }
        "Recreate" => {}
        "RollingUpdate" if !rolling.is_set() => {
            rolling.required(errors, "this should be defaulted and never be nil");
        }
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.child("maxUnavailable"), rolling.child("maxSurge"));
            amounts::check(&unavailable, errors);
            amounts::check(&surge, errors);
            if amounts::is_none(&unavailable) && amounts::is_none(&surge) {
                unavailable.invalid(errors, "may not be 0 when `maxSurge` is 0");
            }
            amounts::check_share(&unavailable, errors);
        }
        kind => {
            let amounts = [
                ("maxUnavailable", "MaxUnavailable", json!(0)),
                ("maxSurge", "MaxSurge", json!(0)),
            ];
            let rolling = if rolling.is_set() {
                internal(rolling.value, &amounts)
            } else {
                "null".to_owned()
            };
            errors.push(FieldError {
                kind: FieldErrorKind::NotSupported,
                path: strategy.path.clone(),
                value: None,
                detail: format!(
                    "{{\"Type\":{},\"RollingUpdate\":{rolling}}}: supported values: \"Recreate\", \"RollingUpdate\"",
                    json!(kind)
                ),
            });
        }
    }
}

/// What is wrong with the selector of a workload, and with its template.
fn validate_selector(spec: &Field<'_>, errors: &mut Errors) {
    let selector = spec.child("selector");
    let before = errors.len();
    if selector.is_set() {
        labels::validate_selector(selector.value, &selector.path, errors);
        if errors.len() > before {
            selector.invalid(errors, "invalid label selector");
            return;
        }
        if labels::selects_everything(selector.value) {
            // The reference says so of ReplicaSets too.
            selector.invalid(errors, "empty selector is invalid for deployment");
        }
    } else {
        selector.required(errors, "");
    }
    let template = spec.child("template");
    let own = template.child("metadata").child("labels");
    let fits = selector.is_set() && labels::matches(selector.value, own.value.as_object());
    if !fits {
        own.invalid(errors, "`selector` does not match template `labels`");
    }
    pods::check_template(&template, errors);
    let pod = template.child("spec");
    let (restart, deadline) = (pod.child("restartPolicy"), pod.child("activeDeadlineSeconds"));
    if pod.is_set() && restart.text() != "Always" {
        restart.not_supported(errors, &["Always"]);
    }
    if deadline.is_set() {
        // The reference says so of Deployments too.
        deadline.forbidden(errors, "activeDeadlineSeconds in ReplicaSet is not Supported");
    }
}

fn keep_selector(spec: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    if let Some(old) = old {
        let before = old.pointer("/spec/selector").unwrap_or(&Value::Null);
        spec.child("selector").immutable(before, errors);
    }
}
