//! Following a path.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::Value;

use super::{FindError, Operator, Step};

type Found<'a> = Vec<Cow<'a, Value>>;

/// Follows the steps from each of the values.
pub(super) fn walk<'a>(steps: &[Step], mut values: Found<'a>) -> Result<Found<'a>, FindError> {
    for step in steps {
        values = take(step, values)?;
    }
    Ok(values)
}

fn take<'a>(step: &Step, values: Found<'a>) -> Result<Found<'a>, FindError> {
    match step {
        Step::Field(name) => Ok(values
            .into_iter()
            .filter_map(|value| field(value, name))
            .collect()),
        Step::Wildcard => Ok(values.into_iter().flat_map(children).collect()),
        Step::Recursive => Ok(descend(values)),
        Step::Range {
            start,
            end,
            step,
            single,
        } => {
            let mut result = Vec::new();
            for value in values {
                slice(value, (*start, *end, *step), *single, &mut result)?;
            }
            Ok(result)
        }
        Step::Union(parts) => {
            let mut result = Vec::new();
            for part in parts {
                result.extend(walk(part, values.clone())?);
            }
            Ok(result)
        }
        Step::Filter { left, comparison } => filter(left, comparison.as_ref(), values),
        Step::Literal(value) => Ok(values.iter().map(|_| Cow::Owned(value.clone())).collect()),
    }
}

fn field<'a>(value: Cow<'a, Value>, name: &str) -> Option<Cow<'a, Value>> {
    match value {
        Cow::Borrowed(value) => value.as_object()?.get(name).map(Cow::Borrowed),
        Cow::Owned(mut value) => value.as_object_mut()?.remove(name).map(Cow::Owned),
    }
}

fn children(value: Cow<'_, Value>) -> Found<'_> {
    match value {
        Cow::Borrowed(Value::Object(entries)) => entries.values().map(Cow::Borrowed).collect(),
        Cow::Borrowed(Value::Array(items)) => items.iter().map(Cow::Borrowed).collect(),
        Cow::Owned(Value::Object(entries)) => {
            entries.into_iter().map(|(_, value)| Cow::Owned(value)).collect()
        }
        Cow::Owned(Value::Array(items)) => items.into_iter().map(Cow::Owned).collect(),
        _ => Vec::new(),
    }
}

/// Every container among the values and below them, each before what is in it.
fn descend(values: Found<'_>) -> Found<'_> {
    let mut result = Vec::new();
    for value in values {
        let below = children(value.clone());
        if !below.is_empty() {
            result.push(value);
            result.extend(descend(below));
        }
    }
    result
}

fn items(value: Cow<'_, Value>) -> Result<Found<'_>, FindError> {
    match value {
        value if value.is_null() => Ok(Vec::new()),
        value if value.is_array() => Ok(children(value)),
        _ => Err(FindError::NotAList),
    }
}

fn slice<'a>(
    value: Cow<'a, Value>,
    (start, end, step): (Option<i64>, Option<i64>, Option<i64>),
    single: bool,
    result: &mut Found<'a>,
) -> Result<(), FindError> {
    if value.is_null() {
        return Ok(());
    }
    let items = items(value)?;
    let length = items.len();
    let signed = i64::try_from(length).unwrap_or(i64::MAX);
    let from_end = |index: i64| if index < 0 { index + signed } else { index };
    let start = from_end(start.unwrap_or(0));
    let end = if single {
        start + 1
    } else {
        from_end(end.unwrap_or(signed))
    };
    if start == end {
        return Ok(());
    }
    if start >= signed || start < 0 {
        return Err(FindError::OutOfBounds { index: start, length });
    }
    if end > signed || end < 0 {
        return Err(FindError::OutOfBounds {
            index: end - 1,
            length,
        });
    }
    if start > end {
        return Err(FindError::Backwards { start, end });
    }
    let step = step.unwrap_or(1);
    let step = usize::try_from(step)
        .ok()
        .filter(|step| *step > 0)
        .ok_or(FindError::Step)?;
    let (start, end) = (
        usize::try_from(start).unwrap_or(0),
        usize::try_from(end).unwrap_or(length),
    );
    result.extend(items.into_iter().take(end).skip(start).step_by(step));
    Ok(())
}

fn filter<'a>(
    left: &[Step],
    comparison: Option<&(Operator, Vec<Step>)>,
    values: Found<'a>,
) -> Result<Found<'a>, FindError> {
    let mut result = Vec::new();
    for value in values {
        if !value.is_array() {
            return Err(FindError::NotAList);
        }
        for item in children(value) {
            let passes = match comparison {
                None => walk(left, vec![item.clone()]).is_ok_and(|found| !found.is_empty()),
                Some((operator, right)) => {
                    let left = one(walk(left, vec![item.clone()])?)?;
                    let right = one(walk(right, vec![item.clone()])?)?;
                    match (left, right) {
                        (Some(left), Some(right)) => compare(*operator, &left, &right)?,
                        _ => false,
                    }
                }
            };
            if passes {
                result.push(item);
            }
        }
    }
    Ok(result)
}

fn one(mut found: Found<'_>) -> Result<Option<Cow<'_, Value>>, FindError> {
    if found.len() > 1 {
        return Err(FindError::Several);
    }
    Ok(found.pop())
}

fn compare(operator: Operator, left: &Value, right: &Value) -> Result<bool, FindError> {
    let order = match (left, right) {
        (Value::String(left), Value::String(right)) => left.cmp(right),
        // An integer is not comparable with a fraction on the reference.
        (Value::Number(left), Value::Number(right)) if left.is_f64() == right.is_f64() => {
            match (left.as_i64(), right.as_i64()) {
                (Some(left), Some(right)) => left.cmp(&right),
                _ => left
                    .as_f64()
                    .zip(right.as_f64())
                    .and_then(|(left, right)| left.partial_cmp(&right))
                    .ok_or(FindError::Incomparable)?,
            }
        }
        (Value::Bool(left), Value::Bool(right))
            if matches!(operator, Operator::Equal | Operator::NotEqual) =>
        {
            left.cmp(right)
        }
        _ => return Err(FindError::Incomparable),
    };
    Ok(match operator {
        Operator::Equal => order == Ordering::Equal,
        Operator::NotEqual => order != Ordering::Equal,
        Operator::Less => order == Ordering::Less,
        Operator::LessOrEqual => order != Ordering::Greater,
        Operator::Greater => order == Ordering::Greater,
        Operator::GreaterOrEqual => order != Ordering::Less,
    })
}
