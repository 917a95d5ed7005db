//! Conversions between types.

use crate::error::{EvaluationError, EvaluationErrorKind};
use crate::evaluate::Context;
use crate::operators::{checked_duration, int_overflow, uint_overflow};
use crate::text;
use crate::value::{Extension, Timestamp, Type, Value};

type Evaluated = Result<Value, EvaluationError>;

fn one(arguments: &[Value]) -> &Value {
    // The table lets a conversion have exactly one argument.
    arguments.first().unwrap_or(&Value::Null)
}

/// Whether a double lies strictly within the range of 64 bit integers; the bounds are refused as in
/// the reference.
fn fits_int(value: f64) -> bool {
    value > -9_223_372_036_854_775_808.0 && value < 9_223_372_036_854_775_808.0
}

pub(super) fn int(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    match one(arguments) {
        Value::Int(value) => Ok(Value::Int(*value)),
        Value::Uint(value) => i64::try_from(*value).map(Value::Int).map_err(|_| int_overflow()),
        Value::Double(value) if fits_int(*value) => Ok(Value::Int(value.trunc() as i64)),
        Value::Double(_) => Err(int_overflow()),
        Value::String(value) => {
            context.budget.work_text(value.len())?;
            value
                .parse()
                .map(Value::Int)
                .map_err(|_| EvaluationError::conversion(Type::String, Type::Int))
        }
        Value::Timestamp(value) => Ok(Value::Int(value.as_second())),
        Value::Duration(value) => i64::try_from(value.as_nanos())
            .map(Value::Int)
            .map_err(|_| int_overflow()),
        _ => Err(EvaluationError::no_overload("int", arguments)),
    }
}

pub(super) fn uint(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    match one(arguments) {
        Value::Uint(value) => Ok(Value::Uint(*value)),
        Value::Int(value) => u64::try_from(*value)
            .map(Value::Uint)
            .map_err(|_| uint_overflow()),
        Value::Double(value) if *value >= 0.0 && *value < 18_446_744_073_709_551_616.0 => {
            Ok(Value::Uint(value.trunc() as u64))
        }
        Value::Double(_) => Err(uint_overflow()),
        Value::String(value) => {
            context.budget.work_text(value.len())?;
            value
                .parse()
                .map(Value::Uint)
                .map_err(|_| EvaluationError::conversion(Type::String, Type::Uint))
        }
        _ => Err(EvaluationError::no_overload("uint", arguments)),
    }
}

pub(super) fn double(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    match one(arguments) {
        Value::Double(value) => Ok(Value::Double(*value)),
        Value::Int(value) => Ok(Value::Double(*value as f64)),
        Value::Uint(value) => Ok(Value::Double(*value as f64)),
        Value::String(value) => {
            context.budget.work_text(value.len())?;
            value
                .parse()
                .map(Value::Double)
                .map_err(|_| EvaluationError::conversion(Type::String, Type::Double))
        }
        _ => Err(EvaluationError::no_overload("double", arguments)),
    }
}

pub(super) fn string(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    let text = match one(arguments) {
        Value::String(value) => return Ok(Value::String(value.clone())),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => text::double(*value),
        Value::Timestamp(value) => value.to_string(),
        Value::Duration(value) => text::duration(*value),
        Value::Bytes(value) => {
            context.budget.work_text(value.len())?;
            context.budget.allocate(value.len())?;
            std::str::from_utf8(value)
                .map_err(|_| {
                    EvaluationError::new(
                        EvaluationErrorKind::Conversion,
                        "invalid UTF-8 in bytes, cannot convert to string",
                    )
                })?
                .to_owned()
        }
        Value::Extension(extension) => match &**extension {
            Extension::Ip(address) => address.to_string(),
            Extension::Cidr(network) => network.to_string(),
            _ => return Err(EvaluationError::no_overload("string", arguments)),
        },
        _ => return Err(EvaluationError::no_overload("string", arguments)),
    };
    Ok(Value::from(text))
}

pub(super) fn bytes(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    match one(arguments) {
        Value::Bytes(value) => Ok(Value::Bytes(value.clone())),
        Value::String(value) => {
            context.budget.work_text(value.len())?;
            context.budget.allocate(value.len())?;
            Ok(Value::Bytes(value.as_bytes().into()))
        }
        _ => Err(EvaluationError::no_overload("bytes", arguments)),
    }
}

pub(super) fn bool(_: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    match one(arguments) {
        Value::Bool(value) => Ok(Value::Bool(*value)),
        Value::String(value) => match &**value {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(Value::Bool(false)),
            _ => Err(EvaluationError::conversion(Type::String, Type::Bool)),
        },
        _ => Err(EvaluationError::no_overload("bool", arguments)),
    }
}

pub(super) fn timestamp(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    match one(arguments) {
        Value::Timestamp(value) => Ok(Value::Timestamp(*value)),
        Value::Int(seconds) => Timestamp::from_second(*seconds)
            .map(Value::Timestamp)
            .ok_or_else(|| EvaluationError::overflow("timestamp overflow")),
        Value::String(value) => {
            context.budget.work_text(value.len())?;
            Timestamp::parse(value)
                .map(Value::Timestamp)
                .ok_or_else(|| EvaluationError::conversion(Type::String, Type::Timestamp))
        }
        _ => Err(EvaluationError::no_overload("timestamp", arguments)),
    }
}

pub(super) fn duration(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    match one(arguments) {
        Value::Duration(value) => Ok(Value::Duration(*value)),
        Value::String(value) => {
            context.budget.work_text(value.len())?;
            match text::parse_duration(value) {
                Some(parsed) => checked_duration(Some(parsed)),
                None => Err(EvaluationError::conversion(Type::String, Type::Duration)),
            }
        }
        _ => Err(EvaluationError::no_overload("duration", arguments)),
    }
}

pub(super) fn dynamic(_: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    Ok(one(arguments).clone())
}

pub(super) fn type_of(_: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    Ok(Value::Type(one(arguments).type_of()))
}
