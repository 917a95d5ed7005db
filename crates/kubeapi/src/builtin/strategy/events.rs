//! Events.

use serde_json::{Value, json};

use crate::field::{FieldError, FieldPath};

/// The longest note, in characters.
const NOTE_LENGTH: usize = 1024;

/// Fields that the reference writes out even when they are empty.
pub(super) fn default(object: &mut Value) {
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    for name in ["eventTime", "firstTimestamp", "lastTimestamp"] {
        fields.entry(name).or_insert(Value::Null);
    }
    for name in ["source", "involvedObject"] {
        fields.entry(name).or_insert_with(|| json!({}));
    }
}

/// The same in the form of events.k8s.io.
pub(super) fn default_view(object: &mut Value) {
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    for name in ["eventTime", "deprecatedFirstTimestamp", "deprecatedLastTimestamp"] {
        fields.entry(name).or_insert(Value::Null);
    }
    for name in ["deprecatedSource", "regarding"] {
        fields.entry(name).or_insert_with(|| json!({}));
    }
}

/// What the newer form demands beside the namespace: who reports, what was done and why.
pub(super) fn validate_view(object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    check_namespace(object, text_at(object, "/regarding/namespace"), errors);
    // An Event that was made in the older form is not held to the rules of the newer one.
    if old.is_some() {
        return;
    }
    for name in [
        "eventTime",
        "reportingController",
        "reportingInstance",
        "action",
        "reason",
    ] {
        if text(name).is_empty() {
            errors.push(FieldError::required(&FieldPath::of(name), ""));
        }
    }
    if !matches!(text("type"), "Normal" | "Warning") {
        let detail = format!("has invalid value: {}", text("type"));
        errors.push(FieldError::invalid(&FieldPath::of("type"), json!(""), detail));
    }
    if text("note").chars().count() > NOTE_LENGTH {
        let detail = format!("can have at most {NOTE_LENGTH} characters");
        errors.push(FieldError::invalid(&FieldPath::of("note"), json!(""), detail));
    }
}

/// An event lies in the namespace of the object it is about, or in `default` for one without.
pub(super) fn validate(object: &Value, _old: Option<&Value>, errors: &mut Vec<FieldError>) {
    check_namespace(object, text_at(object, "/involvedObject/namespace"), errors);
}

fn check_namespace(object: &Value, involved: &str, errors: &mut Vec<FieldError>) {
    let namespace = text_at(object, "/metadata/namespace");
    let fits = match involved {
        "" => namespace == "default" || namespace == "kube-system",
        involved => involved == namespace,
    };
    if !fits {
        errors.push(FieldError::invalid(
            &FieldPath::of("involvedObject.namespace"),
            Value::from(involved),
            "does not match event.namespace",
        ));
    }
}

fn text_at<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}
