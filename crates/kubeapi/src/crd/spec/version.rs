//! The rules for one version beside its schema: deprecation, scale, columns, selectable fields.

use serde_json::{Value, json};

use crate::{
    crd::{paths, text},
    field::{FieldError, FieldErrorKind, FieldPath},
};

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] = [
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
];
const MAX_SELECTABLE_FIELDS: usize = 8;
const MAX_DEPRECATION_WARNING: usize = 256;

pub(super) fn deprecation(version: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let Some(warning) = version.get("deprecationWarning").and_then(Value::as_str) else {
        return;
    };
    let mut refuse = |detail: &str| errors.push(FieldError::invalid(at, json!(warning), detail));
    if version.get("deprecated") != Some(&Value::Bool(true)) {
        refuse("can only be set for deprecated versions");
        return;
    }
    if warning.len() > MAX_DEPRECATION_WARNING {
        refuse("must be <= 256 characters long");
    }
    if warning.is_empty() {
        refuse("must not be an empty string");
    }
    if let Some((index, _)) = warning
        .char_indices()
        .find(|(_, character)| character.is_control())
    {
        refuse(&format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {index}"
        ));
    }
}

pub(super) fn scale(version: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let Some(scale) = version
        .pointer("/subresources/scale")
        .filter(|scale| scale.is_object())
    else {
        return;
    };
    for (field, prefix, place) in [
        ("specReplicasPath", ".spec.", "under .spec"),
        ("statusReplicasPath", ".status.", "under .status"),
    ] {
        let at = at.child("scale").child(field);
        let path = text(scale, &format!("/{field}"));
        if path.is_empty() {
            errors.push(FieldError::required(&at, ""));
        } else if !path.starts_with('.') {
            errors.push(FieldError::invalid(
                &at,
                json!(path),
                "must be a simple json path starting with .",
            ));
        } else if !path.starts_with(prefix) {
            errors.push(FieldError::invalid(
                &at,
                json!(path),
                format!("should be a json path {place}"),
            ));
        }
    }
    let selector = text(scale, "/labelSelectorPath");
    if !selector.is_empty() {
        let at = at.child("scale").child("labelSelectorPath");
        if !selector.starts_with('.') {
            errors.push(FieldError::invalid(
                &at,
                json!(selector),
                "must be a simple json path starting with .",
            ));
        } else if !selector.starts_with(".spec.") && !selector.starts_with(".status.") {
            let detail = "should be a json path under either .spec or .status";
            errors.push(FieldError::invalid(&at, json!(selector), detail));
        }
    }
}

pub(super) fn column(column: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    if text(column, "/name").is_empty() {
        errors.push(FieldError::required(&at.child("name"), ""));
    }
    let type_ = text(column, "/type");
    let detail = format!("must be one of {}", COLUMN_TYPES.join(","));
    if type_.is_empty() {
        errors.push(FieldError::required(&at.child("type"), detail));
    } else if !COLUMN_TYPES.contains(&type_) {
        errors.push(FieldError::invalid(&at.child("type"), json!(type_), detail));
    }
    let format = text(column, "/format");
    if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
        let detail = format!("must be one of {}", COLUMN_FORMATS.join(","));
        errors.push(FieldError::invalid(&at.child("format"), json!(format), detail));
    }
    let path = text(column, "/jsonPath");
    let at = at.child("JSONPath");
    if path.is_empty() {
        errors.push(FieldError::required(&at, ""));
    } else if !path.starts_with('.') {
        errors.push(FieldError::invalid(
            &at,
            json!(path),
            "must be a simple json path starting with .",
        ));
    }
}

pub(super) fn selectable_fields(version: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut seen: Vec<String> = Vec::new();
    let schema = version.pointer("/schema/openAPIV3Schema").unwrap_or(&Value::Null);
    let fields = version
        .get("selectableFields")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    for (index, field) in fields.enumerate() {
        let at = at.index(index).child("jsonPath");
        let path = text(field, "/jsonPath");
        if path.is_empty() {
            errors.push(FieldError::required(&at, ""));
            continue;
        }
        let (rendered, found) = match paths::resolve(path, schema, false) {
            Ok(resolved) => resolved,
            Err(reason) => {
                errors.push(FieldError::invalid(
                    &at,
                    json!(path),
                    format!("is an invalid path: {reason}"),
                ));
                continue;
            }
        };
        if rendered == "metadata" || rendered.starts_with("metadata.") {
            errors.push(FieldError::invalid(
                &at,
                json!(path),
                "must not point to fields in metadata",
            ));
        }
        if !matches!(text(found, "/type"), "string" | "boolean" | "integer") {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with \
                          formats are allowed.";
            errors.push(FieldError::invalid(&at, json!(path), detail));
        }
        if seen.contains(&rendered) {
            errors.push(FieldError::duplicate(&at, json!(path)));
        } else {
            seen.push(rendered);
        }
    }
    if seen.len() > MAX_SELECTABLE_FIELDS {
        errors.push(FieldError {
            kind: FieldErrorKind::TooMany,
            path: at.clone(),
            value: Some(json!(seen.len())),
            detail: format!("must have at most {MAX_SELECTABLE_FIELDS} items"),
        });
    }
}
