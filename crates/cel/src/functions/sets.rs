//! Lists as sets: `sets.contains`, `sets.equivalent`, `sets.intersects`. Each comparison of two elements
//! is charged, so the cost is the product of the lengths at most, as in the reference.

use crate::error::EvaluationError;
use crate::evaluate::Context;
use crate::operators;
use crate::value::Value;

type Evaluated = Result<Value, EvaluationError>;

fn lists<'a>(name: &str, arguments: &'a [Value]) -> Result<(&'a [Value], &'a [Value]), EvaluationError> {
    match arguments {
        [Value::List(left), Value::List(right)] => Ok((left, right)),
        _ => Err(EvaluationError::no_overload(name, arguments)),
    }
}

fn has(context: &mut Context<'_>, list: &[Value], wanted: &Value) -> Result<bool, EvaluationError> {
    for item in list {
        context.budget.work(1)?;
        if operators::equal(context, item, wanted)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn has_all(context: &mut Context<'_>, list: &[Value], wanted: &[Value]) -> Result<bool, EvaluationError> {
    for item in wanted {
        if !has(context, list, item)? {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(super) fn contains(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    let (list, part) = lists("sets.contains", arguments)?;
    Ok(Value::Bool(has_all(context, list, part)?))
}

pub(super) fn equivalent(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    let (left, right) = lists("sets.equivalent", arguments)?;
    let equivalent = has_all(context, left, right)? && has_all(context, right, left)?;
    Ok(Value::Bool(equivalent))
}

pub(super) fn intersects(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    let (left, right) = lists("sets.intersects", arguments)?;
    for item in left {
        if has(context, right, item)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}
