//! From an answer to the result for the model (OM-386…OM-390).

use bytes::Bytes;
use http::StatusCode;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

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
    let body = conceal(String::from_utf8_lossy(body).into_owned(), secrets);
    if !status.is_success() {
        return Err(ResponseError {
            reason: FailureReason::HttpStatus,
            message: format!("HTTP {}: {}", status.as_u16(), error_body(config, &body, cut)),
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
        Err(_) => return Ok(json!({"result": body})),
    };
    redact(config, &mut value);
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
fn error_body(config: &HttpConfig, body: &str, cut: bool) -> String {
    let mut text = body.to_owned();
    if !config.redact.is_empty() && looks_like_json(body) {
        match serde_json::from_str::<Value>(body) {
            Ok(mut value) => {
                redact(config, &mut value);
                text = value.to_string();
            }
            // Where the fields are cannot be told.
            Err(_) => text = REDACTED.to_owned(),
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
        if secret.len() >= SHORTEST_SECRET && text.contains(secret) {
            text = text.replace(secret, REDACTED);
        }
    }
    text
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
