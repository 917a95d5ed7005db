//! The older form of the document (Swagger 2.0), one for all kinds.

use serde_json::{Map, Value, json};

use super::{components, paths};
use crate::builtin::{KindInfo, Kinds};

const THREE: &str = "#/components/schemas/";
const TWO: &str = "#/definitions/";

/// `/openapi/v2`.
pub fn v2(kinds: &Kinds) -> Value {
    let served: Vec<&KindInfo> = kinds.all().iter().map(AsRef::as_ref).collect();
    let definitions: Map<String, Value> = components::of(&served)
        .into_iter()
        .map(|(name, schema)| {
            let is_open = served
                .iter()
                .any(|info| info.custom && info.definition == name && info.node.preserve_unknown_fields);
            let changed = if is_open {
                open(&schema)
            } else {
                downgraded(&schema)
            };
            (name, changed)
        })
        .collect();
    let paths: Map<String, Value> = served
        .iter()
        .flat_map(|info| paths::of(info))
        .map(|(path, operations)| (path, path_item(&operations)))
        .collect();
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "v1.37.2"},
        "paths": paths,
        "definitions": definitions,
        "securityDefinitions": {"BearerToken": {
            "type": "apiKey", "in": "header", "name": "authorization",
            "description": "Bearer Token authentication",
        }},
        "security": [{"BearerToken": []}],
    })
}

/// A custom kind that keeps unknown fields. Readers of the older form take named properties for all there may be.
fn open(schema: &Value) -> Value {
    const KINDS: &str = "x-kubernetes-group-version-kind";
    json!({"type": "object", KINDS: schema.get(KINDS)})
}

/// A schema without what the older form does not know: `nullable`, logical junctors, and anything beside a reference but
/// its description.
fn downgraded(schema: &Value) -> Value {
    match schema {
        Value::Object(fields) => {
            let only = fields
                .get("allOf")
                .and_then(Value::as_array)
                .filter(|parts| parts.len() == 1);
            if let Some(target) = only.and_then(|parts| parts.first()?.get("$ref")) {
                let mut reference = Map::new();
                reference.insert("$ref".to_owned(), downgraded_reference(target));
                for (name, value) in fields
                    .iter()
                    .filter(|(name, _)| *name == "description" || name.starts_with("x-"))
                {
                    reference.insert(name.clone(), value.clone());
                }
                return Value::Object(reference);
            }
            fields
                .iter()
                .filter(|(name, _)| {
                    !matches!(name.as_str(), "nullable" | "oneOf" | "anyOf" | "allOf" | "not")
                })
                .map(|(name, value)| match name.as_str() {
                    "$ref" => (name.clone(), downgraded_reference(value)),
                    "properties" => {
                        let properties = value.as_object().into_iter().flatten();
                        (
                            name.clone(),
                            properties
                                .map(|(name, schema)| (name.clone(), downgraded(schema)))
                                .collect(),
                        )
                    }
                    "items" | "additionalProperties" => (name.clone(), downgraded(value)),
                    _ => (name.clone(), value.clone()),
                })
                .collect()
        }
        other => other.clone(),
    }
}

fn downgraded_reference(target: &Value) -> Value {
    json!(target.as_str().unwrap_or_default().replace(THREE, TWO))
}

fn path_item(operations: &Value) -> Value {
    operations
        .as_object()
        .into_iter()
        .flatten()
        .map(|(method, operation)| {
            let changed = match operation {
                Value::Array(parameters) => parameters.iter().map(parameter).collect(),
                operation => method_item(operation),
            };
            (method.clone(), changed)
        })
        .collect()
}

fn method_item(operation: &Value) -> Value {
    let mut changed = operation.clone();
    let Some(fields) = changed.as_object_mut() else {
        return changed;
    };
    let mut parameters: Vec<Value> = operation
        .get("parameters")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(parameter)
        .collect();
    if let Some(body) = fields.remove("requestBody") {
        let content = body.get("content").and_then(Value::as_object);
        let media: Vec<&String> = content.into_iter().flat_map(Map::keys).collect();
        fields.insert("consumes".to_owned(), json!(media));
        let schema = content
            .and_then(|content| content.values().next()?.get("schema"))
            .map(downgraded);
        parameters
            .push(json!({"name": "body", "in": "body", "required": body.get("required"), "schema": schema}));
    }
    fields.insert("produces".to_owned(), json!(["application/json"]));
    fields.insert("parameters".to_owned(), Value::Array(parameters));
    for response in fields
        .get_mut("responses")
        .and_then(Value::as_object_mut)
        .into_iter()
        .flat_map(|all| all.values_mut())
    {
        let Some(response) = response.as_object_mut() else {
            continue;
        };
        let schema = response.remove("content").and_then(|content| {
            content
                .as_object()?
                .values()
                .next()?
                .get("schema")
                .map(downgraded)
        });
        if let Some(schema) = schema {
            response.insert("schema".to_owned(), schema);
        }
    }
    changed
}

/// A parameter with its type beside its name.
fn parameter(parameter: &Value) -> Value {
    let mut changed = parameter.clone();
    if let Some(fields) = changed.as_object_mut()
        && let Some(Value::Object(schema)) = fields.remove("schema")
    {
        fields.extend(schema);
    }
    changed
}
