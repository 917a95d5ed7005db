//! The compiled-in JSON Schema of `pack.json` (OM-301, OM-302) and the wording of its findings.

use std::sync::LazyLock;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{Draft, ValidationError};
use serde_json::Value;

use super::Finding;

static SCHEMA: &str = include_str!("../../data/promptpack.schema.json");

/// Built once. The error case exists because the build step can fail in principle; a test compiles the
/// schema, so a release cannot carry it.
static VALIDATOR: LazyLock<Result<jsonschema::Validator, String>> = LazyLock::new(|| {
    let schema: Value = serde_json::from_str(SCHEMA).map_err(|error| error.to_string())?;
    jsonschema::options()
        .with_draft(Draft::Draft7)
        .build(&schema)
        .map_err(|error| error.to_string())
});

/// All findings of the schema, ordered by path. Needs no network (OM-302).
pub(super) fn check(document: &Value) -> Vec<Finding> {
    let validator = match &*VALIDATOR {
        Ok(validator) => validator,
        Err(error) => {
            return vec![Finding::new(
                "/",
                format!("cannot be checked: compiled-in schema: {error}"),
            )];
        }
    };
    let mut findings: Vec<Finding> = validator
        .iter_errors(document)
        .flat_map(|error| describe(&error))
        .collect();
    findings.sort();
    findings.dedup();
    findings
}

fn describe(error: &ValidationError<'_>) -> Vec<Finding> {
    let path = error.instance_path().as_str().to_owned();
    match error.kind() {
        // One finding per property, at the property: the reader looks for a name, not for its parent.
        ValidationErrorKind::AdditionalProperties { unexpected } => unexpected
            .iter()
            .map(|name| Finding::new(format!("{path}/{}", escape(name)), "unknown property"))
            .collect(),
        ValidationErrorKind::Required { property } => {
            let name = property.as_str().unwrap_or_default();
            vec![Finding::new(format!("{path}/{}", escape(name)), "is required")]
        }
        ValidationErrorKind::Type { kind } => {
            let expected = match kind {
                TypeKind::Single(kind) => kind.to_string(),
                TypeKind::Multiple(kinds) => kinds
                    .iter()
                    .map(|kind| kind.to_string())
                    .collect::<Vec<_>>()
                    .join(" or "),
            };
            vec![Finding::new(
                path,
                format!("must be {}, is {}", article(&expected), name_of(error.instance())),
            )]
        }
        ValidationErrorKind::Pattern { pattern } => {
            vec![Finding::new(
                path,
                format!("{} does not match {pattern}", error.instance()),
            )]
        }
        ValidationErrorKind::Enum { options } => {
            vec![Finding::new(
                path,
                format!("{} is not one of {options}", error.instance()),
            )]
        }
        ValidationErrorKind::MinProperties { limit } => {
            vec![Finding::new(path, format!("must have at least {limit} entry"))]
        }
        // The masked form does not repeat the value, which can be a whole prompt.
        _ => vec![Finding::new(path, error.masked().to_string())],
    }
}

fn article(kind: &str) -> String {
    let article = if kind.starts_with(['a', 'e', 'i', 'o', 'u']) {
        "an"
    } else {
        "a"
    };
    format!("{article} {kind}")
}

fn name_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// A name as a step of a JSON pointer (RFC 6901).
pub(super) fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
