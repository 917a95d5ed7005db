//! The rules for the schema of a version beyond its structural form
//! (`ValidateCustomResourceDefinitionOpenAPISchema` and the check of defaults of the reference).

use serde_json::{Value, json};

use super::{paths, structural};
use crate::{
    field::{FieldError, FieldPath},
    schema::{self, Node, compile_rules},
};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const REASONS: [&str; 4] = [
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
];
/// What a schema may say at its root when `status` is a subresource, since the schema of the status is cut out there.
const AT_ROOT: [&str; 22] = [
    "description",
    "type",
    "format",
    "title",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "multipleOf",
    "required",
    "items",
    "properties",
    "externalDocs",
    "example",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
];
const AT_ROOT_SHOWN: &str = "[Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations]";

/// Checks the schema at `path`; its rules are compiled only when nothing else is wrong, since their texts would mislead.
pub(super) fn validate(document: &Value, has_status: bool, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let before = errors.len();
    if has_status {
        validate_root(document, path, errors);
    }
    if document.get("nullable") == Some(&Value::Bool(true)) {
        errors.push(FieldError::forbidden(
            &path.child("nullable"),
            "nullable cannot be true at the root",
        ));
    }
    let shape = structural::validate(document, path);
    let is_structural = shape.is_empty();
    errors.extend(shape);
    visit(document, path, Context::default(), true, errors);
    if is_structural {
        validate_defaults(document, path, errors);
    }
    if errors.len() > before {
        return;
    }
    match Node::from_crd_schema(document) {
        Ok(node) => {
            if let Err(faults) = compile_rules(&node) {
                errors.extend(faults.into_iter().map(|fault| below(path, fault)));
            }
        }
        Err(faults) => errors.extend(faults.into_iter().map(|fault| below(path, fault))),
    }
}

/// An error whose path is relative to the schema, moved to the schema's place.
fn below(path: &FieldPath, mut error: FieldError) -> FieldError {
    error.path = match error.path.as_str() {
        "" => path.clone(),
        relative if relative.starts_with('[') => FieldPath::of(format!("{path}{relative}")),
        relative => path.child(relative),
    };
    error
}

fn validate_root(document: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let type_ = document.get("type").and_then(Value::as_str).unwrap_or_default();
    if !type_.is_empty() && type_ != "object" {
        errors.push(FieldError::invalid(
            &path.child("type"),
            json!(type_),
            "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled",
        ));
    }
    let is_other = |(name, value): (&String, &Value)| {
        !AT_ROOT.contains(&name.as_str()) && !value.is_null() && value != false
    };
    if document
        .as_object()
        .is_some_and(|fields| fields.iter().any(is_other))
    {
        errors.push(FieldError::invalid(
            path,
            document.clone(),
            format!(
                "only {AT_ROOT_SHOWN} fields are allowed at the root of the schema if the status subresource is enabled"
            ),
        ));
    }
}

/// What holds at a place because of places above it.
#[derive(Clone, Copy, Default)]
struct Context {
    inside_metadata: bool,
    /// Why defaults are not allowed here.
    no_defaults: Option<&'static str>,
}

fn visit(schema: &Value, path: &FieldPath, context: Context, is_root: bool, errors: &mut Vec<FieldError>) {
    let Some(fields) = schema.as_object() else { return };
    forbidden(schema, path, context, errors);
    if let Some(additional) = schema
        .get("additionalProperties")
        .filter(|additional| !additional.is_null())
    {
        let at = path.child("additionalProperties");
        let has_properties = schema
            .get("properties")
            .and_then(Value::as_object)
            .is_some_and(|properties| !properties.is_empty());
        if has_properties && additional != true {
            errors.push(FieldError::forbidden(
                &at,
                "additionalProperties and properties are mutual exclusive",
            ));
        }
        let mut inner = context;
        if context.inside_metadata {
            inner.no_defaults = Some("inside additionalProperties applying to object metadata");
        }
        visit(additional, &at, inner, false, errors);
    }
    for (name, property) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let mut inner = context;
        let is_resource = is_root || schema.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true));
        if is_resource && matches!(name.as_str(), "metadata" | "kind" | "apiVersion") {
            inner.inside_metadata = true;
            if is_root {
                inner.no_defaults = Some(match name.as_str() {
                    "metadata" => "in top-level metadata",
                    "kind" => "in top-level kind",
                    _ => "in top-level apiVersion",
                });
            }
        }
        visit(
            property,
            &path.child("properties").key(name),
            inner,
            false,
            errors,
        );
    }
    if let Some(not) = fields.get("not") {
        visit(not, &path.child("not"), context, false, errors);
    }
    for junctor in ["allOf", "oneOf", "anyOf"] {
        for (index, part) in schema
            .get(junctor)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .enumerate()
        {
            visit(part, &path.child(junctor).index(index), context, false, errors);
        }
    }
    if let Some(items) = fields.get("items") {
        visit(items, &path.child("items"), context, false, errors);
    }
    list_and_map_types(schema, path, errors);
    rules(schema, path, errors);
}

fn text<'schema>(schema: &'schema Value, name: &str) -> &'schema str {
    schema.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// What JSON schema has and these schemas may not use.
fn forbidden(schema: &Value, path: &FieldPath, context: Context, errors: &mut Vec<FieldError>) {
    let type_ = text(schema, "type");
    if !type_.is_empty() && !TYPES.contains(&type_) {
        errors.push(FieldError::not_supported(
            &path.child("type"),
            json!(type_),
            &TYPES,
        ));
    }
    if let (Some(reason), true) = (
        context.no_defaults,
        schema.get("default").is_some_and(|default| !default.is_null()),
    ) {
        errors.push(FieldError::forbidden(
            &path.child("default"),
            format!("must not be set {reason}"),
        ));
    }
    for name in [
        "id",
        "additionalItems",
        "patternProperties",
        "definitions",
        "dependencies",
        "$ref",
    ] {
        if schema.get(name).is_some_and(|value| !value.is_null()) {
            errors.push(FieldError::forbidden(
                &path.child(name),
                format!("{name} is not supported"),
            ));
        }
    }
    if type_ == "null" {
        let detail = "type cannot be set to null, use nullable as an alternative";
        errors.push(FieldError::forbidden(&path.child("type"), detail));
    }
    if schema.get("items").is_some_and(Value::is_array) {
        errors.push(FieldError::forbidden(
            &path.child("items"),
            "items must be a schema object and not an array",
        ));
    }
    if context.inside_metadata && schema.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true)) {
        let at = path.child("x-kubernetes-embedded-resource");
        errors.push(FieldError::forbidden(
            &at,
            "must not be used inside of resource meta",
        ));
    }
    if schema.get("uniqueItems") == Some(&Value::Bool(true)) {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(&path.child("uniqueItems"), detail));
    }
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let at = path.child("x-kubernetes-preserve-unknown-fields");
        errors.push(FieldError::invalid(
            &at,
            Value::Bool(false),
            "must be true or undefined",
        ));
    }
}

fn list_and_map_types(schema: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
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

/// The texts of `x-kubernetes-validations`; the expressions themselves are compiled later.
fn rules(schema: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let has_lines = |text: &str| text.contains(['\n', '\r']);
    for (index, rule) in schema
        .get("x-kubernetes-validations")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .enumerate()
    {
        let at = path.child("x-kubernetes-validations").index(index);
        let (expression, message) = (text(rule, "rule").trim(), text(rule, "message"));
        if expression.is_empty() {
            errors.push(FieldError::required(&at.child("rule"), "rule is not specified"));
        } else if !message.is_empty() && message.trim().is_empty() {
            errors.push(FieldError::invalid(
                &at.child("message"),
                json!(message),
                "must be non-empty if specified",
            ));
        } else if has_lines(message.trim()) {
            errors.push(FieldError::invalid(
                &at.child("message"),
                json!(message),
                "must not contain line breaks",
            ));
        } else if has_lines(expression) && message.trim().is_empty() {
            let detail = "message must be specified if rule contains line breaks";
            errors.push(FieldError::required(&at.child("message"), detail));
        }
        let message_expression = text(rule, "messageExpression");
        if !message_expression.is_empty() && message_expression.trim().is_empty() {
            let detail = "messageExpression must be non-empty if specified";
            errors.push(FieldError::required(&at.child("messageExpression"), detail));
        }
        if let Some(reason) = rule
            .get("reason")
            .and_then(Value::as_str)
            .filter(|reason| !REASONS.contains(reason))
        {
            errors.push(FieldError::not_supported(
                &at.child("reason"),
                json!(reason),
                &REASONS,
            ));
        }
        let field_path = text(rule, "fieldPath");
        if field_path.is_empty() {
            continue;
        }
        let at = at.child("fieldPath");
        if field_path.trim().is_empty() {
            errors.push(FieldError::invalid(
                &at,
                json!(field_path),
                "must be non-empty if specified",
            ));
        }
        if has_lines(field_path) {
            errors.push(FieldError::invalid(
                &at,
                json!(field_path),
                "must not contain line breaks",
            ));
        }
        if paths::resolve(field_path, schema, true).is_err() {
            errors.push(FieldError::invalid(
                &at,
                json!(field_path),
                "must be a valid path",
            ));
        }
    }
}

/// Every default satisfies the schema at its place.
fn validate_defaults(schema: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if let Some(default) = schema.get("default").filter(|default| !default.is_null())
        && let Ok(node) = Node::from_nested_schema(schema)
    {
        let at = path.child("default");
        let mut pruned = default.clone();
        if !schema::prune(&node, &mut pruned).is_empty() {
            errors.push(FieldError::invalid(
                &at,
                default.clone(),
                "must not have unknown fields",
            ));
        }
        errors.extend(
            schema::validate(&node, default)
                .into_iter()
                .map(|fault| below(&at, fault)),
        );
    }
    for (name, property) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        validate_defaults(property, &path.child("properties").key(name), errors);
    }
    if let Some(items) = schema.get("items") {
        validate_defaults(items, &path.child("items"), errors);
    }
}
