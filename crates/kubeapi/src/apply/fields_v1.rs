//! The `FieldsV1` form of a field set: nested objects whose keys are path elements (`f:`, `k:`, `v:`, `i:`) and
//! whose `.` entry says that the element itself is a member.

use serde_json::{Map, Value};
use thiserror::Error;

use super::element::PathElement;
use super::field_set::FieldSet;

/// Why a `fieldsV1` document was not understood.
#[derive(Debug, Error)]
pub enum FieldsError {
    /// An entry is not an object.
    #[error("`{0}` must be an object")]
    NotAnObject(String),
    /// A key does not follow the notation.
    #[error("`{key}` is not a path element: {reason}")]
    Element {
        /// The key.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// Writes a set as `FieldsV1`.
pub fn encode(set: &FieldSet) -> Value {
    encode_below(set, false)
}

fn encode_below(set: &FieldSet, include_self: bool) -> Value {
    let mut entries = Map::new();
    if include_self {
        entries.insert(".".to_owned(), Value::Object(Map::new()));
    }
    for member in &set.members {
        if !set.children.contains_key(member) {
            entries.insert(encode_element(member), Value::Object(Map::new()));
        }
    }
    for (element, child) in &set.children {
        let member = set.members.contains(element);
        if member || !child.is_empty() {
            // An empty object already says "member", so the dot is only needed beside children.
            entries.insert(
                encode_element(element),
                encode_below(child, member && !child.is_empty()),
            );
        }
    }
    Value::Object(entries)
}

fn encode_element(element: &PathElement) -> String {
    match element {
        PathElement::Field(name) => format!("f:{name}"),
        PathElement::Key(fields) => {
            let entries: Vec<String> = fields
                .iter()
                .map(|(name, value)| {
                    format!("{}:{}", json_text(&Value::String(name.clone())), json_text(value))
                })
                .collect();
            format!("k:{{{}}}", entries.join(","))
        }
        PathElement::Value(value) => format!("v:{}", json_text(value)),
        PathElement::Index(index) => format!("i:{index}"),
    }
}

/// JSON with the characters escaped that Go's encoder escapes: two encodings of one key would be two keys to a
/// client that compares text.
fn json_text(value: &Value) -> String {
    let mut text = String::new();
    for character in value.to_string().chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                text.push_str(&format!("\\u{:04x}", u32::from(character)));
            }
            other => text.push(other),
        }
    }
    text
}

/// Reads `FieldsV1`. Elements of an unknown type are left out, as the reference does, so that a newer client's
/// entry is not refused.
///
/// # Errors
/// A value that is not an object, or a key that is not a path element.
pub fn decode(fields: &Value) -> Result<FieldSet, FieldsError> {
    Ok(decode_below(".", fields)?.0)
}

fn decode_below(name: &str, fields: &Value) -> Result<(FieldSet, bool), FieldsError> {
    let entries = fields
        .as_object()
        .ok_or_else(|| FieldsError::NotAnObject(name.to_owned()))?;
    let mut set = FieldSet::default();
    let mut member = false;
    for (key, below) in entries {
        if key == "." {
            member = true;
            continue;
        }
        let Some(element) = decode_element(key)? else {
            continue;
        };
        let (child, child_is_member) = decode_below(key, below)?;
        if child_is_member {
            set.members.insert(element.clone());
        }
        if !child.is_empty() {
            set.children.insert(element, child);
        }
    }
    let is_leaf = set.members.is_empty() && set.children.is_empty();
    Ok((set, member || is_leaf))
}

fn decode_element(key: &str) -> Result<Option<PathElement>, FieldsError> {
    let refuse = |reason: String| FieldsError::Element {
        key: key.to_owned(),
        reason,
    };
    let Some((kind, text)) = key.split_once(':') else {
        return Err(refuse("missing colon".to_owned()));
    };
    let element = match kind {
        "f" => PathElement::Field(text.to_owned()),
        "v" => PathElement::Value(serde_json::from_str(text).map_err(|error| refuse(error.to_string()))?),
        "k" => {
            let fields: Map<String, Value> =
                serde_json::from_str(text).map_err(|error| refuse(error.to_string()))?;
            // The map is ordered by key, which is the order of the element.
            PathElement::Key(fields.into_iter().collect())
        }
        "i" => PathElement::Index(text.parse().map_err(|_| refuse("not an index".to_owned()))?),
        single if single.chars().count() == 1 => return Ok(None),
        _ => return Err(refuse("missing colon".to_owned())),
    };
    Ok(Some(element))
}
