//! Uniqueness in lists that the schema calls sets or maps. Requirement KA-013.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{ListType, Node, NodeKind};
use crate::field::{FieldError, FieldPath};

/// Checks that lists of type `set` hold no item twice and lists of type `map` no key twice. Each duplicate is reported
/// once, at its second appearance, as the reference does.
pub fn validate_lists(node: &Node, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    visit(node, object, &FieldPath::root(), &mut errors);
    errors
}

fn visit(node: &Node, value: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    match (&node.kind, value) {
        (
            NodeKind::Object {
                properties,
                additional,
            },
            Value::Object(fields),
        ) => {
            for (name, nested) in fields {
                if let Some(property) = properties.get(name) {
                    visit(property, nested, &path.child(name), errors);
                } else if let Some(additional) = additional {
                    visit(additional, nested, &path.key(name), errors);
                }
            }
        }
        (NodeKind::Array { items }, Value::Array(list)) => {
            match node.list_type {
                ListType::Atomic => {}
                ListType::Set => {
                    for index in repeated(list.iter()) {
                        errors.push(FieldError::duplicate(&path.index(index), list[index].clone()));
                    }
                }
                ListType::Map => validate_map(node, list, path, errors),
            }
            for (index, item) in list.iter().enumerate() {
                visit(items, item, &path.index(index), errors);
            }
        }
        _ => {}
    }
}

fn validate_map(node: &Node, list: &[Value], path: &FieldPath, errors: &mut Vec<FieldError>) {
    if let Some((index, item)) = list
        .iter()
        .enumerate()
        .find(|(_, item)| !item.is_object() && !item.is_null())
    {
        errors.push(FieldError::invalid(
            &path.index(index),
            item.clone(),
            "must be an object for an array of list-type map",
        ));
        return;
    }
    let keys: Vec<Value> = list
        .iter()
        .map(|item| {
            let mut key = Map::new();
            for name in &node.list_map_keys {
                if let Some(value) = item.get(name) {
                    key.insert(name.clone(), value.clone());
                }
            }
            Value::Object(key)
        })
        .collect();
    for index in repeated(keys.iter()) {
        errors.push(FieldError::duplicate(&path.index(index), keys[index].clone()));
    }
}

/// The indices at which a value appears for the second time.
fn repeated<'a>(values: impl Iterator<Item = &'a Value>) -> Vec<usize> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut indices = Vec::new();
    for (index, value) in values.enumerate() {
        let times = seen.entry(value.to_string()).or_insert(0);
        *times += 1;
        if *times == 2 {
            indices.push(index);
        }
    }
    indices
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_duplicate_in_a_set_or_map_list_is_named_at_its_second_place() {
        // KA-013
        let node = Node::from_crd_schema(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "handlers": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
        }}}}))
        .expect("reads");
        let object =
            json!({"spec": {"tags": ["a", "b", "a", "a"], "handlers": [{"name": "x"}, {"name": "x"}, {}]}});
        let texts: Vec<String> = validate_lists(&node, &object)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            texts,
            [
                "spec.handlers[1]: Duplicate value: {\"name\":\"x\"}",
                "spec.tags[2]: Duplicate value: \"a\""
            ]
        );
    }
}
