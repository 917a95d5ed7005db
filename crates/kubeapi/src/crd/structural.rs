//! The form that a schema must have so that it can be walked ("structural schema", `ValidateStructural` of the
//! reference): a type at every place, and nothing about structure below logical junctors.

use serde_json::{Value, json};

use crate::{
    field::{FieldError, FieldPath},
    schema::compile_pattern,
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

const JUNCTORS: [&str; 3] = ["anyOf", "allOf", "oneOf"];

/// Every deviation, sorted by its text.
pub(super) fn validate(schema: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if has_no_structure(schema) {
        return errors;
    }
    invariants(schema, Level::Root, path, &mut errors);
    completeness(schema, path, &mut errors);
    errors.sort_by_key(ToString::to_string);
    errors
}

/// Whether the reference finds no structure in a schema at all, because of keywords that it forbids anyway.
fn has_no_structure(schema: &Value) -> bool {
    let is_set = |name: &str| {
        schema
            .get(name)
            .is_some_and(|value| !value.is_null() && value != "")
    };
    let here = [
        "id",
        "$ref",
        "additionalItems",
        "patternProperties",
        "definitions",
        "dependencies",
    ]
    .into_iter()
    .any(is_set)
        || schema.get("items").is_some_and(Value::is_array);
    here || properties(schema).any(|(_, property)| has_no_structure(property))
        || ["items", "additionalProperties", "not"]
            .iter()
            .filter_map(|name| schema.get(*name))
            .any(has_no_structure)
        || JUNCTORS
            .iter()
            .filter_map(|junctor| schema.get(*junctor)?.as_array())
            .flatten()
            .any(has_no_structure)
}

fn flag(schema: &Value, name: &str) -> bool {
    schema.get(name) == Some(&Value::Bool(true))
}

fn type_of(schema: &Value) -> &str {
    schema.get("type").and_then(Value::as_str).unwrap_or_default()
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
}

fn invariants(schema: &Value, level: Level, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let items = schema.get("items").filter(|items| items.is_object());
    if type_of(schema) == "array" && items.is_none() {
        errors.push(FieldError::required(&path.child("items"), "must be specified"));
    }
    if let Some(items) = items {
        invariants(items, Level::Item, &path.child("items"), errors);
    }
    for (name, property) in properties(schema) {
        invariants(
            property,
            Level::Field,
            &path.child("properties").key(name),
            errors,
        );
    }
    if let Some(additional) = schema
        .get("additionalProperties")
        .filter(|additional| !additional.is_null())
    {
        let at = path.child("additionalProperties");
        if level == Level::Root {
            errors.push(FieldError::forbidden(&at, "must not be used at the root"));
        }
        if additional.is_object() {
            invariants(additional, Level::Field, &at, errors);
        }
    }
    extensions(schema, path, errors);
    let int_or_string = is_int_or_string(schema.get("anyOf"));
    let first_int_or_string = is_int_or_string(schema.pointer("/allOf/0/anyOf"));
    demands(schema, int_or_string, first_int_or_string, path, errors);
    types(schema, level, path, errors);
    metadata(schema, level, path, errors);
}

fn types(schema: &Value, level: Level, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let at = path.child("type");
    let declared = type_of(schema);
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    if embedded && declared != "object" {
        const DETAIL: &str = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(if declared.is_empty() {
            FieldError::required(&at, DETAIL)
        } else {
            FieldError::invalid(&at, json!(declared), DETAIL)
        });
    } else if declared.is_empty()
        && !flag(schema, "x-kubernetes-int-or-string")
        && !flag(schema, "x-kubernetes-preserve-unknown-fields")
    {
        errors.push(FieldError::required(
            &at,
            match level {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field => "must not be empty for specified object fields",
            },
        ));
    }
    if embedded && schema.get("additionalProperties").is_some() {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(FieldError::forbidden(&path.child("additionalProperties"), detail));
    }
    if level == Level::Root && !declared.is_empty() && declared != "object" {
        errors.push(FieldError::invalid(
            &at,
            json!(declared),
            "must be object at the root",
        ));
    }
    if embedded
        && !flag(schema, "x-kubernetes-preserve-unknown-fields")
        && properties(schema).next().is_none()
    {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
                      x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(&path.child("properties"), detail));
    }
}

/// A resource's `apiVersion`, `kind` and `metadata` are given; a schema may only narrow the name.
fn metadata(schema: &Value, level: Level, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let is_resource = level == Level::Root || flag(schema, "x-kubernetes-embedded-resource");
    for (name, property) in properties(schema) {
        let at = path.child("properties").key(name);
        match name.as_str() {
            "kind" | "apiVersion" if is_resource && type_of(property) != "string" => {
                errors.push(FieldError::invalid(
                    &at.child("type"),
                    json!(type_of(property)),
                    "must be string",
                ));
            }
            "metadata" => {
                if is_resource && type_of(property) != "object" {
                    errors.push(FieldError::invalid(
                        &at.child("type"),
                        json!(type_of(property)),
                        "must be object",
                    ));
                }
                let only_names =
                    properties(property).all(|(name, _)| matches!(name.as_str(), "name" | "generateName"));
                let other_fields = property.as_object().is_some_and(|fields| {
                    fields
                        .keys()
                        .any(|key| !matches!(key.as_str(), "type" | "properties" | "description"))
                });
                if level == Level::Root && (!only_names || other_fields) {
                    errors.push(FieldError::forbidden(
                        &at,
                        "must not specify anything other than name and generateName, but metadata is implicitly specified",
                    ));
                }
            }
            _ => {}
        }
    }
}

fn is_int_or_string(alternatives: Option<&Value>) -> bool {
    alternatives == Some(&json!([{"type": "integer"}, {"type": "string"}]))
}

fn extensions(schema: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if !flag(schema, "x-kubernetes-int-or-string") {
        return;
    }
    for name in [
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
    ] {
        if flag(schema, name) {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            errors.push(FieldError::invalid(&path.child(name), Value::Bool(true), detail));
        }
    }
}

fn demands(
    schema: &Value,
    skip_any_of: bool,
    skip_first: bool,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    for junctor in JUNCTORS {
        if junctor == "anyOf" && skip_any_of {
            continue;
        }
        let list = schema
            .get(junctor)
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        for (index, part) in list.enumerate() {
            let skip = junctor == "allOf" && index == 0 && skip_first;
            nested(part, skip, &path.child(junctor).index(index), errors);
        }
    }
    if let Some(not) = schema.get("not").filter(|not| not.is_object()) {
        nested(not, false, &path.child("not"), errors);
    }
    if let Some(pattern) = schema
        .get("pattern")
        .and_then(Value::as_str)
        .filter(|pattern| !pattern.is_empty())
        && let Err(error) = compile_pattern(pattern)
    {
        let detail = format!("must be a valid regular expression, but isn't: {error}");
        errors.push(FieldError::invalid(
            &path.child("pattern"),
            json!(pattern),
            detail,
        ));
    }
}

/// A schema below a junctor may only restrict what the structure above it declares.
fn nested(schema: &Value, skip_any_of: bool, path: &FieldPath, errors: &mut Vec<FieldError>) {
    demands(schema, skip_any_of, false, path, errors);
    if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
        nested(items, false, &path.child("items"), errors);
    }
    for (name, property) in properties(schema) {
        let at = path.child("properties").key(name);
        nested(property, false, &at, errors);
        if name == "metadata" {
            errors.push(FieldError::forbidden(
                &at,
                "must not be specified in a nested context",
            ));
        }
    }
    let is_set = |name: &str| {
        schema
            .get(name)
            .is_some_and(|value| !value.is_null() && value != false && value != "")
    };
    for (name, state) in [
        ("type", "empty"),
        ("additionalProperties", "undefined"),
        ("default", "undefined"),
        ("title", "empty"),
        ("description", "empty"),
        ("nullable", "false"),
        ("x-kubernetes-preserve-unknown-fields", "false"),
        ("x-kubernetes-embedded-resource", "false"),
        ("x-kubernetes-int-or-string", "false"),
        ("x-kubernetes-list-map-keys", "empty"),
        ("x-kubernetes-list-type", "undefined"),
        ("x-kubernetes-map-type", "undefined"),
        ("x-kubernetes-validations", "empty"),
    ] {
        if is_set(name) {
            errors.push(FieldError::forbidden(
                &path.child(name),
                format!("must be {state} to be structural"),
            ));
        }
    }
}

/// Every field and list that a junctor at the root restricts is declared by the structure. The reference does not look
/// further down.
fn completeness(schema: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    for junctor in JUNCTORS {
        let list = schema
            .get(junctor)
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        for (index, part) in list.enumerate() {
            declared(part, schema, path, &path.child(junctor).index(index), errors);
        }
    }
    if let Some(not) = schema.get("not").filter(|not| not.is_object()) {
        declared(not, schema, path, &path.child("not"), errors);
    }
}

fn declared(
    part: &Value,
    structure: &Value,
    path: &FieldPath,
    part_path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    if let Some(items) = part.get("items").filter(|items| items.is_object()) {
        match structure.get("items").filter(|items| items.is_object()) {
            Some(below) => declared(
                items,
                below,
                &path.child("items"),
                &part_path.child("items"),
                errors,
            ),
            None => {
                let detail = format!("because it is defined in {}", part_path.child("items"));
                errors.push(FieldError::required(&path.child("items"), detail));
            }
        }
    }
    for (name, property) in properties(part) {
        let below_path = path.child("properties").key(name);
        let at = part_path.child("properties").key(name);
        match structure
            .get("properties")
            .and_then(|properties| properties.get(name))
        {
            Some(below) => declared(property, below, &below_path, &at, errors),
            None => errors.push(FieldError::required(
                &below_path,
                format!("because it is defined in {at}"),
            )),
        }
    }
    for junctor in JUNCTORS {
        let list = part.get(junctor).and_then(Value::as_array).into_iter().flatten();
        for (index, nested) in list.enumerate() {
            declared(
                nested,
                structure,
                path,
                &part_path.child(junctor).index(index),
                errors,
            );
        }
    }
    if let Some(not) = part.get("not").filter(|not| not.is_object()) {
        declared(not, structure, path, &part_path.child("not"), errors);
    }
}
