//! From JSON to the values that rules see, by the schema: `integer` is an int and `number` a double whatever the JSON
//! looks like, a string with a format of time is a time, properties have the names that CEL can write, and what the
//! schema does not declare cannot be seen.

use std::sync::Arc;

use base64::Engine as _;
use mainstay_cel::{Timestamp, Value as Cel, escape_property};
use serde_json::Value;

use crate::schema::{Node, NodeKind, formats::parse_duration};

/// Of an object's metadata, rules see only these.
const VISIBLE_METADATA: [&str; 2] = ["name", "generateName"];

/// The value at a place. `is_resource` marks the root and embedded resources, which have a kind, version and name.
pub(super) fn to_cel(node: &Node, value: &Value, is_resource: bool) -> Cel {
    match (&node.kind, value) {
        (_, Value::Null) => Cel::Null,
        (
            NodeKind::Object {
                properties,
                additional,
            },
            Value::Object(fields),
        ) => Cel::map(fields.iter().filter_map(|(name, nested)| {
            if let (true, "metadata") = (is_resource, name.as_str()) {
                return Some((name.clone(), visible_metadata(nested)));
            }
            if let Some(property) = properties.get(name) {
                let converted = to_cel(property, nested, property.embedded_resource);
                return Some((escape_property(name)?, converted));
            }
            additional
                .as_ref()
                .map(|additional| (name.clone(), to_cel(additional, nested, false)))
        })),
        (NodeKind::Array { items }, Value::Array(list)) => Cel::list(
            list.iter()
                .map(|item| to_cel(items, item, items.embedded_resource))
                .collect(),
        ),
        (NodeKind::Integer, Value::Number(number)) => integer(number),
        (NodeKind::Number, Value::Number(number)) => Cel::Double(number.as_f64().unwrap_or(f64::NAN)),
        (NodeKind::String, Value::String(text)) => formatted(node, text),
        _ => Cel::from(value),
    }
}

fn visible_metadata(metadata: &Value) -> Cel {
    Cel::map(
        VISIBLE_METADATA
            .iter()
            .filter_map(|&name| Some((name, Cel::String(Arc::from(metadata.get(name)?.as_str()?))))),
    )
}

fn integer(number: &serde_json::Number) -> Cel {
    match number.as_i64() {
        Some(value) => Cel::Int(value),
        // A whole number written with a fraction, such as `1.0`, which the schema accepts as an integer.
        None => Cel::from(&Value::Number(whole(number))),
    }
}

fn whole(number: &serde_json::Number) -> serde_json::Number {
    format!("{:.0}", number.as_f64().unwrap_or_default())
        .parse()
        .unwrap_or_else(|_| number.clone())
}

fn formatted(node: &Node, text: &str) -> Cel {
    let plain = || Cel::String(Arc::from(text));
    match node
        .checks
        .as_ref()
        .and_then(|checks| checks.format)
        .map(|format| format.name)
    {
        Some("byte") => base64::engine::general_purpose::STANDARD
            .decode(text)
            .map_or_else(|_| plain(), |bytes| Cel::Bytes(Arc::from(bytes))),
        Some("date-time") => Timestamp::parse(text).map_or_else(plain, Cel::Timestamp),
        Some("date") => Timestamp::parse(&format!("{text}T00:00:00Z")).map_or_else(plain, Cel::Timestamp),
        Some("duration") => parse_duration(text).map_or_else(plain, Cel::Duration),
        _ => plain(),
    }
}
