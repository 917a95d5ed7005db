//! JSON pointers with one addition: a segment `[key=value]` picks the element of an array that has this value.

use serde_json::Value;

/// The segments of a pointer. A `/` inside brackets does not separate.
fn segments(pointer: &str) -> Vec<String> {
    let mut segments = Vec::new();
    let mut segment = String::new();
    let mut depth = 0_usize;
    for character in pointer.strip_prefix('/').unwrap_or(pointer).chars() {
        match character {
            '/' if depth == 0 => segments.push(std::mem::take(&mut segment)),
            _ => {
                match character {
                    '[' => depth += 1,
                    ']' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                segment.push(character);
            }
        }
    }
    segments.push(segment);
    segments
        .into_iter()
        .map(|segment| segment.replace("~1", "/").replace("~0", "~"))
        .collect()
}

fn position(elements: &[Value], segment: &str) -> Option<usize> {
    let Some((key, wanted)) = segment
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .and_then(|inner| inner.split_once('='))
    else {
        return segment.parse().ok();
    };
    elements.iter().position(|element| {
        let found = element.pointer(&format!("/{key}"));
        let text = match found {
            Some(Value::String(text)) => Some(text.clone()),
            other => other.map(Value::to_string),
        };
        text.as_deref() == Some(wanted)
    })
}

/// The value at a pointer.
pub(crate) fn get<'a>(value: &'a Value, pointer: &str) -> Option<&'a Value> {
    if pointer.is_empty() || pointer == "/" {
        return Some(value);
    }
    segments(pointer)
        .iter()
        .try_fold(value, |value, segment| match value {
            Value::Array(elements) => elements.get(position(elements, segment)?),
            Value::Object(members) => members.get(segment),
            _ => None,
        })
}

/// Removes the value at a pointer; a segment `*` stands for every element.
pub(crate) fn remove(value: &mut Value, pointer: &str) {
    remove_at(value, &segments(pointer));
}

fn remove_at(value: &mut Value, segments: &[String]) {
    let Some((first, rest)) = segments.split_first() else {
        return;
    };
    match value {
        Value::Array(elements) if first == "*" => {
            if rest.is_empty() {
                elements.clear();
            }
            elements.iter_mut().for_each(|element| remove_at(element, rest));
        }
        Value::Array(elements) => {
            if let Some(index) = position(elements, first).filter(|index| *index < elements.len()) {
                if rest.is_empty() {
                    elements.remove(index);
                } else if let Some(element) = elements.get_mut(index) {
                    remove_at(element, rest);
                }
            }
        }
        Value::Object(members) if first == "*" && !rest.is_empty() => {
            members.values_mut().for_each(|member| remove_at(member, rest));
        }
        Value::Object(members) => {
            if rest.is_empty() {
                members.remove(first);
            } else if let Some(member) = members.get_mut(first) {
                remove_at(member, rest);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{get, remove};

    #[test]
    fn an_element_is_picked_by_a_value() {
        let value = json!({"resources": [{"name": "pods"}, {"name": "pods/status", "kind": "Pod"}]});
        assert_eq!(
            get(&value, "/resources/[name=pods/status]/kind"),
            Some(&json!("Pod"))
        );
        assert_eq!(get(&value, "/resources/[name=none]"), None);
        assert_eq!(get(&value, "/resources/0/name"), Some(&json!("pods")));
    }

    #[test]
    fn a_star_removes_from_every_element() {
        let mut value = json!({"items": [{"a": 1, "b": 2}, {"a": 3}]});
        remove(&mut value, "/items/*/a");
        assert_eq!(value, json!({"items": [{"b": 2}, {}]}));
    }
}
