//! Filling in defaults of a schema. Requirements KA-011, KA-013.

use serde_json::{Map, Value};

use super::{Node, NodeKind};

/// Fills in every default of the schema where the field is absent, after dropping nulls of fields that may not be null
/// and have no default, as the reference does on every write and on reads from storage.
pub fn default_object(node: &Node, object: &mut Value) {
    drop_nulls(node, object);
    fill(node, object);
}

fn is_refused_null(value: &Value, node: &Node) -> bool {
    value.is_null() && !node.nullable
}

fn drop_nulls(node: &Node, value: &mut Value) {
    match (&node.kind, value) {
        (NodeKind::Object { .. }, Value::Object(fields)) => {
            fields.retain(|name, nested| {
                let Some(child) = node.child(name) else {
                    return true;
                };
                if is_refused_null(nested, child) && child.default.is_none() {
                    return false;
                }
                drop_nulls(child, nested);
                true
            });
        }
        (NodeKind::Array { items }, Value::Array(list)) => {
            for item in list {
                drop_nulls(items, item);
            }
        }
        _ => {}
    }
}

fn fill(node: &Node, value: &mut Value) {
    match (&node.kind, value) {
        (
            NodeKind::Object {
                properties,
                additional,
            },
            Value::Object(fields),
        ) => {
            for (name, property) in properties {
                let Some(default) = &property.default else {
                    continue;
                };
                let is_absent = |present: &Value| {
                    is_refused_null(present, property)
                        || (node.definition.is_some() && is_unset_text(present, default))
                };
                if fields.get(name).is_none_or(is_absent) {
                    fields.insert(name.clone(), default.clone());
                }
            }
            fill_fields(fields, |name| {
                properties.get(name).or(additional.as_ref()).map(AsRef::as_ref)
            });
        }
        (NodeKind::Array { items }, Value::Array(list)) => {
            for item in list {
                if let (true, Some(default)) = (is_refused_null(item, items), &items.default) {
                    *item = default.clone();
                }
                fill(items, item);
            }
        }
        _ => {}
    }
}

/// In Go a text that was not given and an empty one are the same, so an empty text takes the default of a built-in kind.
fn is_unset_text(present: &Value, default: &Value) -> bool {
    present == "" && default.is_string()
}

fn fill_fields<'node>(fields: &mut Map<String, Value>, child: impl Fn(&str) -> Option<&'node Node>) {
    for (name, nested) in fields {
        let Some(child) = child(name) else { continue };
        if let (true, Some(default)) = (is_refused_null(nested, child), &child.default) {
            *nested = default.clone();
        }
        fill(child, nested);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn absent_fields_take_their_default_inside_what_is_there() {
        // KA-011, KA-013
        let node = Node::from_crd_schema(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "mode": {"type": "string", "default": "auto"},
            "retry": {"type": "object", "default": {}, "properties": {"attempts": {"type": "integer", "default": 3}}},
            "absent": {"type": "object", "properties": {"inner": {"type": "string", "default": "x"}}},
            "list": {"type": "array", "items": {"type": "object", "properties": {"on": {"type": "boolean", "default": true}}}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": {"type": "integer", "default": 1}}}},
        }}}}))
        .expect("reads");
        let mut object = json!({"spec": {"list": [{}, {"on": false}], "map": {"k": {}}}});
        default_object(&node, &mut object);
        assert_eq!(
            object["spec"],
            json!({"mode": "auto", "retry": {"attempts": 3}, "list": [{"on": true}, {"on": false}], "map": {"k": {"a": 1}}})
        );
        let mut without_spec = json!({"metadata": {"name": "a"}});
        default_object(&node, &mut without_spec);
        assert_eq!(without_spec, json!({"metadata": {"name": "a"}}));
    }

    #[test]
    fn nulls_of_fields_that_may_not_be_null_are_dropped_or_defaulted() {
        let node = Node::from_crd_schema(&json!({"type": "object", "properties": {
            "kept": {"type": "string", "nullable": true},
            "gone": {"type": "string"},
            "filled": {"type": "string", "default": "x"},
        }}))
        .expect("reads");
        let mut object = json!({"kept": null, "gone": null, "filled": null});
        default_object(&node, &mut object);
        assert_eq!(object, json!({"kept": null, "filled": "x"}));
    }

    fn values() -> impl proptest::strategy::Strategy<Value = Value> {
        use proptest::prelude::*;
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[a-z]{0,4}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map(
                    "(spec|metadata|mode|retry|list|map|attempts|labels|name)",
                    inner,
                    0..5
                )
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest::proptest! {
        #[test]
        fn any_value_is_pruned_defaulted_and_judged_and_the_result_is_stable(value in values()) {
            // KA-008, KA-013: whatever a client sends, and the second time changes nothing.
            let custom = Node::from_crd_schema(&json!({"type": "object", "properties": {"spec": {"type": "object",
                "default": {}, "properties": {
                    "mode": {"type": "string", "default": "auto"},
                    "retry": {"type": "object", "default": {}, "properties": {"attempts": {"type": "integer", "default": 3}}},
                    "list": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
                    "map": {"type": "object", "additionalProperties": {"type": "integer", "nullable": true}},
                }}}}))
            .expect("reads");
            let builtin = crate::builtin::Kinds::builtin();
            let deployment = builtin.lookup("apps", "v1", "deployments").expect("is built in");
            for node in [&custom, &deployment.node] {
                let mut object = value.clone();
                let _ = crate::schema::decode_error(node, &object);
                crate::schema::prune(node, &mut object);
                proptest::prop_assert!(crate::schema::prune(node, &mut object).is_empty());
                default_object(node, &mut object);
                let once = object.clone();
                default_object(node, &mut object);
                proptest::prop_assert_eq!(&once, &object);
                let _ = crate::schema::validate(node, &object);
                let _ = crate::schema::validate_lists(node, &object);
            }
            let mut object = value;
            deployment.default_object(&mut object);
            deployment.strategy.prepare(&mut object, None);
            let _ = deployment.validate(&object, Some(&object));
            for info in builtin.all() {
                let mut object = object.clone();
                info.default_object(&mut object);
                info.strategy.prepare(&mut object, None);
                let _ = info.validate(&object, None);
            }
        }
    }
}
