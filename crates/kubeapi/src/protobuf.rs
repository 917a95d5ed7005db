//! The protobuf encoding of Kubernetes: bodies are read into JSON values, and answers and events of watches written for
//! clients that like it best. Requirement KA-007.
//!
//! Typed Go clients, `kubectl create` among them, send built-in kinds in this encoding, and many ask for it. The field
//! numbers are data (`data/protobuf/fields.txt`, taken from the published types); a message is read by walking
//! them, so a kind is added without code. What is absent in JSON is absent here too: Go writes fields that are not
//! pointers even when they are zero, and the table says which of those JSON leaves out.

mod encode;
mod fields;
mod special;
mod wire;

use serde_json::{Map, Value, json};

use crate::{
    present::split_api_version,
    status::{ApiError, ApiResult, Reason},
};
pub(crate) use encode::{encode, event, refusal};
use fields::{Field, Repetition};
use wire::{Malformed, Reader, Wire};

/// How each body begins.
const MAGIC: &[u8] = b"k8s\0";
/// The packages of the groups `PACKAGE.k8s.io`.
const PACKAGES: [&str; 12] = [
    "admissionregistration",
    "apiextensions",
    "authentication",
    "authorization",
    "certificates",
    "coordination",
    "discovery",
    "events",
    "networking",
    "node",
    "scheduling",
    "storage",
];
/// Deeper nesting than any real object has; schemas nest most.
const MAXIMUM_DEPTH: usize = 100;

/// Reads a body: the magic bytes, then a `runtime.Unknown` with the object inside.
///
/// # Errors
/// 400 for a body that is none, and for a kind that is not known.
pub(crate) fn decode(body: &[u8]) -> ApiResult<Value> {
    let Some(envelope) = body.strip_prefix(MAGIC) else {
        return Err(bad(
            "provided data does not appear to be a protobuf message, expected prefix \"k8s\\0\"",
        ));
    };
    let malformed = |Malformed(detail): Malformed| {
        bad(&format!(
            "the protobuf body of the request is malformed: {detail}"
        ))
    };
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), [].as_slice());
    for entry in Reader::new(envelope) {
        match entry.map_err(malformed)? {
            (1, Wire::Bytes(type_meta)) => {
                for entry in Reader::new(type_meta) {
                    match entry.map_err(malformed)? {
                        (1, Wire::Bytes(text)) => api_version = special::text(text).map_err(malformed)?,
                        (2, Wire::Bytes(text)) => kind = special::text(text).map_err(malformed)?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let fields = message_name(&api_version, &kind).and_then(|name| fields::message(&name));
    let Some(fields) = fields else {
        return Err(bad(&format!(
            "no kind {kind:?} is registered for version {api_version:?} in protobuf"
        )));
    };
    let mut object = read_message(raw, fields, 0).map_err(malformed)?;
    object.insert("apiVersion".to_owned(), json!(api_version));
    object.insert("kind".to_owned(), json!(kind));
    Ok(Value::Object(object))
}

fn bad(text: &str) -> Box<ApiError> {
    ApiError::new(Reason::BadRequest, text)
}

/// The message of a kind, such as `apps.v1.Deployment`; `None` for a group that is not Kubernetes' own, even if its name
/// begins like one of those. The options of a deletion are the same in every group.
fn message_name(api_version: &str, kind: &str) -> Option<String> {
    let (group, version) = split_api_version(api_version);
    let package = match (group, kind) {
        (_, "DeleteOptions") | ("", "APIVersions" | "APIGroupList" | "APIGroup" | "APIResourceList") => {
            return Some(format!("meta.v1.{kind}"));
        }
        // Its two versions have the same fields.
        ("meta.k8s.io", _) => return Some(format!("meta.v1.{kind}")),
        ("", _) => "core",
        ("apps" | "autoscaling" | "batch" | "policy", _) => group,
        ("rbac.authorization.k8s.io", _) => "rbac",
        _ => group
            .strip_suffix(".k8s.io")
            .filter(|package| PACKAGES.contains(package))?,
    };
    Some(format!("{package}.{version}.{kind}"))
}

fn read_message(
    bytes: &[u8],
    fields: &'static [Field],
    depth: usize,
) -> Result<Map<String, Value>, Malformed> {
    if depth > MAXIMUM_DEPTH {
        return Err(Malformed("it is nested too deep"));
    }
    let mut object = Map::new();
    for entry in Reader::new(bytes) {
        let (number, wire) = entry?;
        // A newer client may know fields that this server does not.
        let Some(field) = fields.iter().find(|field| field.number == number) else {
            continue;
        };
        match field.repetition {
            Repetition::Single => {
                let value = read_value(wire, field.kind, depth)?;
                put(&mut object, field, value);
            }
            Repetition::List => {
                let list = object.entry(field.name).or_insert_with(|| json!([]));
                let Some(list) = list.as_array_mut() else { continue };
                match wire {
                    Wire::Bytes(packed) if matches!(field.kind, "int" | "bool") => {
                        for number in wire::packed(packed) {
                            list.push(read_value(Wire::Number(number?), field.kind, depth)?);
                        }
                    }
                    wire => list.push(read_value(wire, field.kind, depth)?),
                }
            }
            Repetition::Map => {
                let Wire::Bytes(entry) = wire else {
                    return Err(Malformed("an entry of a map is no message"));
                };
                let (key, value) = read_entry(entry, field.kind, depth)?;
                let map = object.entry(field.name).or_insert_with(|| json!({}));
                if let Some(map) = map.as_object_mut() {
                    map.insert(key, value);
                }
            }
        }
    }
    Ok(object)
}

fn put(object: &mut Map<String, Value>, field: &Field, value: Value) {
    if field.name.is_empty() {
        // Its own fields stand in its place.
        if let Value::Object(nested) = value {
            object.extend(nested);
        }
        return;
    }
    let is_zero = match &value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Array(_) => false,
    };
    if !(field.omits_zero && is_zero) {
        object.insert(field.name.to_owned(), value);
    }
}

fn read_entry(bytes: &[u8], kind: &'static str, depth: usize) -> Result<(String, Value), Malformed> {
    let mut key = String::new();
    let mut value = None;
    for entry in Reader::new(bytes) {
        match entry? {
            (1, Wire::Bytes(text)) => key = special::text(text)?,
            (2, wire) => value = Some(read_value(wire, kind, depth)?),
            _ => {}
        }
    }
    let value = match value {
        Some(value) => value,
        None => read_value(Wire::Bytes(&[]), kind, depth)?,
    };
    Ok((key, value))
}

fn read_value(wire: Wire<'_>, kind: &'static str, depth: usize) -> Result<Value, Malformed> {
    match (wire, kind) {
        (Wire::Number(number), "int") => Ok(json!(number.cast_signed())),
        (Wire::Number(number), "bool") => Ok(json!(number != 0)),
        (Wire::Fixed(bits), "double") => Ok(json!(f64::from_bits(bits))),
        (Wire::Bytes(bytes), _) => match special::read(bytes, kind, depth) {
            Some(value) => value,
            None => match fields::message(kind) {
                Some(fields) => read_message(bytes, fields, depth + 1).map(Value::Object),
                None => Err(Malformed("a field has another type than its number says")),
            },
        },
        _ => Err(Malformed("a field has another type than its number says")),
    }
}

/// Reads a nested message of that name, for the types that are a choice between a message and something else.
fn nested(bytes: &[u8], name: &str, depth: usize) -> Result<Value, Malformed> {
    let fields = fields::message(name).ok_or(Malformed("a message is not in the table"))?;
    read_message(bytes, fields, depth + 1).map(Value::Object)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;
