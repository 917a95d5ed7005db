//! `quantity`, `semver` and what can be asked of quantities and versions, which share names such as `isGreaterThan`.

use std::cmp::Ordering;

use crate::error::{EvaluationError, EvaluationErrorKind};
use crate::evaluate::Context;
use crate::value::{Extension, Quantity, Value, Version};

type Evaluated = Result<Value, EvaluationError>;

fn as_quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::Extension(extension) => match **extension {
            Extension::Quantity(quantity) => Some(quantity),
            _ => None,
        },
        _ => None,
    }
}

fn of_quantity(name: &str, arguments: &[Value]) -> Result<Quantity, EvaluationError> {
    match arguments {
        [value] => as_quantity(value).ok_or_else(|| EvaluationError::no_overload(name, arguments)),
        _ => Err(EvaluationError::no_overload(name, arguments)),
    }
}

pub(super) fn quantity(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    match arguments {
        [Value::String(text)] => {
            context.budget.work_text(text.len())?;
            match Quantity::parse(text) {
                Ok(quantity) => Ok(Value::extension(Extension::Quantity(quantity))),
                Err(reason) => Err(EvaluationError::argument(reason)),
            }
        }
        _ => Err(EvaluationError::no_overload("quantity", arguments)),
    }
}

pub(super) fn is_quantity(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    match arguments {
        [Value::String(text)] => {
            context.budget.work_text(text.len())?;
            Ok(Value::Bool(Quantity::parse(text).is_ok()))
        }
        _ => Err(EvaluationError::no_overload("isQuantity", arguments)),
    }
}

pub(super) fn sign(_: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    Ok(Value::Int(of_quantity("sign", arguments)?.sign()))
}

pub(super) fn as_integer(_: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    match of_quantity("asInteger", arguments)?.as_int() {
        Some(value) => Ok(Value::Int(value)),
        None => Err(EvaluationError::new(
            EvaluationErrorKind::Conversion,
            "cannot convert value to integer",
        )),
    }
}

pub(super) fn is_integer(_: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    let quantity = of_quantity("isInteger", arguments)?;
    Ok(Value::Bool(quantity.as_int().is_some()))
}

pub(super) fn as_float(_: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    let quantity = of_quantity("asApproximateFloat", arguments)?;
    Ok(Value::Double(quantity.as_float()))
}

fn two(name: &str, arguments: &[Value]) -> Result<(Quantity, Quantity), EvaluationError> {
    let no_overload = || EvaluationError::no_overload(name, arguments);
    let [left, right] = arguments else {
        return Err(no_overload());
    };
    let right = match right {
        Value::Int(number) => Quantity::from_int(*number),
        other => as_quantity(other).ok_or_else(no_overload)?,
    };
    Ok((as_quantity(left).ok_or_else(no_overload)?, right))
}

pub(super) fn add(_: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    let (left, right) = two("add", arguments)?;
    Ok(Value::extension(Extension::Quantity(left.plus(right))))
}

pub(super) fn subtract(_: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    let (left, right) = two("sub", arguments)?;
    Ok(Value::extension(Extension::Quantity(left.subtract(right))))
}

fn order(name: &str, arguments: &[Value]) -> Result<Ordering, EvaluationError> {
    if let [Value::Extension(left), Value::Extension(right)] = arguments {
        match (&**left, &**right) {
            (Extension::Quantity(left), Extension::Quantity(right)) => return Ok(left.compare(*right)),
            (Extension::Version(left), Extension::Version(right)) => return Ok(left.compare(right)),
            _ => {}
        }
    }
    Err(EvaluationError::no_overload(name, arguments))
}

pub(super) fn is_greater_than(_: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    Ok(Value::Bool(order("isGreaterThan", arguments)?.is_gt()))
}

pub(super) fn is_less_than(_: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    Ok(Value::Bool(order("isLessThan", arguments)?.is_lt()))
}

pub(super) fn compare_to(_: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    Ok(Value::Int(match order("compareTo", arguments)? {
        Ordering::Less => -1,
        Ordering::Equal => 0,
        Ordering::Greater => 1,
    }))
}

fn read_version(
    context: &mut Context<'_>,
    name: &str,
    arguments: &[Value],
) -> Result<Result<Version, String>, EvaluationError> {
    let (text, tolerant) = match arguments {
        [Value::String(text)] => (text, false),
        [Value::String(text), Value::Bool(tolerant)] => (text, *tolerant),
        _ => return Err(EvaluationError::no_overload(name, arguments)),
    };
    context.budget.work_text(text.len())?;
    context.budget.allocate(text.len())?;
    Ok(if tolerant {
        Version::parse_tolerant(text)
    } else {
        Version::parse(text)
    })
}

pub(super) fn semver(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    match read_version(context, "semver", arguments)? {
        Ok(version) => Ok(Value::extension(Extension::Version(version))),
        Err(reason) => Err(EvaluationError::argument(reason)),
    }
}

pub(super) fn is_semver(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    Ok(Value::Bool(read_version(context, "isSemver", arguments)?.is_ok()))
}

fn number(name: &str, arguments: &[Value], index: usize) -> Evaluated {
    if let [Value::Extension(extension)] = arguments
        && let Extension::Version(version) = &**extension
        && let Some(number) = version.numbers.get(index)
    {
        return Ok(Value::Int(number.cast_signed()));
    }
    Err(EvaluationError::no_overload(name, arguments))
}

pub(super) fn major(_: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    number("major", arguments, 0)
}

pub(super) fn minor(_: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    number("minor", arguments, 1)
}

pub(super) fn patch(_: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    number("patch", arguments, 2)
}
