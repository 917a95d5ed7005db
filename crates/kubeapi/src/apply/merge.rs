//! Merging an applied configuration into an object.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value};

use super::element::PathElement;
use super::types::{ListShape, MapShape, Shape, Type, item_element};

/// Merges `applied` over `live`: maps key by key, list maps and sets item by item, all else replaced. The
/// configuration has been checked before, so items that cannot be identified can only be in `live`; they cannot
/// be addressed and are left out.
pub(super) fn merge(ty: Type<'_>, live: Option<&Value>, applied: Option<&Value>) -> Option<Value> {
    let shape = ty.shapes().of(applied.or(live));
    match shape {
        Shape::Scalar(_) => leaf(live, applied),
        Shape::List(list) => {
            let live_items = live.and_then(Value::as_array);
            let applied_items = applied.and_then(Value::as_array);
            if !list.associative || (is_empty(live_items) && is_empty(applied_items)) {
                return leaf(live, applied);
            }
            let items = merge_items(&list, live_items, applied_items);
            (!items.is_empty()).then_some(Value::Array(items))
        }
        Shape::Map(map) => {
            let live_entries = live.and_then(Value::as_object);
            let applied_entries = applied.and_then(Value::as_object);
            if map.atomic
                || (live_entries.is_none_or(Map::is_empty) && applied_entries.is_none_or(Map::is_empty))
            {
                return leaf(live, applied);
            }
            let entries = merge_entries(&map, live_entries, applied_entries);
            (!entries.is_empty()).then_some(Value::Object(entries))
        }
    }
}

fn leaf(live: Option<&Value>, applied: Option<&Value>) -> Option<Value> {
    applied.or(live).cloned()
}

fn is_empty(items: Option<&Vec<Value>>) -> bool {
    items.is_none_or(Vec::is_empty)
}

fn merge_entries(
    map: &MapShape<'_>,
    live: Option<&Map<String, Value>>,
    applied: Option<&Map<String, Value>>,
) -> Map<String, Value> {
    let names: BTreeSet<&String> = live
        .into_iter()
        .flat_map(Map::keys)
        .chain(applied.into_iter().flat_map(Map::keys))
        .collect();
    names
        .into_iter()
        .filter_map(|name| {
            let (ty, _) = map.entry(name);
            let merged = merge(
                ty,
                live.and_then(|entries| entries.get(name)),
                applied.and_then(|entries| entries.get(name)),
            )?;
            Some((name.clone(), merged))
        })
        .collect()
}

/// Items of one side: their elements in order, and the first item of each element.
struct Side<'a> {
    order: VecDeque<(PathElement, &'a Value)>,
    first: BTreeMap<PathElement, Option<&'a Value>>,
}

impl<'a> Side<'a> {
    fn of(list: &ListShape<'_>, items: Option<&'a Vec<Value>>) -> Self {
        let mut side = Self {
            order: VecDeque::new(),
            first: BTreeMap::new(),
        };
        for item in items.into_iter().flatten() {
            let Ok(element) = item_element(list, item) else {
                continue;
            };
            // An element that occurs twice has no single value to merge with: it is replaced.
            side.first
                .entry(element.clone())
                .and_modify(|value| *value = None)
                .or_insert(Some(item));
            side.order.push_back((element, item));
        }
        side
    }
}

/// Merges two lists of identified items. The result keeps the order of the applied items among themselves, and
/// the live items that were not applied stay where they were relative to their live neighbours.
fn merge_items(list: &ListShape<'_>, live: Option<&Vec<Value>>, applied: Option<&Vec<Value>>) -> Vec<Value> {
    let mut live = Side::of(list, live);
    let mut applied = Side::of(list, applied);
    let mut shared: VecDeque<PathElement> = applied
        .order
        .iter()
        .filter(|(element, _)| live.first.contains_key(element))
        .map(|(element, _)| element.clone())
        .collect();
    let mut next_shared = shared.pop_front();
    let mut merged = BTreeSet::new();
    let mut result = Vec::new();
    loop {
        match (live.order.front(), applied.order.front()) {
            (None, None) => break,
            (Some((live_element, _)), Some((applied_element, _))) => {
                if live_element == applied_element {
                    let element = live_element.clone();
                    live.order.pop_front();
                    applied.order.pop_front();
                    push_merged(list, &live, &applied, &element, &mut result);
                    merged.insert(element);
                    next_shared = shared.pop_front();
                    continue;
                }
                // A live item that is applied further on moves to where the configuration puts it.
                if applied.first.contains_key(live_element)
                    && next_shared.as_ref().is_some_and(|next| next != live_element)
                {
                    live.order.pop_front();
                    continue;
                }
            }
            _ => {}
        }
        if let Some((element, item)) = live.order.front() {
            if !applied.first.contains_key(element) {
                let item = *item;
                live.order.pop_front();
                result.extend(merge(list.items, Some(item), None));
                continue;
            }
            if merged.contains(element) {
                live.order.pop_front();
            }
        }
        if let Some((element, _)) = applied.order.pop_front() {
            push_merged(list, &live, &applied, &element, &mut result);
            if next_shared.as_ref() == Some(&element) {
                next_shared = shared.pop_front();
            }
            merged.insert(element);
        }
    }
    result
}

fn push_merged(
    list: &ListShape<'_>,
    live: &Side<'_>,
    applied: &Side<'_>,
    element: &PathElement,
    result: &mut Vec<Value>,
) {
    let live_item = live.first.get(element).copied().flatten();
    let applied_item = applied.first.get(element).copied().flatten();
    result.extend(merge(list.items, live_item, applied_item));
}
