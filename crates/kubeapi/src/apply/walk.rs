//! Walks of one value along its type: checking it, and finding the paths it sets.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::element::PathElement;
use super::field_set::FieldSet;
use super::types::{ListShape, MapShape, Scalar, Shape, Type, item_element};

/// Where and why a value does not fit its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TypeError {
    /// The path, `.spec.containers[name="web"]`.
    pub(super) path: String,
    /// The reference's text.
    pub(super) message: String,
}

/// Renders several errors as the reference does: one alone, more on lines of their own.
pub(super) fn join_errors(errors: &[TypeError]) -> String {
    let texts: Vec<String> = errors
        .iter()
        .map(|error| match error.path.as_str() {
            "" => error.message.clone(),
            path => format!("{path}: {}", error.message),
        })
        .collect();
    match texts.as_slice() {
        [only] => only.clone(),
        many => format!("errors:\n  {}", many.join("\n  ")),
    }
}

/// Checks that a value can be merged: declared fields, fitting types, list items that can be told apart.
pub(super) fn check(ty: Type<'_>, value: &Value) -> Vec<TypeError> {
    let mut errors = Vec::new();
    check_value(ty, value, "", &mut errors);
    errors
}

fn check_value(ty: Type<'_>, value: &Value, path: &str, errors: &mut Vec<TypeError>) {
    let mut refuse = |message: String| {
        errors.push(TypeError {
            path: path.to_owned(),
            message,
        })
    };
    if value.is_null() {
        return;
    }
    match ty.shapes().of(Some(value)) {
        Shape::Scalar(scalar) => {
            if let Some(message) = check_scalar(scalar, value) {
                refuse(message);
            }
        }
        Shape::List(list) => match value.as_array() {
            Some(items) => check_items(&list, items, path, errors),
            None => refuse(format!("expected list, got &{{{}}}", plain(value))),
        },
        Shape::Map(map) => match value.as_object() {
            Some(entries) => check_entries(&map, entries, path, errors),
            None => refuse(format!("expected map, got &{{{}}}", plain(value))),
        },
    }
}

fn check_entries(map: &MapShape<'_>, entries: &Map<String, Value>, path: &str, errors: &mut Vec<TypeError>) {
    for (name, value) in entries {
        let below = format!("{path}.{name}");
        match map.entry(name).0 {
            Type::Undeclared => {
                errors.push(TypeError {
                    path: below,
                    message: "field not declared in schema".to_owned(),
                });
                // The reference stops at the first such field of an object too.
                return;
            }
            ty => check_value(ty, value, &below, errors),
        }
    }
}

fn check_items(list: &ListShape<'_>, items: &[Value], path: &str, errors: &mut Vec<TypeError>) {
    let mut seen = BTreeSet::new();
    for (position, item) in items.iter().enumerate() {
        let element = if list.associative {
            match item_element(list, item) {
                Ok(element) => element,
                Err(message) => {
                    let message = format!("element {position}: {message}");
                    errors.push(TypeError {
                        path: path.to_owned(),
                        message,
                    });
                    return;
                }
            }
        } else {
            PathElement::Index(i64::try_from(position).unwrap_or(i64::MAX))
        };
        let below = format!("{path}{element}");
        if !seen.insert(element.clone()) {
            errors.push(TypeError {
                path: path.to_owned(),
                message: format!("duplicate entries for key {element}"),
            });
        }
        check_value(list.items, item, &below, errors);
    }
}

fn check_scalar(scalar: Scalar, value: &Value) -> Option<String> {
    match scalar {
        Scalar::Numeric if !value.is_number() => Some(format!(
            "expected numeric (int or float), got {}",
            type_name(value)
        )),
        Scalar::String if !value.is_string() => Some(format!(
            "expected string, got &value.valueUnstructured{{Value:{}}}",
            plain(value)
        )),
        Scalar::Boolean if !value.is_boolean() => {
            Some(format!("expected boolean, got &{{{}}}", plain(value)))
        }
        Scalar::Untyped if value.is_array() || value.is_object() => {
            Some(format!("expected any scalar, got &{{{}}}", plain(value)))
        }
        _ => None,
    }
}

/// A value as Go's `%v` prints it, which is what the reference's messages show.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(" ")),
        Value::Object(entries) => {
            let entries: Vec<String> = entries
                .iter()
                .map(|(name, value)| format!("{name}:{}", plain(value)))
                .collect();
            format!("map[{}]", entries.join(" "))
        }
        other => other.to_string(),
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// The paths that a value sets. A container that is merged is not a member itself, unless it is empty, null, or
/// the value of an undeclared key, so that two managers can share it.
pub(super) fn field_set(ty: Type<'_>, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    collect(ty, value, &mut Vec::new(), &mut set);
    set
}

fn collect(ty: Type<'_>, value: &Value, path: &mut Vec<PathElement>, set: &mut FieldSet) {
    match ty.shapes().of(Some(value)) {
        Shape::Scalar(_) => set.insert(path),
        Shape::List(list) if !list.associative => set.insert(path),
        Shape::Map(map) if map.atomic => set.insert(path),
        Shape::List(list) => collect_items(&list, value.as_array(), path, set),
        Shape::Map(map) => {
            for (name, value) in value.as_object().into_iter().flatten() {
                let (ty, declared) = map.entry(name);
                path.push(PathElement::field(name));
                collect(ty, value, path, set);
                if !declared || value.is_null() || value.as_object().is_some_and(Map::is_empty) {
                    set.insert(path);
                }
                path.pop();
            }
        }
    }
}

fn collect_items(
    list: &ListShape<'_>,
    items: Option<&Vec<Value>>,
    path: &mut Vec<PathElement>,
    set: &mut FieldSet,
) {
    let identified: Vec<(PathElement, &Value)> = items
        .into_iter()
        .flatten()
        .filter_map(|item| Some((item_element(list, item).ok()?, item)))
        .collect();
    let mut seen = BTreeSet::new();
    let mut duplicates = BTreeSet::new();
    for (element, _) in &identified {
        if !seen.insert(element.clone()) {
            duplicates.insert(element.clone());
        }
    }
    for (element, item) in identified {
        // Items that cannot be told apart are owned together, as a whole.
        let is_single = !duplicates.contains(&element);
        path.push(element);
        if is_single {
            collect(list.items, item, path, set);
        }
        set.insert(path);
        path.pop();
    }
}
