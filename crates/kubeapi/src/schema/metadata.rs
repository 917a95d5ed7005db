//! Metadata of resources embedded in a custom resource (`x-kubernetes-embedded-resource`). Requirement KA-013.

use serde_json::Value;

use super::{Node, NodeKind};
use crate::{
    field::{FieldError, FieldPath},
    names,
};

/// Checks `apiVersion`, `kind` and `metadata` of every embedded resource below `object`. The root itself is the caller's.
pub fn validate_embedded(node: &Node, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    visit(node, object, &FieldPath::root(), true, &mut errors);
    errors
}

fn visit(node: &Node, value: &Value, path: &FieldPath, is_root: bool, errors: &mut Vec<FieldError>) {
    if node.embedded_resource && !is_root && value.is_object() {
        check(value, path, errors);
    }
    match (&node.kind, value) {
        (NodeKind::Object { .. }, Value::Object(fields)) => {
            for (name, nested) in fields {
                if let Some(child) = node.child(name) {
                    visit(child, nested, &path.child(name), false, errors);
                }
            }
        }
        (NodeKind::Array { items }, Value::Array(list)) => {
            for (index, item) in list.iter().enumerate() {
                visit(items, item, &path.index(index), false, errors);
            }
        }
        _ => {}
    }
}

/// The decoder's text for the first embedded resource whose metadata is none: it is read like that of every resource.
pub fn embedded_decode_error(node: &Node, object_meta: &Node, object: &Value) -> Option<String> {
    fn visit(
        node: &Node,
        object_meta: &Node,
        value: &Value,
        path: &FieldPath,
        is_root: bool,
    ) -> Option<String> {
        if let (true, false, Some(metadata)) = (node.embedded_resource, is_root, value.get("metadata"))
            && let Some(detail) = super::decode_error(object_meta, metadata)
        {
            let at = path.child("metadata");
            return Some(format!("{at}: Invalid value: {metadata}: {detail}"));
        }
        match (&node.kind, value) {
            (NodeKind::Object { .. }, Value::Object(fields)) => fields.iter().find_map(|(name, nested)| {
                let child = node.child(name)?;
                visit(child, object_meta, nested, &path.child(name), false)
            }),
            (NodeKind::Array { items }, Value::Array(list)) => list
                .iter()
                .enumerate()
                .find_map(|(index, item)| visit(items, object_meta, item, &path.index(index), false)),
            _ => None,
        }
    }
    visit(node, object_meta, object, &FieldPath::root(), true)
}

fn check(value: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    let api_version = text("apiVersion");
    let at = path.child("apiVersion");
    if api_version.is_empty() {
        errors.push(FieldError::required(&at, ""));
    } else if api_version.matches('/').count() > 1 {
        let message = format!("unexpected GroupVersion string: {api_version}");
        errors.push(FieldError::invalid(&at, Value::from(api_version), message));
    }
    let kind = text("kind");
    let at = path.child("kind");
    if kind.is_empty() {
        errors.push(FieldError::required(&at, ""));
    } else {
        for message in names::NameRule::Label1035.check(&kind.to_lowercase(), false) {
            errors.push(FieldError::invalid(&at, Value::from(kind), message));
        }
    }
    let Some(metadata) = value.get("metadata") else {
        return;
    };
    let at = path.child("metadata");
    // Its name is not looked at: which names the kind allows is not known here.
    if let Some(labels) = metadata.get("labels").and_then(Value::as_object) {
        let at = at.child("labels");
        for (key, label) in labels {
            for message in names::qualified_name(key) {
                errors.push(FieldError::invalid(&at, Value::from(key.as_str()), message));
            }
            for message in label.as_str().map(names::label_value).unwrap_or_default() {
                errors.push(FieldError::invalid(&at, label.clone(), message));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn metadata_of_an_embedded_resource_is_decoded_ka_013() {
        let node = Node::from_crd_schema(&json!({"type": "object", "properties": {"e": {
            "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}}))
        .expect("reads");
        let object_meta = crate::builtin::definitions::object_meta();
        let error = |metadata: Value| {
            embedded_decode_error(&node, &object_meta, &json!({"e": {"metadata": metadata}}))
        };
        assert_eq!(
            error(json!("x")).unwrap(),
            "e.metadata: Invalid value: \"x\": json: cannot unmarshal string into Go value of type v1.ObjectMeta"
        );
        assert_eq!(
            error(json!({"name": 5})).unwrap(),
            "e.metadata: Invalid value: {\"name\":5}: json: cannot unmarshal number into Go struct field ObjectMeta.name of \
             type string"
        );
        assert_eq!(error(json!({"name": "a"})), None);
    }

    #[test]
    fn an_embedded_resource_needs_api_version_and_kind() {
        // KA-013
        let node = Node::from_crd_schema(&json!({"type": "object", "properties": {"template": {
            "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}}))
        .expect("reads");
        let texts: Vec<String> =
            validate_embedded(&node, &json!({"template": {"metadata": {"name": "Bad Name"}}}))
                .iter()
                .map(|error| error.path.to_string())
                .collect();
        assert_eq!(texts, ["template.apiVersion", "template.kind"]);
        let good = json!({"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}});
        assert_eq!(validate_embedded(&node, &good), []);
    }
}
