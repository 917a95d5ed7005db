//! Pieces of schema that the kinds share. Each has a limit (AK-008).

use schemars::{Schema, SchemaGenerator, json_schema};

use crate::schemas;

/// One label of a DNS name: a namespace.
const LABEL_PATTERN: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// A DNS name: the name of most objects.
const SUBDOMAIN_PATTERN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// A key of a Secret.
const SECRET_KEY_PATTERN: &str = "^[-._a-zA-Z0-9]+$";
/// The longest duration in text form: `23h59m59.999999999s` and some.
const DURATION_LENGTH: u32 = 32;
/// Conditions of a status. Three types are ours; others may add some.
const CONDITIONS: u32 = 16;

pub(super) fn object_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": SUBDOMAIN_PATTERN, "minLength": 1, "maxLength": 253 })
}

pub(super) fn namespace(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": LABEL_PATTERN, "minLength": 1, "maxLength": 63 })
}

pub(super) fn secret_key(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": SECRET_KEY_PATTERN, "minLength": 1, "maxLength": 253 })
}

/// Namespaces, or `*` for all (AK-051).
pub(super) fn allowed_namespaces(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "set",
        "maxItems": 256,
        "items": {
            "type": "string",
            "pattern": r"^(\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$",
            "minLength": 1,
            "maxLength": 63,
        },
    })
}

/// A duration of one second to a day. A text that is no duration fails by its pattern and is not judged twice.
pub(super) fn duration(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "pattern": schemas::DURATION_PATTERN,
        "maxLength": DURATION_LENGTH,
        "x-kubernetes-validations": [{
            "rule": format!(
                "!self.matches('{}') || (duration(self) >= duration('1s') && duration(self) <= duration('24h'))",
                schemas::DURATION_PATTERN.replace('\\', r"\\")
            ),
            "message": "must be between 1s and 24h",
        }],
    })
}

/// `status.conditions`, with a limit to their number.
pub(super) fn conditions(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = schemas::conditions(generator);
    schema.insert("maxItems".into(), CONDITIONS.into());
    schema
}
