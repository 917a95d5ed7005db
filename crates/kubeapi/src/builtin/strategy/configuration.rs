//! ConfigMaps, Secrets and Leases.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};

use crate::{
    builtin::validation::formats,
    field::{FieldError, FieldErrorKind, FieldPath},
    strict,
};

/// The most that the data of one ConfigMap or Secret may hold, in bytes.
const MAX_DATA_BYTES: usize = 1024 * 1024;

/// Moves `stringData` into `data`, encoded; it is never stored.
pub(super) fn default_secret(object: &mut Value) {
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    let Some(Value::Object(texts)) = fields.remove("stringData") else {
        return;
    };
    if texts.is_empty() {
        return;
    }
    let data = fields.entry("data").or_insert_with(|| Value::Object(Map::new()));
    if !data.is_object() {
        *data = Value::Object(Map::new());
    }
    if let Some(data) = data.as_object_mut() {
        for (key, text) in texts {
            let encoded = STANDARD.encode(text.as_str().unwrap_or_default());
            data.insert(key, Value::from(encoded));
        }
    }
}

pub(super) fn validate_config_map(object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let mut total = 0;
    for field in ["data", "binaryData"] {
        let at = FieldPath::of(field);
        for (key, value) in object.get(field).and_then(Value::as_object).into_iter().flatten() {
            validate_key(key, &at, errors);
            if field == "data"
                && object
                    .get("binaryData")
                    .is_some_and(|binary| binary.get(key).is_some())
            {
                errors.push(FieldError::invalid(
                    &at.key(key),
                    Value::from(key.as_str()),
                    "duplicate of key present in binaryData",
                ));
            }
            total += value.as_str().map_or(0, |text| size(text, field == "binaryData"));
        }
    }
    if total > MAX_DATA_BYTES {
        errors.push(FieldError::too_long(
            &FieldPath::of("[]"),
            format!("may not be more than {MAX_DATA_BYTES} bytes"),
        ));
    }
    validate_immutable(object, old, &["data", "binaryData"], errors);
}

pub(super) fn validate_secret(object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let at = FieldPath::of("data");
    let data = object.get("data").and_then(Value::as_object);
    let mut total = 0;
    for (key, value) in data.into_iter().flatten() {
        validate_key(key, &at, errors);
        total += value.as_str().map_or(0, |text| size(text, true));
    }
    if total > MAX_DATA_BYTES {
        errors.push(FieldError::too_long(
            &at,
            format!("may not be more than {MAX_DATA_BYTES} bytes"),
        ));
    }
    validate_type(object, data, errors);
    if let Some(old) = old
        && old.get("type") != object.get("type")
    {
        let value = object.get("type").cloned().unwrap_or_default();
        errors.push(FieldError::invalid(
            &FieldPath::of("type"),
            value,
            "field is immutable",
        ));
    }
    validate_immutable(object, old, &["data"], errors);
}

/// What is wrong with what a Secret of its type must have.
fn validate_type(object: &Value, data: Option<&Map<String, Value>>, errors: &mut Vec<FieldError>) {
    let at = FieldPath::of("data");
    let value = |key: &str| data.and_then(|data| data.get(key));
    let mut require = |key: &str| {
        if value(key).is_none() {
            errors.push(FieldError::required(&at.key(key), ""));
        }
    };
    match object.get("type").and_then(Value::as_str).unwrap_or_default() {
        "kubernetes.io/dockercfg" => {
            require(".dockercfg");
            validate_json(&at.key(".dockercfg"), value(".dockercfg"), errors);
        }
        "kubernetes.io/dockerconfigjson" => {
            require(".dockerconfigjson");
            validate_json(&at.key(".dockerconfigjson"), value(".dockerconfigjson"), errors);
        }
        "kubernetes.io/ssh-auth" if value("ssh-privatekey").is_none_or(|key| key == "") => {
            errors.push(FieldError::required(&at.key("ssh-privatekey"), ""));
        }
        "kubernetes.io/tls" => {
            require("tls.crt");
            require("tls.key");
        }
        "kubernetes.io/basic-auth" if value("username").is_none() && value("password").is_none() => {
            require("username");
            require("password");
        }
        "kubernetes.io/service-account-token" => {
            let name = "kubernetes.io/service-account.name";
            let annotation = object
                .pointer("/metadata/annotations")
                .and_then(|annotations| annotations.get(name));
            if annotation.and_then(Value::as_str).unwrap_or_default().is_empty() {
                errors.push(FieldError::required(
                    &FieldPath::of("metadata.annotations").key(name),
                    "",
                ));
            }
        }
        _ => {}
    }
}

/// The credentials of a registry are an object in JSON; they are never shown.
fn validate_json(at: &FieldPath, value: Option<&Value>, errors: &mut Vec<FieldError>) {
    let Some(bytes) = value
        .and_then(Value::as_str)
        .and_then(|text| STANDARD.decode(text).ok())
    else {
        return;
    };
    let fault = match serde_json::from_slice::<Value>(&bytes) {
        Ok(Value::Object(_) | Value::Null) => return,
        Ok(other) => {
            let what = match other {
                Value::Array(_) => "array",
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                _ => "number",
            };
            format!("json: cannot unmarshal {what} into Go value of type map[string]interface {{}}")
        }
        // The words of the decoder show one character at most.
        Err(_) => strict::json_fault(&bytes).unwrap_or_else(|| "is no JSON".to_owned()),
    };
    let shown = Value::from("<secret contents redacted>");
    errors.push(FieldError::invalid(at, shown, fault));
}

/// An object that was marked immutable keeps its data and its mark.
fn validate_immutable(object: &Value, old: Option<&Value>, fields: &[&str], errors: &mut Vec<FieldError>) {
    let Some(old) = old.filter(|old| old.get("immutable") == Some(&Value::Bool(true))) else {
        return;
    };
    const DETAIL: &str = "field is immutable when `immutable` is set";
    if object.get("immutable") != Some(&Value::Bool(true)) {
        errors.push(FieldError::forbidden(&FieldPath::of("immutable"), DETAIL));
    }
    let content = |object: &Value, field: &str| {
        object
            .get(field)
            .and_then(Value::as_object)
            .filter(|content| !content.is_empty())
            .cloned()
    };
    for field in fields {
        if content(object, field) != content(old, field) {
            errors.push(FieldError::forbidden(&FieldPath::of(*field), DETAIL));
        }
    }
}

fn validate_key(key: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    for detail in formats::config_key(key) {
        errors.push(FieldError::invalid(&at.key(key), Value::from(key), detail));
    }
}

fn size(text: &str, encoded: bool) -> usize {
    if encoded {
        text.trim_end_matches('=').len() * 3 / 4
    } else {
        text.len()
    }
}

pub(super) fn validate_lease(object: &Value, _old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let at = FieldPath::of("spec");
    for (name, least) in [("leaseDurationSeconds", 1), ("leaseTransitions", 0)] {
        let Some(value) = object.pointer(&format!("/spec/{name}")) else {
            continue;
        };
        if value.as_i64().is_some_and(|number| number < least) {
            let bound = if least == 1 {
                "greater than 0"
            } else {
                "greater than or equal to 0"
            };
            errors.push(FieldError {
                kind: FieldErrorKind::Invalid,
                path: at.child(name),
                value: Some(value.clone()),
                detail: format!("must be {bound}"),
            });
        }
    }
}
