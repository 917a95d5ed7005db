//! JSON patch, merge patch and strategic merge patch. Requirement KA-027.
//!
//! Each changes a document in place and knows nothing of the request it came with: decoding, validation and
//! ownership are the write pipeline's. Strategic merge needs the schema of a built-in kind; custom resources refuse
//! it (415) before this module is reached.

mod order;
mod strategic;

#[cfg(test)]
mod tests;

use json_patch::PatchOperation;
use serde_json::{Map, Value};

use crate::status::{ApiError, ApiResult, Reason};
pub(crate) use strategic::shown_map;
pub use strategic::strategic_merge;

/// The most bytes that the `copy` operations of one JSON patch may copy together: repeated copying of a value into
/// itself doubles it every time.
const MAXIMUM_COPIED_BYTES: usize = 3 * 1024 * 1024;

/// The most operations one JSON patch may have.
const MAXIMUM_OPERATIONS: usize = 10_000;

/// Applies a JSON patch (RFC 6902). Nothing is changed when an operation fails.
///
/// # Errors
/// 400 for a document that is not a list of operations, 413 for too many of them, 422 for an operation that cannot
/// be done, a failed `test` among them.
pub fn json_patch(document: &mut Value, patch: &Value) -> ApiResult<()> {
    let Some(operations) = patch.as_array() else {
        return Err(bad_document(patch, "[]handlers.jsonPatchOp"));
    };
    if operations.len() > MAXIMUM_OPERATIONS {
        return Err(ApiError::new(
            Reason::RequestEntityTooLarge,
            format!(
                "The allowed maximum operations in a JSON patch is {MAXIMUM_OPERATIONS}, got {}",
                operations.len()
            ),
        ));
    }
    let mut result = document.clone();
    let mut copied_bytes = 0;
    for operation in operations {
        let Some(fields) = operation.as_object() else {
            return Err(bad_document(operation, "handlers.jsonPatchOp"));
        };
        if fields.get("op").and_then(Value::as_str) == Some("copy") {
            let from = fields.get("from").and_then(Value::as_str).unwrap_or_default();
            copied_bytes += result.pointer(from).map_or(0, |value| value.to_string().len());
            if copied_bytes > MAXIMUM_COPIED_BYTES {
                return Err(unprocessable());
            }
        }
        apply_operation(&mut result, fields)?;
    }
    *document = result;
    Ok(())
}

fn apply_operation(document: &mut Value, fields: &Map<String, Value>) -> ApiResult<()> {
    let mut fields = fields.clone();
    let kind = fields
        .get("op")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    if matches!(kind.as_str(), "add" | "replace" | "test") {
        // The reference takes an absent value for null, and lets a test for null pass on an absent field.
        let tests_for_null = kind == "test" && fields.get("value").is_none_or(Value::is_null);
        let path = fields.get("path").and_then(Value::as_str).unwrap_or_default();
        if tests_for_null && is_absent_field(document, path) {
            return Ok(());
        }
        fields.entry("value").or_insert(Value::Null);
    }
    // The library of the reference finds nothing wrong with a field of an object that is not there: replacing it
    // adds it, and its copy is null.
    let text = |name: &str| {
        fields
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    if kind == "replace" && is_absent_field(document, &text("path")) {
        fields.insert("op".to_owned(), Value::from("add"));
    } else if kind == "copy" && is_absent_field(document, &text("from")) {
        fields.insert("op".to_owned(), Value::from("add"));
        fields.insert("value".to_owned(), Value::Null);
    }
    let operation: PatchOperation =
        serde_json::from_value(Value::Object(fields)).map_err(|_| unprocessable())?;
    json_patch::patch_unsafe(document, std::slice::from_ref(&operation)).map_err(|_| unprocessable())
}

/// Whether a path names a field that an existing object does not have.
fn is_absent_field(document: &Value, path: &str) -> bool {
    path.rsplit_once('/')
        .is_some_and(|(parent, _)| document.pointer(parent).is_some_and(Value::is_object))
        && document.pointer(path).is_none()
}

/// Applies a merge patch (RFC 7396). As on the reference, nulls are also taken out of the objects of a list that is set.
///
/// # Errors
/// 400 when the patch is not an object.
pub fn merge_patch(document: &mut Value, patch: &Value) -> ApiResult<()> {
    if !patch.is_object() {
        return Err(bad_document(patch, "map[string]interface {}"));
    }
    let stored = document.take();
    *document = merge(Some(stored), patch.clone());
    Ok(())
}

fn merge(stored: Option<Value>, patch: Value) -> Value {
    match (stored, patch) {
        (Some(Value::Object(mut stored)), Value::Object(patch)) => {
            for (name, value) in patch {
                let current = stored.remove(&name);
                if !value.is_null() {
                    stored.insert(name, merge(current, value));
                }
            }
            Value::Object(stored)
        }
        (Some(Value::Object(_)), other) => other,
        (_, mut patch) => {
            discard_nulls(&mut patch);
            patch
        }
    }
}

/// A null in a value that is new asks to delete what is not there.
fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(entries) => {
            entries.retain(|_, value| !value.is_null());
            entries.values_mut().for_each(discard_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

fn bad_document(value: &Value, wanted: &str) -> Box<ApiError> {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    ApiError::new(
        Reason::BadRequest,
        format!("error decoding patch: json: cannot unmarshal {kind} into Go value of type {wanted}"),
    )
}

/// What the reference answers whenever a patch is well-formed and cannot be done; it does not say why.
fn unprocessable() -> Box<ApiError> {
    ApiError::bare(
        Reason::Invalid,
        "the server rejected our request due to an error in our request",
    )
}
