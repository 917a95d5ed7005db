//! What the derived schemas still need before they are what a CRD should say.

use serde_json::{Map, Value};

/// Removes from a whole CRD what the derive adds and Kubernetes does not want: `nullable` on every optional field (an
/// explicit null is a mistake, not an absence), null among the values of an enumeration, formats that are no formats
/// of OpenAPI, and the apiVersion/kind boilerplate without descriptions.
pub(super) fn finish(document: &mut Value) {
    let Some(versions) = document
        .pointer_mut("/spec/versions")
        .and_then(Value::as_array_mut)
    else {
        return;
    };
    for version in versions {
        if let Some(schema) = version
            .pointer_mut("/schema/openAPIV3Schema")
            .and_then(Value::as_object_mut)
        {
            node(schema);
            describe_root(schema);
        }
    }
}

fn node(schema: &mut Map<String, Value>) {
    schema.remove("nullable");
    schema.remove("title");
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    if let Some(Value::Array(types)) = schema.get("type") {
        // `["string", "null"]` of an optional field.
        if let Some(only) = types.iter().find(|name| name.as_str() != Some("null")).cloned() {
            schema.insert("type".into(), only);
        }
    }
    for bound in ["minimum", "maximum"] {
        // The Rust type of a bound is a float, and `minimum: 0.0` reads like one.
        if let Some(value) = schema.get_mut(bound)
            && let Some(number) = value.as_f64().filter(|number| number.fract() == 0.0)
        {
            *value = Value::from(number as i64);
        }
    }
    for (_, property) in schema
        .get_mut("properties")
        .and_then(Value::as_object_mut)
        .into_iter()
        .flatten()
    {
        if let Some(property) = property.as_object_mut() {
            node(property);
        }
    }
    for key in ["items", "additionalProperties"] {
        if let Some(child) = schema.get_mut(key).and_then(Value::as_object_mut) {
            node(child);
        }
    }
}

fn describe_root(schema: &mut Map<String, Value>) {
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else {
        return;
    };
    for (name, description) in [
        (
            "apiVersion",
            "APIVersion defines the versioned schema of this representation of an object.",
        ),
        (
            "kind",
            "Kind is a string value representing the REST resource this object represents.",
        ),
    ] {
        properties.insert(
            name.into(),
            serde_json::json!({ "type": "string", "description": description }),
        );
    }
    properties.insert("metadata".into(), serde_json::json!({ "type": "object" }));
}
