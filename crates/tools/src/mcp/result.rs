//! From a server's result to the result for the model (OM-419).

use base64::{Engine, engine::general_purpose::STANDARD};
use secrecy::SecretString;
use serde_json::{Map, Value, json};

use super::McpFailure;
use crate::{
    http::{conceal, conceal_within},
    invocation::FailureReason,
};

/// The result of a call, without `secrets`.
///
/// A single text is that text; else structured content is handed on as it is, else the items in their
/// order (D8). What a model cannot read as text is described in place of its bytes.
pub(super) fn shape(result: &Value, secrets: &[SecretString]) -> Result<Value, McpFailure> {
    if let Some(kind) = result.get("resultType").and_then(Value::as_str)
        && kind != "complete"
    {
        return Err(McpFailure::lasting(
            FailureReason::ProtocolError,
            match kind {
                "input_required" => "the server asks for input, which an agent's call cannot give".to_owned(),
                other => format!(
                    "the server's result is of a kind that is not known here: {}",
                    mainstay_telemetry::text::escape(other, 64)
                ),
            },
        ));
    }
    let empty = Vec::new();
    let items = result.get("content").and_then(Value::as_array).unwrap_or(&empty);
    let structured = result.get("structuredContent").filter(|value| !value.is_null());
    if result.get("isError") == Some(&Value::Bool(true)) {
        let message = conceal(error_text(items, structured), secrets);
        return Err(McpFailure::lasting(FailureReason::ToolError, message));
    }
    let mut shaped = match (items.as_slice(), structured) {
        ([item], _) if text(item).is_some() => json!(text(item)),
        (_, Some(structured)) => structured.clone(),
        (items, None) => items.iter().map(described).collect(),
    };
    conceal_within(&mut shaped, secrets);
    Ok(shaped)
}

/// All texts, the first in front; else what else there is.
fn error_text(items: &[Value], structured: Option<&Value>) -> String {
    let texts: Vec<&str> = items
        .iter()
        .filter_map(text)
        .filter(|text| !text.is_empty())
        .collect();
    if !texts.is_empty() {
        return texts.join("\n");
    }
    match (structured, items) {
        (Some(structured), _) => structured.to_string(),
        (None, []) => "the tool failed and does not say why".to_owned(),
        (None, items) => items.iter().map(described).collect::<Value>().to_string(),
    }
}

fn text(item: &Value) -> Option<&str> {
    let is_text = item.get("type").and_then(Value::as_str) == Some("text");
    item.get("text")?.as_str().filter(|_| is_text)
}

fn described(item: &Value) -> Value {
    let field = |of: &Value, name: &str| of.get(name).and_then(Value::as_str).map(str::to_owned);
    let kind = field(item, "type").unwrap_or_default();
    let mut shown = Map::new();
    let mut set = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            shown.insert(name.to_owned(), Value::String(value));
        }
    };
    match kind.as_str() {
        "text" => set("text", field(item, "text")),
        "image" | "audio" => {
            set("mimeType", field(item, "mimeType"));
            set("description", Some(size(&kind, field(item, "data").as_deref())));
        }
        "resource" => {
            let resource = item.get("resource").unwrap_or(&Value::Null);
            set("uri", field(resource, "uri"));
            set("mimeType", field(resource, "mimeType"));
            match field(resource, "text") {
                Some(text) => set("text", Some(text)),
                None => set(
                    "description",
                    Some(size("resource", field(resource, "blob").as_deref())),
                ),
            }
        }
        "resource_link" => {
            for name in ["uri", "name", "title", "description", "mimeType"] {
                set(name, field(item, name));
            }
        }
        _ => set(
            "description",
            Some("content of a kind that cannot be shown".to_owned()),
        ),
    }
    shown.insert("type".to_owned(), Value::String(kind));
    Value::Object(shown)
}

fn size(kind: &str, data: Option<&str>) -> String {
    let bytes = data.map_or(0, |data| match STANDARD.decode(data) {
        Ok(bytes) => bytes.len(),
        Err(_) => data.len(),
    });
    format!("{kind} of {bytes} bytes, which is not shown")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    fn ok(result: &Value) -> Value {
        shape(result, &[]).unwrap()
    }

    #[test]
    fn a_single_text_is_the_result_om_419() {
        let both = json!({"content": [{"type": "text", "text": "17"}], "structuredContent": {"a": 17}});
        assert_eq!(ok(&both), json!("17"));
        assert_eq!(ok(&json!({"content": [{"type": "text", "text": ""}]})), json!(""));
    }

    #[test]
    fn several_items_reach_the_model_in_order_d8() {
        let three = json!({"content": [
            {"type": "text", "text": "one", "annotations": {"priority": 1}}, {"type": "text", "text": "two"}, {"type": "text", "text": "three"},
        ]});
        assert_eq!(
            ok(&three),
            json!([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}, {"type": "text", "text": "three"}])
        );
        assert_eq!(ok(&json!({"content": []})), json!([]));
        assert_eq!(ok(&json!({})), json!([]));
    }

    #[test]
    fn structured_content_is_handed_on_where_there_is_no_single_text_d8_om_419() {
        let outcome = ok(&json!({"content": [], "structuredContent": {"temperature": 22.5}}));
        assert_eq!(outcome.to_string(), r#"{"temperature":22.5}"#);
        let two = json!({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "structuredContent": [1]});
        assert_eq!(ok(&two), json!([1]));
    }

    #[test]
    fn what_is_not_text_is_described_and_its_bytes_are_not_sent_to_the_model() {
        let shaped = ok(&json!({"content": [
            {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"},
            {"type": "audio", "data": "not base64!", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "file:///a", "text": "A", "mimeType": "text/plain"}},
            {"type": "resource", "resource": {"uri": "file:///b", "blob": "aGk="}},
            {"type": "resource_link", "uri": "file:///c", "name": "c", "size": 9},
            {"type": "hologram", "data": "x"},
        ]}));
        assert_eq!(
            shaped,
            json!([
                {"type": "image", "mimeType": "image/png", "description": "image of 5 bytes, which is not shown"},
                {"type": "audio", "mimeType": "audio/wav", "description": "audio of 11 bytes, which is not shown"},
                {"type": "resource", "uri": "file:///a", "mimeType": "text/plain", "text": "A"},
                {"type": "resource", "uri": "file:///b", "description": "resource of 2 bytes, which is not shown"},
                {"type": "resource_link", "uri": "file:///c", "name": "c"},
                {"type": "hologram", "description": "content of a kind that cannot be shown"},
            ])
        );
    }

    #[test]
    fn a_tools_own_error_is_an_error_with_its_text_om_419_om_396() {
        for (result, expected) in [
            (
                json!({"isError": true, "content": [{"type": "text", "text": "no such file"}]}),
                "no such file",
            ),
            (
                json!({"isError": true, "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}),
                "a\nb",
            ),
            (
                json!({"isError": true, "structuredContent": {"code": 4}}),
                r#"{"code":4}"#,
            ),
            (
                json!({"isError": true, "content": []}),
                "the tool failed and does not say why",
            ),
        ] {
            let failure = shape(&result, &[]).unwrap_err();
            assert_eq!(
                (failure.reason, failure.message.as_str()),
                (FailureReason::ToolError, expected)
            );
            assert!(!failure.may_retry);
        }
        assert!(shape(&json!({"isError": false, "content": []}), &[]).is_ok());
    }

    #[test]
    fn a_server_that_asks_for_input_is_told_nothing_and_the_model_why() {
        let failure = shape(&json!({"resultType": "input_required", "inputRequests": {}}), &[]).unwrap_err();
        assert_eq!(failure.reason, FailureReason::ProtocolError);
        assert!(ok(&json!({"resultType": "complete", "content": []})).is_array());
    }

    #[test]
    fn a_server_that_echoes_the_credential_does_not_give_it_away_om_590() {
        let secrets = [SecretString::from("tok-123456")];
        let result = json!({"structuredContent": {"headers": ["Bearer tok-123456"], "tok-123456": 1}});
        assert_eq!(
            shape(&result, &secrets).unwrap(),
            json!({"headers": ["Bearer [REDACTED]"], "[REDACTED]": 1})
        );
        let failed = json!({"isError": true, "content": [{"type": "text", "text": "bad token tok-123456"}]});
        assert_eq!(
            shape(&failed, &secrets).unwrap_err().message,
            "bad token [REDACTED]"
        );
    }
}
