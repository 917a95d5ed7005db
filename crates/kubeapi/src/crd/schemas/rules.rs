//! The form of `x-kubernetes-validations`.

use serde_json::{Value, json};

use super::text;
use crate::{
    crd::paths,
    field::{FieldError, FieldPath},
};

const REASONS: [&str; 4] = [
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
];

/// The texts of `x-kubernetes-validations`; the expressions themselves are compiled later.
pub(super) fn check(schema: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let has_lines = |text: &str| text.contains(['\n', '\r']);
    for (index, rule) in schema
        .get("x-kubernetes-validations")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .enumerate()
    {
        let at = path.child("x-kubernetes-validations").index(index);
        let (expression, message) = (text(rule, "rule").trim(), text(rule, "message"));
        if expression.is_empty() {
            errors.push(FieldError::required(&at.child("rule"), "rule is not specified"));
        } else if !message.is_empty() && message.trim().is_empty() {
            errors.push(FieldError::invalid(
                &at.child("message"),
                json!(message),
                "must be non-empty if specified",
            ));
        } else if has_lines(message.trim()) {
            errors.push(FieldError::invalid(
                &at.child("message"),
                json!(message),
                "must not contain line breaks",
            ));
        } else if has_lines(expression) && message.trim().is_empty() {
            let detail = "message must be specified if rule contains line breaks";
            errors.push(FieldError::required(&at.child("message"), detail));
        }
        let message_expression = text(rule, "messageExpression");
        if !message_expression.is_empty() && message_expression.trim().is_empty() {
            let detail = "messageExpression must be non-empty if specified";
            errors.push(FieldError::required(&at.child("messageExpression"), detail));
        }
        if let Some(reason) = rule
            .get("reason")
            .and_then(Value::as_str)
            .filter(|reason| !REASONS.contains(reason))
        {
            errors.push(FieldError::not_supported(
                &at.child("reason"),
                json!(reason),
                &REASONS,
            ));
        }
        let field_path = text(rule, "fieldPath");
        if field_path.is_empty() {
            continue;
        }
        let at = at.child("fieldPath");
        if field_path.trim().is_empty() {
            errors.push(FieldError::invalid(
                &at,
                json!(field_path),
                "must be non-empty if specified",
            ));
        }
        if has_lines(field_path) {
            errors.push(FieldError::invalid(
                &at,
                json!(field_path),
                "must not contain line breaks",
            ));
        }
        if paths::resolve(field_path, schema, true).is_err() {
            errors.push(FieldError::invalid(
                &at,
                json!(field_path),
                "must be a valid path",
            ));
        }
    }
}
