//! What a Job makes of the failures and successes of its Pods.

use serde_json::{Value, json};

use super::{is_set, not_negative, number, text, too_many};
use crate::{
    builtin::strategy::templates,
    field::{FieldError, FieldErrorKind, FieldPath},
    names,
};

const MOST_RULES: usize = 20;
const MOST_EXIT_CODES: usize = 255;
const MOST_PATTERNS: usize = 20;
const INDEXES_LENGTH: usize = 64 * 1024;
const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
const OPERATORS: [&str; 2] = ["In", "NotIn"];
const STATUSES: [&str; 3] = ["False", "True", "Unknown"];

pub(super) fn validate(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if is_set(spec, "podFailurePolicy") {
        let policy = spec.get("podFailurePolicy").unwrap_or(&Value::Null);
        validate_failures(
            spec,
            policy,
            &path.child("podFailurePolicy").child("rules"),
            errors,
        );
    }
    if let Some(policy) = spec.get("successPolicy").filter(|policy| !policy.is_null()) {
        let at = path.child("successPolicy");
        if text(spec, "completionMode") == "Indexed" {
            validate_successes(spec, policy, &at.child("rules"), errors);
        } else {
            let detail = "requires indexed completion mode";
            errors.push(FieldError::invalid(&at, policy.clone(), detail));
        }
    }
    if let Some(policy) = spec.get("podReplacementPolicy").and_then(Value::as_str) {
        let supported: &[&str] = if is_set(spec, "podFailurePolicy") {
            &["Failed"]
        } else {
            &["Failed", "TerminatingOrFailed"]
        };
        one_of(policy, supported, &path.child("podReplacementPolicy"), errors);
    }
}

fn one_of(value: &str, supported: &[&str], at: &FieldPath, errors: &mut Vec<FieldError>) {
    if !supported.contains(&value) {
        errors.push(FieldError::not_supported(at, json!(value), supported));
    }
}

/// A text out of a few that must be there.
fn required_one_of(
    object: &Value,
    name: &str,
    supported: &[&str],
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    let at = path.child(name);
    match text(object, name) {
        "" => {
            let listed: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
            let detail = format!("valid values: [{}]", listed.join(" "));
            errors.push(FieldError::required(&at, detail));
        }
        value => one_of(value, supported, &at, errors),
    }
}

/// An error about a whole object, which the reference does not show.
fn invalid_whole(path: &FieldPath, detail: &str) -> FieldError {
    FieldError {
        kind: FieldErrorKind::Invalid,
        path: path.clone(),
        value: None,
        detail: detail.to_owned(),
    }
}

fn validate_failures(spec: &Value, policy: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let rules: Vec<&Value> = templates::list(policy, "rules").collect();
    if rules.len() > MOST_RULES {
        errors.push(too_many(path, rules.len(), MOST_RULES));
    }
    for (index, rule) in rules.into_iter().enumerate() {
        let at = path.index(index);
        if text(rule, "action") == "FailIndex" {
            if !is_set(spec, "backoffLimitPerIndex") {
                let detail = "requires the backoffLimitPerIndex to be set";
                errors.push(FieldError::invalid(
                    &at.child("action"),
                    json!("FailIndex"),
                    detail,
                ));
            }
        } else {
            required_one_of(rule, "action", &ACTIONS, &at, errors);
        }
        let codes = rule.get("onExitCodes").filter(|codes| !codes.is_null());
        if let Some(codes) = codes {
            validate_exit_codes(spec, codes, &at.child("onExitCodes"), errors);
        }
        let patterns: Vec<&Value> = templates::list(rule, "onPodConditions").collect();
        let conditions = at.child("onPodConditions");
        if patterns.len() > MOST_PATTERNS {
            errors.push(too_many(&conditions, patterns.len(), MOST_PATTERNS));
        }
        for (index, pattern) in patterns.iter().enumerate() {
            let at = conditions.index(index);
            for detail in names::qualified_name(text(pattern, "type")) {
                errors.push(FieldError::invalid(
                    &at.child("type"),
                    json!(text(pattern, "type")),
                    detail,
                ));
            }
            required_one_of(pattern, "status", &STATUSES, &at, errors);
        }
        match (codes.is_some(), patterns.is_empty()) {
            (true, false) => errors.push(invalid_whole(
                &at,
                "specifying both OnExitCodes and OnPodConditions is not supported",
            )),
            (false, true) => errors.push(invalid_whole(
                &at,
                "specifying one of OnExitCodes and OnPodConditions is required",
            )),
            _ => {}
        }
    }
}

fn validate_exit_codes(spec: &Value, codes: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    required_one_of(codes, "operator", &OPERATORS, path, errors);
    let pod = spec.pointer("/template/spec").unwrap_or(&Value::Null);
    if let Some(name) = codes.get("containerName").and_then(Value::as_str) {
        let mut names = templates::list(pod, "containers").chain(templates::list(pod, "initContainers"));
        if !names.any(|container| text(container, "name") == name) {
            let detail = "must be one of the container or initContainer names in the pod template";
            errors.push(FieldError::invalid(
                &path.child("containerName"),
                json!(name),
                detail,
            ));
        }
    }
    let at = path.child("values");
    let values: Vec<i64> = templates::list(codes, "values")
        .filter_map(Value::as_i64)
        .collect();
    let all = || codes.get("values").cloned().unwrap_or_default();
    if values.is_empty() {
        errors.push(FieldError::invalid(&at, all(), "at least one value is required"));
    } else if values.len() > MOST_EXIT_CODES {
        errors.push(too_many(&at, values.len(), MOST_EXIT_CODES));
    }
    for (index, value) in values.iter().enumerate() {
        let at = at.index(index);
        if *value == 0 && text(codes, "operator") == "In" {
            let detail = "must not be 0 for the In operator";
            errors.push(FieldError::invalid(&at, json!(value), detail));
        }
        if values[..index].contains(value) {
            errors.push(FieldError::duplicate(&at, json!(value)));
        }
    }
    if !values.is_sorted() {
        errors.push(FieldError::invalid(&at, all(), "must be ordered"));
    }
}

fn validate_successes(spec: &Value, policy: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let rules: Vec<&Value> = templates::list(policy, "rules").collect();
    if rules.is_empty() {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        errors.push(FieldError::required(path, detail));
    }
    if rules.len() > MOST_RULES {
        errors.push(too_many(path, rules.len(), MOST_RULES));
    }
    let completions = number(spec, "completions").unwrap_or_default();
    for (index, rule) in rules.into_iter().enumerate() {
        let at = path.index(index);
        let indexes = rule.get("succeededIndexes").and_then(Value::as_str);
        let count = number(rule, "succeededCount");
        if indexes.is_none() && count.is_none() {
            let detail = "at least one of succeededCount or succeededIndexes must be specified";
            errors.push(FieldError::required(&at, detail));
        }
        let mut total = None;
        if let Some(indexes) = indexes {
            let at = at.child("succeededIndexes");
            if indexes.len() > INDEXES_LENGTH {
                let detail = format!("may not be more than {INDEXES_LENGTH} bytes");
                errors.push(FieldError::too_long(&at, detail));
            }
            match super::status::parse_indexes(indexes, completions) {
                Ok(found) => total = Some(found),
                Err(detail) => {
                    let detail = format!("error parsing succeededIndexes: {detail}");
                    errors.push(FieldError::invalid(&at, json!(indexes), detail));
                    total = Some(0);
                }
            }
        }
        if let Some(count) = count {
            let at_count = at.child("succeededCount");
            not_negative(rule, "succeededCount", &at, errors);
            if count > completions {
                let detail = format!(
                    "must be less than or equal to {completions} (the number of specified completions)"
                );
                errors.push(FieldError::invalid(&at_count, json!(count), detail));
            }
            if let Some(total) = total.filter(|total| count > *total) {
                let detail = format!(
                    "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
                );
                errors.push(FieldError::invalid(&at_count, json!(count), detail));
            }
        }
    }
}
