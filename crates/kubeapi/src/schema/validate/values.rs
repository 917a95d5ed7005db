//! The checks of one value, each with the reference's words.

use serde_json::{Map, Value};

use super::{Outcome, error, numbers};
use crate::{
    field::{FieldError, FieldErrorKind, FieldPath},
    schema::{Checks, formats::Format},
};

/// The name of a value's type, as messages show it.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

pub(super) fn check_type(
    types: &[&str],
    nullable: bool,
    format: Option<Format>,
    value: &Value,
    path: &FieldPath,
) -> Option<FieldError> {
    let actual = type_of(value);
    let mismatch = |expected: &str, actual: &str| {
        error(
            FieldErrorKind::TypeInvalid,
            path,
            Some(Value::from(actual)),
            format!("{} must be of type {expected}: {actual:?}", located(path)),
        )
    };
    if value.is_null() {
        return (!types.is_empty() && !nullable).then(|| mismatch(&types.join(","), "null"));
    }
    let wants_number = types.contains(&"number") || types.contains(&"integer");
    let integral = value.as_f64().is_some_and(|number| number.fract() == 0.0);
    let fits = types.contains(&actual)
        || (actual == "number" && integral && types.contains(&"integer"))
        || (actual == "integer" && types.contains(&"number"));
    let is_text_or_list = matches!(value, Value::String(_) | Value::Array(_));
    if let Some(format) = format {
        if !is_text_or_list && !fits {
            let actual_format = match actual {
                "integer" => "int64",
                "number" => "float64",
                _ => "",
            };
            return Some(mismatch(format.name, actual_format));
        }
        // With a format of strings the reference leaves strings and lists to the format check.
        if !wants_number && is_text_or_list {
            return None;
        }
    }
    (!fits && !types.is_empty()).then(|| mismatch(&types.join(","), actual))
}

pub(super) fn check_enum(checks: &Checks, value: &Value, path: &FieldPath) -> Option<FieldError> {
    if checks.enumeration.is_empty() || checks.enumeration.iter().any(|allowed| equal(allowed, value)) {
        return None;
    }
    let shown: Vec<String> = checks
        .enumeration
        .iter()
        .map(|allowed| {
            allowed
                .as_str()
                .map_or_else(|| allowed.to_string(), str::to_owned)
        })
        .collect();
    let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
    Some(FieldError::not_supported(path, value.clone(), &shown))
}

/// Equality that takes `1` and `1.0` for the same number.
fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left == right || left.as_f64() == right.as_f64(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .all(|(name, left)| right.get(name).is_some_and(|right| equal(left, right)))
        }
        _ => left == right,
    }
}

/// The checks of strings and numbers.
pub(super) fn check_scalar(
    checks: &Checks,
    types: &[&str],
    value: &Value,
    path: &FieldPath,
    outcome: &mut Outcome,
) {
    match value {
        Value::String(text) => {
            if let Some(error) = check_text(checks, text, path) {
                outcome.add(error);
            }
            outcome.passed += 1;
            if let Some(format) = checks.format.filter(Format::is_textual) {
                if !format.accepts(text) {
                    outcome.add(error(
                        FieldErrorKind::TypeInvalid,
                        path,
                        Some(value.clone()),
                        format!("{} must be of type {}: {text:?}", located(path), format.name),
                    ));
                }
                outcome.passed += 1;
            }
        }
        Value::Number(number) => {
            numbers::check(checks, types, number, path, outcome);
            outcome.passed += 2;
        }
        _ => {}
    }
}

fn check_text(checks: &Checks, text: &str, path: &FieldPath) -> Option<FieldError> {
    let length = text.chars().count() as u64;
    if let Some(most) = checks.max_length.filter(|&most| length > most) {
        let bytes = if most == 1 { "byte" } else { "bytes" };
        return Some(FieldError::too_long(
            path,
            format!("may not be more than {most} {bytes}"),
        ));
    }
    if let Some(least) = checks.min_length.filter(|&least| length < least) {
        return Some(FieldError::invalid(
            path,
            Value::from(text),
            format!("{} should be at least {least} chars long", located(path)),
        ));
    }
    if let Some(pattern) = checks
        .pattern
        .as_ref()
        .filter(|pattern| !pattern.regex.is_match(text))
    {
        return Some(FieldError::invalid(
            path,
            Value::from(text),
            format!("{} should match '{}'", located(path), pattern.text),
        ));
    }
    None
}

pub(super) fn check_list(checks: &Checks, list: &[Value], path: &FieldPath, outcome: &mut Outcome) {
    let size = list.len() as u64;
    if let Some(least) = checks.min_items.filter(|&least| size < least) {
        outcome.add(FieldError::invalid(
            path,
            Value::from(size),
            format!("{} should have at least {least} items", located(path)),
        ));
    }
    if let Some(most) = checks.max_items.filter(|&most| size > most) {
        outcome.add(too_many(path, size, most));
    }
    let repeats = || {
        list.iter()
            .enumerate()
            .any(|(index, item)| list[..index].iter().any(|other| equal(other, item)))
    };
    if checks.unique_items && repeats() {
        outcome.add(FieldError::invalid(
            path,
            Value::from(""),
            format!("{} shouldn't contain duplicates", located(path)),
        ));
    }
}

pub(super) fn check_size(checks: &Checks, size: usize, path: &FieldPath, outcome: &mut Outcome) {
    let size = size as u64;
    if let Some(least) = checks.min_properties.filter(|&least| size < least) {
        outcome.add(FieldError::invalid(
            path,
            Value::from(size),
            format!("{} should have at least {least} properties", located(path)),
        ));
    }
    if let Some(most) = checks.max_properties.filter(|&most| size > most) {
        outcome.add(too_many(path, size, most));
    }
}

pub(super) fn check_required(
    checks: &Checks,
    fields: &Map<String, Value>,
    path: &FieldPath,
    outcome: &mut Outcome,
) {
    for name in &checks.required {
        if !fields.contains_key(name) {
            outcome.add(FieldError::required(&path.child(name), ""));
        }
    }
}

fn too_many(path: &FieldPath, size: u64, most: u64) -> FieldError {
    let items = if most == 1 { "item" } else { "items" };
    error(
        FieldErrorKind::TooMany,
        path,
        Some(Value::from(size)),
        format!("must have at most {most} {items}"),
    )
}

/// `spec.x in body`, the way messages name a place.
pub(super) fn located(path: &FieldPath) -> String {
    format!("{} in body", path.as_str())
}
