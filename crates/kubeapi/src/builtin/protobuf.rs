//! Request bodies in protobuf. Typed clients in Go, `kubectl create` among them, send built-in kinds that way. Requirement
//! KA-007.
//!
//! A body is the four bytes `k8s\0` and a message that names the kind and carries the object. The messages are described by
//! `data/protobuf.json`, which also says what the Go structures leave out of their JSON, so that the result is what the
//! client would have sent as JSON.

mod wire;

use std::{collections::HashMap, sync::LazyLock};

use base64::Engine as _;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use self::wire::{Field, Reader};
use super::Kinds;

const TABLE: &str = include_str!("../../data/protobuf.json");
const MAGIC: &[u8] = b"k8s\0";
/// Deeper than any message of a built-in kind.
const MAX_DEPTH: usize = 48;
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// Why a body in protobuf was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The body does not begin with `k8s\0`.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NotEnveloped,
    /// The kind is none of the built-in ones; custom resources have no protobuf form.
    #[error("the kind has no protobuf form on this server")]
    UnknownKind,
    /// The bytes are no message of that kind.
    #[error("the protobuf message is malformed")]
    Malformed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Shape {
    One,
    Many,
    Map,
}

/// JSON name (empty if JSON shows the content in place of the field), shape, type, whether JSON keeps an empty value.
#[derive(Debug, Deserialize)]
struct Entry(String, Shape, String, bool);

static MESSAGES: LazyLock<HashMap<&'static str, HashMap<u32, Entry>>> =
    LazyLock::new(|| serde_json::from_str(TABLE).unwrap_or_default());

/// The object in a body, as JSON, with `apiVersion` and `kind`.
///
/// # Errors
/// [`DecodeError`]; none is worth a retry.
pub fn decode(body: &[u8]) -> Result<Value, DecodeError> {
    let message = body.strip_prefix(MAGIC).ok_or(DecodeError::NotEnveloped)?;
    let (mut type_meta, mut raw) = (&[][..], &[][..]);
    for field in Reader::new(message) {
        match field? {
            (1, Field::Bytes(bytes)) => type_meta = bytes,
            (2, Field::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let (mut api_version, mut kind) = (String::new(), String::new());
    for field in Reader::new(type_meta) {
        match field? {
            (1, Field::Bytes(bytes)) => api_version = text(bytes)?,
            (2, Field::Bytes(bytes)) => kind = text(bytes)?,
            _ => {}
        }
    }
    let name = message_of(&api_version, &kind).ok_or(DecodeError::UnknownKind)?;
    let mut object = Map::new();
    decode_into(&mut object, raw, &name, 0)?;
    object.insert("apiVersion".to_owned(), json!(api_version));
    object.insert("kind".to_owned(), json!(kind));
    Ok(Value::Object(object))
}

fn message_of(api_version: &str, kind: &str) -> Option<String> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let name = match (group, version, kind) {
        (_, _, "DeleteOptions") => format!("{META}DeleteOptions"),
        ("autoscaling", "v1", "Scale") => "io.k8s.api.autoscaling.v1.Scale".to_owned(),
        ("authentication.k8s.io", "v1", "TokenRequest") => {
            "io.k8s.api.authentication.v1.TokenRequest".to_owned()
        }
        _ => Kinds::builtin().by_kind(group, version, kind)?.definition.clone(),
    };
    MESSAGES.contains_key(name.as_str()).then_some(name)
}

fn decode_into(
    object: &mut Map<String, Value>,
    bytes: &[u8],
    name: &str,
    depth: usize,
) -> Result<(), DecodeError> {
    let fields = MESSAGES
        .get(name)
        .filter(|_| depth < MAX_DEPTH)
        .ok_or(DecodeError::Malformed)?;
    for field in Reader::new(bytes) {
        let (number, field) = field?;
        // Fields of a newer release are not known here; JSON would call them unknown and drop them as well.
        let Some(Entry(json_name, shape, type_, keeps_zero)) = fields.get(&number) else {
            continue;
        };
        if json_name.is_empty() && *shape == Shape::One {
            let Field::Bytes(bytes) = field else {
                return Err(DecodeError::Malformed);
            };
            decode_into(object, bytes, type_, depth + 1)?;
            continue;
        }
        match shape {
            Shape::One => {
                let value = decode_value(field, type_, depth)?;
                if !value.is_null() && (*keeps_zero || !is_zero(&value)) {
                    object.insert(json_name.clone(), value);
                }
            }
            Shape::Many => {
                let list = object.entry(json_name.clone()).or_insert_with(|| json!([]));
                let list = list.as_array_mut().ok_or(DecodeError::Malformed)?;
                match field {
                    Field::Bytes(packed) if wire::is_packable(type_) => {
                        for number in wire::packed(packed) {
                            list.push(decode_value(Field::Number(number?), type_, depth)?);
                        }
                    }
                    field => list.push(decode_value(field, type_, depth)?),
                }
            }
            Shape::Map => {
                let Field::Bytes(entry) = field else {
                    return Err(DecodeError::Malformed);
                };
                let (key, value) = decode_entry(entry, type_, depth)?;
                let map = object.entry(json_name.clone()).or_insert_with(|| json!({}));
                map.as_object_mut()
                    .ok_or(DecodeError::Malformed)?
                    .insert(key, value);
            }
        }
    }
    Ok(())
}

fn decode_entry(bytes: &[u8], type_: &str, depth: usize) -> Result<(String, Value), DecodeError> {
    let mut key = String::new();
    let mut value = None;
    for field in Reader::new(bytes) {
        match field? {
            (1, Field::Bytes(bytes)) => key = text(bytes)?,
            (2, field) => value = Some(decode_value(field, type_, depth)?),
            _ => {}
        }
    }
    let value = match value {
        Some(value) => value,
        None => decode_value(Field::Bytes(&[]), type_, depth)?,
    };
    Ok((key, value))
}

fn decode_value(field: Field<'_>, type_: &str, depth: usize) -> Result<Value, DecodeError> {
    match (type_, field) {
        ("string", Field::Bytes(bytes)) => Ok(json!(text(bytes)?)),
        ("bytes", Field::Bytes(bytes)) => Ok(json!(base64::engine::general_purpose::STANDARD.encode(bytes))),
        ("bool", Field::Number(number)) => Ok(json!(number != 0)),
        ("int32" | "int64", Field::Number(number)) => Ok(json!(number.cast_signed())),
        ("uint32" | "uint64", Field::Number(number)) => Ok(json!(number)),
        ("double", Field::Fixed(bits)) => Ok(json!(f64::from_bits(bits))),
        (name, Field::Bytes(bytes)) if name.contains('.') => decode_message(bytes, name, depth),
        _ => Err(DecodeError::Malformed),
    }
}

/// A message inside another. Those that JSON shows as something else than an object are known by name.
fn decode_message(bytes: &[u8], name: &str, depth: usize) -> Result<Value, DecodeError> {
    let meta = name.strip_prefix(META);
    match (name, meta) {
        (_, Some("Time")) => time(bytes, 0),
        (_, Some("MicroTime")) => time(bytes, 6),
        (_, Some("FieldsV1")) | ("io.k8s.apimachinery.pkg.runtime.RawExtension", _) => {
            let raw = first_bytes(bytes)?;
            if raw.is_empty() {
                return Ok(Value::Null);
            }
            serde_json::from_slice(raw).map_err(|_| DecodeError::Malformed)
        }
        ("io.k8s.apimachinery.pkg.api.resource.Quantity", _) => match text(first_bytes(bytes)?)? {
            empty if empty.is_empty() => Ok(json!("0")),
            amount => Ok(json!(amount)),
        },
        ("io.k8s.apimachinery.pkg.util.intstr.IntOrString", _) => int_or_string(bytes),
        _ if is_list(name) => {
            let mut holder = Map::new();
            decode_into(&mut holder, bytes, name, depth + 1)?;
            Ok(holder.remove("").unwrap_or_else(|| json!([])))
        }
        _ => {
            let mut object = Map::new();
            decode_into(&mut object, bytes, name, depth + 1)?;
            Ok(Value::Object(object))
        }
    }
}

/// Whether a message stands for the list in its only field.
fn is_list(name: &str) -> bool {
    MESSAGES.get(name).is_some_and(|fields| {
        fields.len() == 1
            && fields
                .values()
                .all(|Entry(json_name, shape, ..)| json_name.is_empty() && *shape == Shape::Many)
    })
}

fn first_bytes(message: &[u8]) -> Result<&[u8], DecodeError> {
    let mut found = &[][..];
    for field in Reader::new(message) {
        if let (1, Field::Bytes(bytes)) = field? {
            found = bytes;
        }
    }
    Ok(found)
}

fn int_or_string(message: &[u8]) -> Result<Value, DecodeError> {
    let (mut is_text, mut number, mut words) = (false, 0, String::new());
    for field in Reader::new(message) {
        match field? {
            (1, Field::Number(type_)) => is_text = type_ == 1,
            (2, Field::Number(value)) => number = value.cast_signed(),
            (3, Field::Bytes(bytes)) => words = text(bytes)?,
            _ => {}
        }
    }
    Ok(if is_text { json!(words) } else { json!(number) })
}

/// A time; the zero time of Go, which is an empty message, is null.
fn time(message: &[u8], digits: u8) -> Result<Value, DecodeError> {
    if message.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanoseconds) = (0_i64, 0_i64);
    for field in Reader::new(message) {
        match field? {
            (1, Field::Number(number)) => seconds = number.cast_signed(),
            (2, Field::Number(number)) => nanoseconds = number.cast_signed(),
            _ => {}
        }
    }
    let nanoseconds = i32::try_from(nanoseconds).map_err(|_| DecodeError::Malformed)?;
    let moment = jiff::Timestamp::new(seconds, nanoseconds).map_err(|_| DecodeError::Malformed)?;
    Ok(json!(format!("{moment:.*}", usize::from(digits))))
}

fn text(bytes: &[u8]) -> Result<String, DecodeError> {
    String::from_utf8(bytes.to_vec()).map_err(|_| DecodeError::Malformed)
}

/// Whether Go leaves the value out of JSON where it is marked `omitempty`. A structure is never left out.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
