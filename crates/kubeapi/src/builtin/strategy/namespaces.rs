//! Namespaces.

use serde_json::{Value, json};

const FINALIZER: &str = "kubernetes";
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// Every Namespace carries its name as a label.
pub(super) fn default(object: &mut Value) {
    let Some(name) = object
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .filter(|name| !name.is_empty())
    else {
        return;
    };
    let name = Value::from(name);
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    if labels.is_null() {
        *labels = json!({});
    }
    if let Some(labels) = labels.as_object_mut() {
        labels.insert(NAME_LABEL.to_owned(), name);
    }
}

/// A new Namespace is active and waits for its content to go when it is deleted; afterwards only the `finalize`
/// subresource changes that.
pub(super) fn prepare(object: &mut Value, old: Option<&Value>) {
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    match old {
        None => {
            fields.insert("status".to_owned(), json!({"phase": "Active"}));
            let spec = fields.entry("spec").or_insert_with(|| json!({}));
            if !spec.is_object() {
                *spec = json!({});
            }
            if let Some(spec) = spec.as_object_mut() {
                let finalizers = spec.entry("finalizers").or_insert_with(|| json!([]));
                if let Some(list) = finalizers.as_array_mut()
                    && !list.iter().any(|finalizer| finalizer == FINALIZER)
                {
                    list.push(json!(FINALIZER));
                }
            }
        }
        Some(old) => match old.get("spec") {
            Some(spec) => {
                fields.insert("spec".to_owned(), spec.clone());
            }
            None => {
                fields.remove("spec");
            }
        },
    }
}
