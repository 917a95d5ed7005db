//! The order of a merged list: what the client named comes in the client's order, and what it did not name stays
//! where it was relative to its neighbours.

use std::collections::HashMap;

use serde_json::Value;

/// What makes an item of a list itself: the value of its key, or its whole value where there is no key. Text, so that
/// lists are searched in constant time: a client may send very long ones.
pub(super) fn identity(item: &Value, key: &str) -> Option<String> {
    if key.is_empty() {
        return Some(item.to_string());
    }
    item.get(key).map(ToString::to_string)
}

/// Where each item of a list is first.
pub(super) fn positions(list: &[Value], key: &str) -> HashMap<String, usize> {
    let mut positions = HashMap::with_capacity(list.len());
    for (position, item) in list.iter().enumerate() {
        if let Some(identity) = identity(item, key) {
            positions.entry(identity).or_insert(position);
        }
    }
    positions
}

/// Orders `merged`. `client` lists what the client named, `server` what was stored before.
pub(super) fn merge_in_order(
    merged: Vec<Value>,
    client: &[Value],
    server: &[Value],
    key: &str,
) -> Vec<Value> {
    let client = positions(client, key);
    let server = positions(server, key);
    let mut named = Vec::new();
    let mut others = Vec::new();
    for item in merged {
        let identity = identity(&item, key);
        let position =
            |list: &HashMap<String, usize>| identity.as_ref().and_then(|text| list.get(text)).copied();
        let on_server = position(&server);
        match position(&client) {
            Some(in_client) => named.push((in_client, on_server, item)),
            None => others.push((on_server.unwrap_or(usize::MAX), on_server, item)),
        }
    }
    named.sort_by_key(|(position, ..)| *position);
    others.sort_by_key(|(position, ..)| *position);

    let mut result = Vec::with_capacity(named.len() + others.len());
    let mut named = named.into_iter().peekable();
    let mut others = others.into_iter().peekable();
    while let (Some((_, named_at, _)), Some((_, other_at, _))) = (named.peek(), others.peek()) {
        let other_first = matches!((other_at, named_at), (Some(other), Some(named)) if other < named);
        let next = if other_first { others.next() } else { named.next() };
        result.extend(next.map(|(.., item)| item));
    }
    result.extend(named.map(|(.., item)| item));
    result.extend(others.map(|(.., item)| item));
    result
}
