//! Typed variables: whether a value fits, and how it is written into a template (OM-554, OM-562).

use std::borrow::Cow;

use regex::RegexBuilder;
use serde_json::Value;

use super::{Variable, VariableType};

/// Compiled patterns may not take more memory than this.
const PATTERN_SIZE_LIMIT: usize = 1 << 20;

/// A value that its declaration does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("variable `{variable}` {reason}")]
pub struct VariableError {
    /// Name of the variable.
    pub variable: String,
    /// What is wrong; never repeats the value, which may be private.
    pub reason: String,
}

/// Brings a value into the declared type and checks the rules.
///
/// Clients send metadata as strings, so a string that spells a number, boolean, object or array counts as
/// one where such a type is declared.
pub(super) fn check(variable: &Variable, value: &Value) -> Result<Value, VariableError> {
    let refuse = |reason: String| VariableError {
        variable: variable.name.clone(),
        reason,
    };
    let value = convert(variable.kind, value)
        .ok_or_else(|| refuse(format!("must be {}", expected(variable.kind))))?
        .into_owned();
    let rules = &variable.validation;
    if let Some(text) = value.as_str() {
        let length = text.chars().count() as u64;
        if rules.min_length.is_some_and(|least| length < least) {
            return Err(refuse(format!(
                "has {length} characters, the least is {}",
                rules.min_length.unwrap_or(0)
            )));
        }
        if rules.max_length.is_some_and(|most| length > most) {
            return Err(refuse(format!(
                "has {length} characters, the most is {}",
                rules.max_length.unwrap_or(0)
            )));
        }
        if let Some(pattern) = &rules.pattern {
            let expression = pattern
                .compiled()
                .map_err(|reason| refuse(format!("has a broken pattern: {reason}")))?;
            if !expression.is_match(text) {
                return Err(refuse(format!("does not match {}", pattern.text())));
            }
        }
    }
    if let Some(number) = value.as_f64() {
        if rules.minimum.is_some_and(|least| number < least) {
            return Err(refuse(format!(
                "is below the minimum {}",
                rules.minimum.unwrap_or(0.0)
            )));
        }
        if rules.maximum.is_some_and(|most| number > most) {
            return Err(refuse(format!(
                "is above the maximum {}",
                rules.maximum.unwrap_or(0.0)
            )));
        }
    }
    if let Some(allowed) = &rules.allowed
        && !allowed.iter().any(|candidate| equal(candidate, &value))
    {
        return Err(refuse(format!("is not one of {}", Value::Array(allowed.clone()))));
    }
    Ok(value)
}

/// How a value stands in the text: strings as they are, everything else as compact JSON.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// An absent value and an empty one are the same for a required variable (OM-562).
pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

/// Compiles the pattern of a rule within a memory limit.
pub(super) fn compile(pattern: &str) -> Result<regex::Regex, String> {
    RegexBuilder::new(pattern)
        .size_limit(PATTERN_SIZE_LIMIT)
        .build()
        .map_err(|error| {
            error
                .to_string()
                .lines()
                .last()
                .unwrap_or("cannot be compiled")
                .trim()
                .to_owned()
        })
}

fn convert(kind: VariableType, value: &Value) -> Option<Cow<'_, Value>> {
    let fits = |value: &Value| match kind {
        VariableType::String => value.is_string(),
        VariableType::Number => value.is_number(),
        VariableType::Boolean => value.is_boolean(),
        VariableType::Object => value.is_object(),
        VariableType::Array => value.is_array(),
    };
    if fits(value) {
        return Some(Cow::Borrowed(value));
    }
    match (kind, value) {
        (VariableType::String, Value::Number(_) | Value::Bool(_)) => {
            Some(Cow::Owned(Value::String(value.to_string())))
        }
        (VariableType::String, _) => None,
        (_, Value::String(text)) => serde_json::from_str(text).ok().filter(fits).map(Cow::Owned),
        _ => None,
    }
}

fn expected(kind: VariableType) -> &'static str {
    match kind {
        VariableType::String => "a string",
        VariableType::Number => "a number",
        VariableType::Boolean => "a boolean",
        VariableType::Object => "an object",
        VariableType::Array => "an array",
    }
}

/// `1` and `1.0` are the same allowed value.
fn equal(left: &Value, right: &Value) -> bool {
    match (left.as_f64(), right.as_f64()) {
        (Some(left), Some(right)) => left == right,
        _ => left == right,
    }
}
