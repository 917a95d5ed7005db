//! Type mismatches in built-in kinds. The reference decodes those into Go structures and refuses a mismatch before
//! anything else looks at the object, with the decoder's text. Requirement KA-006.

use base64::{
    DecodeError, Engine as _, alphabet,
    engine::{GeneralPurpose, GeneralPurposeConfig},
};
use serde_json::Value;

use super::{Node, NodeKind};

/// The decoder's text for the first value in `object` whose type is not that of its node:
/// `json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32`. `None` if all fit.
pub fn decode_error(node: &Node, object: &Value) -> Option<String> {
    visit(node, object, &mut Vec::new(), "")
}

fn visit<'names>(
    node: &'names Node,
    value: &'names Value,
    path: &mut Vec<&'names str>,
    structure: &str,
) -> Option<String> {
    // A null leaves the Go zero value.
    if value.is_null() || matches!(node.kind, NodeKind::Any) && !node.int_or_string {
        return None;
    }
    if let Some(decoder) = own_decoder(node) {
        return decoder(value);
    }
    let mismatch = |what: &str, path: &[&str]| Some(text(what, structure, path, &go_type(node)));
    match (&node.kind, value) {
        (
            NodeKind::Object {
                properties,
                additional,
            },
            Value::Object(fields),
        ) => {
            let structure = node.definition.as_deref().map_or(structure, short_name);
            for (name, nested) in fields {
                let found = match (properties.get(name), additional) {
                    (Some(property), _) => {
                        path.push(name);
                        let found = visit(property, nested, path, structure);
                        path.pop();
                        found
                    }
                    (None, Some(additional)) => visit(additional, nested, path, structure),
                    (None, None) => None,
                };
                if found.is_some() {
                    return found;
                }
            }
            None
        }
        (NodeKind::Array { items }, Value::Array(list)) => {
            list.iter().find_map(|item| visit(items, item, path, structure))
        }
        (NodeKind::String, Value::String(_))
        | (NodeKind::Boolean, Value::Bool(_))
        | (NodeKind::Number, Value::Number(_)) => None,
        (NodeKind::Integer, Value::Number(number)) => {
            let fits = match format(node) {
                Some("int32") => number.as_i64().is_some_and(|value| i32::try_from(value).is_ok()),
                _ => number.is_i64(),
            };
            if fits {
                None
            } else {
                mismatch(&format!("number {number}"), path)
            }
        }
        (_, Value::Number(_)) => mismatch("number", path),
        (_, Value::String(_)) => mismatch("string", path),
        (_, Value::Bool(_)) => mismatch("bool", path),
        (_, Value::Array(_)) => mismatch("array", path),
        (_, Value::Object(_)) => mismatch("object", path),
        (_, Value::Null) => None,
    }
}

/// Types that read their JSON themselves and have errors of their own, which name no field.
pub(super) fn own_decoder(node: &Node) -> Option<fn(&Value) -> Option<String>> {
    match node.definition.as_deref() {
        Some("io.k8s.apimachinery.pkg.api.resource.Quantity") => Some(quantity),
        Some("io.k8s.apimachinery.pkg.util.intstr.IntOrString") => Some(int_or_string),
        Some("io.k8s.apimachinery.pkg.apis.meta.v1.Time") => Some(time),
        _ => match (&node.kind, format(node)) {
            (NodeKind::String, Some("byte")) => Some(base64_text),
            _ => None,
        },
    }
}

fn quantity(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    mainstay_cel::Quantity::parse(&text).err().map(str::to_owned)
}

fn int_or_string(value: &Value) -> Option<String> {
    let what = match value {
        Value::String(_) | Value::Null => return None,
        Value::Number(number)
            if number
                .as_i64()
                .is_some_and(|number| i32::try_from(number).is_ok()) =>
        {
            return None;
        }
        Value::Number(number) => format!("number {number}"),
        Value::Bool(_) => "bool".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
    };
    Some(format!(
        "json: cannot unmarshal {what} into Go value of type int32"
    ))
}

fn time(value: &Value) -> Option<String> {
    let Value::String(text) = value else {
        let what = match value {
            Value::Number(_) => "number",
            Value::Bool(_) => "bool",
            Value::Array(_) => "array",
            _ => "object",
        };
        return Some(format!(
            "json: cannot unmarshal {what} into Go value of type string"
        ));
    };
    let is_valid = super::formats::by_name("date-time").is_some_and(|format| format.accepts(text));
    (!is_valid).then(|| {
        format!("parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?} as \"2006\"")
    })
}

/// Data of Secrets is never shown: the message has only the place inside the text.
fn base64_text(value: &Value) -> Option<String> {
    let Value::String(text) = value else {
        let what = match value {
            Value::Number(_) => "number",
            Value::Bool(_) => "bool",
            Value::Array(_) => "array",
            _ => "object",
        };
        return Some(format!(
            "json: cannot unmarshal {what} into Go value of type []uint8"
        ));
    };
    let lenient = GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true);
    let engine = GeneralPurpose::new(&alphabet::STANDARD, lenient);
    let compact: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    let at = match engine.decode(&compact).err()? {
        DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _) => at,
        _ => compact.len() / 4 * 4,
    };
    Some(format!("illegal base64 data at input byte {at}"))
}

fn text(what: &str, structure: &str, path: &[&str], expected: &str) -> String {
    if path.is_empty() {
        return format!("json: cannot unmarshal {what} into Go value of type {expected}");
    }
    format!(
        "json: cannot unmarshal {what} into Go struct field {structure}.{} of type {expected}",
        path.join(".")
    )
}

pub(super) fn format(node: &Node) -> Option<&'static str> {
    node.checks
        .as_ref()
        .and_then(|checks| checks.format)
        .map(|format| format.name)
}

/// `io.k8s.api.apps.v1.DeploymentSpec` is the Go type `v1.DeploymentSpec`.
fn short_name(definition: &str) -> &str {
    definition.rsplit('.').next().unwrap_or(definition)
}

pub(super) fn go_type(node: &Node) -> String {
    if let Some(definition) = &node.definition {
        let mut parts = definition.rsplit('.');
        let name = parts.next().unwrap_or_default();
        return match parts.next() {
            Some(package) => format!("{package}.{name}"),
            None => name.to_owned(),
        };
    }
    match &node.kind {
        NodeKind::Any => "interface {}".to_owned(),
        NodeKind::Object {
            additional: Some(additional),
            ..
        } => format!("map[string]{}", go_type(additional)),
        NodeKind::Object { .. } => "map[string]interface {}".to_owned(),
        NodeKind::Array { items } => format!("[]{}", go_type(items)),
        NodeKind::String if format(node) == Some("byte") => "[]uint8".to_owned(),
        NodeKind::String => "string".to_owned(),
        NodeKind::Integer => format(node).unwrap_or("int64").to_owned(),
        NodeKind::Number => "float64".to_owned(),
        NodeKind::Boolean => "bool".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use serde_json::json;

    use super::*;
    use crate::builtin::Kinds;

    #[test]
    fn a_type_mismatch_in_a_built_in_kind_has_the_text_of_the_decoder() {
        // KA-006
        let kinds = Kinds::builtin();
        let deployment = kinds.lookup("apps", "v1", "deployments").expect("is built in");
        let error = |object: Value| decode_error(&deployment.node, &object);
        assert_eq!(
            error(json!({"spec": {"replicas": "two"}})).as_deref(),
            Some(
                "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"
            )
        );
        assert_eq!(
            error(json!({"metadata": {"labels": {"a": 1}}})).as_deref(),
            Some(
                "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string"
            )
        );
        assert_eq!(
            error(json!({"spec": {"template": {"spec": {"containers": {}}}}})).as_deref(),
            Some(
                "json: cannot unmarshal object into Go struct field PodSpec.spec.template.spec.containers of type \
                 []v1.Container"
            )
        );
        assert_eq!(
            error(json!({"spec": {"replicas": null, "strategy": {"rollingUpdate": {"maxSurge": 1}}}})),
            None
        );
    }

    #[test]
    fn data_that_is_not_encoded_is_refused_without_being_shown() {
        // KA-006, KA-010
        let secret = Kinds::builtin().lookup("", "v1", "secrets").expect("is built in");
        let error = |text: &str| decode_error(&secret.node, &json!({"data": {"key": text}}));
        assert_eq!(error("aGVsbG8="), None);
        assert_eq!(
            error("plain text").as_deref(),
            Some("illegal base64 data at input byte 5")
        );
        assert_eq!(
            error("aGVsbG8").as_deref(),
            Some("illegal base64 data at input byte 4")
        );
    }
}
