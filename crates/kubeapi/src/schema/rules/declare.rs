//! What rules may see of a schema, and how large values can be: the declaration that expressions are checked against.

use std::{collections::BTreeMap, sync::Arc};

use mainstay_cel::{Declaration, Shape, escape_property};
use serde_json::Value;

/// Bytes of the largest request, which bounds what the schema does not bound. Also the reference's, so that estimates
/// agree.
pub(crate) const MAX_REQUEST: u64 = 3 * 1024 * 1024;
/// Longest `metadata.name`.
const MAX_NAME: u64 = 253;
/// Fewest bytes of `true`, `0`, `""`, `"0"` (a duration), a date, a moment.
const MIN_BOOL: u64 = 4;
const MIN_NUMBER: u64 = 1;
const MIN_STRING: u64 = 2;
const MIN_DURATION: u64 = 3;
const DATE: u64 = 12;
const MIN_TIME: u64 = 21;
const MAX_TIME: u64 = 32;

/// The declaration of values of a schema; `None` for what rules cannot see. `is_resource` marks the root and embedded
/// resources, which have a kind, a version and a name.
pub(crate) fn declare(schema: &Value, is_resource: bool) -> Option<Declaration> {
    if flag(schema, "x-kubernetes-int-or-string") {
        let max = count(schema, "maxLength").map_or(MAX_REQUEST - 2, |length| length.saturating_mul(4));
        return Some(Declaration::new(Shape::Dyn, max, 1));
    }
    match schema.get("type").and_then(Value::as_str).unwrap_or_default() {
        "array" => {
            let items = schema.get("items").filter(|items| items.is_object())?;
            let items = declare(items, is_embedded(items))?;
            let max =
                count(schema, "maxItems").unwrap_or((MAX_REQUEST - 2) / (items.min_serialized_size + 1));
            Some(Declaration::new(Shape::List(Arc::new(items)), max, 2))
        }
        "object" => object(schema, is_resource),
        "string" => Some(string(schema)),
        "boolean" => Some(Declaration::new(Shape::Bool, 0, MIN_BOOL)),
        "number" => Some(Declaration::new(Shape::Double, 0, MIN_NUMBER)),
        "integer" => Some(Declaration::new(Shape::Int, 0, MIN_NUMBER)),
        _ => None,
    }
}

fn flag(schema: &Value, name: &str) -> bool {
    schema.get(name) == Some(&Value::Bool(true))
}

fn is_embedded(schema: &Value) -> bool {
    flag(schema, "x-kubernetes-embedded-resource")
}

/// A limit of the schema; a negative one is zero.
pub(crate) fn count(schema: &Value, name: &str) -> Option<u64> {
    let number = schema.get(name)?;
    number
        .as_u64()
        .or_else(|| number.as_i64().map(|_| 0))
        .or_else(|| number.as_f64().map(|number| number as u64))
}

fn object(schema: &Value, is_resource: bool) -> Option<Declaration> {
    if let Some(values) = schema
        .get("additionalProperties")
        .filter(|values| values.is_object())
        && !is_resource
    {
        let values = declare(values, is_embedded(values))?;
        // A key with quotes, a colon and a comma, two bytes long at least.
        let max =
            count(schema, "maxProperties").unwrap_or((MAX_REQUEST - 2) / (values.min_serialized_size + 6));
        return Some(Declaration::new(Shape::Map(Arc::new(values)), max, 2));
    }
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let mut fields = BTreeMap::new();
    let mut min = 2;
    let resource_fields = if is_resource {
        resource_fields(schema)
    } else {
        Vec::new()
    };
    let declared = schema.get("properties").and_then(Value::as_object);
    let written = declared
        .into_iter()
        .flatten()
        .filter(|(name, _)| !resource_fields.iter().any(|(given, _)| given == name))
        .filter_map(|(name, property)| {
            let has_default = property.get("default").is_some_and(|default| !default.is_null());
            Some((
                name.as_str(),
                declare(property, is_embedded(property))?,
                has_default,
            ))
        });
    let given = resource_fields
        .iter()
        .map(|(name, declaration)| (*name, declaration.clone(), false));
    for (name, declaration, has_default) in written.chain(given) {
        if required.contains(&name) && !has_default {
            let length = u64::try_from(name.len()).unwrap_or(u64::MAX);
            min += length + declaration.min_serialized_size + 4;
        }
        if let Some(escaped) = escape_property(name) {
            fields.insert(escaped, Arc::new(declaration));
        }
    }
    Some(Declaration::new(Shape::Object(fields), 0, min))
}

/// What every resource has, unless its schema declares all of it.
fn resource_fields(schema: &Value) -> Vec<(&'static str, Declaration)> {
    let at = |pointer: &str| schema.pointer(pointer);
    let is = |pointer: &str, type_: &str| {
        at(pointer)
            .and_then(|property| property.get("type"))
            .is_some_and(|declared| declared == type_)
    };
    if is("/properties/kind", "string")
        && is("/properties/apiVersion", "string")
        && is("/properties/metadata", "object")
        && is("/properties/metadata/properties/name", "string")
        && is("/properties/metadata/properties/generateName", "string")
    {
        return Vec::new();
    }
    let text = |max: u64| Declaration::new(Shape::String, max, MIN_STRING);
    let capped = |name: &str, most: u64| {
        let own =
            at(&format!("/properties/metadata/properties/{name}")).and_then(|name| count(name, "maxLength"));
        Arc::new(text(own.map_or(most, |own| own.min(most)).saturating_mul(4)))
    };
    let metadata = BTreeMap::from([
        ("name".to_owned(), capped("name", MAX_NAME)),
        // At least one character is added to it.
        ("generateName".to_owned(), capped("generateName", MAX_NAME - 1)),
    ]);
    vec![
        ("kind", text(MAX_REQUEST - 2)),
        ("apiVersion", text(MAX_REQUEST - 2)),
        ("metadata", Declaration::new(Shape::Object(metadata), 0, 2)),
    ]
}

fn string(schema: &Value) -> Declaration {
    let max_length = count(schema, "maxLength");
    match schema.get("format").and_then(Value::as_str).unwrap_or_default() {
        "byte" => Declaration::new(Shape::Bytes, max_length.unwrap_or(MAX_REQUEST - 2), MIN_STRING),
        "duration" => Declaration::new(Shape::Duration, MAX_TIME, MIN_DURATION),
        "date" => Declaration::new(Shape::Timestamp, DATE, DATE),
        "date-time" => Declaration::new(Shape::Timestamp, MAX_TIME, MIN_TIME),
        _ => {
            let longest = schema
                .get("enum")
                .and_then(Value::as_array)
                .filter(|values| !values.is_empty())
                .map(|values| {
                    let lengths = values.iter().filter_map(Value::as_str).map(str::len);
                    u64::try_from(lengths.max().unwrap_or(0)).unwrap_or(u64::MAX)
                });
            // A character has up to four bytes.
            let max = max_length
                .map(|length| length.saturating_mul(4))
                .or(longest)
                .unwrap_or(MAX_REQUEST - 2);
            Declaration::new(Shape::String, max, MIN_STRING)
        }
    }
}
