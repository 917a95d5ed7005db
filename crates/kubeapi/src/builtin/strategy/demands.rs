//! The demands on built-in kinds that are data: required fields of the published schema, and the allowed values and
//! lower bounds of `data/constraints.json`.

use serde_json::Value;

use crate::{
    field::{FieldError, FieldPath},
    schema::{Node, NodeKind},
};

/// Fields that the published schema calls required although the reference accepts an empty text.
const MAY_BE_EMPTY: &[(&str, &str)] = &[
    ("io.k8s.api.core.v1.HTTPHeader", "value"),
    ("io.k8s.api.core.v1.Sysctl", "value"),
    (
        "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelectorRequirement",
        "key",
    ),
    (
        "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelectorRequirement",
        "operator",
    ),
    ("io.k8s.api.core.v1.NodeSelectorRequirement", "operator"),
];

/// Checks everything but `metadata`, which has rules of its own, and `status`, which the reference takes as it comes.
pub(super) fn check(node: &Node, object: &Value, errors: &mut Vec<FieldError>) {
    let Some(fields) = object.as_object() else { return };
    for (name, value) in fields {
        if let ("metadata" | "status", _) | (_, None) = (name.as_str(), node.property(name)) {
            continue;
        }
        if let Some(property) = node.property(name) {
            visit(property, value, &FieldPath::of(name.clone()), errors);
        }
    }
    required(node, object, &FieldPath::root(), errors);
}

fn visit(node: &Node, value: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if let Some(checks) = &node.checks {
        if !checks.enumeration.is_empty() && !checks.enumeration.contains(value) && !is_empty(value) {
            let allowed: Vec<&str> = checks.enumeration.iter().filter_map(Value::as_str).collect();
            errors.push(FieldError::not_supported(path, value.clone(), &allowed));
        }
        if let (Some(least), Some(number)) = (checks.minimum, value.as_f64())
            && number < least
        {
            let detail = format!("must be greater than or equal to {least}");
            errors.push(FieldError::invalid(path, value.clone(), detail));
        }
    }
    match (&node.kind, value) {
        (NodeKind::Object { .. }, Value::Object(fields)) => {
            required(node, value, path, errors);
            for (name, nested) in fields {
                if let Some(child) = node.child(name) {
                    visit(child, nested, &path.child(name), errors);
                }
            }
        }
        (NodeKind::Array { items }, Value::Array(list)) => {
            for (index, item) in list.iter().enumerate() {
                visit(items, item, &path.index(index), errors);
            }
        }
        _ => {}
    }
}

fn required(node: &Node, value: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let Some(checks) = &node.checks else { return };
    let definition = node.definition.as_deref().unwrap_or_default();
    for name in &checks.required {
        let Some(property) = node.property(name) else {
            continue;
        };
        // Numbers and flags have a zero value on the reference, which a rule about the number itself judges.
        if matches!(
            property.kind,
            NodeKind::Integer | NodeKind::Number | NodeKind::Boolean
        ) || (property.default.is_some() && matches!(property.kind, NodeKind::Object { .. }))
            || MAY_BE_EMPTY.contains(&(definition, name.as_str()))
        {
            continue;
        }
        if value.get(name).is_none_or(is_empty) {
            errors.push(FieldError::required(&path.child(name), ""));
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}
