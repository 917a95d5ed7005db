//! Objects and events written in protobuf, for clients that like it best. Requirement KA-007.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    MAGIC,
    fields::{self, Field, Repetition},
    message_name,
};

/// A field whose value does not have the type that the encoding wants.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} of {message} does not fit the protobuf encoding")]
pub(crate) struct Unfit {
    message: String,
    field: String,
}

/// Writes an object or a list of objects with its envelope; `None` for a kind that has no protobuf.
///
/// # Errors
/// A value that is not of the type of its field.
pub(crate) fn encode(object: &Value) -> Option<Result<Vec<u8>, Unfit>> {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let body = if (api_version, kind) == ("v1", "Status") {
        Ok(status(object))
    } else if let Some(name) = known(api_version, kind) {
        message(object, name)
    } else {
        list(object, known(api_version, kind.strip_suffix("List")?)?)
    };
    Some(body.map(|body| envelope(api_version, kind, &body)))
}

/// One event of a watch: four bytes of length, then a `meta/v1.WatchEvent`, without an envelope of its own, that holds the
/// object in its envelope. An object that cannot be written becomes an ERROR event, not a silent gap.
pub(crate) fn event(kind: &str, object: &Value) -> Vec<u8> {
    let unfit = || Unfit {
        message: "meta.v1.WatchEvent".to_owned(),
        field: "object".to_owned(),
    };
    encode(object)
        .unwrap_or_else(|| Err(unfit()))
        .and_then(|object| frame(kind, &object).ok_or_else(unfit))
        .unwrap_or_else(|unfit| {
            tracing::error!(%unfit, "an event cannot be written in protobuf");
            let status = envelope("v1", "Status", &status(&refusal(&unfit)));
            frame("ERROR", &status).unwrap_or_default()
        })
}

/// `None` for an event longer than its length can say, which no object is.
fn frame(kind: &str, object: &[u8]) -> Option<Vec<u8>> {
    let mut raw = Vec::new();
    write_bytes(&mut raw, 1, object);
    let mut event = Vec::new();
    write_bytes(&mut event, 1, kind.as_bytes());
    write_bytes(&mut event, 2, &raw);
    let mut frame = u32::try_from(event.len()).ok()?.to_be_bytes().to_vec();
    frame.append(&mut event);
    Some(frame)
}

fn envelope(api_version: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let mut type_meta = Vec::new();
    write_bytes(&mut type_meta, 1, api_version.as_bytes());
    write_bytes(&mut type_meta, 2, kind.as_bytes());
    let mut envelope = MAGIC.to_vec();
    write_bytes(&mut envelope, 1, &type_meta);
    write_bytes(&mut envelope, 2, body);
    // Neither encoded further nor of another type.
    write_bytes(&mut envelope, 3, b"");
    write_bytes(&mut envelope, 4, b"");
    envelope
}

fn known(api_version: &str, kind: &str) -> Option<&'static str> {
    fields::name(&message_name(api_version, kind)?)
}

/// `metadata` and `items`, which every list has under the same numbers.
fn list(object: &Value, item: &'static str) -> Result<Vec<u8>, Unfit> {
    let mut out = Vec::new();
    write_bytes(
        &mut out,
        1,
        &list_meta(object.get("metadata").unwrap_or(&Value::Null)),
    );
    for entry in object
        .get("items")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        write_bytes(&mut out, 2, &message(entry, item)?);
    }
    Ok(out)
}

fn list_meta(metadata: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    write_texts(
        &mut out,
        metadata,
        &[(1, "selfLink"), (2, "resourceVersion"), (3, "continue")],
    );
    if let Some(remaining) = metadata.get("remainingItemCount").and_then(Value::as_i64) {
        write_number(&mut out, 4, remaining);
    }
    out
}

/// Texts that are written even where they are empty, as Go writes what is no pointer.
fn write_texts(out: &mut Vec<u8>, from: &Value, fields: &[(u32, &str)]) {
    for (number, field) in fields {
        let text = from.get(field).and_then(Value::as_str).unwrap_or_default();
        write_bytes(out, *number, text.as_bytes());
    }
}

/// `meta/v1.Status`, which is answered and never stored, and so is not in the table.
fn status(status: &Value) -> Vec<u8> {
    let number = |from: &Value, field: &str| from.get(field).and_then(Value::as_i64).unwrap_or(0);
    let mut out = Vec::new();
    write_bytes(
        &mut out,
        1,
        &list_meta(status.get("metadata").unwrap_or(&Value::Null)),
    );
    write_texts(&mut out, status, &[(2, "status"), (3, "message"), (4, "reason")]);
    if let Some(details) = status.get("details") {
        let mut body = Vec::new();
        write_texts(&mut body, details, &[(1, "name"), (2, "group"), (3, "kind")]);
        for cause in details
            .get("causes")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let mut entry = Vec::new();
            write_texts(&mut entry, cause, &[(1, "reason"), (2, "message"), (3, "field")]);
            write_bytes(&mut body, 4, &entry);
        }
        write_number(&mut body, 5, number(details, "retryAfterSeconds"));
        write_texts(&mut body, details, &[(6, "uid")]);
        write_bytes(&mut out, 5, &body);
    }
    write_number(&mut out, 6, number(status, "code"));
    out
}

fn message(object: &Value, name: &str) -> Result<Vec<u8>, Unfit> {
    let mut out = Vec::new();
    for field in fields::message(name).unwrap_or_default() {
        if field.name.is_empty() {
            // Its own fields stand in this object's place.
            write_bytes(&mut out, field.number, &message(object, field.kind)?);
            continue;
        }
        let Some(value) = object.get(field.name).filter(|value| !value.is_null()) else {
            continue;
        };
        let unfit = || Unfit {
            message: name.to_owned(),
            field: field.name.to_owned(),
        };
        match field.repetition {
            Repetition::Single => write_value(&mut out, field.number, field, value, &unfit)?,
            Repetition::List => {
                for item in value.as_array().ok_or_else(unfit)? {
                    write_value(&mut out, field.number, field, item, &unfit)?;
                }
            }
            Repetition::Map => {
                for (key, item) in value.as_object().ok_or_else(unfit)? {
                    let mut entry = Vec::new();
                    write_bytes(&mut entry, 1, key.as_bytes());
                    write_value(&mut entry, 2, field, item, &unfit)?;
                    write_bytes(&mut out, field.number, &entry);
                }
            }
        }
    }
    Ok(out)
}

fn write_value(
    out: &mut Vec<u8>,
    number: u32,
    field: &Field,
    value: &Value,
    unfit: &dyn Fn() -> Unfit,
) -> Result<(), Unfit> {
    let text = || value.as_str().ok_or_else(unfit);
    match field.kind {
        "int" => write_number(out, number, value.as_i64().ok_or_else(unfit)?),
        "bool" => write_number(out, number, i64::from(value.as_bool().ok_or_else(unfit)?)),
        "double" => {
            write_tag(out, number, 1);
            out.extend_from_slice(&value.as_f64().ok_or_else(unfit)?.to_le_bytes());
        }
        "string" => write_bytes(out, number, text()?.as_bytes()),
        "bytes" => {
            let bytes = STANDARD.decode(text()?).map_err(|_not_base64| unfit())?;
            write_bytes(out, number, &bytes);
        }
        // No time, as the value of a map.
        "time" | "microtime" if value.is_null() => write_bytes(out, number, b""),
        "time" | "microtime" => {
            let time: Timestamp = text()?.parse().map_err(|_no_time| unfit())?;
            let mut body = Vec::new();
            write_number(&mut body, 1, time.as_second());
            write_number(&mut body, 2, i64::from(time.subsec_nanosecond()));
            write_bytes(out, number, &body);
        }
        "quantity" => {
            let mut body = Vec::new();
            let quantity = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            write_bytes(&mut body, 1, quantity.as_bytes());
            write_bytes(out, number, &body);
        }
        "raw" => {
            let mut body = Vec::new();
            write_bytes(&mut body, 1, value.to_string().as_bytes());
            write_bytes(out, number, &body);
        }
        "intorstring" => {
            let mut body = Vec::new();
            match value.as_i64() {
                Some(integer) => {
                    write_number(&mut body, 1, 0);
                    write_number(&mut body, 2, integer);
                }
                None => {
                    write_number(&mut body, 1, 1);
                    write_bytes(&mut body, 3, text()?.as_bytes());
                }
            }
            write_bytes(out, number, &body);
        }
        "schemaorbool" => {
            let mut body = Vec::new();
            match value.as_bool() {
                Some(allows) => write_number(&mut body, 1, i64::from(allows)),
                None => {
                    write_number(&mut body, 1, 1);
                    write_bytes(&mut body, 2, &message(value, super::special::SCHEMA)?);
                }
            }
            write_bytes(out, number, &body);
        }
        "schemaorarray" | "schemaorstrings" => {
            let mut body = Vec::new();
            match (value.as_array(), field.kind) {
                (None, _) => write_bytes(&mut body, 1, &message(value, super::special::SCHEMA)?),
                (Some(items), "schemaorarray") => {
                    for item in items {
                        write_bytes(&mut body, 2, &message(item, super::special::SCHEMA)?);
                    }
                }
                (Some(items), _) => {
                    for item in items {
                        write_bytes(&mut body, 2, item.as_str().ok_or_else(unfit)?.as_bytes());
                    }
                }
            }
            write_bytes(out, number, &body);
        }
        "list-string" => {
            let mut body = Vec::new();
            for item in value.as_array().ok_or_else(unfit)? {
                write_bytes(&mut body, 1, item.as_str().ok_or_else(unfit)?.as_bytes());
            }
            write_bytes(out, number, &body);
        }
        nested => write_bytes(out, number, &message(value, nested)?),
    }
    Ok(())
}

fn write_tag(out: &mut Vec<u8>, number: u32, wire: u64) {
    write_varint(out, (u64::from(number) << 3) | wire);
}

fn write_number(out: &mut Vec<u8>, number: u32, value: i64) {
    write_tag(out, number, 0);
    write_varint(out, value.cast_unsigned());
}

fn write_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    write_tag(out, number, 2);
    write_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).unwrap_or(0) | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap_or(0));
}

/// What a client is told where an object cannot be encoded.
pub(crate) fn refusal(unfit: &Unfit) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 500, "reason": "InternalError",
        "message": format!("Internal error occurred: {unfit}"),
    })
}
