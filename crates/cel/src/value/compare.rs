//! Equality and order of single values; numbers of different types compare by what they stand for,
//! as in cel-go with cross-type numeric comparisons.

use std::cmp::Ordering;

use super::Value;

/// The first integer above the `int` range, exactly representable as a double.
const INT_LIMIT: f64 = 9_223_372_036_854_775_808.0;
/// The first integer above the `uint` range, exactly representable as a double.
const UINT_LIMIT: f64 = 18_446_744_073_709_551_616.0;

/// Order of two numbers of any type; `None` when one is not a number or is NaN.
pub(crate) fn compare_numbers(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => Some(left.cmp(right)),
        (Value::Uint(left), Value::Uint(right)) => Some(left.cmp(right)),
        (Value::Double(left), Value::Double(right)) => left.partial_cmp(right),
        (Value::Int(left), Value::Uint(right)) => Some(int_to_uint(*left, *right)),
        (Value::Uint(left), Value::Int(right)) => Some(int_to_uint(*right, *left).reverse()),
        (Value::Int(left), Value::Double(right)) => int_to_double(*left, *right),
        (Value::Double(left), Value::Int(right)) => int_to_double(*right, *left).map(Ordering::reverse),
        (Value::Uint(left), Value::Double(right)) => uint_to_double(*left, *right),
        (Value::Double(left), Value::Uint(right)) => uint_to_double(*right, *left).map(Ordering::reverse),
        _ => None,
    }
}

fn int_to_uint(int: i64, uint: u64) -> Ordering {
    match u64::try_from(int) {
        Ok(int) => int.cmp(&uint),
        Err(_) => Ordering::Less,
    }
}

/// Exact: converting the int to a double would make 2^53 and 2^53+1 equal.
fn int_to_double(int: i64, double: f64) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    if double >= INT_LIMIT {
        return Some(Ordering::Less);
    }
    if double < -INT_LIMIT {
        return Some(Ordering::Greater);
    }
    let whole = double.trunc();
    Some(
        int.cmp(&(whole as i64))
            .then_with(|| 0.0_f64.partial_cmp(&(double - whole)).unwrap_or(Ordering::Equal)),
    )
}

fn uint_to_double(uint: u64, double: f64) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    if double >= UINT_LIMIT {
        return Some(Ordering::Less);
    }
    if double < 0.0 {
        return Some(Ordering::Greater);
    }
    let whole = double.trunc();
    Some(
        uint.cmp(&(whole as u64))
            .then_with(|| 0.0_f64.partial_cmp(&(double - whole)).unwrap_or(Ordering::Equal)),
    )
}

fn is_number(value: &Value) -> bool {
    matches!(value, Value::Int(_) | Value::Uint(_) | Value::Double(_))
}

/// Equality of values that hold no other values. Values of different kinds are not equal.
pub(super) fn scalars_equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(left), Value::Bool(right)) => left == right,
        (Value::String(left), Value::String(right)) => left == right,
        (Value::Bytes(left), Value::Bytes(right)) => left == right,
        (Value::Timestamp(left), Value::Timestamp(right)) => left == right,
        (Value::Duration(left), Value::Duration(right)) => left == right,
        (Value::Type(left), Value::Type(right)) => left == right,
        _ => compare_numbers(left, right) == Some(Ordering::Equal),
    }
}

/// What `<` and its relatives know about two values.
pub(crate) enum Comparison {
    /// The values have an order.
    Ordered(Ordering),
    /// One of them is NaN: every comparison is false.
    Unordered,
    /// The types have no order between them.
    NoOverload,
}

/// Order of two values of types that have one.
pub(crate) fn ordering(left: &Value, right: &Value) -> Comparison {
    let ordering = match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Bytes(left), Value::Bytes(right)) => left.cmp(right),
        (Value::Timestamp(left), Value::Timestamp(right)) => left.cmp(right),
        (Value::Duration(left), Value::Duration(right)) => left.cmp(right),
        _ if is_number(left) && is_number(right) => {
            return match compare_numbers(left, right) {
                Some(ordering) => Comparison::Ordered(ordering),
                None => Comparison::Unordered,
            };
        }
        _ => return Comparison::NoOverload,
    };
    Comparison::Ordered(ordering)
}
