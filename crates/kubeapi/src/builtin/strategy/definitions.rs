//! Custom resource definitions.

use serde_json::{Value, json};

use crate::{crd, field::FieldError};

/// Names that follow from the kind, and the strategy that every version shares.
pub(super) fn default(object: &mut Value) {
    let kind = object
        .pointer("/spec/names/kind")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    if kind.is_empty() {
        return;
    }
    let Some(names) = object.pointer_mut("/spec/names").and_then(Value::as_object_mut) else {
        return;
    };
    let is_absent = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().is_empty();
    if is_absent(names.get("singular")) {
        names.insert("singular".to_owned(), json!(kind.to_lowercase()));
    }
    if is_absent(names.get("listKind")) {
        names.insert("listKind".to_owned(), json!(format!("{kind}List")));
    }
}

/// The status is the server's; a new definition begins with its storage version as the only stored one.
pub(super) fn prepare(object: &mut Value, old: Option<&Value>) {
    let stored = crd::stored_versions(object, old);
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    let mut status = match old.and_then(|old| old.get("status")) {
        Some(status) => status.clone(),
        None => json!({"conditions": [], "acceptedNames": {"plural": "", "kind": ""}}),
    };
    if let Some(status) = status.as_object_mut() {
        status.insert("storedVersions".to_owned(), json!(stored));
    }
    fields.insert("status".to_owned(), status);
}

pub(super) fn validate(object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    errors.extend(crd::validate_crd(object, old));
}
