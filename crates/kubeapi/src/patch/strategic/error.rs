//! Why a strategic merge patch is refused, in the words of the reference.

use serde_json::Value;
use thiserror::Error;

use super::super::unprocessable;
use crate::status::{ApiError, Reason};

/// Why a strategic merge patch cannot be applied. Texts are those of the reference.
#[derive(Debug, Error, PartialEq)]
pub(super) enum StrategicError {
    #[error("invalid patch format of primitive list")]
    PrimitiveList,
    #[error("invalid patch format of retainKeys")]
    RetainKeys,
    #[error("invalid patch format of setElementOrder list")]
    ElementOrder,
    #[error("lists of lists are not supported")]
    ListOfLists,
    #[error("map: {item} does not contain declared merge key: {key}")]
    NoMergeKey { item: String, key: String },
    #[error("unknown patch type: {directive} in map: {item}")]
    PatchType { directive: String, item: String },
    #[error("merging lists cannot yet be specified in the patch")]
    MergeOfLists,
    #[error("list element types are not identical: {0}")]
    MixedList(String),
    #[error("no elements in any of the given slices")]
    EmptyLists,
    #[error("cannot merge lists without merge key for {0}")]
    KeylessList(String),
    #[error("expected a {expected}, but received a {received}")]
    WrongType {
        expected: &'static str,
        received: &'static str,
    },
    #[error("The order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{order}\n")]
    OrderMismatch { patch: String, order: String },
}

impl StrategicError {
    pub(super) fn into_api_error(self) -> Box<ApiError> {
        match self {
            Self::PrimitiveList | Self::RetainKeys | Self::ElementOrder => {
                ApiError::new(Reason::BadRequest, self.to_string())
            }
            Self::ListOfLists => unprocessable(),
            other => ApiError::new(Reason::InternalError, other.to_string()),
        }
    }
}

pub(super) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A value as Go's `%v` prints it, as the messages show it.
pub(super) fn go_map(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "<nil>".to_owned(),
        Value::Array(items) => format!("[{}]", items.iter().map(go_map).collect::<Vec<_>>().join(" ")),
        Value::Object(entries) => {
            let entries: Vec<String> = entries
                .iter()
                .map(|(name, value)| format!("{name}:{}", go_map(value)))
                .collect();
            format!("map[{}]", entries.join(" "))
        }
        other => other.to_string(),
    }
}
