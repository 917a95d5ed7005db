//! cel-go's functions on lists: `slice`, `flatten`, `sort`, `lists.range`, `reverse`, `distinct`.

use std::cmp::Ordering;

use crate::error::{EvaluationError, EvaluationErrorKind};
use crate::evaluate::Context;
use crate::operators;
use crate::value::{Comparison, Value, ordering};

type Evaluated = Result<Value, EvaluationError>;

/// Most numbers that `lists.range` makes.
const MAX_RANGE: i64 = 10_000_000;

pub(super) fn slice(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    let [Value::List(items), Value::Int(start), Value::Int(end)] = arguments else {
        return Err(EvaluationError::no_overload("slice", arguments));
    };
    let refuse = |reason: String| {
        Err(EvaluationError::new(
            EvaluationErrorKind::IndexOutOfBounds,
            format!("cannot slice({start}, {end}), {reason}"),
        ))
    };
    let (Ok(from), Ok(to)) = (usize::try_from(*start), usize::try_from(*end)) else {
        return refuse("negative indexes not supported".to_owned());
    };
    if from > to {
        return refuse("start index must be less than or equal to end index".to_owned());
    }
    match items.get(from..to) {
        Some(part) => {
            context.budget.allocate_entries(part.len())?;
            Ok(Value::list(part.to_vec()))
        }
        None => refuse(format!("list is length {}", items.len())),
    }
}

pub(super) fn flatten(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    let (items, depth) = match arguments {
        [Value::List(items)] => (items, 1),
        [Value::List(items), Value::Int(depth)] => (items, *depth),
        _ => return Err(EvaluationError::no_overload("flatten", arguments)),
    };
    if depth < 0 {
        return Err(EvaluationError::argument("level must be non-negative"));
    }
    let mut flat = Vec::new();
    // Values nest no deeper than the document or expression that they come from, so a stack of parts suffices.
    let mut open: Vec<(&[Value], i64)> = vec![(items, depth)];
    while let Some((rest, depth)) = open.pop() {
        let Some((first, rest)) = rest.split_first() else {
            continue;
        };
        open.push((rest, depth));
        context.budget.work(1)?;
        match first {
            Value::List(nested) if depth > 0 => open.push((nested, depth - 1)),
            other => {
                context.budget.allocate_entries(1)?;
                flat.push(other.clone());
            }
        }
    }
    Ok(Value::list(flat))
}

pub(super) fn range(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    let [Value::Int(count)] = arguments else {
        return Err(EvaluationError::no_overload("lists.range", arguments));
    };
    if *count > MAX_RANGE {
        return Err(EvaluationError::argument(format!(
            "lists.range({count}) exceeds the limit of {MAX_RANGE}"
        )));
    }
    context
        .budget
        .allocate_entries(usize::try_from(*count).unwrap_or(0))?;
    Ok(Value::list((0..*count).map(Value::Int).collect()))
}

pub(super) fn distinct(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    let [Value::List(items)] = arguments else {
        return Err(EvaluationError::no_overload("distinct", arguments));
    };
    context.budget.allocate_entries(items.len())?;
    let mut kept: Vec<Value> = Vec::new();
    for item in items.iter() {
        let mut is_new = true;
        for other in &kept {
            context.budget.work(1)?;
            if operators::equal(context, item, other)? {
                is_new = false;
                break;
            }
        }
        if is_new {
            kept.push(item.clone());
        }
    }
    Ok(Value::list(kept))
}

pub(super) fn sort(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    match arguments {
        [Value::List(items)] => sorted(context, items, items),
        _ => Err(EvaluationError::no_overload("sort", arguments)),
    }
}

/// `items` in the order of their `keys`, which are of one type that has an order.
pub(crate) fn sorted(context: &mut Context<'_>, items: &[Value], keys: &[Value]) -> Evaluated {
    let Some(first) = keys.first() else {
        return Ok(Value::list(items.to_vec()));
    };
    if keys.iter().any(|key| key.type_of() != first.type_of()) {
        return Err(EvaluationError::argument("list elements must have the same type"));
    }
    if matches!(ordering(first, first), Comparison::NoOverload) {
        return Err(EvaluationError::argument("list elements must be comparable"));
    }
    context.budget.allocate_entries(items.len().saturating_mul(2))?;
    let mut text = 0_usize;
    for key in keys {
        text = text.saturating_add(match key {
            Value::String(key) => key.len(),
            Value::Bytes(key) => key.len(),
            _ => 1,
        });
    }
    // Each key is compared about as often as the list's length has bits.
    let rounds = usize::try_from(items.len().max(2).ilog2()).unwrap_or(64) + 1;
    context.budget.work_text(text.saturating_mul(rounds))?;
    let mut pairs: Vec<(&Value, &Value)> = keys.iter().zip(items).collect();
    pairs.sort_by(|(left, _), (right, _)| match ordering(left, right) {
        Comparison::Ordered(ordering) => ordering,
        _ => Ordering::Equal,
    });
    Ok(Value::list(
        pairs.into_iter().map(|(_, item)| item.clone()).collect(),
    ))
}
