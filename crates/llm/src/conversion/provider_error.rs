//! Reads the errors of every provider, in a body or inside a stream that began with 200. Their forms
//! are so much alike that one reader serves all formats.

use serde_json::Value;

use crate::{
    error::{ModelError, ModelErrorKind},
    types::openai_chat::ErrorObject,
};

/// The error a response with `status` stands for.
///
/// Bodies in use: `{"error": {"message", "type", "code"}}`, `{"error": "text"}`, the same in a list,
/// the object without the wrapper, and plain text.
pub(crate) fn error_from_body(provider: &str, status: u16, body: &[u8]) -> ModelError {
    let mut code = None;
    let message = match serde_json::from_slice::<Value>(body) {
        Ok(body) => {
            let error = error_object(&body).unwrap_or_default();
            code = code_of(&error);
            Some(error.message)
                .filter(|message| !message.is_empty())
                .unwrap_or_else(|| body.to_string())
        }
        Err(_) => String::from_utf8_lossy(body).trim().to_owned(),
    };
    let message = match (message.is_empty(), status) {
        (false, _) => message,
        (true, 300..=399) => "the server answered with a redirect, which is not followed".to_owned(),
        (true, _) => "the server gave no reason".to_owned(),
    };
    let mut error = ModelError::with_status(provider, status, message);
    error.code = code;
    error
}

/// The error that a chunk of a stream is, if it is one.
///
/// The HTTP status was 200, so the status is taken from the error's code, or from the class of
/// error, as far as that is known; retries depend on it (OR-216).
pub(crate) fn error_from_stream(provider: &str, event_name: &str, chunk: &Value) -> Option<ModelError> {
    let kind = chunk.get("type").and_then(Value::as_str);
    if kind == Some("response.failed") {
        // An answer that failed without saying why is an outcome, which the reader reports (OR-202).
        let response = chunk.get("response")?;
        response.get("error").filter(|error| !error.is_null())?;
        return error_from_stream(provider, "error", response);
    }
    let is_error = event_name == "error"
        || kind == Some("error")
        || chunk.get("error").is_some_and(|error| !error.is_null())
        || chunk.get("object").and_then(Value::as_str) == Some("error");
    if !is_error {
        return None;
    }
    let error = error_object(chunk).unwrap_or_default();
    let status = status_of(&error);
    let code = code_of(&error);
    let message = if error.message.is_empty() {
        "the stream ended with an error without a message".to_owned()
    } else {
        error.message
    };
    let mut failure = match status {
        Some(status) => ModelError::with_status(provider, status, message),
        None => ModelError::new(provider, ModelErrorKind::Server, message),
    };
    failure.code = code;
    Some(failure)
}

/// The provider's own word for the error.
fn code_of(error: &ErrorObject) -> Option<String> {
    let word = match &error.code {
        Some(Value::String(text)) if !text.is_empty() => text.as_str(),
        _ => error.kind.as_deref()?,
    };
    Some(mainstay_telemetry::text::escape(word, 64))
}

/// Whether an error body refuses `stream_options`. The field's own name is looked for, not prose:
/// servers name the rejected field in `param`, in a location list, or only inside their message.
pub(crate) fn rejects_stream_options(body: &str) -> bool {
    body.contains("stream_options")
}

fn error_object(value: &Value) -> Option<ErrorObject> {
    let value = match value {
        Value::Array(items) => items.first()?,
        other => other,
    };
    match value.get("error") {
        Some(Value::String(message)) => Some(ErrorObject {
            message: message.clone(),
            ..ErrorObject::default()
        }),
        Some(error @ Value::Object(_)) => serde_json::from_value(error.clone()).ok(),
        _ => match (value.get("message"), value.get("detail")) {
            (Some(Value::String(_)), _) => serde_json::from_value(value.clone()).ok(),
            (_, Some(detail)) => Some(ErrorObject {
                message: match detail {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                },
                ..ErrorObject::default()
            }),
            _ => None,
        },
    }
}

fn status_of(error: &ErrorObject) -> Option<u16> {
    let code = match &error.code {
        Some(Value::Number(number)) => number.as_u64().and_then(|code| u16::try_from(code).ok()),
        Some(Value::String(text)) => text.parse().ok(),
        _ => None,
    };
    if let Some(code) = code.filter(|code| (400..600).contains(code)) {
        return Some(code);
    }
    let words = [error.code.as_ref().and_then(Value::as_str), error.kind.as_deref()];
    words.into_iter().flatten().find_map(|word| {
        Some(match word {
            "rate_limit_exceeded"
            | "rate_limit_error"
            | "insufficient_quota"
            | "tokens"
            | "requests"
            | "slow_down"
            | "RESOURCE_EXHAUSTED" => 429,
            "server_error"
            | "internal_server_error"
            | "internal_error"
            | "api_error"
            | "InternalServerError" => 500,
            "service_unavailable" | "UNAVAILABLE" => 503,
            "overloaded_error" => 529,
            "invalid_request_error" | "BadRequestError" | "context_length_exceeded" => 400,
            "invalid_prompt" => 400,
            "billing_error" => 402,
            "request_too_large" => 413,
            "timeout_error" => 504,
            "invalid_api_key" | "authentication_error" => 401,
            "permission_error" => 403,
            "not_found_error" | "model_not_found" => 404,
            _ => return None,
        })
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn every_shape_of_error_body_gives_its_message() {
        for (body, message) in [
            (
                r#"{"error":{"message":"no such model","type":"invalid_request_error"}}"#,
                "no such model",
            ),
            (r#"{"error":"model is loading"}"#, "model is loading"),
            (
                r#"[{"error":{"code":404,"message":"gone","status":"NOT_FOUND"}}]"#,
                "gone",
            ),
            (r#"{"object":"error","message":"bad","code":404}"#, "bad"),
            (r#"{"detail":"Not Found"}"#, "Not Found"),
            ("upstream down\n", "upstream down"),
            ("", "the server gave no reason"),
        ] {
            let error = error_from_body("p", 404, body.as_bytes());
            assert_eq!(error.message, message, "{body}");
            assert_eq!(error.status, Some(404));
        }
    }

    #[test]
    fn the_message_is_cut_and_cleaned() {
        let body = json!({"error": {"message": "x".repeat(5_000)}}).to_string();
        assert!(error_from_body("p", 400, body.as_bytes()).message.len() < 600);
        let error = error_from_body("p", 500, b"a\x1b[31m");
        assert_eq!(error.message, "a\\u{1b}[31m");
    }

    #[test]
    fn a_redirect_is_an_error_and_says_so() {
        let error = error_from_body("p", 302, b"");
        assert_eq!(error.kind, ModelErrorKind::Protocol);
        assert!(error.message.contains("redirect"));
    }

    #[test]
    fn an_error_inside_a_stream_gets_the_status_it_stands_for_or_216() {
        for (chunk, status) in [
            (json!({"error": {"message": "slow down", "code": 429}}), Some(429)),
            (
                json!({"error": {"message": "slow down", "code": "429"}}),
                Some(429),
            ),
            (
                json!({"error": {"message": "slow", "code": "rate_limit_exceeded"}}),
                Some(429),
            ),
            (
                json!({"error": {"message": "oops", "type": "server_error"}}),
                Some(500),
            ),
            (
                json!({"error": {"message": "busy", "type": "overloaded_error"}}),
                Some(529),
            ),
            (json!({"error": "something"}), None),
            (
                json!({"object": "error", "message": "bad", "code": 400}),
                Some(400),
            ),
        ] {
            let error = error_from_stream("p", "", &chunk).unwrap();
            assert_eq!(error.status, status, "{chunk}");
            assert!(!error.message.is_empty());
        }
        assert_eq!(
            error_from_stream("p", "", &json!({"choices": [], "error": null})),
            None
        );
        assert!(error_from_stream("p", "error", &json!({"message": "x"})).is_some());
    }

    #[test]
    fn errors_of_the_other_formats_are_found_too_or_216() {
        for (chunk, status, code, message) in [
            (
                json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
                Some(529),
                "overloaded_error",
                "Overloaded",
            ),
            (
                json!({"type": "error", "code": "rate_limit_exceeded", "message": "slow", "param": null, "sequence_number": 1}),
                Some(429),
                "rate_limit_exceeded",
                "slow",
            ),
            (
                json!({"type": "response.failed", "response": {"status": "failed", "error": {"code": "server_error", "message": "oops"}}}),
                Some(500),
                "server_error",
                "oops",
            ),
        ] {
            let error = error_from_stream("p", "", &chunk).unwrap();
            assert_eq!(
                (error.status, error.code.as_deref()),
                (status, Some(code)),
                "{chunk}"
            );
            assert_eq!(error.message, message);
        }
        let silent = json!({"type": "response.failed", "response": {"status": "failed", "error": null}});
        assert_eq!(error_from_stream("p", "", &silent), None);
    }
}
