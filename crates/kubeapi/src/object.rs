//! Reading and encoding objects as JSON values. Everything this crate knows about `metadata` is here.

use std::fmt::Write as _;

use bytes::Bytes;
use jiff::Timestamp;
use mainstay_store::kube::Body;
use serde_json::{Map, Value, json};

/// The finalizer that keeps an owner until its blocking dependents are gone.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer that keeps an owner until its dependents no longer name it.
pub(crate) const ORPHAN: &str = "orphan";

/// One entry of `metadata.ownerReferences`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnerReference {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) block_owner_deletion: bool,
}

/// The `metadata` of an object, if it is an object.
pub(crate) fn metadata(object: &Value) -> Option<&Map<String, Value>> {
    object.get("metadata").and_then(Value::as_object)
}

/// The `metadata` of an object, made when it is absent or no object. `None` when `object` itself is none.
pub(crate) fn metadata_mut(object: &mut Value) -> Option<&mut Map<String, Value>> {
    let fields = object.as_object_mut()?;
    let entry = fields.entry("metadata").or_insert_with(|| json!({}));
    if !entry.is_object() {
        *entry = json!({});
    }
    entry.as_object_mut()
}

/// A string field of `metadata`, empty when absent.
pub(crate) fn meta_text<'a>(object: &'a Value, field: &str) -> &'a str {
    metadata(object)
        .and_then(|metadata| metadata.get(field))
        .and_then(Value::as_str)
        .unwrap_or("")
}

/// Sets or, for `None`, removes a field of `metadata`.
pub(crate) fn set_meta(object: &mut Value, field: &str, value: Option<Value>) {
    if let Some(metadata) = metadata_mut(object) {
        match value {
            Some(value) => {
                metadata.insert(field.to_owned(), value);
            }
            None => {
                metadata.remove(field);
            }
        }
    }
}

/// `metadata.name`.
pub(crate) fn name(object: &Value) -> &str {
    meta_text(object, "name")
}

/// `metadata.namespace`.
pub(crate) fn namespace(object: &Value) -> &str {
    meta_text(object, "namespace")
}

/// `metadata.uid`.
pub(crate) fn uid(object: &Value) -> &str {
    meta_text(object, "uid")
}

/// `metadata.resourceVersion`.
pub(crate) fn resource_version(object: &Value) -> &str {
    meta_text(object, "resourceVersion")
}

/// `metadata.generation`, 0 when absent.
pub(crate) fn generation(object: &Value) -> i64 {
    metadata(object)
        .and_then(|metadata| metadata.get("generation"))
        .and_then(Value::as_i64)
        .unwrap_or(0)
}

/// Whether `metadata.deletionTimestamp` is set.
pub(crate) fn is_being_deleted(object: &Value) -> bool {
    !meta_text(object, "deletionTimestamp").is_empty()
}

/// `metadata.finalizers`.
pub(crate) fn finalizers(object: &Value) -> Vec<String> {
    text_list(metadata(object).and_then(|metadata| metadata.get("finalizers")))
}

/// Replaces `metadata.finalizers`; an empty list removes the field.
pub(crate) fn set_finalizers(object: &mut Value, finalizers: &[String]) {
    set_meta(
        object,
        "finalizers",
        (!finalizers.is_empty()).then(|| json!(finalizers)),
    );
}

/// The strings of a JSON list.
pub(crate) fn text_list(value: Option<&Value>) -> Vec<String> {
    value
        .and_then(Value::as_array)
        .map(|items| {
            items
                .iter()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect()
        })
        .unwrap_or_default()
}

/// `metadata.ownerReferences`.
pub(crate) fn owner_references(object: &Value) -> Vec<OwnerReference> {
    let text = |entry: &Value, field: &str| entry.get(field).and_then(Value::as_str).unwrap_or("").to_owned();
    metadata(object)
        .and_then(|metadata| metadata.get("ownerReferences"))
        .and_then(Value::as_array)
        .map(|entries| {
            entries
                .iter()
                .map(|entry| OwnerReference {
                    api_version: text(entry, "apiVersion"),
                    kind: text(entry, "kind"),
                    name: text(entry, "name"),
                    uid: text(entry, "uid"),
                    block_owner_deletion: entry
                        .get("blockOwnerDeletion")
                        .and_then(Value::as_bool)
                        .unwrap_or(false),
                })
                .collect()
        })
        .unwrap_or_default()
}

/// Removes the owner references whose uid is in `uids`.
pub(crate) fn remove_owner_references(object: &mut Value, uids: &[String]) {
    let Some(metadata) = metadata_mut(object) else {
        return;
    };
    let Some(entries) = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut) else {
        return;
    };
    entries.retain(|entry| {
        let uid = entry.get("uid").and_then(Value::as_str).unwrap_or("");
        !uids.iter().any(|gone| gone == uid)
    });
    if entries.is_empty() {
        metadata.remove("ownerReferences");
    }
}

/// Lets every owner of an object be deleted before it.
pub(crate) fn unblock_owner_references(object: &mut Value) {
    let entries = metadata_mut(object)
        .and_then(|metadata| metadata.get_mut("ownerReferences"))
        .and_then(Value::as_array_mut);
    for entry in entries.into_iter().flatten() {
        if entry.get("blockOwnerDeletion") == Some(&Value::Bool(true)) {
            entry["blockOwnerDeletion"] = Value::Bool(false);
        }
    }
}

/// A time as `meta/v1.Time` writes it: seconds, UTC, `Z`.
pub(crate) fn format_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Appends an encoded object without its `apiVersion` and `kind`, which the list it is in states for all. Nothing is parsed:
/// only the borders of the fields are looked for.
pub(crate) fn write_without_type(encoded: &[u8], out: &mut Vec<u8>) {
    let Some(fields) = encoded
        .strip_prefix(b"{")
        .and_then(|rest| rest.strip_suffix(b"}"))
    else {
        out.extend_from_slice(encoded);
        return;
    };
    out.push(b'{');
    let (mut start, mut depth, mut in_text, mut escaped, mut first) = (0_usize, 0_usize, false, false, true);
    let mut write = |field: &[u8], out: &mut Vec<u8>| {
        if !field.starts_with(b"\"apiVersion\":") && !field.starts_with(b"\"kind\":") {
            if !first {
                out.push(b',');
            }
            first = false;
            out.extend_from_slice(field);
        }
    };
    for (at, byte) in fields.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                write(fields.get(start..at).unwrap_or_default(), out);
                start = at + 1;
            }
            _ => {}
        }
    }
    write(fields.get(start..).unwrap_or_default(), out);
    out.push(b'}');
}

/// Encodes an object for the store, which writes the revision between the quotes of `resourceVersion`.
///
/// The offset is found while writing: searching the text for the field would also find it inside an annotation.
pub(crate) fn encode(object: &Value) -> Body {
    let mut text = String::with_capacity(1024);
    let mut revision_at = None;
    let Some(fields) = object.as_object() else {
        return Body {
            bytes: Bytes::from(object.to_string()),
            revision_at,
        };
    };
    text.push('{');
    let mut wrote_metadata = false;
    let mut separator = "";
    for (field, value) in fields {
        text.push_str(separator);
        separator = ",";
        write_name(&mut text, field);
        match (field.as_str(), value) {
            ("metadata", Value::Object(metadata)) => {
                revision_at = Some(encode_metadata(&mut text, metadata));
                wrote_metadata = true;
            }
            _ => write_value(&mut text, value),
        }
    }
    if !wrote_metadata {
        text.push_str(separator);
        write_name(&mut text, "metadata");
        revision_at = Some(encode_metadata(&mut text, &Map::new()));
    }
    text.push('}');
    Body {
        bytes: Bytes::from(text),
        revision_at,
    }
}

/// Writes the metadata with an empty `resourceVersion` and returns the offset between its quotes.
fn encode_metadata(text: &mut String, metadata: &Map<String, Value>) -> usize {
    const FIELD: &str = "resourceVersion";
    text.push('{');
    let mut at = None;
    let mut separator = "";
    for (field, value) in metadata {
        // Sorted order is kept, so that what is stored reads like what a client would get from re-encoding it.
        if at.is_none() && field.as_str() >= FIELD {
            text.push_str(separator);
            separator = ",";
            at = Some(write_empty_version(text));
        }
        if field == FIELD {
            continue;
        }
        text.push_str(separator);
        separator = ",";
        write_name(text, field);
        write_value(text, value);
    }
    let at = match at {
        Some(at) => at,
        None => {
            text.push_str(separator);
            write_empty_version(text)
        }
    };
    text.push('}');
    at
}

fn write_empty_version(text: &mut String) -> usize {
    text.push_str("\"resourceVersion\":\"");
    let at = text.len();
    text.push('"');
    at
}

fn write_name(text: &mut String, name: &str) {
    write_value(text, &Value::String(name.to_owned()));
    text.push(':');
}

fn write_value(text: &mut String, value: &Value) {
    // Formatting a JSON value into a string cannot fail: the string grows, and every value has a JSON form.
    let _infallible = write!(text, "{value}");
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn with_revision(body: &Body, revision: &str) -> Value {
        let mut text = String::from_utf8(body.bytes.to_vec()).unwrap();
        text.insert_str(body.revision_at.unwrap(), revision);
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn an_object_in_a_list_has_no_type_of_its_own_ka_025() {
        let without = |value: Value| {
            let mut out = Vec::new();
            write_without_type(value.to_string().as_bytes(), &mut out);
            serde_json::from_slice::<Value>(&out).unwrap()
        };
        let data = json!({"kind": "a,\"kind\":\"b\"", "x": [{"kind": "c"}], "\\": "\\\""});
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data, "metadata": {"name": "a"}});
        assert_eq!(without(object), json!({"data": data, "metadata": {"name": "a"}}));
        assert_eq!(without(json!({"apiVersion": "v1", "kind": "X"})), json!({}));
    }

    #[test]
    fn the_revision_slot_is_found_even_when_an_annotation_quotes_the_field_name() {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "\"resourceVersion\":\"\""},
            "metadata": {"annotations": {"resourceVersion": ""}, "name": "a", "uid": "u", "resourceVersion": "4"},
        });
        let read = with_revision(&encode(&object), "17");
        let mut expected = object.clone();
        expected["metadata"]["resourceVersion"] = json!("17");
        assert_eq!(read, expected);
    }

    #[test]
    fn an_object_without_metadata_gets_one_with_the_revision() {
        let read = with_revision(&encode(&json!({"kind": "X"})), "3");
        assert_eq!(read, json!({"kind": "X", "metadata": {"resourceVersion": "3"}}));
        let read = with_revision(&encode(&json!({"kind": "X", "metadata": {"name": "a"}})), "3");
        assert_eq!(
            read,
            json!({"kind": "X", "metadata": {"name": "a", "resourceVersion": "3"}})
        );
    }

    #[test]
    fn removing_the_last_owner_reference_removes_the_field() {
        let mut object = json!({"metadata": {"ownerReferences": [{"uid": "a"}]}});
        remove_owner_references(&mut object, &["a".to_owned()]);
        assert_eq!(object, json!({"metadata": {}}));
    }
}
