//! Between the two forms of an Event: core/v1, in which it is stored, and events.k8s.io/v1, which is a view of the same
//! objects. Requirement KA-010.

use serde_json::{Map, Value, json};

/// Fields of the same meaning: in core/v1, in events.k8s.io/v1.
const FIELDS: [(&str, &str); 7] = [
    ("message", "note"),
    ("involvedObject", "regarding"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];
const CORE: &str = "v1";
const VIEW: &str = "events.k8s.io/v1";

/// The form in which an object is stored; `None` if it is in that form already.
pub(crate) fn to_stored(object: &Value) -> Option<Value> {
    if object.get("apiVersion").and_then(Value::as_str) != Some(VIEW)
        || object.get("kind").and_then(Value::as_str) != Some("Event")
    {
        return None;
    }
    let mut stored = object.clone();
    let fields = stored.as_object_mut()?;
    fields.insert("apiVersion".to_owned(), json!(CORE));
    for (core, view) in FIELDS {
        rename(fields, view, core);
    }
    Some(stored)
}

/// Brings a stored Event into the form of a view of `api_version`, if that is another one.
pub(crate) fn from_stored(object: &mut Value, api_version: &str) {
    if api_version != VIEW || object.get("apiVersion").and_then(Value::as_str) == Some(VIEW) {
        return;
    }
    if let Some(fields) = object.as_object_mut() {
        for (core, view) in FIELDS {
            rename(fields, core, view);
        }
        // The older form always has them, the newer one only with something in them.
        for name in ["reportingController", "reportingInstance"] {
            if fields.get(name).and_then(Value::as_str) == Some("") {
                fields.remove(name);
            }
        }
    }
}

fn rename(fields: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = fields.remove(from) {
        fields.insert(to.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn an_event_is_the_same_after_it_was_seen_in_the_other_form_ka_010() {
        let view = json!({"apiVersion": VIEW, "kind": "Event", "metadata": {"name": "a"}, "note": "text",
            "regarding": {"kind": "Pod"}, "reportingController": "c", "deprecatedCount": 2, "reason": "r"});
        let stored = to_stored(&view).unwrap();
        assert_eq!(
            (&stored["message"], &stored["reportingComponent"]),
            (&json!("text"), &json!("c"))
        );
        assert_eq!(to_stored(&stored), None);
        let mut back = stored;
        from_stored(&mut back, VIEW);
        back["apiVersion"] = json!(VIEW);
        assert_eq!(back, view);
    }
}
