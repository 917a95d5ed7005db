//! From an answer to the result for the model (OM-386…OM-390).

use bytes::Bytes;
use http::StatusCode;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value, json};

use super::mapping;
use crate::{config::HttpConfig, invocation::FailureReason};

/// Most bytes of an answer that are read (OM-386).
pub(crate) const BODY_LIMIT: usize = 10 * 1024 * 1024;

/// Most bytes of an answer that an error quotes (OM-387).
pub(crate) const ERROR_BODY_BYTES: usize = 512;
const REDACTED: &str = "[REDACTED]";

// A shorter secret would be found in ordinary words.
const SHORTEST_SECRET: usize = 6;

/// An answer that is an error for the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResponseError {
    pub(crate) reason: FailureReason,
    pub(crate) message: String,
}

/// The result of an answer whose body was read; `cut` says that the body was longer than the limit.
pub(crate) fn shape(
    config: &HttpConfig,
    status: StatusCode,
    body: &Bytes,
    cut: bool,
    secrets: &[SecretString],
) -> Result<Value, ResponseError> {
    let body = String::from_utf8_lossy(body);
    if !status.is_success() {
        let quoted = error_body(config, &body, cut, secrets);
        return Err(ResponseError {
            reason: FailureReason::HttpStatus,
            message: format!("HTTP {}: {quoted}", status.as_u16()),
        });
    }
    let invalid = |message: String| ResponseError {
        reason: FailureReason::ResponseInvalid,
        message,
    };
    let mut value: Value = match serde_json::from_str(&body) {
        Ok(value) => value,
        // A cut document is not text: it would slip past redaction.
        Err(_) if cut && looks_like_json(&body) => {
            return Err(invalid(format!("the answer is larger than {BODY_LIMIT} bytes")));
        }
        Err(_) => return Ok(json!({"result": conceal(body.into_owned(), secrets)})),
    };
    redact(config, &mut value);
    conceal_within(&mut value, secrets);
    match &config.response_mapping {
        None => Ok(value),
        Some(expression) => {
            mapping::apply(expression, &value).map_err(|error| invalid(format!("`responseMapping`: {error}")))
        }
    }
}

fn redact(config: &HttpConfig, value: &mut Value) {
    if let Value::Object(fields) = value {
        for name in &config.redact {
            if let Some(field) = fields.get_mut(name) {
                *field = json!(REDACTED);
            }
        }
    }
}

/// The body as an error quotes it. An error's text reaches the session record too, so what `redact`
/// hides is hidden here as well.
fn error_body(config: &HttpConfig, body: &str, cut: bool, secrets: &[SecretString]) -> String {
    let mut text = conceal(body.to_owned(), secrets);
    if looks_like_json(body) {
        match serde_json::from_str::<Value>(body) {
            Ok(sent) => {
                let mut value = sent.clone();
                redact(config, &mut value);
                conceal_within(&mut value, secrets);
                // What hides nothing is quoted as it was written.
                if value != sent || !config.redact.is_empty() {
                    text = value.to_string();
                }
            }
            // Where the fields are cannot be told.
            Err(_) if !config.redact.is_empty() => text = REDACTED.to_owned(),
            Err(_) => {}
        }
    }
    if cut && text.len() <= ERROR_BODY_BYTES {
        text.push_str("...");
    }
    quoted(&text, ERROR_BODY_BYTES)
}

/// A backend's text as an error quotes it: cut to `limit` bytes, which then is shown.
pub(crate) fn quoted(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    format!("{}...", &text[..text.floor_char_boundary(limit)])
}

fn looks_like_json(body: &str) -> bool {
    body.trim_start().starts_with(['{', '['])
}

/// Some backends send back the headers they got. A credential must reach neither the model nor the
/// record (OM-590).
pub(crate) fn conceal(mut text: String, secrets: &[SecretString]) -> String {
    let mut secrets: Vec<&str> = secrets.iter().map(ExposeSecret::expose_secret).collect();
    // The longest first: a password inside `user:password` must not leave the user's name.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    for secret in secrets {
        if secret.len() < SHORTEST_SECRET {
            continue;
        }
        if text.contains(secret) {
            text = text.replace(secret, REDACTED);
        }
        // A document that is quoted as text spells characters in ways of its own.
        if text.contains('\\') {
            text = without_spelled(&text, secret);
        }
    }
    text
}

/// [`conceal`] for all texts of a document, its names too: once it is parsed, a secret has one spelling.
pub(crate) fn conceal_within(value: &mut Value, secrets: &[SecretString]) {
    if secrets.is_empty() {
        return;
    }
    match value {
        Value::String(text) => *text = conceal(std::mem::take(text), secrets),
        Value::Number(number) => {
            let text = number.to_string();
            let concealed = conceal(text.clone(), secrets);
            if concealed != text {
                *value = Value::String(concealed);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| conceal_within(item, secrets)),
        Value::Object(fields) => {
            let mut renamed = Map::new();
            for (name, mut value) in std::mem::take(fields) {
                conceal_within(&mut value, secrets);
                renamed.insert(conceal(name, secrets), value);
            }
            *fields = renamed;
        }
        Value::Null | Value::Bool(_) => {}
    }
}

/// `text` without `secret` where any of its characters is spelled by an escape of JSON.
fn without_spelled(text: &str, secret: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match spelled(rest, secret) {
            Some(length) => {
                shown.push_str(REDACTED);
                length
            }
            None => {
                shown.push(first);
                first.len_utf8()
            }
        };
        rest = rest.get(length..).unwrap_or_default();
    }
    shown
}

/// How much of `text` is its beginning that spells `secret`. A backslash may be one or begin an escape: both are tried.
fn spelled(text: &str, secret: &str) -> Option<usize> {
    let mut ends = vec![0];
    for wanted in secret.chars() {
        let mut next = Vec::new();
        for end in ends {
            let rest = text.get(end..).unwrap_or_default();
            if rest.starts_with(wanted) {
                next.push(end + wanted.len_utf8());
            }
            next.extend(
                escape(rest)
                    .filter(|(character, _)| *character == wanted)
                    .map(|(_, length)| end + length),
            );
        }
        next.sort_unstable();
        next.dedup();
        ends = next;
    }
    ends.pop()
}

/// The character that `text` begins with as an escape of JSON, and the escape's length.
fn escape(text: &str) -> Option<(char, usize)> {
    let escaped = text.strip_prefix('\\')?;
    let character = match escaped.chars().next()? {
        character @ ('"' | '\\' | '/') => character,
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'u' => {
            let unit = |at: usize| u16::from_str_radix(text.get(at..at + 4)?, 16).ok();
            let first = unit(2)?;
            // A character of a further plane is written as two.
            let second = (text.get(6..8) == Some("\\u")).then(|| unit(8)).flatten();
            let decoded = char::decode_utf16([Some(first), second].into_iter().flatten()).next()?;
            let character = decoded.ok()?;
            return Some((character, 6 * character.len_utf16()));
        }
        _ => return None,
    };
    Some((character, 2))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    fn config(redact: &[&str], mapping: Option<&str>) -> HttpConfig {
        let mut config = HttpConfig::new("http://h/");
        config.redact = redact.iter().map(|name| (*name).to_owned()).collect();
        config.response_mapping = mapping.map(str::to_owned);
        config
    }

    fn ok(config: &HttpConfig, body: &str) -> Result<Value, ResponseError> {
        shape(
            config,
            StatusCode::OK,
            &Bytes::copy_from_slice(body.as_bytes()),
            false,
            &[],
        )
    }

    fn failed(config: &HttpConfig, status: u16, body: &str) -> String {
        let status = StatusCode::from_u16(status).unwrap();
        shape(
            config,
            status,
            &Bytes::copy_from_slice(body.as_bytes()),
            false,
            &[],
        )
        .unwrap_err()
        .message
    }

    #[test]
    fn redaction_comes_before_the_mapping_v_56() {
        let config = config(&["ssn"], Some("{s: ssn, n: length(a)}"));
        assert_eq!(
            ok(&config, r#"{"ssn":"1","a":[1,2]}"#).unwrap(),
            json!({"s": "[REDACTED]", "n": 2})
        );
    }

    #[test]
    fn text_becomes_a_result_v_57_om_388() {
        let config = config(&["ssn"], Some("{s: ssn}"));
        assert_eq!(ok(&config, "hello").unwrap(), json!({"result": "hello"}));
        assert_eq!(ok(&config, "").unwrap(), json!({"result": ""}));
    }

    #[test]
    fn arrays_and_scalars_are_not_redacted_om_389() {
        let config = config(&["a"], None);
        assert_eq!(ok(&config, r#"[{"a":1}]"#).unwrap(), json!([{"a": 1}]));
        assert_eq!(ok(&config, "5").unwrap(), json!(5));
        assert_eq!(
            ok(&config, r#"{"a":{"b":1},"c":{"a":2}}"#).unwrap(),
            json!({"a": "[REDACTED]", "c": {"a": 2}})
        );
    }

    #[test]
    fn a_null_mapping_result_is_null_and_a_failing_one_an_error_om_390() {
        assert_eq!(ok(&config(&[], Some("missing")), "{}").unwrap(), Value::Null);
        let error = ok(&config(&[], Some("length(a)")), r#"{"a":1}"#).unwrap_err();
        assert_eq!(error.reason, FailureReason::ResponseInvalid);
        assert!(
            error.message.starts_with("`responseMapping`: "),
            "{}",
            error.message
        );
    }

    #[test]
    fn an_error_quotes_exactly_512_bytes_v_58_om_387() {
        let message = failed(&config(&[], None), 503, &"x".repeat(2_000));
        assert_eq!(message, format!("HTTP 503: {}...", "x".repeat(512)));
        assert_eq!(failed(&config(&[], None), 404, "gone"), "HTTP 404: gone");
        assert_eq!(failed(&config(&[], None), 302, ""), "HTTP 302: ");
        let umlauts = failed(&config(&[], None), 500, &format!("x{}", "ä".repeat(400)));
        assert_eq!(umlauts, format!("HTTP 500: x{}...", "ä".repeat(255)));
    }

    #[test]
    fn what_redact_hides_is_not_in_an_error_either_om_389() {
        let config = config(&["ssn"], None);
        assert_eq!(
            failed(&config, 400, r#"{"ssn":"123","e":1}"#),
            r#"HTTP 400: {"e":1,"ssn":"[REDACTED]"}"#
        );
        assert_eq!(failed(&config, 400, r#"{"ssn":"123","#), "HTTP 400: [REDACTED]");
    }

    #[test]
    fn a_document_beyond_the_limit_is_an_error_and_a_text_is_cut_om_386() {
        let cut = |body: &'static [u8]| {
            shape(
                &config(&["ssn"], None),
                StatusCode::OK,
                &Bytes::from_static(body),
                true,
                &[],
            )
        };
        assert_eq!(
            cut(br#"{"ssn":"1"#).unwrap_err().reason,
            FailureReason::ResponseInvalid
        );
        assert_eq!(cut(b"plain").unwrap(), json!({"result": "plain"}));
    }

    #[test]
    fn a_secret_is_found_in_every_spelling_of_json_om_590() {
        let secrets = [
            SecretString::from(r#"to"k\en/ä1"#),
            SecretString::from("4711471147"),
        ];
        for spelled in [
            r#"to\"k\\en/ä1"#,
            r#"to\"k\\en\/ä1"#,
            r#"to\u0022k\u005Cen\u002f\u00e41"#,
            r#"\u0074o\"k\\en/\u00E41"#,
            // A document within a text.
            r#"{\"echo\":\"to\\\"k\\\\en/ä1\"}"#,
            "4711471147",
        ] {
            for body in [
                format!(r#"{{"echo":"{spelled}"}}"#),
                format!(r#"{{"list":[{{"{spelled}":1}}]}}"#),
            ] {
                let bytes = Bytes::copy_from_slice(body.as_bytes());
                let sent: Value = serde_json::from_str(&body).unwrap();
                let value = shape(&config(&[], None), StatusCode::OK, &bytes, false, &secrets).unwrap();
                assert_ne!(value, sent, "{body}");
                assert!(
                    value.to_string().contains("[REDACTED]") && !value.to_string().contains("en"),
                    "{value}"
                );
                let error = shape(
                    &config(&[], None),
                    StatusCode::BAD_REQUEST,
                    &bytes,
                    false,
                    &secrets,
                );
                let message = error.unwrap_err().message;
                assert!(
                    message.contains("[REDACTED]") && !message.contains("en"),
                    "{message}"
                );
            }
        }
        let broken = Bytes::from_static(br#"{"echo":"to\"k\\en\/\u00e41","#);
        let error = shape(
            &config(&[], None),
            StatusCode::BAD_REQUEST,
            &broken,
            true,
            &secrets,
        );
        assert_eq!(
            error.unwrap_err().message,
            r#"HTTP 400: {"echo":"[REDACTED]",..."#
        );
        let number = Bytes::from_static(br#"{"id":4711471147,"n":1}"#);
        let value = shape(&config(&[], None), StatusCode::OK, &number, false, &secrets).unwrap();
        assert_eq!(value, json!({"id": "[REDACTED]", "n": 1}));
        // What is like an escape and is none stays.
        for text in [r"C:\users\\x", r"\u12", r"\", r"\ud83d\u12", "\\ä"] {
            assert_eq!(conceal(text.to_owned(), &secrets), text);
        }
        let emoji = [SecretString::from("secret-😀")];
        assert_eq!(
            conceal(r"\ secret-\ud83d\ude00!".to_owned(), &emoji),
            r"\ [REDACTED]!"
        );
    }

    #[test]
    fn a_backend_that_echoes_the_credential_does_not_give_it_away_om_590() {
        let secrets = [SecretString::from("tok-123456")];
        let body = Bytes::from_static(br#"{"headers":{"Authorization":"Bearer tok-123456"}}"#);
        let value = shape(&config(&[], None), StatusCode::OK, &body, false, &secrets).unwrap();
        assert_eq!(value["headers"]["Authorization"], "Bearer [REDACTED]");
        let error = shape(
            &config(&[], None),
            StatusCode::UNAUTHORIZED,
            &body,
            false,
            &secrets,
        )
        .unwrap_err();
        assert!(!error.message.contains("tok-123456"));
    }
}
