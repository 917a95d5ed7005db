//! Patched objects as refusals show them. Requirement KA-006.
//!
//! The reference keeps objects in structures. What a patch did not touch is shown in the order of their fields; what it
//! went through has become a map, whose keys are sorted.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::{Intention, WriteRequest};
use crate::{patch, structure::object_meta_text};

/// The object that a patch made, or for a strategic merge the patch.
pub(super) fn patched(request: &WriteRequest, proposed: &Value) -> String {
    if let Intention::StrategicPatch(patch) = &request.intention {
        return patch::shown_map(patch);
    }
    match proposed {
        Value::Object(fields) if !request.kind.custom && !touches_metadata(&request.intention) => {
            with_structured_metadata(fields)
        }
        other => other.to_string(),
    }
}

fn touches_metadata(intention: &Intention) -> bool {
    match intention {
        Intention::JsonPatch(operations) => operations.as_array().into_iter().flatten().any(|operation| {
            let place = |name: &str| {
                operation
                    .get(name)
                    .and_then(Value::as_str)
                    .is_some_and(|path| path.starts_with("/metadata"))
            };
            place("path") || place("from")
        }),
        Intention::MergePatch(patch) => patch.get("metadata").is_some(),
        _ => false,
    }
}

fn with_structured_metadata(fields: &Map<String, Value>) -> String {
    let mut text = String::from("{");
    let mut separator = "";
    for (name, value) in fields {
        let shown = match (name.as_str(), value) {
            ("metadata", Value::Object(metadata)) => object_meta_text(metadata),
            _ => value.to_string(),
        };
        // Into a string, which cannot fail.
        let _infallible = write!(text, "{separator}{}:{shown}", json!(name));
        separator = ",";
    }
    text.push('}');
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn untouched_metadata_is_shown_in_the_order_of_its_structure_ka_006() {
        let object = json!({"kind": "X", "apiVersion": "v1", "metadata": {
            "creationTimestamp": "t", "name": "a", "uid": "u", "labels": {"b": "c", "a": "d"}, "resourceVersion": "1"}});
        assert_eq!(
            with_structured_metadata(object.as_object().unwrap()),
            r#"{"apiVersion":"v1","kind":"X","metadata":{"name":"a","uid":"u","resourceVersion":"1","creationTimestamp":"t","labels":{"a":"d","b":"c"}}}"#
        );
        assert!(touches_metadata(&Intention::JsonPatch(
            json!([{"op": "add", "path": "/metadata/labels"}])
        )));
        assert!(!touches_metadata(&Intention::JsonPatch(
            json!([{"op": "add", "path": "/data"}])
        )));
        assert!(touches_metadata(&Intention::MergePatch(json!({"metadata": {}}))));
    }
}
