//! Removing the fields that a schema does not declare. Requirements KA-013, KA-014.

use serde_json::Value;

use super::{Node, NodeKind};
use crate::field::FieldPath;

/// Removes undeclared fields from `object` and returns their paths in document order, sorted within an object. Under
/// `x-kubernetes-preserve-unknown-fields` undeclared fields stay, and what lies below them is not looked at.
pub fn prune(node: &Node, object: &mut Value) -> Vec<FieldPath> {
    let mut removed = Vec::new();
    visit(node, object, &FieldPath::root(), &mut removed);
    removed
}

fn visit(node: &Node, value: &mut Value, path: &FieldPath, removed: &mut Vec<FieldPath>) {
    match (&node.kind, value) {
        (
            NodeKind::Object {
                properties,
                additional,
            },
            Value::Object(fields),
        ) => {
            fields.retain(|name, nested| {
                if let Some(property) = properties.get(name) {
                    visit(property, nested, &path.child(name), removed);
                    true
                } else if let Some(additional) = additional {
                    visit(additional, nested, &path.child(name), removed);
                    true
                } else if node.preserve_unknown_fields {
                    true
                } else {
                    removed.push(path.child(name));
                    false
                }
            });
        }
        (NodeKind::Array { items }, Value::Array(list)) => {
            for (index, item) in list.iter_mut().enumerate() {
                visit(items, item, &path.index(index), removed);
            }
        }
        // A field without structure declares no fields of its own.
        (NodeKind::Any, Value::Object(fields)) if !node.preserve_unknown_fields => {
            removed.extend(fields.keys().map(|name| path.child(name)));
            fields.clear();
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn undeclared_fields_go_and_are_named() {
        // KA-013, KA-014
        let node = Node::from_crd_schema(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "handlers": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
            "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                     "properties": {"known": {"type": "object", "properties": {}}}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        }}}}))
        .expect("reads");
        let mut object = json!({
            "apiVersion": "example.com/v1", "kind": "X", "metadata": {"name": "a", "bogus": 1},
            "spec": {"handlers": [{"name": "a", "endpoint": "x"}], "open": {"free": {"a": 1}, "known": {"gone": 1}},
                     "labels": {"any": "thing"}, "extra": true},
        });
        let removed: Vec<String> = prune(&node, &mut object)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            removed,
            [
                "metadata.bogus",
                "spec.extra",
                "spec.handlers[0].endpoint",
                "spec.open.known.gone"
            ]
        );
        assert_eq!(
            object["spec"],
            json!({"handlers": [{"name": "a"}], "open": {"free": {"a": 1}, "known": {}}, "labels": {"any": "thing"}})
        );
    }
}
