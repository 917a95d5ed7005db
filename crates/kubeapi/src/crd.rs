//! Custom resource definitions: what is accepted, how names are granted, and which kinds they make.
//! Requirements KA-012, KA-013, KA-015.

mod conversion;
mod decode;
mod kinds;
mod names;
mod paths;
mod schemas;
mod shown;
mod spec;
mod structural;

use serde_json::Value;

pub(crate) use decode::decode_error;
pub use kinds::kinds_of;
pub use names::{CrdNames, accept_names};
pub use spec::validate_crd;

/// Whether the definition's names are accepted and its kinds are served.
pub fn is_established(crd: &Value) -> bool {
    condition(crd, "Established")
        .is_some_and(|condition| condition.get("status").is_some_and(|status| status == "True"))
}

/// The condition of that type in the definition's status.
pub(crate) fn condition<'crd>(crd: &'crd Value, type_: &str) -> Option<&'crd Value> {
    crd.pointer("/status/conditions")?
        .as_array()?
        .iter()
        .find(|condition| condition.get("type").is_some_and(|found| found == type_))
}

/// The versions that objects may be stored in: those of the old status, and the storage version.
pub(crate) fn stored_versions(crd: &Value, old: Option<&Value>) -> Vec<String> {
    let mut stored: Vec<String> = old
        .and_then(|old| old.pointer("/status/storedVersions"))
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        .unwrap_or_default();
    let storage = versions(crd)
        .find(|version| version.get("storage") == Some(&Value::Bool(true)))
        .and_then(|version| version.get("name")?.as_str());
    if let Some(storage) = storage
        && !stored.iter().any(|version| version == storage)
    {
        stored.push(storage.to_owned());
    }
    stored
}

/// The entries of `spec.versions`.
fn versions(crd: &Value) -> impl Iterator<Item = &Value> {
    crd.pointer("/spec/versions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

/// A text at a JSON pointer; empty where there is none.
fn text<'crd>(value: &'crd Value, pointer: &str) -> &'crd str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The texts of a list at a JSON pointer.
fn texts(value: &Value, pointer: &str) -> Vec<String> {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        .unwrap_or_default()
}
