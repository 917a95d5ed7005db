//! `spec.conversion`: how objects come from one version to another. Requirement KA-012.

use serde_json::{Value, json};

use super::text;
use crate::{
    field::{FieldError, FieldPath},
    names::NameRule,
};

/// The versions of the request to a webhook that the reference can speak.
const REVIEWS: [&str; 2] = ["v1", "v1beta1"];

/// Checks the conversion as the reference does. One by webhook that has no fault is refused all the same: here objects are
/// converted by changing `apiVersion` only.
pub(super) fn validate(crd: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let Some(conversion) = crd
        .pointer("/spec/conversion")
        .filter(|conversion| conversion.is_object())
    else {
        return;
    };
    let webhook = conversion.get("webhook").filter(|webhook| !webhook.is_null());
    let client = webhook
        .and_then(|webhook| webhook.get("clientConfig"))
        .filter(|client| !client.is_null());
    let reviews: Vec<&str> = webhook
        .and_then(|webhook| webhook.get("conversionReviewVersions"))
        .and_then(Value::as_array)
        .map(|reviews| reviews.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    match text(conversion, "/strategy") {
        "" => errors.push(FieldError::required(&at.child("strategy"), "")),
        "None" => {
            let detail = "should not be set when strategy is not set to Webhook";
            if client.is_some() {
                errors.push(FieldError::forbidden(&at.child("webhookClientConfig"), detail));
            }
            if !reviews.is_empty() {
                errors.push(FieldError::forbidden(
                    &at.child("conversionReviewVersions"),
                    detail,
                ));
            }
        }
        "Webhook" => {
            let before = errors.len();
            if crd.pointer("/spec/preserveUnknownFields") == Some(&Value::Bool(true)) {
                errors.push(FieldError::invalid(
                    &at.child("strategy"),
                    json!("Webhook"),
                    "must be None if spec.preserveUnknownFields is true",
                ));
            }
            check_client(client, &at.child("webhookClientConfig"), errors);
            check_reviews(&reviews, &at.child("conversionReviewVersions"), errors);
            if errors.len() == before {
                errors.push(FieldError::forbidden(
                    &at.child("strategy"),
                    "conversion by webhook is not available on this server; versions that differ only in apiVersion can \
                     use the strategy None",
                ));
            }
        }
        other => {
            errors.push(FieldError::not_supported(
                &at.child("strategy"),
                json!(other),
                &["None", "Webhook"],
            ));
        }
    }
}

fn check_client(client: Option<&Value>, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let Some(client) = client else {
        errors.push(FieldError::required(
            at,
            "required when strategy is set to Webhook",
        ));
        return;
    };
    let url = client.get("url").and_then(Value::as_str);
    let has_service = client.get("service").is_some_and(Value::is_object);
    if url.is_some() == has_service {
        errors.push(FieldError::required(
            at,
            "exactly one of url or service is required",
        ));
        return;
    }
    let Some(url) = url else { return };
    if let Some((scheme, _)) = url.split_once("://").filter(|(scheme, _)| *scheme != "https") {
        let detail = "'https' is the only allowed URL scheme; desired format: https://host[/path]";
        errors.push(FieldError::invalid(&at.child("url"), json!(scheme), detail));
    }
}

fn check_reviews(reviews: &[&str], at: &FieldPath, errors: &mut Vec<FieldError>) {
    if reviews.is_empty() {
        errors.push(FieldError::required(at, ""));
        return;
    }
    let before = errors.len();
    for (index, review) in reviews.iter().enumerate() {
        let at = at.index(index);
        if reviews[..index].contains(review) {
            errors.push(FieldError::invalid(&at, json!(review), "duplicate version"));
            continue;
        }
        let messages = NameRule::Label1035.check(review, false);
        if !messages.is_empty() {
            errors.push(FieldError::invalid(&at, json!(review), messages.join(",")));
        }
    }
    if errors.len() == before && !reviews.iter().any(|review| REVIEWS.contains(review)) {
        let detail = format!("must include at least one of {}", REVIEWS.join(", "));
        errors.push(FieldError::invalid(at, json!(reviews), detail));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn faults(conversion: Value) -> Vec<String> {
        let mut errors = Vec::new();
        let definition = json!({"spec": {"conversion": conversion}});
        validate(&definition, &FieldPath::of("spec.conversion"), &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_webhook_is_checked_like_on_the_reference_and_then_refused_ka_012() {
        assert_eq!(
            faults(json!({"strategy": "Webhook", "webhook": {}})),
            [
                "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
                "spec.conversion.conversionReviewVersions: Required value",
            ]
        );
        assert_eq!(
            faults(
                json!({"strategy": "Webhook", "webhook": {"clientConfig": {}, "conversionReviewVersions": ["x"]}})
            ),
            [
                "spec.conversion.webhookClientConfig: Required value: exactly one of url or service is required",
                "spec.conversion.conversionReviewVersions: Invalid value: [\"x\"]: must include at least one of v1, v1beta1",
            ]
        );
        let good = json!({"clientConfig": {"url": "https://a.b"}, "conversionReviewVersions": ["v1"]});
        assert!(
            faults(json!({"strategy": "Webhook", "webhook": good}))[0]
                .starts_with("spec.conversion.strategy: Forbidden: conversion by webhook is not available")
        );
        assert_eq!(faults(json!({"strategy": "None", "webhook": good})).len(), 2);
        assert_eq!(faults(json!({"strategy": "None"})).len(), 0);
    }
}
