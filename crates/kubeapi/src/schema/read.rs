//! Reading the schema of a CRD version into a tree of nodes. What makes a schema acceptable is checked apart
//! (`crd::structural`); the reader takes what it understands. Requirement KA-013.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use super::{Checks, ListType, MapType, Node, NodeKind};
use crate::{
    builtin::definitions,
    field::{FieldError, FieldPath},
};

impl Node {
    /// Reads the `openAPIV3Schema` of a CRD version. `apiVersion`, `kind` and `metadata` are added at the root and in
    /// embedded resources, since every object has them.
    ///
    /// # Errors
    /// One error for each pattern that is no regular expression, with the path inside the schema.
    pub fn from_crd_schema(document: &Value) -> Result<Arc<Node>, Vec<FieldError>> {
        let mut errors = Vec::new();
        let mut root = read(document, &FieldPath::root(), &mut errors);
        if matches!(root.kind, NodeKind::Any) {
            root.kind = NodeKind::Object {
                properties: BTreeMap::new(),
                additional: None,
            };
        }
        add_resource_fields(&mut root);
        if errors.is_empty() {
            Ok(Arc::new(root))
        } else {
            Err(errors)
        }
    }

    /// Reads a schema from inside a CRD's schema, which describes no whole object.
    ///
    /// # Errors
    /// As [`Node::from_crd_schema`].
    pub(crate) fn from_nested_schema(document: &Value) -> Result<Node, Vec<FieldError>> {
        let mut errors = Vec::new();
        let node = read(document, &FieldPath::root(), &mut errors);
        if errors.is_empty() { Ok(node) } else { Err(errors) }
    }
}

fn read(schema: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) -> Node {
    let flag = |name: &str| schema.get(name) == Some(&Value::Bool(true));
    let text = |name: &str| schema.get(name).and_then(Value::as_str);
    let int_or_string = flag("x-kubernetes-int-or-string");
    let kind = match text("type") {
        _ if int_or_string => NodeKind::Any,
        Some("object") => read_object(schema, path, errors),
        Some("array") => NodeKind::Array {
            items: Arc::new(match schema.get("items").filter(|items| items.is_object()) {
                Some(items) => read(items, &path.child("items"), errors),
                None => Node::anything(),
            }),
        },
        Some("string") => NodeKind::String,
        Some("integer") => NodeKind::Integer,
        Some("number") => NodeKind::Number,
        Some("boolean") => NodeKind::Boolean,
        // Without a type, properties may still be declared beside `x-kubernetes-preserve-unknown-fields`.
        _ if schema.get("properties").is_some() => read_object(schema, path, errors),
        _ => NodeKind::Any,
    };
    let mut node = Node::new(kind);
    node.nullable = flag("nullable");
    node.int_or_string = int_or_string;
    node.preserve_unknown_fields = flag("x-kubernetes-preserve-unknown-fields");
    node.embedded_resource = flag("x-kubernetes-embedded-resource");
    node.default = schema.get("default").filter(|value| !value.is_null()).cloned();
    node.list_type = match text("x-kubernetes-list-type") {
        Some("map") => ListType::Map,
        Some("set") => ListType::Set,
        _ => ListType::Atomic,
    };
    node.list_map_keys = schema
        .get("x-kubernetes-list-map-keys")
        .and_then(Value::as_array)
        .map(|keys| keys.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        .unwrap_or_default();
    node.map_type = match text("x-kubernetes-map-type") {
        Some("atomic") => MapType::Atomic,
        _ => MapType::Granular,
    };
    node.checks = Checks::read(schema, path, errors);
    if node.embedded_resource {
        add_resource_fields(&mut node);
    }
    node
}

fn read_object(schema: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) -> NodeKind {
    let mut properties = BTreeMap::new();
    if let Some(declared) = schema.get("properties").and_then(Value::as_object) {
        let at = path.child("properties");
        for (name, nested) in declared {
            properties.insert(name.clone(), Arc::new(read(nested, &at.key(name), errors)));
        }
    }
    let additional = match schema.get("additionalProperties") {
        Some(nested @ Value::Object(_)) => Some(Arc::new(read(
            nested,
            &path.child("additionalProperties"),
            errors,
        ))),
        Some(Value::Bool(true)) => Some(Arc::new(Node::anything())),
        _ => None,
    };
    NodeKind::Object {
        properties,
        additional,
    }
}

/// Adds the fields that every object has. A schema may restrict `metadata.name` and `metadata.generateName`; those
/// restrictions are kept on top of the common structure.
fn add_resource_fields(node: &mut Node) {
    let NodeKind::Object { properties, .. } = &mut node.kind else {
        return;
    };
    let declared = properties.remove("metadata");
    let common = definitions::object_meta();
    let metadata = match declared {
        Some(declared) => {
            let mut merged = Node::clone(&common);
            merged.checks.clone_from(&declared.checks);
            if let (
                NodeKind::Object {
                    properties: fields, ..
                },
                NodeKind::Object {
                    properties: restricted,
                    ..
                },
            ) = (&mut merged.kind, &declared.kind)
            {
                for (name, restriction) in restricted {
                    fields.insert(name.clone(), Arc::clone(restriction));
                }
            }
            Arc::new(merged)
        }
        None => common,
    };
    properties.insert("metadata".to_owned(), metadata);
    for name in ["apiVersion", "kind"] {
        properties
            .entry(name.to_owned())
            .or_insert_with(|| Arc::new(Node::new(NodeKind::String)));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_becomes_a_tree_with_the_fields_of_every_object() {
        // KA-013
        let node = Node::from_crd_schema(&json!({
            "type": "object",
            "properties": {
                "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}}},
                "spec": {"type": "object", "properties": {
                    "handlers": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                        "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
                    "port": {"x-kubernetes-int-or-string": true},
                    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                }},
            }
        }))
        .expect("reads");
        let spec = node.property("spec").expect("spec");
        let handlers = spec.property("handlers").expect("handlers");
        assert_eq!(handlers.list_type, ListType::Map);
        assert_eq!(handlers.list_map_keys, ["name"]);
        assert!(spec.property("port").expect("port").int_or_string);
        assert_eq!(
            spec.property("labels")
                .and_then(|labels| labels.child("x"))
                .map(|node| node.type_name()),
            Some("string")
        );
        let metadata = node.property("metadata").expect("metadata");
        assert!(metadata.property("ownerReferences").is_some());
        assert_eq!(
            metadata
                .property("name")
                .and_then(|name| name.checks.as_ref())
                .and_then(|c| c.max_length),
            Some(5)
        );
    }

    #[test]
    fn a_bad_pattern_is_named_by_its_path_in_the_schema() {
        let errors = Node::from_crd_schema(&json!({
            "type": "object", "properties": {"spec": {"type": "string", "pattern": "["}}
        }))
        .expect_err("is refused");
        assert_eq!(errors[0].path.as_str(), "properties[spec].pattern");
    }
}
