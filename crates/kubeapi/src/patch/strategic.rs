//! Strategic merge patch: a merge patch that merges lists of objects by a key and has directives for what a merge
//! cannot say (`$patch`, `$retainKeys`, `$setElementOrder/…`, `$deleteFromPrimitiveList/…`).

mod error;

use std::collections::{BTreeSet, HashSet};

use serde_json::{Map, Value};

use super::discard_nulls;
use super::order::{identity, merge_in_order, positions};
use crate::schema::Node;
use crate::status::ApiResult;
use error::{StrategicError, go_map, go_type};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const ELEMENT_ORDER: &str = "$setElementOrder";
const DELETE_PRIMITIVES: &str = "$deleteFromPrimitiveList";

/// Applies a strategic merge patch to an object of the built-in kind that `node` describes.
///
/// # Errors
/// 400 for a malformed patch or directive, 422 for lists of lists, 500 with the reference's text for what the
/// reference answers so (an item without its merge key, for one).
pub fn strategic_merge(node: &Node, document: &mut Value, patch: &Value) -> ApiResult<()> {
    let Some(patch) = patch.as_object() else {
        return Err(super::bad_document(patch, "map[string]interface {}"));
    };
    let original = document.as_object().cloned().unwrap_or_default();
    let merged = merge_map(Some(node), original, patch.clone()).map_err(StrategicError::into_api_error)?;
    *document = Value::Object(merged);
    Ok(())
}

/// A patch as messages show it: as Go prints a map.
pub(crate) fn shown_map(patch: &Value) -> String {
    go_map(patch)
}

type Object = Map<String, Value>;

/// How the field of a node is patched: the node below, whether lists are merged, whether a value is replaced
/// whole, and the key of list items.
struct Strategy<'a> {
    node: Option<&'a Node>,
    merge: bool,
    replace: bool,
    merge_key: &'a str,
}

impl<'a> Strategy<'a> {
    fn of(node: Option<&'a Node>, field: &str) -> Self {
        let below = node.and_then(|node| node.child(field)).map(AsRef::as_ref);
        let has = |name: &str| {
            below.is_some_and(|below: &Node| below.patch_strategy.iter().any(|strategy| strategy == name))
        };
        Self {
            node: below,
            merge: has("merge"),
            replace: has("replace"),
            merge_key: below
                .and_then(|below| below.patch_merge_key.as_deref())
                .unwrap_or_default(),
        }
    }

    fn items(&self) -> Option<&'a Node> {
        self.node.and_then(Node::items).map(AsRef::as_ref)
    }
}

fn merge_map(node: Option<&Node>, mut original: Object, mut patch: Object) -> Result<Object, StrategicError> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                Ok(patch)
            }
            Some("delete") => Ok(Object::new()),
            _ => Err(unknown_directive(directive, &patch)),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    set_element_orders(node, &mut original, &mut patch)?;
    for (name, value) in patch {
        let (field, deletes) = match name.strip_prefix(DELETE_PRIMITIVES) {
            Some(rest) => (
                rest.strip_prefix('/')
                    .ok_or(StrategicError::PrimitiveList)?
                    .to_owned(),
                true,
            ),
            None => (name, false),
        };
        if value.is_null() {
            original.remove(&field);
            continue;
        }
        let current = original.remove(&field);
        if let Some(merged) = merge_value(node, &field, current, value, deletes)? {
            original.insert(field, merged);
        }
    }
    Ok(original)
}

fn merge_value(
    node: Option<&Node>,
    field: &str,
    current: Option<Value>,
    patch: Value,
    deletes: bool,
) -> Result<Option<Value>, StrategicError> {
    let strategy = Strategy::of(node, field);
    match (current, patch) {
        (Some(Value::Object(current)), Value::Object(patch)) => {
            if strategy.replace {
                return Ok(Some(Value::Object(patch)));
            }
            merge_map(strategy.node, current, patch).map(|merged| Some(Value::Object(merged)))
        }
        (Some(Value::Array(current)), Value::Array(patch)) => {
            if strategy.merge || deletes {
                merge_list(&strategy, field, current, patch, deletes).map(|merged| Some(Value::Array(merged)))
            } else {
                Ok(Some(Value::Array(patch)))
            }
        }
        // Deleting from what is not a list, or not there, changes nothing.
        (current, _) if deletes => Ok(current),
        (_, mut patch) => {
            discard_nulls(&mut patch);
            Ok(without_directives(patch))
        }
    }
}

fn merge_list(
    strategy: &Strategy<'_>,
    field: &str,
    original: Vec<Value>,
    patch: Vec<Value>,
    deletes: bool,
) -> Result<Vec<Value>, StrategicError> {
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    let objects = items_are_objects(&[&original, &patch])?;
    if !objects {
        let identities = |list: &[Value]| -> HashSet<String> {
            list.iter().filter_map(|item| identity(item, "")).collect()
        };
        if deletes {
            let deleted = identities(&patch);
            return Ok(original
                .into_iter()
                .filter(|item| !deleted.contains(&item.to_string()))
                .collect());
        }
        let mut known = identities(&original);
        let mut merged = original.clone();
        merged.extend(
            patch
                .iter()
                .filter(|item| known.insert(item.to_string()))
                .cloned(),
        );
        return Ok(merge_in_order(merged, &patch, &original, ""));
    }
    let key = strategy.merge_key;
    if key.is_empty() {
        return Err(StrategicError::KeylessList(field.to_owned()));
    }
    let (mut merged, patch) = apply_item_directives(original, patch, key)?;
    let original = merged.clone();
    let mut places = positions(&merged, key);
    for item in &patch {
        let object = item.as_object().cloned().unwrap_or_default();
        let identity = identity(item, key).ok_or_else(|| no_merge_key(item, key))?;
        match places.get(&identity).and_then(|place| merged.get_mut(*place)) {
            Some(existing) => {
                let current = existing.as_object().cloned().unwrap_or_default();
                *existing = Value::Object(merge_map(strategy.items(), current, object)?);
            }
            None => {
                places.insert(identity, merged.len());
                merged.push(item.clone());
            }
        }
    }
    check_merge_key(&merged, key)?;
    Ok(merge_in_order(merged, &patch, &original, key))
}

/// Takes the items that are directives out of the patch and does what they say.
fn apply_item_directives(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), StrategicError> {
    let mut plain = Vec::new();
    let mut deleted = HashSet::new();
    let mut replace = false;
    for item in patch {
        match item.get(DIRECTIVE) {
            None => plain.push(item),
            Some(directive) => match directive.as_str() {
                Some("delete") => {
                    deleted.insert(identity(&item, key).ok_or_else(|| no_merge_key(&item, key))?);
                }
                Some("replace") => replace = true,
                Some("merge") => return Err(StrategicError::MergeOfLists),
                _ => {
                    return Err(unknown_directive(
                        directive,
                        item.as_object().unwrap_or(&Object::new()),
                    ));
                }
            },
        }
    }
    original.retain(|item| identity(item, key).is_none_or(|identity| !deleted.contains(&identity)));
    Ok(if replace {
        (plain, Vec::new())
    } else {
        (original, plain)
    })
}

/// `$retainKeys`: of a union's fields only those listed stay.
fn retain_keys(original: &mut Object, patch: &mut Object) -> Result<(), StrategicError> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let keys: BTreeSet<&str> = keys
        .as_array()
        .ok_or(StrategicError::RetainKeys)?
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let retained = |name: &str| keys.contains(name);
    let unlisted = patch.iter().any(|(name, value)| {
        !value.is_null()
            && !name.starts_with(DELETE_PRIMITIVES)
            && !name.starts_with(ELEMENT_ORDER)
            && !retained(name)
    });
    if unlisted {
        return Err(StrategicError::RetainKeys);
    }
    original.retain(|name, _| retained(name));
    Ok(())
}

/// `$setElementOrder/field`: merges that field and puts its items in the given order; items that the client did
/// not know keep their place among the others.
fn set_element_orders(
    node: Option<&Node>,
    original: &mut Object,
    patch: &mut Object,
) -> Result<(), StrategicError> {
    let directives: Vec<String> = patch
        .keys()
        .filter(|name| name.starts_with(ELEMENT_ORDER))
        .cloned()
        .collect();
    for directive in directives {
        let order = patch.remove(&directive).unwrap_or_default();
        let field = directive
            .strip_prefix(ELEMENT_ORDER)
            .and_then(|rest| rest.strip_prefix('/'))
            .ok_or(StrategicError::ElementOrder)?;
        let order = list(Some(order))?.unwrap_or_default();
        let current = list(original.get(field).cloned())?;
        let patched = list(patch.get(field).cloned())?;
        let strategy = Strategy::of(node, field);
        let key = strategy.merge_key;
        check_order(patched.as_deref().unwrap_or_default(), &order, key)?;
        let mut known = current.iter().chain(&patched).peekable();
        if known.peek().is_some() && known.all(Vec::is_empty) {
            return Err(StrategicError::EmptyLists);
        }
        let merged = match (current.clone(), patched) {
            (None, None) => continue,
            (Some(current), None) => current,
            (None, Some(patched)) => match without_directives(Value::Array(patched)) {
                Some(Value::Array(patched)) => patched,
                _ => continue,
            },
            (Some(current), Some(patched)) if strategy.merge => {
                merge_list(&strategy, field, current, patched, false)?
            }
            (Some(_), Some(patched)) => patched,
        };
        if !key.is_empty() {
            check_merge_key(&merged, key)?;
            check_merge_key(&order, key)?;
        }
        let server_order = current.unwrap_or_default();
        original.insert(
            field.to_owned(),
            Value::Array(merge_in_order(merged, &order, &server_order, key)),
        );
        patch.remove(field);
    }
    Ok(())
}

/// Whether the items of the patch come in the order that the directive lists them in.
fn check_order(patch: &[Value], order: &[Value], key: &str) -> Result<(), StrategicError> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let plain: Vec<&Value> = patch
        .iter()
        .filter(|item| item.get(DIRECTIVE).is_none())
        .collect();
    let mut remaining = plain.iter().peekable();
    for listed in order {
        let Some(item) = remaining.peek() else { break };
        if !key.is_empty() {
            for side in [item, &listed] {
                if side.get(key).is_none() {
                    return Err(no_merge_key(side, key));
                }
            }
        }
        if identity(item, key) == identity(listed, key) {
            remaining.next();
        }
    }
    if remaining.peek().is_some() {
        return Err(StrategicError::OrderMismatch {
            patch: go_map(&Value::from(patch.to_vec())),
            order: go_map(&Value::from(order.to_vec())),
        });
    }
    Ok(())
}

fn list(value: Option<Value>) -> Result<Option<Vec<Value>>, StrategicError> {
    match value {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(other) => Err(StrategicError::WrongType {
            expected: "[]interface {}",
            received: go_type(&other),
        }),
    }
}

fn items_are_objects(lists: &[&[Value]]) -> Result<bool, StrategicError> {
    let mut first: Option<&'static str> = None;
    for item in lists.iter().copied().flatten() {
        let kind = go_type(item);
        match first {
            None if item.is_array() => return Err(StrategicError::ListOfLists),
            None => first = Some(kind),
            Some(first) if first != kind => {
                let text: Vec<Value> = lists.iter().map(|list| Value::from(list.to_vec())).collect();
                return Err(StrategicError::MixedList(go_map(&Value::from(text))));
            }
            Some(_) => {}
        }
    }
    Ok(first == Some("map[string]interface {}"))
}

fn check_merge_key(items: &[Value], key: &str) -> Result<(), StrategicError> {
    match items.iter().find(|item| item.get(key).is_none()) {
        Some(item) => Err(no_merge_key(item, key)),
        None => Ok(()),
    }
}

fn no_merge_key(item: &Value, key: &str) -> StrategicError {
    StrategicError::NoMergeKey {
        item: go_map(item),
        key: key.to_owned(),
    }
}

fn unknown_directive(directive: &Value, item: &Object) -> StrategicError {
    StrategicError::PatchType {
        directive: directive
            .as_str()
            .map_or_else(|| directive.to_string(), str::to_owned),
        item: go_map(&Value::Object(item.clone())),
    }
}

/// Takes directives out of a value that is set as it is; `None` when the value itself is one.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(entries) => {
            if entries.contains_key(DIRECTIVE) {
                return None;
            }
            let kept = entries
                .into_iter()
                .filter_map(|(name, value)| Some((name, without_directives(value)?)))
                .collect();
            Some(Value::Object(kept))
        }
        Value::Array(items) => Some(Value::Array(
            items.into_iter().filter_map(without_directives).collect(),
        )),
        scalar => Some(scalar),
    }
}
