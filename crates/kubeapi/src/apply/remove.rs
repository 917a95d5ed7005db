//! Taking paths out of a value, and bringing a set of paths in line with the schema.

use serde_json::{Map, Value};

use super::element::PathElement;
use super::field_set::FieldSet;
use super::types::{Shape, Type, item_element};

/// What becomes of a container that has nothing left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Emptied {
    /// It becomes null, which keeps "emptied" apart from "absent" for the walks that follow.
    Null,
    /// It goes too: the form that is stored.
    Absent,
}

/// The value without the paths of `gone`; `None` when nothing is left of it.
pub(super) fn remove(ty: Type<'_>, value: &Value, gone: &FieldSet, emptied: Emptied) -> Option<Value> {
    match ty.shapes().of(Some(value)) {
        Shape::Scalar(_) => Some(value.clone()),
        Shape::List(list) if !list.associative => None,
        Shape::Map(map) if map.atomic => None,
        Shape::List(list) => {
            let mut kept = Vec::new();
            for item in value.as_array().into_iter().flatten() {
                match item_element(&list, item) {
                    Ok(element) if gone.has(std::slice::from_ref(&element)) => {}
                    Ok(element) => {
                        kept.extend(remove_below(list.items, item, gone.below(&element), emptied));
                    }
                    Err(_) => kept.push(item.clone()),
                }
            }
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        Shape::Map(map) => {
            let mut kept = Map::new();
            let mut emptied_below = false;
            for (name, value) in value.as_object().into_iter().flatten() {
                let element = PathElement::field(name);
                if gone.has(std::slice::from_ref(&element)) {
                    continue;
                }
                match remove_below(map.entry(name).0, value, gone.below(&element), emptied) {
                    Some(rest) => {
                        kept.insert(name.clone(), rest);
                    }
                    None => emptied_below = true,
                }
            }
            // What only has an emptied container left is empty, and not emptied itself.
            (!kept.is_empty() || emptied_below).then_some(Value::Object(kept))
        }
    }
}

fn remove_below(ty: Type<'_>, value: &Value, gone: Option<&FieldSet>, emptied: Emptied) -> Option<Value> {
    let Some(gone) = gone else {
        return Some(value.clone());
    };
    match (remove(ty, value, gone, emptied), emptied) {
        (None, Emptied::Null) => Some(Value::Null),
        (rest, _) => rest,
    }
}

/// Adds to the set every declared field that has members below it. Two sets can then be subtracted without
/// leaving the containers of what was subtracted behind.
pub(super) fn with_named_parents(set: &FieldSet, ty: Option<Type<'_>>) -> FieldSet {
    let mut result = FieldSet {
        members: set.members.clone(),
        ..FieldSet::default()
    };
    for (element, child) in &set.children {
        if let (PathElement::Field(name), Some(map)) = (element, ty.and_then(|ty| ty.shapes().map))
            && map.entry(name).1
        {
            result.members.insert(element.clone());
        }
        let below = ty.and_then(|ty| ty.below(element));
        result
            .children
            .insert(element.clone(), with_named_parents(child, below));
    }
    result
}

/// A stored set brought in line with the schema as it is now: where a list or map has become atomic, owning
/// something inside means owning the whole.
pub(super) fn reconcile(set: &FieldSet, ty: Type<'_>) -> FieldSet {
    let shapes = ty.shapes();
    let deduced_map = shapes.map.is_some_and(|map| map.is_deduced());
    if deduced_map {
        return set.clone();
    }
    let mut result = FieldSet {
        members: set.members.clone(),
        ..FieldSet::default()
    };
    for (element, child) in &set.children {
        let Some(below) = ty.below(element) else {
            result.children.insert(element.clone(), child.clone());
            continue;
        };
        let became_atomic = match below.shapes().of(None) {
            Shape::List(list) => !list.associative,
            Shape::Map(map) => map.atomic && !map.is_deduced(),
            Shape::Scalar(_) => false,
        };
        if became_atomic && !child.is_empty() {
            result.members.insert(element.clone());
        } else {
            result.children.insert(element.clone(), reconcile(child, below));
        }
    }
    result
}
