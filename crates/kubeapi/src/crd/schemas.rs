//! The rules for the schema of a version beyond its structural form
//! (`ValidateCustomResourceDefinitionOpenAPISchema` and the check of defaults of the reference).

mod expressions;
mod lists;
mod rules;

use serde_json::{Value, json};

use self::expressions::{Expressions, Scope};
use super::structural;
use crate::{
    field::{FieldError, FieldPath},
    schema::{self, Node},
};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
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

/// Checks the schema at `path`. A rule is compiled only when nothing else is wrong at its place or below, since what the
/// compiler says would mislead. `is_unchanged` tells that the schema was there before, so that a rule that may cost too
/// much stays.
pub(super) fn validate(
    document: &Value,
    has_status: bool,
    is_unchanged: bool,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
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
    let mut is_usable = is_structural;
    if is_structural {
        let known = errors.len();
        validate_defaults(document, path, errors);
        is_usable = errors.len() == known;
    }
    let mut expressions = Expressions::new(is_unchanged);
    let scope = is_usable.then(Scope::root);
    visit(
        document,
        path,
        Context::default(),
        true,
        scope.as_ref(),
        &mut expressions,
        errors,
    );
    errors.extend(expressions.into_errors(path));
    if errors.len() == before
        && let Err(faults) = Node::from_crd_schema(document)
    {
        errors.extend(faults.into_iter().map(|fault| below(path, fault)));
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

/// Checks a schema and those below it. `scope` is there where rules may stand.
fn visit(
    schema: &Value,
    path: &FieldPath,
    context: Context,
    is_root: bool,
    scope: Option<&Scope>,
    expressions: &mut Expressions,
    errors: &mut Vec<FieldError>,
) {
    let Some(fields) = schema.as_object() else { return };
    let before = errors.len();
    let inside = scope.map(|scope| scope.below(schema));
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
        visit(
            additional,
            &at,
            inner,
            false,
            inside.as_ref(),
            expressions,
            errors,
        );
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
        let inside = inside.as_ref().map(|inside| inside.of_properties(schema, path));
        visit(
            property,
            &path.child("properties").key(name),
            inner,
            false,
            inside.as_ref(),
            expressions,
            errors,
        );
    }
    if let Some(not) = fields.get("not") {
        visit(not, &path.child("not"), context, false, None, expressions, errors);
    }
    for junctor in ["allOf", "oneOf", "anyOf"] {
        for (index, part) in schema
            .get(junctor)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .enumerate()
        {
            let at = path.child(junctor).index(index);
            visit(part, &at, context, false, None, expressions, errors);
        }
    }
    if let Some(items) = fields.get("items") {
        let inside = inside.as_ref().map(|inside| inside.of_items(schema, path));
        visit(
            items,
            &path.child("items"),
            context,
            false,
            inside.as_ref(),
            expressions,
            errors,
        );
    }
    lists::check(schema, path, errors);
    rules::check(schema, path, errors);
    if let (Some(scope), true) = (scope, errors.len() == before) {
        expressions.check(schema, path, is_root, scope);
    }
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
