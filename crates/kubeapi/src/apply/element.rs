//! Path elements: one step from a value to a value inside it.

use std::cmp::Ordering;
use std::fmt;

use serde_json::Value;

/// One step of a field path, in the four forms of the `FieldsV1` notation.
#[derive(Clone, Debug)]
pub enum PathElement {
    /// `f:name`, a field of an object or a key of a map.
    Field(String),
    /// `k:{"name":"x"}`, the item of a list whose key fields have these values; sorted by field name.
    Key(Vec<(String, Value)>),
    /// `v:"x"`, the item of a set.
    Value(Value),
    /// `i:3`, the item at a position. Read and written, but nothing here produces it.
    Index(i64),
}

impl PathElement {
    /// The element of a field.
    pub fn field(name: impl Into<String>) -> Self {
        Self::Field(name.into())
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for PathElement {}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

// The order decides the order of conflicts in messages, so it is the order of the reference: fields, keys,
// values, indexes.
impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(left), Self::Field(right)) => left.cmp(right),
            (Self::Key(left), Self::Key(right)) => {
                for ((left_name, left_value), (right_name, right_value)) in left.iter().zip(right) {
                    let order = left_name
                        .cmp(right_name)
                        .then_with(|| compare_values(left_value, right_value));
                    if order != Ordering::Equal {
                        return order;
                    }
                }
                left.len().cmp(&right.len())
            }
            (Self::Value(left), Self::Value(right)) => compare_values(left, right),
            (Self::Index(left), Self::Index(right)) => left.cmp(right),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl fmt::Display for PathElement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(formatter, ".{name}"),
            Self::Key(fields) => {
                formatter.write_str("[")?;
                for (position, (name, value)) in fields.iter().enumerate() {
                    let comma = if position == 0 { "" } else { "," };
                    write!(formatter, "{comma}{name}={value}")?;
                }
                formatter.write_str("]")
            }
            Self::Value(value) => write!(formatter, "[={value}]"),
            Self::Index(index) => write!(formatter, "[{index}]"),
        }
    }
}

/// The text of a path: `.spec.containers[name="web"].image`.
pub(super) fn path_text(path: &[PathElement]) -> String {
    path.iter().map(ToString::to_string).collect()
}

/// A total order of JSON values: numbers, strings, booleans, lists, maps, null. An integer and a float of the
/// same size are equal, since clients write `1` and `1.0` for the same field.
pub(super) fn compare_values(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
            (Some(left), Some(right)) => left.cmp(&right),
            _ => left
                .as_f64()
                .unwrap_or(f64::NAN)
                .total_cmp(&right.as_f64().unwrap_or(f64::NAN)),
        },
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::Array(left), Value::Array(right)) => {
            for (left, right) in left.iter().zip(right) {
                let order = compare_values(left, right);
                if order != Ordering::Equal {
                    return order;
                }
            }
            left.len().cmp(&right.len())
        }
        (Value::Object(left), Value::Object(right)) => {
            for ((left_key, left_value), (right_key, right_value)) in left.iter().zip(right) {
                let order = left_key
                    .cmp(right_key)
                    .then_with(|| compare_values(left_value, right_value));
                if order != Ordering::Equal {
                    return order;
                }
            }
            left.len().cmp(&right.len())
        }
        _ => rank(left).cmp(&rank(right)),
    }
}

/// Whether two values are the same to an API client.
pub(crate) fn same_value(left: &Value, right: &Value) -> bool {
    compare_values(left, right) == Ordering::Equal
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}
