//! References within a document. Others are never followed: nothing is fetched (OM-426).

use serde_json::{Map, Value};

// References to references; a longer chain is a mistake or a trap.
const MAX_HOPS: usize = 16;

// The same reference is looked up many times.
const MAX_REFERENCE_BYTES: usize = 1_024;

/// The value that a local reference names.
pub(super) fn target<'d>(document: &'d Value, reference: &str) -> Option<&'d Value> {
    let pointer = reference
        .strip_prefix('#')
        .filter(|pointer| pointer.len() <= MAX_REFERENCE_BYTES)?;
    if !pointer.contains('%') {
        return document.pointer(pointer);
    }
    document.pointer(&percent_decoded(pointer)?)
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let mut digit = || char::from(bytes.next()?).to_digit(16);
            let (high, low) = (digit()?, digit()?);
            out.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}

/// The object that `value` is, or that it refers to.
///
/// # Errors
/// The reference that leads nowhere, to another document, or round in a circle.
pub(super) fn object<'d>(
    document: &'d Value,
    value: &'d Value,
) -> Result<Option<&'d Map<String, Value>>, String> {
    let mut value = value;
    for _ in 0..MAX_HOPS {
        let Value::Object(fields) = value else {
            return Ok(None);
        };
        let Some(Value::String(reference)) = fields.get("$ref") else {
            return Ok(Some(fields));
        };
        value = target(document, reference).ok_or_else(|| unusable(reference))?;
    }
    Err("its references do not end".to_owned())
}

fn unusable(reference: &str) -> String {
    let shown = mainstay_telemetry::text::escape(reference, 128);
    if reference.starts_with('#') {
        format!("`$ref: {shown}` leads nowhere")
    } else {
        format!("`$ref: {shown}` leads to another document, which is not read")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn local_references_are_followed_with_their_escapes_om_426() {
        let document = json!({"paths": {"/a/{b c}": {"x": {"y": 1}}}, "a": {"$ref": "#/b"}, "b": {"$ref": "#/c"}, "c": {"end": true}});
        for reference in ["#/paths/~1a~1{b c}/x", "#/paths/~1a~1%7Bb%20c%7D/x"] {
            assert_eq!(
                target(&document, reference),
                Some(&json!({"y": 1})),
                "{reference}"
            );
        }
        for reference in [
            "#/absent",
            "other.json#/a",
            "https://h/a",
            "#/%zz",
            "#/%f",
            "#anchor",
        ] {
            assert_eq!(target(&document, reference), None, "{reference}");
        }
        assert_eq!(
            object(&document, &document["a"]).unwrap().unwrap()["end"],
            json!(true)
        );
    }

    #[test]
    fn references_that_lead_nowhere_or_round_end_with_a_reason() {
        let document = json!({"a": {"$ref": "#/b"}, "b": {"$ref": "#/a"}, "c": {"$ref": "#/x"}, "d": {"$ref": "http://h/#/x"}});
        for (key, part) in [("a", "do not end"), ("c", "nowhere"), ("d", "another document")] {
            let error = object(&document, &document[key]).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
