//! Optional values.

use crate::error::{EvaluationError, EvaluationErrorKind};
use crate::evaluate::Context;
use crate::value::Value;

type Evaluated = Result<Value, EvaluationError>;

pub(super) fn of(_: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    match arguments {
        [value] => Ok(Value::some(value.clone())),
        _ => Err(EvaluationError::no_overload("optional.of", arguments)),
    }
}

pub(super) fn none(_: &mut Context<'_>, _: &[Value]) -> Evaluated {
    Ok(Value::none())
}

pub(super) fn of_non_zero(_: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    match arguments {
        [value] if is_zero(value) => Ok(Value::none()),
        [value] => Ok(Value::some(value.clone())),
        _ => Err(EvaluationError::no_overload("optional.ofNonZeroValue", arguments)),
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Optional(None) => true,
        Value::Bool(value) => !value,
        Value::Int(value) => *value == 0,
        Value::Uint(value) => *value == 0,
        Value::Double(value) => *value == 0.0,
        Value::String(value) => value.is_empty(),
        Value::Bytes(value) => value.is_empty(),
        Value::List(value) => value.is_empty(),
        Value::Map(value) => value.is_empty(),
        Value::Duration(value) => value.is_zero(),
        Value::Timestamp(_) | Value::Type(_) | Value::Optional(Some(_)) => false,
    }
}

pub(super) fn has_value(_: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    match arguments {
        [Value::Optional(inner)] => Ok(Value::Bool(inner.is_some())),
        _ => Err(EvaluationError::no_overload("hasValue", arguments)),
    }
}

pub(super) fn value(_: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    match arguments {
        [Value::Optional(Some(inner))] => Ok((**inner).clone()),
        [Value::Optional(None)] => Err(EvaluationError::new(
            EvaluationErrorKind::EmptyOptional,
            "optional.none() dereference",
        )),
        _ => Err(EvaluationError::no_overload("value", arguments)),
    }
}
