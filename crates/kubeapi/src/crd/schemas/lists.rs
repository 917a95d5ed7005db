//! How lists and maps are merged: `x-kubernetes-list-type`, `-list-map-keys` and `-map-type`.

use serde_json::{Value, json};

use super::text;
use crate::field::{FieldError, FieldPath};

pub(super) fn check(schema: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let type_ = text(schema, "type");
    let mut must_be = |expected: &str, extension: &str| {
        let detail = format!("must be {expected} if {extension} is specified");
        let at = path.child("type");
        errors.push(if type_.is_empty() {
            FieldError::required(&at, detail)
        } else {
            FieldError::invalid(&at, json!(type_), detail)
        });
    };
    let map_type = text(schema, "x-kubernetes-map-type");
    if !map_type.is_empty() && type_ != "object" {
        must_be("object", "x-kubernetes-map-type");
    }
    let list_type = text(schema, "x-kubernetes-list-type");
    if !list_type.is_empty() && type_ != "array" {
        must_be("array", "x-kubernetes-list-type");
    }
    if !matches!(map_type, "" | "atomic" | "granular") {
        let at = path.child("x-kubernetes-map-type");
        errors.push(FieldError::not_supported(
            &at,
            json!(map_type),
            &["atomic", "granular"],
        ));
    }
    let at = path.child("x-kubernetes-list-type");
    if !matches!(list_type, "" | "atomic" | "set" | "map") {
        errors.push(FieldError::not_supported(
            &at,
            json!(list_type),
            &["atomic", "set", "map"],
        ));
    }
    let keys: Vec<&str> = schema
        .get("x-kubernetes-list-map-keys")
        .and_then(Value::as_array)
        .map(|keys| keys.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    if !keys.is_empty() && list_type != "map" {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(if list_type.is_empty() {
            FieldError::required(&at, detail)
        } else {
            FieldError::invalid(&at, json!(list_type), detail)
        });
    }
    let items = schema.get("items").filter(|items| items.is_object());
    match (list_type, items) {
        ("map", items) => map_list(&keys, items, path, errors),
        ("set", Some(items)) => set_list(items, path, errors),
        _ => {}
    }
    if let ("map" | "set", Some(Value::Bool(true))) =
        (list_type, items.and_then(|items| items.get("nullable")))
    {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(FieldError::forbidden(
            &path.child("items").child("nullable"),
            detail,
        ));
    }
}

fn set_list(items: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    const DETAIL: &str = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let (name, is_atomic) = match text(items, "type") {
        "array" => (
            "x-kubernetes-list-type",
            matches!(text(items, "x-kubernetes-list-type"), "" | "atomic"),
        ),
        "object" => (
            "x-kubernetes-map-type",
            text(items, "x-kubernetes-map-type") == "atomic",
        ),
        _ => return,
    };
    if !is_atomic {
        let value = items.get(name).cloned().unwrap_or(Value::Null);
        errors.push(FieldError::invalid(
            &path.child("items").child(name),
            value,
            DETAIL,
        ));
    }
}

fn map_list(keys: &[&str], items: Option<&Value>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let at = path.child("x-kubernetes-list-map-keys");
    if keys.is_empty() {
        errors.push(FieldError::required(
            &at,
            "must not be empty if x-kubernetes-list-type is map",
        ));
    }
    let Some(items) = items else {
        let detail = "must have a schema if x-kubernetes-list-type is map";
        errors.push(FieldError::required(&path.child("items"), detail));
        return;
    };
    let type_ = text(items, "type");
    if type_ != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(
            &path.child("items").child("type"),
            json!(type_),
            detail,
        ));
        return;
    }
    let required: Vec<&str> = items
        .get("required")
        .and_then(Value::as_array)
        .map(|required| required.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    for (index, key) in keys.iter().enumerate() {
        let property_path = path.child("items").child("properties").key(key);
        match items
            .get("properties")
            .and_then(|properties| properties.get(*key))
        {
            None => {
                errors.push(FieldError::invalid(
                    &at,
                    json!(keys),
                    "entries must all be names of item properties",
                ));
            }
            Some(property) => {
                if matches!(text(property, "type"), "array" | "object") {
                    let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                    errors.push(FieldError::invalid(
                        &property_path.child("type"),
                        json!(type_),
                        detail,
                    ));
                }
                if !required.contains(key) && property.get("default").is_none() {
                    let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a \
                                  required property";
                    errors.push(FieldError::required(&property_path.child("default"), detail));
                }
                if property.get("nullable") == Some(&Value::Bool(true)) {
                    let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
                    errors.push(FieldError::forbidden(&property_path.child("nullable"), detail));
                }
            }
        }
        if keys[..index].contains(key) {
            errors.push(FieldError::invalid(
                &at,
                json!(keys),
                "must not contain duplicate entries",
            ));
        }
    }
}
