//! Cells of columns that are defined by a JSON path, and those that every kind has.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::duration::since;
use super::jsonpath::{JsonPath, print};
use super::object::text;

/// The first value that a path finds, as the type of the column wants it; null when there is none or it does not fit.
pub(super) fn of_path(path: &JsonPath, column_type: &str, object: &Value, now: Timestamp) -> Value {
    let Ok(found) = path.find(object) else {
        return Value::Null;
    };
    let Some(value) = found.first() else {
        return Value::Null;
    };
    match column_type {
        "string" if value.is_null() => json!("<no value>"),
        "string" => Value::String(print(value)),
        "integer" => match value.as_i64() {
            Some(integer) => json!(integer),
            #[expect(
                clippy::cast_possible_truncation,
                reason = "an integer column shows the integer part"
            )]
            None => value.as_f64().map_or(Value::Null, |number| json!(number as i64)),
        },
        "number" => value.as_f64().map_or(Value::Null, number),
        "boolean" => value.as_bool().map_or(Value::Null, Value::Bool),
        "date" => match &**value {
            Value::String(text) => Value::String(since(Some(text), now)),
            _ => Value::Null,
        },
        _ => Value::Null,
    }
}

/// A number as JSON shows it that knows floating point numbers only: without a fraction that is none.
fn number(number: f64) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "checked to be an integer in range"
    )]
    if number.fract() == 0.0 && number.abs() <= EXACT {
        json!(number as i64)
    } else {
        json!(number)
    }
}

/// The cell of a column by its name, for kinds that have no function of their own.
pub(super) fn common(name: &str, object: &Value, now: Timestamp) -> Value {
    match name {
        "Name" => json!(text(object, "/metadata/name")),
        "Age" => age(object, now),
        "Created At" => object
            .pointer("/metadata/creationTimestamp")
            .cloned()
            .unwrap_or(Value::Null),
        _ => Value::Null,
    }
}

/// How old an object is.
pub(super) fn age(object: &Value, now: Timestamp) -> Value {
    json!(since(
        object
            .pointer("/metadata/creationTimestamp")
            .and_then(Value::as_str),
        now
    ))
}
