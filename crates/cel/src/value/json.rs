//! From JSON and back.

use std::sync::Arc;

use base64::Engine as _;
use serde_json::{Map as JsonMap, Number, Value as Json};

use super::{Key, Map, Value};
use crate::text;

/// Bytes of JSON text, roughly, that one value may become. Values share their parts, so a small
/// expression can describe a result of any size; this bounds what is written out.
const JSON_LIMIT: usize = 8 << 20;

/// A value is too large to be written as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value is too large to be written as JSON: more than {limit} bytes")]
pub struct JsonTooLarge {
    /// The limit in bytes.
    pub limit: usize,
}

impl From<&Json> for Value {
    /// Whole numbers become `int`, or `uint` above the `int` range; numbers with a fraction or an
    /// exponent become `double`, `6.0` too.
    fn from(json: &Json) -> Self {
        match json {
            Json::Null => Value::Null,
            Json::Bool(value) => Value::Bool(*value),
            Json::Number(number) => number_value(number),
            Json::String(text) => Value::String(text.as_str().into()),
            Json::Array(items) => Value::list(items.iter().map(Value::from).collect()),
            Json::Object(fields) => Value::Map(Arc::new(
                fields
                    .iter()
                    .map(|(key, value)| (Key::String(key.as_str().into()), Value::from(value)))
                    .collect::<Map>(),
            )),
        }
    }
}

impl From<Json> for Value {
    fn from(json: Json) -> Self {
        Value::from(&json)
    }
}

fn number_value(number: &Number) -> Value {
    if let Some(value) = number.as_i64() {
        Value::Int(value)
    } else if let Some(value) = number.as_u64() {
        Value::Uint(value)
    } else {
        Value::Double(number.as_f64().unwrap_or(f64::NAN))
    }
}

impl Value {
    /// The value as JSON: bytes in base64, timestamps in RFC 3339, durations in seconds (`1.5s`), an
    /// optional as its content or null, numbers that JSON cannot hold as text.
    ///
    /// # Errors
    /// The result would be larger than 8 MiB.
    pub fn to_json(&self) -> Result<Json, JsonTooLarge> {
        self.to_json_within(JSON_LIMIT)
    }

    /// As [`Value::to_json`] with a limit in bytes of the caller's choice.
    ///
    /// # Errors
    /// The result would be larger than the limit.
    pub fn to_json_within(&self, limit: usize) -> Result<Json, JsonTooLarge> {
        Writer { left: limit }.write(self).ok_or(JsonTooLarge { limit })
    }
}

struct Writer {
    left: usize,
}

impl Writer {
    fn take(&mut self, bytes: usize) -> Option<()> {
        self.left = self.left.checked_sub(bytes)?;
        Some(())
    }

    fn write(&mut self, value: &Value) -> Option<Json> {
        self.take(4)?;
        Some(match value {
            Value::Null | Value::Optional(None) => Json::Null,
            Value::Bool(value) => Json::Bool(*value),
            Value::Int(value) => Json::from(*value),
            Value::Uint(value) => Json::from(*value),
            Value::Double(value) => match Number::from_f64(*value) {
                Some(number) => Json::Number(number),
                None => Json::String(text::double(*value)),
            },
            Value::String(value) => {
                self.take(value.len())?;
                Json::String(value.to_string())
            }
            Value::Bytes(value) => {
                self.take(value.len().saturating_mul(2))?;
                Json::String(base64::engine::general_purpose::STANDARD.encode(value))
            }
            Value::List(items) => {
                Json::Array(items.iter().map(|item| self.write(item)).collect::<Option<_>>()?)
            }
            Value::Map(map) => {
                let mut fields = JsonMap::new();
                for (key, value) in map.iter() {
                    let key = key.to_string();
                    self.take(key.len() + 2)?;
                    let value = self.write(value)?;
                    fields.insert(key, value);
                }
                Json::Object(fields)
            }
            Value::Timestamp(value) => Json::String(value.to_string()),
            Value::Duration(value) => Json::String(text::duration(*value)),
            Value::Type(value) => Json::String(value.name().to_owned()),
            Value::Optional(Some(value)) => self.write(value)?,
            Value::Extension(extension) => Json::String(extension.type_of().name().to_owned()),
        })
    }
}
