//! Pieces of schema that several kinds share.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// Go's duration syntax (OM-005): an optional sign, then `0` or numbers with units.
pub(crate) const DURATION_PATTERN: &str = r"^[+-]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$";

/// Names of handlers, sandboxes and provider entries.
pub(crate) const NAME_PATTERN: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";

/// A decimal number in text form.
pub(crate) const DECIMAL_PATTERN: &str = r"^[0-9]+(\.[0-9]+)?$";

pub(crate) fn duration(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": DURATION_PATTERN })
}

pub(crate) fn name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": NAME_PATTERN, "minLength": 1, "maxLength": 63 })
}

pub(crate) fn decimal(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": DECIMAL_PATTERN })
}

pub(crate) fn non_empty(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1 })
}

/// An object whose fields are not described here: a JSON Schema, or a type of core/v1 (OM-003).
pub(crate) fn open_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// A list of objects whose fields are not described here.
pub(crate) fn open_objects(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
    })
}

/// Any JSON value.
pub(crate) fn open_value(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
}

/// A decimal number, written as a number or as text. A structural schema has no union of types, so the type stays
/// undeclared; `pattern` binds only strings and the bounds only numbers, and the rest excludes what is neither.
pub(crate) fn decimal_or_number(maximum: u32) -> Schema {
    json_schema!({
        "x-kubernetes-preserve-unknown-fields": true,
        "pattern": DECIMAL_PATTERN,
        "minimum": 0,
        "maximum": maximum,
        "maxItems": 0,
        "maxProperties": 0,
        "not": { "enum": [true, false, [], {}] },
    })
}

/// `status.conditions` (OM-007), with the bounds of the Kubernetes condition type.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "description": "One aspect of the current state.",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "lastTransitionTime": {
                    "type": "string",
                    "format": "date-time",
                    "description": "When the status last changed from one value to another.",
                },
                "message": {
                    "type": "string",
                    "maxLength": crate::conditions::MESSAGE_LIMIT,
                    "description": "A sentence for people about the last change.",
                },
                "observedGeneration": {
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                    "description": "The metadata.generation that the condition was set for.",
                },
                "reason": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                    "description": "The cause of the current status as one word.",
                },
                "status": {
                    "type": "string",
                    "enum": ["True", "False", "Unknown"],
                    "description": "True, False or Unknown.",
                },
                "type": {
                    "type": "string",
                    "maxLength": 316,
                    "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                    "description": "The aspect, in CamelCase.",
                },
            },
        },
    })
}

/// A moment, RFC 3339.
pub(crate) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

/// A list of `T` that server-side apply merges by the field `key`.
pub(crate) fn keyed_list<T: JsonSchema>(generator: &mut SchemaGenerator, key: &str) -> Schema {
    let items = generator.subschema_for::<T>();
    json_schema!({
        "type": "array",
        "items": items,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": [key],
    })
}
