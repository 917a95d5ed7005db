//! Events.

use serde_json::{Value, json};

use crate::field::{FieldError, FieldPath};

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

/// An event lies in the namespace of the object it is about, or in `default` for one without.
pub(super) fn validate(object: &Value, _old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let namespace = object
        .pointer("/metadata/namespace")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let involved = object
        .pointer("/involvedObject/namespace")
        .and_then(Value::as_str)
        .unwrap_or_default();
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
