//! Types whose JSON form is not that of a message.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    nested,
    wire::{Malformed, Reader, Wire},
};
use crate::object;

pub(super) const SCHEMA: &str = "apiextensions.v1.JSONSchemaProps";

/// The types that [`read`] knows.
#[cfg(test)]
pub(super) const KINDS: [&str; 11] = [
    "string",
    "bytes",
    "time",
    "microtime",
    "raw",
    "quantity",
    "intorstring",
    "schemaorbool",
    "schemaorarray",
    "schemaorstrings",
    "list-string",
];

/// Reads a value of a special type; `None` if `kind` is not one.
pub(super) fn read(bytes: &[u8], kind: &str, depth: usize) -> Option<Result<Value, Malformed>> {
    Some(match kind {
        "string" => text(bytes).map(Value::String),
        "bytes" => Ok(json!(STANDARD.encode(bytes))),
        "time" => time(bytes).map(|time| time.map_or(Value::Null, |time| json!(object::format_time(time)))),
        "microtime" => time(bytes).map(|time| {
            time.map_or(Value::Null, |time| {
                json!(time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string())
            })
        }),
        "quantity" => first(bytes, 1)
            .and_then(|found| found.map_or(Ok(Value::Null), |bytes| text(bytes).map(Value::String))),
        "raw" => first(bytes, 1).and_then(|found| found.map_or(Ok(Value::Null), json_inside)),
        "intorstring" => int_or_string(bytes),
        "schemaorbool" => schema_or(bytes, depth, |wire| match wire {
            (1, Wire::Number(allows)) => Some(Ok(json!(allows != 0))),
            _ => None,
        }),
        "schemaorarray" => schema_or_list(bytes, depth, 1, |bytes| nested(bytes, SCHEMA, depth)),
        "schemaorstrings" => schema_or_list(bytes, depth, 1, |bytes| text(bytes).map(Value::String)),
        "list-string" => Reader::new(bytes)
            .filter_map(|entry| match entry {
                Ok((1, Wire::Bytes(bytes))) => Some(text(bytes).map(Value::String)),
                Ok(_) => None,
                Err(malformed) => Some(Err(malformed)),
            })
            .collect::<Result<Vec<Value>, Malformed>>()
            .map(Value::Array),
        _ => return None,
    })
}

/// A text, which must be UTF-8.
pub(super) fn text(bytes: &[u8]) -> Result<String, Malformed> {
    String::from_utf8(bytes.to_vec()).map_err(|_other_encoding| Malformed("a text is not UTF-8"))
}

/// The bytes of the last field with that number.
fn first(bytes: &[u8], number: u32) -> Result<Option<&[u8]>, Malformed> {
    let mut found = None;
    for entry in Reader::new(bytes) {
        if let (field, Wire::Bytes(value)) = entry?
            && field == number
        {
            found = Some(value);
        }
    }
    Ok(found)
}

fn json_inside(bytes: &[u8]) -> Result<Value, Malformed> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(bytes).map_err(|_not_json| Malformed("an embedded value is no JSON"))
}

/// Seconds and nanoseconds; nothing at all is no time.
fn time(bytes: &[u8]) -> Result<Option<Timestamp>, Malformed> {
    let (mut seconds, mut nanoseconds) = (None, 0_i32);
    for entry in Reader::new(bytes) {
        match entry? {
            (1, Wire::Number(number)) => seconds = Some(number.cast_signed()),
            (2, Wire::Number(number)) => nanoseconds = i32::try_from(number.cast_signed()).unwrap_or(0),
            _ => {}
        }
    }
    match seconds {
        None => Ok(None),
        Some(seconds) => Timestamp::new(seconds, nanoseconds)
            .map(Some)
            .map_err(|_out_of_range| Malformed("a time is out of range")),
    }
}

fn int_or_string(bytes: &[u8]) -> Result<Value, Malformed> {
    let (mut is_text, mut number, mut string) = (false, 0_i64, String::new());
    for entry in Reader::new(bytes) {
        match entry? {
            (1, Wire::Number(kind)) => is_text = kind == 1,
            (2, Wire::Number(value)) => number = value.cast_signed(),
            (3, Wire::Bytes(value)) => string = text(value)?,
            _ => {}
        }
    }
    Ok(if is_text { json!(string) } else { json!(number) })
}

/// A schema in field 2, or what `other` makes of the other fields.
fn schema_or(
    bytes: &[u8],
    depth: usize,
    other: impl Fn((u32, Wire<'_>)) -> Option<Result<Value, Malformed>>,
) -> Result<Value, Malformed> {
    let mut value = Value::Null;
    let mut schema = None;
    for entry in Reader::new(bytes) {
        match entry? {
            (2, Wire::Bytes(bytes)) => schema = Some(nested(bytes, SCHEMA, depth)?),
            entry => {
                if let Some(other) = other(entry) {
                    value = other?;
                }
            }
        }
    }
    Ok(schema.unwrap_or(value))
}

/// A schema in field `schema`, or a list of the others.
fn schema_or_list(
    bytes: &[u8],
    depth: usize,
    schema: u32,
    item: impl Fn(&[u8]) -> Result<Value, Malformed>,
) -> Result<Value, Malformed> {
    let mut list = Vec::new();
    let mut single = None;
    for entry in Reader::new(bytes) {
        match entry? {
            (number, Wire::Bytes(bytes)) if number == schema => single = Some(nested(bytes, SCHEMA, depth)?),
            (_, Wire::Bytes(bytes)) => list.push(item(bytes)?),
            _ => {}
        }
    }
    Ok(single.unwrap_or(Value::Array(list)))
}
