//! Label selectors inside objects (`matchLabels`, `matchExpressions`).

use serde_json::{Map, Value};

use crate::{
    field::{FieldError, FieldPath},
    names,
};

/// Whether a selector in object form selects everything, as an empty one does.
pub(crate) fn selects_everything(selector: &Value) -> bool {
    let is_empty = |name: &str| match selector.get(name) {
        Some(Value::Object(fields)) => fields.is_empty(),
        Some(Value::Array(list)) => list.is_empty(),
        _ => true,
    };
    is_empty("matchLabels") && is_empty("matchExpressions")
}

/// Whether a selector in object form selects an object with these labels.
pub(crate) fn matches(selector: &Value, labels: Option<&Map<String, Value>>) -> bool {
    let label = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
    let equal = selector
        .get("matchLabels")
        .and_then(Value::as_object)
        .is_none_or(|wanted| {
            wanted
                .iter()
                .all(|(key, value)| label(key) == value.as_str() && value.is_string())
        });
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    equal
        && expressions.is_none_or(|expressions| {
            expressions.iter().all(|expression| {
                let text = |name: &str| expression.get(name).and_then(Value::as_str).unwrap_or_default();
                let present = label(text("key"));
                let listed = || {
                    let values = expression.get("values").and_then(Value::as_array);
                    present.is_some_and(|present| {
                        values
                            .is_some_and(|values| values.iter().any(|value| value.as_str() == Some(present)))
                    })
                };
                match text("operator") {
                    "In" => listed(),
                    "NotIn" => !listed(),
                    "Exists" => present.is_some(),
                    "DoesNotExist" => present.is_none(),
                    _ => false,
                }
            })
        })
}

/// What is wrong with a selector in object form.
pub(crate) fn validate_selector(selector: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if let Some(labels) = selector.get("matchLabels") {
        validate_labels(labels, &path.child("matchLabels"), errors);
    }
    let Some(expressions) = selector.get("matchExpressions").and_then(Value::as_array) else {
        return;
    };
    for (index, expression) in expressions.iter().enumerate() {
        let at = path.child("matchExpressions").index(index);
        let text = |name: &str| expression.get(name).and_then(Value::as_str).unwrap_or_default();
        let values = expression
            .get("values")
            .and_then(Value::as_array)
            .map_or(0, Vec::len);
        match text("operator") {
            "In" | "NotIn" if values == 0 => {
                let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(FieldError::required(&at.child("values"), detail));
            }
            "Exists" | "DoesNotExist" if values > 0 => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(FieldError::forbidden(&at.child("values"), detail));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => {
                errors.push(FieldError::invalid(
                    &at.child("operator"),
                    Value::from(other),
                    "not a valid selector operator",
                ));
            }
        }
        for message in names::qualified_name(text("key")) {
            errors.push(FieldError::invalid(
                &at.child("key"),
                Value::from(text("key")),
                message,
            ));
        }
        let values = expression.get("values").and_then(Value::as_array);
        for (index, value) in values.into_iter().flatten().enumerate() {
            for message in value.as_str().map(names::label_value).unwrap_or_default() {
                let at = at.child("values").index(index);
                errors.push(FieldError::invalid(&at, value.clone(), message));
            }
        }
    }
}

/// What is wrong with the keys and values of labels.
pub(crate) fn validate_labels(labels: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        for message in names::qualified_name(key) {
            errors.push(FieldError::invalid(path, Value::from(key.as_str()), message));
        }
        for message in value.as_str().map(names::label_value).unwrap_or_default() {
            errors.push(FieldError::invalid(path, value.clone(), message));
        }
    }
}
