//! Versions of a definition as the reference's messages show them: as the structures that it keeps them in.

use serde_json::{Map, Value, json};

use super::versions;
use crate::schema::{self, ValidationRule};

/// The keywords of a schema in the order of the structure, with the names that they have there and what stands for
/// their absence.
const KEYWORDS: [(&str, &str, Absent); 43] = [
    ("ID", "id", Absent::Text),
    ("Schema", "$schema", Absent::Text),
    ("Ref", "$ref", Absent::Null),
    ("Description", "description", Absent::Text),
    ("Type", "type", Absent::Text),
    ("Nullable", "nullable", Absent::False),
    ("Format", "format", Absent::Text),
    ("Title", "title", Absent::Text),
    ("Default", "default", Absent::Null),
    ("Maximum", "maximum", Absent::Null),
    ("ExclusiveMaximum", "exclusiveMaximum", Absent::False),
    ("Minimum", "minimum", Absent::Null),
    ("ExclusiveMinimum", "exclusiveMinimum", Absent::False),
    ("MaxLength", "maxLength", Absent::Null),
    ("MinLength", "minLength", Absent::Null),
    ("Pattern", "pattern", Absent::Text),
    ("MaxItems", "maxItems", Absent::Null),
    ("MinItems", "minItems", Absent::Null),
    ("UniqueItems", "uniqueItems", Absent::False),
    ("MultipleOf", "multipleOf", Absent::Null),
    ("Enum", "enum", Absent::Null),
    ("MaxProperties", "maxProperties", Absent::Null),
    ("MinProperties", "minProperties", Absent::Null),
    ("Required", "required", Absent::Null),
    ("Items", "items", Absent::Null),
    ("AllOf", "allOf", Absent::Null),
    ("OneOf", "oneOf", Absent::Null),
    ("AnyOf", "anyOf", Absent::Null),
    ("Not", "not", Absent::Null),
    ("Properties", "properties", Absent::Null),
    ("AdditionalProperties", "additionalProperties", Absent::Null),
    ("PatternProperties", "patternProperties", Absent::Null),
    ("Dependencies", "dependencies", Absent::Null),
    ("AdditionalItems", "additionalItems", Absent::Null),
    ("Definitions", "definitions", Absent::Null),
    ("ExternalDocs", "externalDocs", Absent::Null),
    ("Example", "example", Absent::Null),
    (
        "XPreserveUnknownFields",
        "x-kubernetes-preserve-unknown-fields",
        Absent::Null,
    ),
    (
        "XEmbeddedResource",
        "x-kubernetes-embedded-resource",
        Absent::False,
    ),
    ("XIntOrString", "x-kubernetes-int-or-string", Absent::False),
    ("XListMapKeys", "x-kubernetes-list-map-keys", Absent::Null),
    ("XListType", "x-kubernetes-list-type", Absent::Null),
    ("XMapType", "x-kubernetes-map-type", Absent::Null),
];

#[derive(Clone, Copy)]
enum Absent {
    Null,
    Text,
    False,
}

/// The list of a definition's versions; what all of them have in common is kept elsewhere, and not shown.
pub(super) fn shown_versions(definition: &Value) -> String {
    let is_shared = |name: &str| {
        let mut values =
            versions(definition).map(|version| version.get(name).filter(|value| !value.is_null()));
        let first = values.next().flatten();
        first.is_some() && values.all(|value| value == first)
    };
    let shared = [
        "schema",
        "subresources",
        "additionalPrinterColumns",
        "selectableFields",
    ]
    .map(|name| (name, is_shared(name)));
    let shown: Vec<String> = versions(definition)
        .map(|version| {
            let own = |name: &str| {
                version
                    .get(name)
                    .filter(|value| !value.is_null() && !shared.contains(&(name, true)))
            };
            let flag = |name: &str| version.get(name) == Some(&Value::Bool(true));
            structure(&[
                ("Name", json!(super::text(version, "/name")).to_string()),
                ("Served", flag("served").to_string()),
                ("Storage", flag("storage").to_string()),
                ("Deprecated", flag("deprecated").to_string()),
                ("DeprecationWarning", or_null(version.get("deprecationWarning"))),
                (
                    "Schema",
                    own("schema").map_or_else(null, |schema| {
                        let inner = schema.get("openAPIV3Schema").map_or_else(null, shown_schema);
                        structure(&[("OpenAPIV3Schema", inner)])
                    }),
                ),
                (
                    "Subresources",
                    own("subresources").map_or_else(null, shown_subresources),
                ),
                (
                    "AdditionalPrinterColumns",
                    own("additionalPrinterColumns").map_or_else(null, |columns| list(columns, shown_column)),
                ),
                (
                    "SelectableFields",
                    own("selectableFields").map_or_else(null, |fields| {
                        list(fields, |field| {
                            structure(&[("JSONPath", json!(super::text(field, "/jsonPath")).to_string())])
                        })
                    }),
                ),
            ])
        })
        .collect();
    format!("[{}]", shown.join(","))
}

fn null() -> String {
    "null".to_owned()
}

fn or_null(value: Option<&Value>) -> String {
    value.map_or_else(null, Value::to_string)
}

fn structure(fields: &[(&str, String)]) -> String {
    let fields: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("{}:{value}", json!(name)))
        .collect();
    format!("{{{}}}", fields.join(","))
}

fn list(values: &Value, shown: impl Fn(&Value) -> String) -> String {
    let items: Vec<String> = values.as_array().into_iter().flatten().map(shown).collect();
    format!("[{}]", items.join(","))
}

fn shown_subresources(subresources: &Value) -> String {
    let status = match subresources.get("status") {
        Some(Value::Object(_)) => "{}".to_owned(),
        _ => null(),
    };
    let scale = match subresources.get("scale") {
        Some(scale @ Value::Object(_)) => {
            let text = |name: &str| json!(super::text(scale, name)).to_string();
            structure(&[
                ("SpecReplicasPath", text("/specReplicasPath")),
                ("StatusReplicasPath", text("/statusReplicasPath")),
                ("LabelSelectorPath", or_null(scale.get("labelSelectorPath"))),
            ])
        }
        _ => null(),
    };
    structure(&[("Status", status), ("Scale", scale)])
}

fn shown_column(column: &Value) -> String {
    let text = |name: &str| json!(super::text(column, name)).to_string();
    let priority = column.get("priority").and_then(Value::as_i64).unwrap_or(0);
    structure(&[
        ("Name", text("/name")),
        ("Type", text("/type")),
        ("Format", text("/format")),
        ("Description", text("/description")),
        ("Priority", priority.to_string()),
        ("JSONPath", text("/jsonPath")),
    ])
}

fn shown_schema(schema: &Value) -> String {
    let empty = Map::new();
    let fields = schema.as_object().unwrap_or(&empty);
    let mut shown: Vec<(&str, String)> = KEYWORDS
        .iter()
        .map(|(name, keyword, absent)| {
            let value = fields.get(*keyword).filter(|value| !value.is_null());
            let text = match (value, absent) {
                (None, Absent::Null) => null(),
                (None, Absent::Text) => "\"\"".to_owned(),
                (None, Absent::False) => "false".to_owned(),
                (Some(value), _) => shown_keyword(keyword, value),
            };
            (*name, text)
        })
        .collect();
    let rules = fields
        .get("x-kubernetes-validations")
        .map_or_else(null, |rules| list(rules, shown_rule));
    shown.push(("XValidations", rules));
    structure(&shown)
}

fn shown_keyword(keyword: &str, value: &Value) -> String {
    match (keyword, value) {
        ("allOf" | "anyOf" | "oneOf", value) => list(value, shown_schema),
        ("not", schema) => shown_schema(schema),
        ("properties" | "patternProperties" | "definitions", Value::Object(fields)) => {
            let fields: Vec<(&str, String)> = fields
                .iter()
                .map(|(name, schema)| (name.as_str(), shown_schema(schema)))
                .collect();
            structure(&fields)
        }
        ("items", Value::Array(_)) => {
            structure(&[("Schema", null()), ("JSONSchemas", list(value, shown_schema))])
        }
        ("items", schema) => structure(&[("Schema", shown_schema(schema)), ("JSONSchemas", null())]),
        ("additionalProperties" | "additionalItems", Value::Bool(allows)) => {
            structure(&[("Allows", allows.to_string()), ("Schema", null())])
        }
        ("additionalProperties" | "additionalItems", schema) => {
            structure(&[("Allows", "true".to_owned()), ("Schema", shown_schema(schema))])
        }
        ("externalDocs", documents) => structure(&[
            (
                "Description",
                json!(super::text(documents, "/description")).to_string(),
            ),
            ("URL", json!(super::text(documents, "/url")).to_string()),
        ]),
        (_, value) => value.to_string(),
    }
}

fn shown_rule(rule: &Value) -> String {
    // A rule that is none was refused before anything is shown.
    let rule: ValidationRule = serde_json::from_value(rule.clone()).unwrap_or_default();
    schema::shown_rule(&rule)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn what_versions_share_is_not_shown_and_what_they_do_not_is_ka_012() {
        let column = json!({"name": "a", "type": "string", "jsonPath": ".a"});
        let schema = json!({"openAPIV3Schema": {"type": "object"}});
        let definition = json!({"spec": {"versions": [
            {"name": "v1", "served": true, "storage": true, "schema": schema, "subresources": {"status": {}},
             "deprecated": true, "deprecationWarning": "x", "additionalPrinterColumns": [column]},
            {"name": "v1", "served": true, "storage": false, "schema": schema}]}});
        assert_eq!(
            shown_versions(&definition),
            r#"[{"Name":"v1","Served":true,"Storage":true,"Deprecated":true,"DeprecationWarning":"x","Schema":null,"Subresources":{"Status":{},"Scale":null},"AdditionalPrinterColumns":[{"Name":"a","Type":"string","Format":"","Description":"","Priority":0,"JSONPath":".a"}],"SelectableFields":null},{"Name":"v1","Served":true,"Storage":false,"Deprecated":false,"DeprecationWarning":null,"Schema":null,"Subresources":null,"AdditionalPrinterColumns":null,"SelectableFields":null}]"#
        );
        let shown = shown_schema(&json!({"type": "string", "minLength": 1}));
        assert!(shown.starts_with(
            r#"{"ID":"","Schema":"","Ref":null,"Description":"","Type":"string","Nullable":false,"#
        ));
        assert!(shown.ends_with(r#""XListType":null,"XMapType":null,"XValidations":null}"#));
        assert!(shown.contains(r#""MinLength":1,"Pattern":"""#));
    }
}
