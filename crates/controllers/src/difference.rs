//! The JSON merge patch that turns one document into another.

use serde_json::{Map, Value};

/// The patch from `old` to `new`, or `None` when there is nothing to change. Fields that are gone become null, which
/// is how a merge patch removes them; leaving them out would keep them.
pub(crate) fn merge_patch(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(old_fields), Value::Object(new_fields)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let mut patch = Map::new();
    for name in old_fields.keys().filter(|name| !new_fields.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, value) in new_fields {
        match old_fields.get(name) {
            None => {
                patch.insert(name.clone(), value.clone());
            }
            Some(previous) => {
                if let Some(change) = merge_patch(previous, value) {
                    patch.insert(name.clone(), change);
                }
            }
        }
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_removed_field_is_set_to_null_and_equal_documents_need_no_patch() {
        let old = json!({ "phase": "Ready", "policyCount": 0, "list": [1, 2], "deep": { "a": 1, "b": 2 } });
        let new = json!({ "phase": "Ready", "list": [2], "deep": { "a": 1 }, "new": true });
        let patch = merge_patch(&old, &new).unwrap();
        assert_eq!(
            patch,
            json!({ "policyCount": null, "list": [2], "deep": { "b": null }, "new": true })
        );
        assert_eq!(merge_patch(&old, &old), None);
    }

    /// Applies a merge patch.
    fn merge(target: &mut Value, patch: &Value) {
        let Value::Object(changes) = patch else {
            *target = patch.clone();
            return;
        };
        if !target.is_object() {
            *target = Value::Object(Map::new());
        }
        if let Value::Object(fields) = target {
            for (name, change) in changes {
                if change.is_null() {
                    fields.remove(name);
                } else {
                    merge(fields.entry(name.clone()).or_insert(Value::Null), change);
                }
            }
        }
    }

    fn document() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            any::<i8>().prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            proptest::collection::btree_map("[a-c]", inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect()))
        })
    }

    proptest! {
        #[test]
        fn applying_the_patch_gives_the_new_document(old in document(), new in document()) {
            let mut patched = old.clone();
            if let Some(patch) = merge_patch(&old, &new) {
                merge(&mut patched, &patch);
            }
            prop_assert_eq!(patched, new);
        }
    }
}
