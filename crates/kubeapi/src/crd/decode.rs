//! Schemas whose keywords have values of the wrong type. The reference decodes a schema into a structure and refuses such
//! a value before it looks at anything else, with the decoder's text. Requirements KA-006, KA-013.

use serde_json::Value;

use super::versions;

/// What a keyword holds.
#[derive(Clone, Copy)]
enum Wanted {
    Text,
    Float,
    Integer,
    Flag,
    Texts,
    Values,
    Schema,
    Schemas,
    NamedSchemas,
    /// A schema or something else; such a value is decoded on its own.
    SchemaOr,
    Rules,
}

impl Wanted {
    fn of(keyword: &str) -> Option<Self> {
        Some(match keyword {
            "id"
            | "$schema"
            | "$ref"
            | "description"
            | "type"
            | "format"
            | "title"
            | "pattern"
            | "x-kubernetes-list-type"
            | "x-kubernetes-map-type" => Self::Text,
            "maximum" | "minimum" | "multipleOf" => Self::Float,
            "maxLength" | "minLength" | "maxItems" | "minItems" | "maxProperties" | "minProperties" => {
                Self::Integer
            }
            "exclusiveMaximum"
            | "exclusiveMinimum"
            | "uniqueItems"
            | "nullable"
            | "x-kubernetes-preserve-unknown-fields"
            | "x-kubernetes-embedded-resource"
            | "x-kubernetes-int-or-string" => Self::Flag,
            "required" | "x-kubernetes-list-map-keys" => Self::Texts,
            "enum" => Self::Values,
            "not" => Self::Schema,
            "allOf" | "anyOf" | "oneOf" => Self::Schemas,
            "properties" | "patternProperties" | "definitions" => Self::NamedSchemas,
            "items" | "additionalProperties" | "additionalItems" => Self::SchemaOr,
            "x-kubernetes-validations" => Self::Rules,
            _ => return None,
        })
    }

    /// The name of the type in the decoder's text.
    fn name(self) -> &'static str {
        match self {
            Self::Text => "string",
            Self::Float => "float64",
            Self::Integer => "int64",
            Self::Flag => "bool",
            Self::Texts => "[]string",
            Self::Values => "[]v1.JSON",
            Self::Schema | Self::SchemaOr => "v1.JSONSchemaProps",
            Self::Schemas => "[]v1.JSONSchemaProps",
            Self::NamedSchemas => "map[string]v1.JSONSchemaProps",
            Self::Rules => "v1.ValidationRules",
        }
    }

    fn fits(self, value: &Value) -> bool {
        match self {
            Self::Text => value.is_string(),
            Self::Float => value.is_number(),
            Self::Integer => value.is_i64(),
            Self::Flag => value.is_boolean(),
            Self::Texts | Self::Values | Self::Schemas | Self::Rules => value.is_array(),
            Self::Schema | Self::NamedSchemas => value.is_object(),
            Self::SchemaOr => value.is_object() || value.is_array() || value.is_boolean(),
        }
    }
}

/// The decoder's text for the first keyword of a definition's schemas whose value has the wrong type.
pub(crate) fn decode_error(definition: &Value) -> Option<String> {
    versions(definition).find_map(|version| {
        let schema = version.pointer("/schema/openAPIV3Schema")?;
        visit(schema, "spec.versions.schema.openAPIV3Schema")
    })
}

fn visit(schema: &Value, path: &str) -> Option<String> {
    for (keyword, value) in schema.as_object()? {
        let Some(wanted) = Wanted::of(keyword).filter(|_| !value.is_null()) else {
            continue;
        };
        let at = match path {
            "" => keyword.clone(),
            path => format!("{path}.{keyword}"),
        };
        if !wanted.fits(value) {
            return Some(mismatch(value, &at, wanted.name()));
        }
        let items = || value.as_array().into_iter().flatten();
        let found = match wanted {
            Wanted::Texts => items()
                .find(|item| !item.is_string() && !item.is_null())
                .map(|item| mismatch(item, &at, "string")),
            Wanted::Schema => visit(value, &at),
            Wanted::Schemas => items().find_map(|item| below(item, &at)),
            Wanted::NamedSchemas => value
                .as_object()
                .into_iter()
                .flatten()
                .find_map(|(_, nested)| below(nested, &at)),
            Wanted::SchemaOr => match value {
                Value::Array(items) => items.iter().find_map(|item| below(item, "")),
                other => visit(other, ""),
            },
            _ => None,
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

/// A schema in a list or map, where the decoder's path has neither index nor name.
fn below(schema: &Value, path: &str) -> Option<String> {
    if schema.is_object() || schema.is_null() {
        visit(schema, path)
    } else {
        Some(mismatch(schema, path, "v1.JSONSchemaProps"))
    }
}

fn mismatch(value: &Value, path: &str, wanted: &str) -> String {
    let found = match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(number) if wanted == "int64" => format!("number {number}"),
        Value::Number(_) => "number".to_owned(),
        Value::String(_) => "string".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
    };
    if path.is_empty() {
        format!("json: cannot unmarshal {found} into Go value of type {wanted}")
    } else {
        format!("json: cannot unmarshal {found} into Go struct field JSONSchemaProps.{path} of type {wanted}")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use serde_json::json;

    use super::*;

    fn error(schema: Value) -> Option<String> {
        decode_error(&json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]}}))
    }

    #[test]
    fn a_keyword_of_the_wrong_type_is_told_with_its_place_ka_013() {
        assert_eq!(
            error(json!({"type": "object", "required": "x"})).unwrap(),
            "json: cannot unmarshal string into Go struct field \
             JSONSchemaProps.spec.versions.schema.openAPIV3Schema.required of type []string"
        );
        assert_eq!(
            error(json!({"properties": {"a": {"format": 5}}})).unwrap(),
            "json: cannot unmarshal number into Go struct field \
             JSONSchemaProps.spec.versions.schema.openAPIV3Schema.properties.format of type string"
        );
        assert_eq!(
            error(json!({"properties": {"a": {"minLength": 1.5}}})).unwrap(),
            "json: cannot unmarshal number 1.5 into Go struct field \
             JSONSchemaProps.spec.versions.schema.openAPIV3Schema.properties.minLength of type int64"
        );
        assert_eq!(
            error(json!({"properties": {"a": {"items": {"type": 1}}}})).unwrap(),
            "json: cannot unmarshal number into Go struct field JSONSchemaProps.type of type string"
        );
        let good = json!({"type": "object", "properties": {"a": {"enum": [1, "x", null], "default": 5,
            "additionalProperties": true, "not": {"required": ["b"]}, "nullable": null}}});
        assert_eq!(error(good), None);
    }
}
