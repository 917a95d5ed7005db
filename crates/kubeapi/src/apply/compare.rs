//! Which paths differ between two versions of an object.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::element::{PathElement, same_value};
use super::field_set::FieldSet;
use super::types::{ListShape, MapShape, Shape, Type, item_element};

/// The paths that differ.
#[derive(Clone, Debug, Default)]
pub(super) struct Comparison {
    /// In the old value only.
    pub(super) removed: FieldSet,
    /// In both, with different values.
    pub(super) modified: FieldSet,
    /// In the new value only.
    pub(super) added: FieldSet,
}

impl Comparison {
    /// Compares two values of a type.
    pub(super) fn between(ty: Type<'_>, old: &Value, new: &Value) -> Self {
        let mut comparison = Self::default();
        comparison.value(ty, Some(old), Some(new), &mut Vec::new());
        comparison
    }

    /// The same without the paths at and below those of `ignored`.
    pub(super) fn without(self, ignored: &FieldSet) -> Self {
        Self {
            removed: self.removed.recursive_difference(ignored),
            modified: self.modified.recursive_difference(ignored),
            added: self.added.recursive_difference(ignored),
        }
    }

    fn value(&mut self, ty: Type<'_>, old: Option<&Value>, new: Option<&Value>, path: &mut Vec<PathElement>) {
        let shapes = ty.shapes();
        let was_leaf = match (old, new) {
            (None, None) => return,
            // A place that changed its shape, from a scalar to a map say, is both: what the old shape had is
            // gone and what the new one has is there.
            (Some(before), Some(after)) if !shapes.alike(before, after) => {
                self.shaped(shapes.of(old), old, new, path);
                self.shaped(shapes.of(new), old, new, path)
            }
            _ => self.shaped(shapes.of(new.or(old)), old, new, path),
        };
        if !was_leaf {
            if old.is_none() {
                self.added.insert(path);
            } else if new.is_none() {
                self.removed.insert(path);
            }
        }
    }

    /// Compares along one shape; answers whether the place is a leaf, which records itself.
    fn shaped(
        &mut self,
        shape: Shape<'_>,
        old: Option<&Value>,
        new: Option<&Value>,
        path: &mut Vec<PathElement>,
    ) -> bool {
        match shape {
            Shape::Scalar(_) => self.leaf(old, new, path),
            Shape::List(list) => {
                let old_items = old.and_then(Value::as_array);
                let new_items = new.and_then(Value::as_array);
                if !list.associative
                    || (old_items.is_none_or(Vec::is_empty) && new_items.is_none_or(Vec::is_empty))
                {
                    return self.leaf(old, new, path);
                }
                self.items(&list, old_items, new_items, path);
                false
            }
            Shape::Map(map) => {
                let old_entries = old.and_then(Value::as_object);
                let new_entries = new.and_then(Value::as_object);
                if map.atomic
                    || (old_entries.is_none_or(Map::is_empty) && new_entries.is_none_or(Map::is_empty))
                {
                    return self.leaf(old, new, path);
                }
                self.entries(&map, old_entries, new_entries, path);
                false
            }
        }
    }

    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>, path: &[PathElement]) -> bool {
        match (old, new) {
            (None, _) => self.added.insert(path),
            (_, None) => self.removed.insert(path),
            (Some(old), Some(new)) if !same_value(old, new) => self.modified.insert(path),
            _ => {}
        }
        true
    }

    fn entries(
        &mut self,
        map: &MapShape<'_>,
        old: Option<&Map<String, Value>>,
        new: Option<&Map<String, Value>>,
        path: &mut Vec<PathElement>,
    ) {
        let names: BTreeSet<&String> = old
            .into_iter()
            .flat_map(Map::keys)
            .chain(new.into_iter().flat_map(Map::keys))
            .collect();
        for name in names {
            path.push(PathElement::field(name));
            self.value(
                map.entry(name).0,
                old.and_then(|entries| entries.get(name)),
                new.and_then(|entries| entries.get(name)),
                path,
            );
            path.pop();
        }
    }

    fn items(
        &mut self,
        list: &ListShape<'_>,
        old: Option<&Vec<Value>>,
        new: Option<&Vec<Value>>,
        path: &mut Vec<PathElement>,
    ) {
        let old = group(list, old);
        let new = group(list, new);
        let elements: BTreeSet<&PathElement> = old.keys().chain(new.keys()).collect();
        let nothing = Vec::new();
        for element in elements {
            let before = old.get(element).unwrap_or(&nothing);
            let after = new.get(element).unwrap_or(&nothing);
            path.push(element.clone());
            match (before.as_slice(), after.as_slice()) {
                ([] | [_], [] | [_]) => {
                    self.value(list.items, before.first().copied(), after.first().copied(), path);
                }
                // Items that cannot be told apart are compared together, as a whole.
                ([_, _, ..], [_, _, ..]) => {
                    let same = before.len() == after.len()
                        && before
                            .iter()
                            .zip(after)
                            .all(|(left, right)| same_value(left, right));
                    if !same {
                        self.modified.insert(path);
                    }
                }
                ([_, _, ..], _) => {
                    self.value(list.items, None, after.first().copied(), path);
                    self.removed.insert(path);
                }
                (_, [_, _, ..]) => {
                    self.value(list.items, before.first().copied(), None, path);
                    self.added.insert(path);
                }
            }
            path.pop();
        }
    }
}

fn group<'a>(list: &ListShape<'_>, items: Option<&'a Vec<Value>>) -> BTreeMap<PathElement, Vec<&'a Value>> {
    let mut groups: BTreeMap<PathElement, Vec<&Value>> = BTreeMap::new();
    for item in items.into_iter().flatten() {
        if let Ok(element) = item_element(list, item) {
            groups.entry(element).or_default().push(item);
        }
    }
    groups
}
