//! Type mismatches in a built-in kind that was patched strategically. The reference restores its structures from maps then,
//! and not from text, with messages of its own. Requirements KA-006, KA-027.

use serde_json::{Number, Value};

use super::{
    Node, NodeKind,
    decode::{format, go_type, own_decoder},
};

const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;

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
        // What does not fit the size of the type is cut off by `restore_integers`.
        (NodeKind::Integer, Value::Number(number)) if whole(number).is_some() => None,
        (NodeKind::Integer, Value::Number(_)) => Some(format!("cannot convert float64 to {}", go_type(node))),
        // Go can make a text of an integer, which is not meant here.
        (NodeKind::String, Value::Number(number)) if number.is_i64() => {
            Some(format!("cannot convert int64 to {}", go_type(node)))
        }
        _ => Some(format!("unrecognized type: {}", go_type(node))),
    }
}

/// Brings the whole numbers of `object` to the size of their types, as the conversions of the reference's language do: what
/// is beyond 32 bits is cut off. Rules about the number itself judge what is left. To be called where [`restore_error`]
/// finds nothing.
pub fn restore_integers(node: &Node, object: &mut Value) {
    if own_decoder(node).is_some() {
        return;
    }
    match (&node.kind, object) {
        (NodeKind::Object { .. }, Value::Object(fields)) => {
            for (name, value) in fields {
                if let Some(child) = node.child(name) {
                    restore_integers(child, value);
                }
            }
        }
        (NodeKind::Array { items }, Value::Array(list)) => {
            list.iter_mut().for_each(|item| restore_integers(items, item));
        }
        (NodeKind::Integer, value) => {
            let Value::Number(number) = &*value else { return };
            let Some(sent) = whole(number) else { return };
            let kept = match format(node) {
                Some("int32") => i64::from(low_half(sent)),
                _ => sent,
            };
            *value = Value::from(kept);
        }
        _ => {}
    }
}

/// The number in 64 bits, if it has no fraction. One that has more bits than that is the least of them, which is what a
/// conversion makes of it on the processors that the reference is compared on.
fn whole(number: &Number) -> Option<i64> {
    if let Some(number) = number.as_i64() {
        return Some(number);
    }
    // Beyond 64 bits it is a number of floating point, even if it was sent without a point.
    let number = number.as_f64().filter(|number| number.fract() == 0.0)?;
    #[expect(clippy::cast_possible_truncation, reason = "what is beyond was taken out")]
    let converted = (-TWO_TO_63..TWO_TO_63).contains(&number).then_some(number as i64);
    Some(converted.unwrap_or(i64::MIN))
}

/// The lower 32 bits, of which the highest is the sign.
fn low_half(number: i64) -> i32 {
    let [a, b, c, d, ..] = number.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
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
        for whole in [json!(3), json!(1.0), json!(u64::MAX)] {
            assert_eq!(replicas(whole), None);
        }
    }

    #[test]
    fn what_a_strategic_patch_has_beyond_32_bits_is_cut_off_ka_027() {
        let kinds = Kinds::builtin();
        let deployment = kinds.lookup("apps", "v1", "deployments").expect("is built in");
        // The right sides are the reference's.
        for (sent, stored) in [
            (json!(3), 3),
            (json!(2_147_483_647), 2_147_483_647),
            (json!(2_147_483_648_i64), -2_147_483_648),
            (json!(4_294_967_295_i64), -1),
            (json!(4_294_967_297_i64), 1),
            (json!(-4_294_967_295_i64), 1),
            (json!(i64::MAX), -1),
            (json!(9_223_372_036_854_775_808_u64), 0),
            (json!(1.0), 1),
            (json!(1e10), 1_410_065_408),
        ] {
            let mut object =
                json!({"metadata": {"generation": 4_294_967_297_i64}, "spec": {"replicas": sent}});
            restore_integers(&deployment.node, &mut object);
            assert_eq!(object["spec"]["replicas"], json!(stored), "{sent}");
            assert_eq!(object["metadata"]["generation"], json!(4_294_967_297_i64));
        }
    }
}
