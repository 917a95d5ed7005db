//! What calls cost when they are made: the reference's model, from the sizes of their arguments (KA-015).

use crate::ast::BinaryOperator;
use crate::estimate::scale;
use crate::value::{Extension, Value};

/// Part of a text's length that walking over it costs.
const TEXT: f64 = 0.1;
/// Part of a pattern's length that it costs per step over a text.
const PATTERN: f64 = 0.25;
/// Cost of making a list besides its items.
const LIST: u64 = 10;

/// Cost of asking whether a user may do something.
pub(crate) const AUTHORIZATION_CHECK: u64 = 350_000;
/// Cost of a requirement of a selector: a structure and its list of values.
const REQUIREMENT: f64 = 50.0;

/// Cost of parsing a selector of so many characters.
fn selector_cost(length: u64) -> u64 {
    LIST.saturating_add(scale(length, TEXT))
        .saturating_add(scale(scale(length, 0.5), REQUIREMENT))
}

/// The size the model counts: characters, bytes, items or entries; one for everything else.
fn size(value: &Value) -> u64 {
    let count = match value {
        Value::String(text) => text.chars().count(),
        Value::Bytes(bytes) => bytes.len(),
        Value::List(items) => items.len(),
        Value::Map(map) => map.len(),
        Value::Optional(Some(inner)) => return size(inner),
        Value::Extension(extension) => return extension.size(),
        _ => 1,
    };
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn text(value: &Value) -> u64 {
    scale(size(value), TEXT)
}

/// Walking over a whole value.
fn traversal(value: &Value) -> u64 {
    let length = |length: usize| (length as f64 * TEXT) as u64;
    match value {
        Value::String(text) => length(text.len()),
        Value::Bytes(bytes) => length(bytes.len()),
        Value::List(items) => items
            .iter()
            .fold(0, |sum, item| sum.saturating_add(traversal(item))),
        Value::Map(map) => map.iter().fold(0, |sum, (key, value)| {
            sum.saturating_add(traversal(&key.to_value()))
                .saturating_add(traversal(value))
        }),
        _ => 1,
    }
}

fn matching(value: &Value, pattern: u64) -> u64 {
    scale(size(value).saturating_add(1), TEXT).saturating_mul(scale(pattern, PATTERN))
}

/// What a call costs before it is made. What depends on the result is charged with [`after`].
pub(crate) fn before(function: &str, arguments: &[Value]) -> u64 {
    let all = |factor: f64, count: u64| {
        let walked = (count as f64 * factor) as u64;
        walked.saturating_add(1 + LIST)
    };
    match (function, arguments) {
        ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", [list, ..]) => traversal(list),
        ("lowerAscii" | "upperAscii" | "substring" | "trim" | "url", [value, ..])
        | ("cidr" | "isIP" | "isCIDR" | "quantity" | "isQuantity" | "semver" | "isSemver", [value, ..])
        | ("format" | "strings.quote", [value, ..]) => text(value),
        ("ip", [Value::String(_)]) => arguments.first().map_or(1, text),
        ("ip.isCanonical", [value]) | ("replace" | "split", [value, ..]) => {
            scale(size(value).saturating_mul(2), TEXT)
        }
        ("find" | "findAll" | "matches", [value, pattern, ..]) => matching(value, size(pattern)),
        ("contains", [value, part]) => text(value).saturating_mul(text(part)),
        ("startsWith" | "endsWith", [_, part]) => text(part),
        ("bytes", [Value::String(_)]) | ("string", [Value::Bytes(_)]) => arguments.first().map_or(1, text),
        ("containsIP" | "containsCIDR", [network, other]) => {
            let bytes = size(network);
            let mut cost = scale(bytes.saturating_mul(2), TEXT);
            if function == "containsCIDR" {
                cost = cost.saturating_add(scale(bytes, TEXT)).saturating_add(1);
            }
            if matches!(other, Value::String(_)) {
                cost = cost.saturating_add(text(other));
            }
            cost
        }
        ("validate", [Value::Extension(extension), value]) => match &**extension {
            Extension::Format(format) => matching(value, format.pattern_length),
            _ => 1,
        },
        ("sets.contains" | "sets.intersects", [left, right]) => {
            size(left).saturating_mul(size(right)).saturating_add(1)
        }
        ("sets.equivalent", [left, right]) => size(left)
            .saturating_mul(size(right))
            .saturating_mul(2)
            .saturating_add(1),
        ("flatten", [list]) => all(1.0, size(list)),
        ("flatten", [list, Value::Int(depth)]) => all(*depth as f64, size(list)),
        ("distinct" | "sort", [list]) => sorting(list),
        ("reverse", [list @ Value::List(_)]) => all(1.0, size(list)),
        ("reverse", [value]) => text(value),
        ("slice", [_, Value::Int(start), Value::Int(end)]) => {
            all(1.0, u64::try_from(end.saturating_sub(*start)).unwrap_or(0))
        }
        ("lists.range", [Value::Int(count)]) => all(1.0, u64::try_from(*count).unwrap_or(0)),
        // Two checks fit in an expression's budget.
        ("check", [Value::Extension(_), ..]) => AUTHORIZATION_CHECK,
        ("fieldSelector" | "labelSelector", [Value::Extension(_), selector]) => selector_cost(size(selector)),
        // The length of the result is only known when it is there.
        ("join", _) => 0,
        _ => 1,
    }
}

/// What comparing the items of a list with each other costs.
pub(crate) fn sorting(list: &Value) -> u64 {
    let factor = match list.as_list().and_then(<[Value]>::first) {
        Some(Value::String(_) | Value::Bytes(_)) => 2.0 + TEXT,
        _ => 2.0,
    };
    let count = size(list);
    let walked = (count.saturating_mul(count) as f64 * factor) as u64;
    walked.saturating_add(1 + LIST)
}

/// What a call costs by its result.
pub(crate) fn after(function: &str, result: &Value) -> u64 {
    match function {
        "join" => scale(size(result).saturating_mul(2), TEXT),
        _ => 0,
    }
}

/// What an operator on two values costs.
pub(crate) fn operator(operator: BinaryOperator, left: &Value, right: &Value) -> u64 {
    let is_text = |value: &Value| matches!(value, Value::String(_) | Value::Bytes(_));
    match operator {
        BinaryOperator::Equal | BinaryOperator::NotEqual => {
            if matches!((operator, left), (BinaryOperator::Equal, Value::Extension(_))) {
                return 1;
            }
            scale(size(left).min(size(right)), TEXT)
        }
        BinaryOperator::Less
        | BinaryOperator::LessOrEqual
        | BinaryOperator::Greater
        | BinaryOperator::GreaterOrEqual
            if is_text(left) =>
        {
            scale(size(left).min(size(right)), TEXT)
        }
        BinaryOperator::In if matches!(right, Value::List(_)) => size(right),
        BinaryOperator::Add if is_text(left) => scale(size(left).saturating_add(size(right)), TEXT),
        _ => 1,
    }
}
