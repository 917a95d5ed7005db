//! Kubernetes' functions on lists. `indexOf` and `lastIndexOf` of lists are with those of texts.

use std::cmp::Ordering;

use crate::error::EvaluationError;
use crate::evaluate::Context;
use crate::operators;
use crate::value::{Comparison, Value, ordering};

type Evaluated = Result<Value, EvaluationError>;

fn items<'a>(
    context: &mut Context<'_>,
    name: &str,
    arguments: &'a [Value],
) -> Result<&'a [Value], EvaluationError> {
    match arguments {
        [Value::List(items)] => {
            context
                .budget
                .work(u64::try_from(items.len()).unwrap_or(u64::MAX))?;
            Ok(items)
        }
        _ => Err(EvaluationError::no_overload(name, arguments)),
    }
}

fn order(
    context: &mut Context<'_>,
    name: &str,
    left: &Value,
    right: &Value,
) -> Result<Ordering, EvaluationError> {
    if let (Value::String(left), Value::String(right)) = (left, right) {
        context.budget.work_text(left.len().min(right.len()))?;
    }
    match ordering(left, right) {
        Comparison::Ordered(ordering) => Ok(ordering),
        Comparison::Unordered => Ok(Ordering::Equal),
        Comparison::NoOverload => Err(EvaluationError::no_overload(name, &[left.clone(), right.clone()])),
    }
}

pub(super) fn is_sorted(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    let items = items(context, "isSorted", arguments)?;
    for pair in items.windows(2) {
        if order(context, "isSorted", &pair[0], &pair[1])?.is_gt() {
            return Ok(Value::Bool(false));
        }
    }
    Ok(Value::Bool(true))
}

/// The sum of numbers or durations; of an empty list the int 0.
pub(super) fn sum(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    let items = items(context, "sum", arguments)?;
    let mut total: Option<Value> = None;
    for item in items {
        total = Some(match (total, item) {
            (None, Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::Duration(_)) => item.clone(),
            (Some(total), _) => operators::add(context, &total, item)?,
            (None, _) => return Err(EvaluationError::no_overload("sum", arguments)),
        });
    }
    Ok(total.unwrap_or(Value::Int(0)))
}

pub(super) fn min(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    extreme(context, "min", arguments, Ordering::Less)
}

pub(super) fn max(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    extreme(context, "max", arguments, Ordering::Greater)
}

fn extreme(context: &mut Context<'_>, name: &str, arguments: &[Value], wanted: Ordering) -> Evaluated {
    let items = items(context, name, arguments)?;
    let Some(mut best) = items.first() else {
        return Err(EvaluationError::argument(format!("{name} called on empty list")));
    };
    for item in items {
        if order(context, name, item, best)? == wanted {
            best = item;
        }
    }
    Ok(best.clone())
}
