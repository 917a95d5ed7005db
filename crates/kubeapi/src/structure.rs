//! Values as the structures of the reference encode them: their fields in the order of their declaration. Messages show
//! objects so. Requirement KA-006.

use serde_json::{Map, Value, json};

const OBJECT_META: [&str; 15] = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
];
const OWNER_REFERENCE: [&str; 6] = [
    "apiVersion",
    "kind",
    "name",
    "uid",
    "controller",
    "blockOwnerDeletion",
];
const MANAGED_FIELDS: [&str; 7] = [
    "manager",
    "operation",
    "apiVersion",
    "time",
    "fieldsType",
    "fieldsV1",
    "subresource",
];

/// The metadata of an object.
pub(crate) fn object_meta_text(metadata: &Map<String, Value>) -> String {
    ordered(metadata, &OBJECT_META, &|name, value| match (name, value) {
        ("ownerReferences", Value::Array(owners)) => owner_references_text(owners),
        ("managedFields", Value::Array(entries)) => list(entries, &MANAGED_FIELDS),
        (_, value) => value.to_string(),
    })
}

/// The owners of an object.
pub(crate) fn owner_references_text(owners: &[Value]) -> String {
    list(owners, &OWNER_REFERENCE)
}

fn list(items: &[Value], order: &[&str]) -> String {
    let items: Vec<String> = items
        .iter()
        .map(|item| match item {
            Value::Object(fields) => ordered(fields, order, &|_, value| value.to_string()),
            other => other.to_string(),
        })
        .collect();
    format!("[{}]", items.join(","))
}

/// The fields in that order, those that it does not know behind them.
fn ordered(fields: &Map<String, Value>, order: &[&str], shown: &dyn Fn(&str, &Value) -> String) -> String {
    let known = order
        .iter()
        .filter_map(|name| fields.iter().find(|(field, _)| field == name));
    let unknown = fields.iter().filter(|(name, _)| !order.contains(&name.as_str()));
    let fields: Vec<String> = known
        .chain(unknown)
        .map(|(name, value)| format!("{}:{}", json!(name), shown(name, value)))
        .collect();
    format!("{{{}}}", fields.join(","))
}
