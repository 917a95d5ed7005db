//! Type mismatches in a built-in kind that was patched strategically. The reference restores its structures from maps then,
//! and not from text, with messages of its own. Requirements KA-006, KA-027.

use serde_json::Value;

use super::{
    Node, NodeKind,
    decode::{go_type, own_decoder},
};

/// The text for the first value in `object` whose type is not that of its node; `None` if all fit.
pub fn restore_error(node: &Node, object: &Value) -> Option<String> {
    if object.is_null() {
        return None;
    }
    if let Some(decoder) = own_decoder(node) {
        return decoder(object);
    }
    match (&node.kind, object) {
        (NodeKind::Any, _) => None,
        (NodeKind::Object { .. }, Value::Object(fields)) => fields
            .iter()
            .find_map(|(name, value)| restore_error(node.child(name)?, value)),
        (NodeKind::Array { items }, Value::Array(list)) => {
            list.iter().find_map(|item| restore_error(items, item))
        }
        (NodeKind::Object { .. }, other) if node.definition.is_some() => {
            Some(format!("cannot restore struct from: {}", kind_of(other)))
        }
        (NodeKind::Object { .. }, other) => Some(format!("cannot restore map from {}", kind_of(other))),
        (NodeKind::Array { .. }, other) => Some(format!("cannot restore slice from {}", kind_of(other))),
        (NodeKind::String, Value::String(_))
        | (NodeKind::Boolean, Value::Bool(_))
        | (NodeKind::Number, Value::Number(_)) => None,
        // What does not fit the size of the type is cut off; a rule about the number itself judges what is left.
        (NodeKind::Integer, Value::Number(number)) if number.is_i64() => None,
        (NodeKind::Integer, Value::Number(_)) => Some(format!("cannot convert float64 to {}", go_type(node))),
        // Go can make a text of an integer, which is not meant here.
        (NodeKind::String, Value::Number(number)) if number.is_i64() => {
            Some(format!("cannot convert int64 to {}", go_type(node)))
        }
        _ => Some(format!("unrecognized type: {}", go_type(node))),
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use serde_json::json;

    use super::*;
    use crate::builtin::Kinds;

    #[test]
    fn a_patched_object_of_the_wrong_type_has_the_words_of_the_reference_ka_027() {
        let kinds = Kinds::builtin();
        let config_map = kinds.lookup("", "v1", "configmaps").expect("is built in");
        let deployment = kinds.lookup("apps", "v1", "deployments").expect("is built in");
        for (object, expected) in [
            (json!({"data": {"a": 5}}), "cannot convert int64 to string"),
            (json!({"data": {"a": true}}), "unrecognized type: string"),
            (json!({"data": []}), "cannot restore map from slice"),
            (
                json!({"metadata": {"labels": "x"}}),
                "cannot restore map from string",
            ),
            (json!({"metadata": "x"}), "cannot restore struct from: string"),
            (
                json!({"metadata": {"finalizers": "x"}}),
                "cannot restore slice from string",
            ),
            (json!({"immutable": "x"}), "unrecognized type: bool"),
            (
                json!({"metadata": {"generation": "x"}}),
                "unrecognized type: int64",
            ),
        ] {
            assert_eq!(
                restore_error(&config_map.node, &object).as_deref(),
                Some(expected),
                "{object}"
            );
        }
        let replicas = |value: Value| restore_error(&deployment.node, &json!({"spec": {"replicas": value}}));
        assert_eq!(replicas(json!("x")).as_deref(), Some("unrecognized type: int32"));
        assert_eq!(
            replicas(json!(1.5)).as_deref(),
            Some("cannot convert float64 to int32")
        );
        assert_eq!(replicas(json!(3)), None);
    }
}
