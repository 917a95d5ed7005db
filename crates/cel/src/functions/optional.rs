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
        Value::Timestamp(_) | Value::Type(_) | Value::Optional(Some(_)) | Value::Extension(_) => false,
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

pub(super) fn first(_: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    match arguments {
        [Value::List(items)] => Ok(items.first().cloned().map_or_else(Value::none, Value::some)),
        _ => Err(EvaluationError::no_overload("first", arguments)),
    }
}

pub(super) fn last(_: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    match arguments {
        [Value::List(items)] => Ok(items.last().cloned().map_or_else(Value::none, Value::some)),
        _ => Err(EvaluationError::no_overload("last", arguments)),
    }
}

/// The contents of a list of optionals, without the empty ones.
pub(super) fn unwrap(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    let [Value::List(items)] = arguments else {
        return Err(EvaluationError::no_overload("unwrapOpt", arguments));
    };
    context.budget.allocate_entries(items.len())?;
    let mut contents = Vec::with_capacity(items.len());
    for item in items.iter() {
        let Value::Optional(inner) = item else {
            return Err(EvaluationError::argument(format!(
                "value of type {} is not optional",
                item.type_of().name()
            )));
        };
        contents.extend(inner.as_deref().cloned());
    }
    Ok(Value::list(contents))
}
