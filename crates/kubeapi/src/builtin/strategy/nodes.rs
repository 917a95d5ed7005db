//! Nodes.

use serde_json::{Value, json};

use crate::{
    builtin::validation::{Errors, Field, internal, scheduling::EFFECTS},
    field::{FieldError, FieldErrorKind},
    names,
};

/// What a node can allocate is all it has, unless it says otherwise.
pub(super) fn default(object: &mut Value) {
    let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) else {
        return;
    };
    if let (None, Some(capacity)) = (status.get("allocatable"), status.get("capacity").cloned()) {
        status.insert("allocatable".to_owned(), capacity);
    }
}

/// What is wrong with what keeps Pods away from a node.
pub(super) fn validate(object: &Value, _old: Option<&Value>, errors: &mut Errors) {
    let mut seen = Vec::new();
    for taint in Field::of(object, "spec").child("taints").items() {
        let (key, value, effect) = (taint.child("key"), taint.child("value"), taint.child("effect"));
        key.texts(errors, names::qualified_name(key.text()));
        let messages = names::label_value(value.text());
        if !messages.is_empty() {
            value.invalid_text(errors, messages.join(";"));
        }
        effect.one_of(errors, &EFFECTS);
        let identity = (key.text(), effect.text());
        if seen.contains(&identity) {
            let fields = [
                ("key", "Key", json!("")),
                ("value", "Value", json!("")),
                ("effect", "Effect", json!("")),
                ("timeAdded", "TimeAdded", Value::Null),
            ];
            let shown = internal(taint.value, &fields);
            errors.push(FieldError {
                kind: FieldErrorKind::Duplicate,
                path: taint.path.clone(),
                value: None,
                detail: format!("{shown}: taints must be unique by key and effect pair"),
            });
        }
        seen.push(identity);
    }
}
