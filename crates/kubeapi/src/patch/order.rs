//! The order of a merged list: what the client named comes in the client's order, and what it did not name stays
//! where it was relative to its neighbours.

use serde_json::Value;

/// Whether two items are the same: by the value of the key, or by value where there is no key.
pub(super) fn same_item(left: &Value, right: &Value, key: &str) -> bool {
    if key.is_empty() {
        return left == right;
    }
    match (left.get(key), right.get(key)) {
        (Some(left), Some(right)) => left == right,
        _ => false,
    }
}

/// Orders `merged`. `client` lists what the client named, `server` what was stored before.
pub(super) fn merge_in_order(
    merged: Vec<Value>,
    client: &[Value],
    server: &[Value],
    key: &str,
) -> Vec<Value> {
    let position = |list: &[Value], item: &Value| list.iter().position(|other| same_item(other, item, key));
    let (mut named, mut others): (Vec<Value>, Vec<Value>) = merged
        .into_iter()
        .partition(|item| position(client, item).is_some());
    named.sort_by_key(|item| position(client, item));
    others.sort_by_key(|item| position(server, item).unwrap_or(usize::MAX));

    let mut result = Vec::with_capacity(named.len() + others.len());
    let mut named = named.into_iter().peekable();
    let mut others = others.into_iter().peekable();
    while let (Some(next_named), Some(next_other)) = (named.peek(), others.peek()) {
        let other_first = match (position(server, next_other), position(server, next_named)) {
            (Some(other), Some(named)) => other < named,
            _ => false,
        };
        result.extend(if other_first { others.next() } else { named.next() });
    }
    result.extend(named);
    result.extend(others);
    result
}
