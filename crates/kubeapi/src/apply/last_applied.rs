//! Moving from client-side to server-side apply: `kubectl apply` without `--server-side` keeps what it applied in
//! an annotation, owns the fields as an updater, and would conflict with itself.

use serde_json::{Map, Value};

use super::compare::Comparison;
use super::field_set::FieldSet;
use super::types::Type;
use super::walk;

/// The only manager the annotation is read and kept for.
pub(super) const MANAGER: &str = "kubectl";

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The most that the annotations of an object may take together.
const MAXIMUM_ANNOTATIONS_BYTES: usize = 256 * 1024;

/// The fields that client-side apply set and that still have the value it set: these may be taken over without
/// force. `None` when the annotation is absent or of no use.
pub(super) fn unchanged_since(ty: Type<'_>, live: &Value, api_version: &str) -> Option<FieldSet> {
    let text = annotation(live)?;
    let configuration: Value = serde_json::from_str(text).ok()?;
    if configuration.get("apiVersion").and_then(Value::as_str) != Some(api_version) {
        return None;
    }
    if !walk::check(ty, &configuration).is_empty() {
        return None;
    }
    let comparison = Comparison::between(ty, &configuration, live);
    Some(
        walk::field_set(ty, &configuration)
            .difference(&comparison.modified)
            .difference(&comparison.added)
            .difference(&comparison.removed),
    )
}

/// Brings the annotation, where there is one, up to date with what was applied, so that a later client-side apply
/// starts from it.
pub(super) fn refresh(object: &mut Value, configuration: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let mut configuration = configuration.clone();
    if let Some(annotations) = configuration
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
    {
        annotations.remove(ANNOTATION);
    }
    let Some(annotations) = object
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
    else {
        return;
    };
    annotations.insert(ANNOTATION.to_owned(), Value::String(format!("{configuration}\n")));
    if size_of(annotations) > MAXIMUM_ANNOTATIONS_BYTES {
        annotations.remove(ANNOTATION);
    }
}

fn annotation(object: &Value) -> Option<&str> {
    object
        .pointer("/metadata/annotations")?
        .get(ANNOTATION)?
        .as_str()
        .filter(|text| !text.is_empty())
}

fn size_of(annotations: &Map<String, Value>) -> usize {
    annotations
        .iter()
        .map(|(name, value)| name.len() + value.as_str().map_or(0, str::len))
        .sum()
}
