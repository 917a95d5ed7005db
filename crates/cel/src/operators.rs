//! Operators on values.

use std::cmp::Ordering;

use jiff::SignedDuration;

use crate::ast::BinaryOperator;
use crate::budget::text_cost;
use crate::costs;
use crate::error::{EvaluationError, EvaluationErrorKind};
use crate::evaluate::Context;
use crate::value::{Comparison, Key, Timestamp, Value, ordering};

type Evaluated = Result<Value, EvaluationError>;

fn checked_timestamp(since_epoch: Option<SignedDuration>) -> Evaluated {
    since_epoch
        .and_then(Timestamp::from_duration)
        .map(Value::Timestamp)
        .ok_or_else(|| EvaluationError::overflow("timestamp overflow"))
}

/// A duration within CEL's range, which is that of 64 bit nanoseconds.
pub(crate) fn checked_duration(duration: Option<SignedDuration>) -> Evaluated {
    match duration {
        Some(duration) if i64::try_from(duration.as_nanos()).is_ok() => Ok(Value::Duration(duration)),
        _ => Err(EvaluationError::overflow("duration overflow")),
    }
}

/// Applies an operator to two values.
pub(crate) fn binary(
    context: &mut Context<'_>,
    operator: BinaryOperator,
    left: &Value,
    right: &Value,
) -> Evaluated {
    context.budget.charge(costs::operator(operator, left, right))?;
    match operator {
        BinaryOperator::Equal => Ok(Value::Bool(equal(context, left, right)?)),
        BinaryOperator::NotEqual => Ok(Value::Bool(!equal(context, left, right)?)),
        BinaryOperator::Less => compare(context, operator, left, right, Ordering::is_lt),
        BinaryOperator::LessOrEqual => compare(context, operator, left, right, Ordering::is_le),
        BinaryOperator::Greater => compare(context, operator, left, right, Ordering::is_gt),
        BinaryOperator::GreaterOrEqual => compare(context, operator, left, right, Ordering::is_ge),
        BinaryOperator::In => contains(context, left, right),
        BinaryOperator::Add => add(context, left, right),
        BinaryOperator::Subtract => subtract(left, right),
        BinaryOperator::Multiply | BinaryOperator::Divide | BinaryOperator::Remainder => {
            multiply_divide(operator, left, right)
        }
    }
}

/// Equality. Values of different kinds are unequal rather than an error.
pub(crate) fn equal(context: &mut Context<'_>, left: &Value, right: &Value) -> Result<bool, EvaluationError> {
    match (left, right) {
        (Value::List(left), Value::List(right)) => {
            if left.len() != right.len() {
                return Ok(false);
            }
            for (left, right) in left.iter().zip(right.iter()) {
                context.budget.work(1)?;
                if !equal(context, left, right)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Value::Map(left), Value::Map(right)) => {
            if left.len() != right.len() {
                return Ok(false);
            }
            for (key, left) in left.iter() {
                context.budget.work(1)?;
                match right.get_key(key) {
                    Some(right) if equal(context, left, right)? => {}
                    _ => return Ok(false),
                }
            }
            Ok(true)
        }
        (Value::Optional(Some(left)), Value::Optional(Some(right))) => equal(context, left, right),
        (Value::Optional(left), Value::Optional(right)) => Ok(left.is_none() && right.is_none()),
        _ => {
            charge_shorter(context, left, right)?;
            Ok(left == right)
        }
    }
}

/// The cost of comparing two texts: that of the shorter one.
fn charge_shorter(context: &mut Context<'_>, left: &Value, right: &Value) -> Result<(), EvaluationError> {
    let shorter = match (left, right) {
        (Value::String(left), Value::String(right)) => left.len().min(right.len()),
        (Value::Bytes(left), Value::Bytes(right)) => left.len().min(right.len()),
        _ => return Ok(()),
    };
    context.budget.work(text_cost(shorter))
}

fn compare(
    context: &mut Context<'_>,
    operator: BinaryOperator,
    left: &Value,
    right: &Value,
    holds: fn(Ordering) -> bool,
) -> Evaluated {
    charge_shorter(context, left, right)?;
    match ordering(left, right) {
        Comparison::Ordered(ordering) => Ok(Value::Bool(holds(ordering))),
        Comparison::Unordered => Ok(Value::Bool(false)),
        Comparison::NoOverload => Err(EvaluationError::no_overload(
            operator.name(),
            &[left.clone(), right.clone()],
        )),
    }
}

/// `value in container`
pub(crate) fn contains(context: &mut Context<'_>, value: &Value, container: &Value) -> Evaluated {
    match container {
        Value::List(list) => {
            for item in list.iter() {
                context.budget.work(1)?;
                if equal(context, value, item)? {
                    return Ok(Value::Bool(true));
                }
            }
            Ok(Value::Bool(false))
        }
        Value::Map(map) => Ok(Value::Bool(
            lookup_key(value).is_some_and(|key| map.get_key(&key).is_some()),
        )),
        other => Err(EvaluationError::no_overload(
            "@in",
            &[value.clone(), other.clone()],
        )),
    }
}

/// The key that a value finds: a double with a whole value finds the integer.
fn lookup_key(value: &Value) -> Option<Key> {
    match value {
        Value::Double(double) => whole(*double).map(Key::Int),
        other => Key::from_value(other),
    }
}

fn whole(double: f64) -> Option<i64> {
    let in_range = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&double);
    (in_range && double.trunc() == double).then_some(double as i64)
}

/// `container[key]`
pub(crate) fn element(container: &Value, key: &Value) -> Evaluated {
    match container {
        Value::List(list) => {
            let index = match key {
                Value::Int(index) => usize::try_from(*index).ok(),
                Value::Uint(index) => usize::try_from(*index).ok(),
                Value::Double(index) => match whole(*index) {
                    Some(index) => usize::try_from(index).ok(),
                    None => return Err(unsupported_index(key)),
                },
                _ => return Err(unsupported_index(key)),
            };
            match index.and_then(|index| list.get(index)) {
                Some(value) => Ok(value.clone()),
                None => Err(EvaluationError::index(display(key))),
            }
        }
        Value::Map(map) => {
            let Some(found) = lookup_key(key) else {
                return Err(EvaluationError::argument(format!(
                    "unsupported key type: {}",
                    key.type_of().name()
                )));
            };
            map.get_key(&found)
                .cloned()
                .ok_or_else(|| EvaluationError::no_key(found))
        }
        // As in the reference: what has no elements has no such one.
        _ => Err(EvaluationError::no_key(display(key))),
    }
}

fn unsupported_index(key: &Value) -> EvaluationError {
    EvaluationError::argument(format!(
        "unsupported index type '{}' in list",
        key.type_of().name()
    ))
}

fn display(key: &Value) -> String {
    match key {
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => crate::text::double(*value),
        Value::String(value) => value.chars().take(256).collect(),
        other => other.type_of().name().to_owned(),
    }
}

/// `-x`
pub(crate) fn negate(value: Value) -> Evaluated {
    match value {
        Value::Int(value) => value.checked_neg().map(Value::Int).ok_or_else(int_overflow),
        Value::Double(value) => Ok(Value::Double(-value)),
        Value::Duration(value) => checked_duration(value.checked_neg()),
        other => Err(EvaluationError::no_overload("-_", &[other])),
    }
}

pub(crate) fn int_overflow() -> EvaluationError {
    EvaluationError::overflow("integer overflow")
}

pub(crate) fn uint_overflow() -> EvaluationError {
    EvaluationError::overflow("unsigned integer overflow")
}

/// `left + right`; also what `sum` folds with.
pub(crate) fn add(context: &mut Context<'_>, left: &Value, right: &Value) -> Evaluated {
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => {
            left.checked_add(*right).map(Value::Int).ok_or_else(int_overflow)
        }
        (Value::Uint(left), Value::Uint(right)) => left
            .checked_add(*right)
            .map(Value::Uint)
            .ok_or_else(uint_overflow),
        (Value::Double(left), Value::Double(right)) => Ok(Value::Double(left + right)),
        (Value::String(left), Value::String(right)) => {
            let length = left.len().saturating_add(right.len());
            context.budget.work(text_cost(length))?;
            context.budget.allocate(length)?;
            let mut text = String::with_capacity(length);
            text.push_str(left);
            text.push_str(right);
            Ok(Value::from(text))
        }
        (Value::Bytes(left), Value::Bytes(right)) => {
            let length = left.len().saturating_add(right.len());
            context.budget.work(text_cost(length))?;
            context.budget.allocate(length)?;
            Ok(Value::Bytes([&**left, &**right].concat().into()))
        }
        (Value::List(left), Value::List(right)) => {
            let length = left.len().saturating_add(right.len());
            // The reference joins lists without copying and charges one; we copy, a tenth each.
            context.budget.work(text_cost(length))?;
            context.budget.allocate_entries(length)?;
            Ok(Value::list(left.iter().chain(right.iter()).cloned().collect()))
        }
        (Value::Timestamp(time), Value::Duration(duration))
        | (Value::Duration(duration), Value::Timestamp(time)) => {
            checked_timestamp(time.as_duration().checked_add(*duration))
        }
        (Value::Duration(left), Value::Duration(right)) => checked_duration(left.checked_add(*right)),
        _ => Err(EvaluationError::no_overload(
            "_+_",
            &[left.clone(), right.clone()],
        )),
    }
}

fn subtract(left: &Value, right: &Value) -> Evaluated {
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => {
            left.checked_sub(*right).map(Value::Int).ok_or_else(int_overflow)
        }
        (Value::Uint(left), Value::Uint(right)) => left
            .checked_sub(*right)
            .map(Value::Uint)
            .ok_or_else(uint_overflow),
        (Value::Double(left), Value::Double(right)) => Ok(Value::Double(left - right)),
        (Value::Timestamp(left), Value::Timestamp(right)) => {
            checked_duration(left.as_duration().checked_sub(right.as_duration()))
        }
        (Value::Timestamp(time), Value::Duration(duration)) => {
            checked_timestamp(time.as_duration().checked_sub(*duration))
        }
        (Value::Duration(left), Value::Duration(right)) => checked_duration(left.checked_sub(*right)),
        _ => Err(EvaluationError::no_overload(
            "_-_",
            &[left.clone(), right.clone()],
        )),
    }
}

fn multiply_divide(operator: BinaryOperator, left: &Value, right: &Value) -> Evaluated {
    let by_zero = |text: &str| EvaluationError::new(EvaluationErrorKind::DivisionByZero, text);
    match (operator, left, right) {
        (BinaryOperator::Multiply, Value::Int(left), Value::Int(right)) => {
            left.checked_mul(*right).map(Value::Int).ok_or_else(int_overflow)
        }
        (BinaryOperator::Multiply, Value::Uint(left), Value::Uint(right)) => left
            .checked_mul(*right)
            .map(Value::Uint)
            .ok_or_else(uint_overflow),
        (BinaryOperator::Multiply, Value::Double(left), Value::Double(right)) => {
            Ok(Value::Double(left * right))
        }
        (BinaryOperator::Divide, Value::Int(_), Value::Int(0))
        | (BinaryOperator::Divide, Value::Uint(_), Value::Uint(0)) => Err(by_zero("division by zero")),
        (BinaryOperator::Divide, Value::Int(left), Value::Int(right)) => {
            left.checked_div(*right).map(Value::Int).ok_or_else(int_overflow)
        }
        (BinaryOperator::Divide, Value::Uint(left), Value::Uint(right)) => left
            .checked_div(*right)
            .map(Value::Uint)
            .ok_or_else(uint_overflow),
        (BinaryOperator::Divide, Value::Double(left), Value::Double(right)) => {
            Ok(Value::Double(left / right))
        }
        (BinaryOperator::Remainder, Value::Int(_), Value::Int(0))
        | (BinaryOperator::Remainder, Value::Uint(_), Value::Uint(0)) => Err(by_zero("modulus by zero")),
        (BinaryOperator::Remainder, Value::Int(left), Value::Int(right)) => {
            left.checked_rem(*right).map(Value::Int).ok_or_else(int_overflow)
        }
        (BinaryOperator::Remainder, Value::Uint(left), Value::Uint(right)) => left
            .checked_rem(*right)
            .map(Value::Uint)
            .ok_or_else(uint_overflow),
        _ => Err(EvaluationError::no_overload(
            operator.name(),
            &[left.clone(), right.clone()],
        )),
    }
}
