//! What a change of a Job may change.

use serde_json::{Map, Value, json};

use super::{number, status, text};
use crate::field::{FieldError, FieldPath};

pub(super) fn validate(spec: &Value, old: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let old_spec = old.get("spec").unwrap_or(&Value::Null);
    if text(spec, "completionMode") == "Indexed" {
        let completions = number(spec, "completions");
        if completions.is_some()
            && completions != number(old_spec, "completions")
            && completions != number(spec, "parallelism")
        {
            let detail = "can only be modified in tandem with spec.parallelism";
            errors.push(FieldError::invalid(
                &path.child("completions"),
                json!(completions),
                detail,
            ));
        }
    } else {
        keeps(spec, old_spec, "completions", path, errors);
    }
    keeps(spec, old_spec, "selector", path, errors);
    validate_template(spec, old, path, errors);
    for name in [
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ] {
        keeps(spec, old_spec, name, path, errors);
    }
}

/// The template is fixed, but for where the Pods go and what they are given, while the Job is suspended and has none.
fn validate_template(spec: &Value, old: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let old_spec = old.get("spec").unwrap_or(&Value::Null);
    let template = spec.get("template").cloned().unwrap_or_default();
    let mut expected = old_spec.get("template").cloned().unwrap_or_default();
    let suspended = old_spec.get("suspend") == Some(&Value::Bool(true));
    let status = old.get("status").unwrap_or(&Value::Null);
    let rests = status.get("startTime").is_none() || status::holds(status, "Suspended");
    let at = path.child("template");
    if suspended && rests && number(status, "active").unwrap_or_default() == 0 {
        allow(&template, &mut expected, "/metadata", &["annotations", "labels"]);
        allow(
            &template,
            &mut expected,
            "/spec",
            &["nodeSelector", "tolerations", "schedulingGates"],
        );
        allow_node_affinity(&template, &mut expected);
        for list in ["containers", "initContainers"] {
            allow_resources(&template, &mut expected, list);
        }
        let pods = |template: &Value| template.get("spec").cloned().unwrap_or_default();
        if pods(&template) != pods(&expected) {
            let detail = "field is immutable";
            errors.push(FieldError::invalid(&at.child("spec"), pods(&template), detail));
        }
    } else if template != expected {
        errors.push(FieldError::invalid(&at, template, "field is immutable"));
    }
}

/// Takes fields below `pointer` from `new`.
fn allow(new: &Value, expected: &mut Value, pointer: &str, names: &[&str]) {
    let Some(fields) = expected.pointer_mut(pointer).and_then(Value::as_object_mut) else {
        return;
    };
    for name in names {
        match new.pointer(pointer).and_then(|parent| parent.get(*name)) {
            Some(value) => fields.insert((*name).to_owned(), value.clone()),
            None => fields.remove(*name),
        };
    }
}

fn allow_node_affinity(new: &Value, expected: &mut Value) {
    let affinity = |template: &Value| template.pointer("/spec/affinity").cloned();
    let wanted = affinity(new);
    let mut kept = affinity(expected).unwrap_or_else(|| json!({}));
    let node = wanted
        .as_ref()
        .and_then(|affinity| affinity.get("nodeAffinity"))
        .cloned();
    if let Some(fields) = kept.as_object_mut() {
        match node {
            Some(node) => fields.insert("nodeAffinity".to_owned(), node),
            None => fields.remove("nodeAffinity"),
        };
    }
    let is_empty = kept.as_object().is_some_and(Map::is_empty);
    if let Some(pod) = expected.get_mut("spec").and_then(Value::as_object_mut) {
        if is_empty && wanted.is_none() {
            pod.remove("affinity");
        } else {
            pod.insert("affinity".to_owned(), kept);
        }
    }
}

fn allow_resources(new: &Value, expected: &mut Value, list: &str) {
    let pointer = format!("/spec/{list}");
    let (Some(wanted), Some(kept)) = (
        new.pointer(&pointer).and_then(Value::as_array),
        expected.pointer_mut(&pointer).and_then(Value::as_array_mut),
    ) else {
        return;
    };
    if wanted.len() != kept.len() {
        return;
    }
    for (wanted, kept) in wanted.iter().zip(kept) {
        if wanted.get("name") == kept.get("name")
            && let Some(kept) = kept.as_object_mut()
        {
            match wanted.get("resources") {
                Some(resources) => kept.insert("resources".to_owned(), resources.clone()),
                None => kept.remove("resources"),
            };
        }
    }
}

/// A field that never changes.
fn keeps(spec: &Value, old: &Value, name: &str, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if spec.get(name) != old.get(name) {
        let value = spec.get(name).cloned().unwrap_or_default();
        errors.push(FieldError::invalid(
            &path.child(name),
            value,
            "field is immutable",
        ));
    }
}
