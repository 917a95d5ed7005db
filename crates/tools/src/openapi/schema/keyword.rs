//! Keywords whose values are turned into JSON Schema without looking at other schemas.

use serde_json::{Map, Value, json};

use crate::openapi::document::Version;

pub(super) fn is_empty(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}

pub(super) fn describe(schema: &mut Value, description: Option<Value>) {
    if let (Value::Object(fields), Some(description)) = (schema, description) {
        fields.insert("description".to_owned(), description);
    }
}

pub(super) fn is_nullable(fields: &Map<String, Value>, version: Version) -> bool {
    let mark = match version {
        Version::V2 => "x-nullable",
        Version::V30 => "nullable",
        Version::V31 => return false,
    };
    fields.get(mark) == Some(&Value::Bool(true))
}

/// `schema`, accepting null too.
pub(super) fn nullable(schema: Value) -> Value {
    let Value::Object(mut fields) = schema else {
        return schema;
    };
    let single = fields.get("type").and_then(Value::as_str).map(str::to_owned);
    let composed = ["$ref", "allOf", "anyOf", "oneOf", "not", "const"]
        .iter()
        .any(|keyword| fields.contains_key(*keyword));
    if composed {
        let description = fields.remove("description");
        let mut either = json!({"anyOf": [Value::Object(fields), {"type": "null"}]});
        describe(&mut either, description);
        return either;
    }
    if let Some(kind) = single {
        fields.insert("type".to_owned(), json!([kind, "null"]));
    }
    if let Some(Value::Array(values)) = fields.get_mut("enum")
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
    Value::Object(fields)
}

/// The types of JSON among `value`. A file of version 2 is sent as text.
pub(super) fn types(value: &Value) -> Option<Value> {
    let known = |name: &str| match name {
        "file" => Some("string"),
        "string" => Some("string"),
        "number" => Some("number"),
        "integer" => Some("integer"),
        "boolean" => Some("boolean"),
        "array" => Some("array"),
        "object" => Some("object"),
        "null" => Some("null"),
        _ => None,
    };
    match value {
        Value::String(name) => known(name).map(Value::from),
        Value::Array(names) => {
            let mut out: Vec<&str> = Vec::new();
            for name in names.iter().filter_map(Value::as_str).filter_map(known) {
                if !out.contains(&name) {
                    out.push(name);
                }
            }
            match out.as_slice() {
                [] => None,
                [only] => Some(json!(only)),
                several => Some(json!(several)),
            }
        }
        _ => None,
    }
}

/// About the bytes of `value` as text, or `None` when they are more than `limit`. The document's own
/// nesting is bounded by its parser.
pub(super) fn size_of(value: &Value, limit: usize) -> Option<usize> {
    let mut size = match value {
        Value::String(text) => text.len() + 2,
        _ => 8,
    };
    let mut add = |part: usize| {
        size += part;
        (size <= limit).then_some(())
    };
    match value {
        Value::Array(items) => {
            for item in items {
                add(size_of(item, limit)?)?;
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                add(name.len() + size_of(field, limit)?)?;
            }
        }
        _ => add(0)?,
    }
    Some(size)
}
