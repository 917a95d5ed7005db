//! A body's properties as arguments (OM-428).

use std::collections::BTreeSet;

use serde_json::{Map, Value};

// Definitions and parts that are looked into; a body is not nested deeper in practice.
const MAX_DEPTH: usize = 8;

// Alternatives may refer to one large definition again and again.
const MAX_STEPS: usize = 20_000;

/// The properties of an object, wherever its schema declares them.
#[derive(Debug, Default)]
pub(super) struct Flat {
    pub(super) properties: Map<String, Value>,
    pub(super) required: BTreeSet<String>,
    /// Schema of further properties; `None` accepts any.
    pub(super) additional: Option<Value>,
    /// Whether `properties`, `required` and `additional` say all that the schema says.
    pub(super) exact: bool,
    steps: usize,
}

/// The properties of `schema`, or `None` when it is no object or its alternatives differ in them: then
/// the body is one argument.
pub(super) fn flatten(schema: &Value, definitions: &Map<String, Value>) -> Option<Flat> {
    let mut flat = Flat {
        exact: true,
        ..Flat::default()
    };
    let is_object = collect(schema, definitions, 0, &mut flat)?;
    (is_object || !flat.properties.is_empty()).then_some(flat)
}

/// Adds what `schema` says to `flat`; tells whether it says that it is an object.
fn collect(schema: &Value, definitions: &Map<String, Value>, depth: usize, flat: &mut Flat) -> Option<bool> {
    let fields = schema.as_object()?;
    flat.steps += 1;
    if depth > MAX_DEPTH || flat.steps > MAX_STEPS {
        return None;
    }
    let mut is_object = false;
    let mut alternatives = Vec::new();
    for (keyword, value) in fields {
        match keyword.as_str() {
            "description" | "default" | "format" => {}
            "type" => match value {
                Value::String(kind) if kind == "object" => is_object = true,
                Value::Array(kinds) if kinds.iter().any(|kind| kind == "object") => {
                    is_object = true;
                    flat.exact = false;
                }
                _ => return None,
            },
            "properties" => {
                flat.steps += value.as_object().map_or(0, Map::len);
                for (name, property) in value.as_object().into_iter().flatten() {
                    match flat.properties.get(name) {
                        // The first one is told; the body is checked against both.
                        Some(known) if known != property => flat.exact = false,
                        Some(_) => {}
                        None => {
                            flat.properties.insert(name.clone(), property.clone());
                        }
                    }
                }
            }
            "required" => {
                let names = value.as_array().into_iter().flatten().filter_map(Value::as_str);
                flat.required.extend(names.map(str::to_owned));
            }
            "additionalProperties" => match value {
                Value::Bool(true) => {}
                // In a part it speaks of that part's properties only.
                _ if depth > 0 => flat.exact = false,
                schema => flat.additional = Some(schema.clone()),
            },
            "$ref" => {
                let name = value.as_str()?.strip_prefix("#/$defs/")?;
                is_object |= collect(definitions.get(name)?, definitions, depth + 1, flat)?;
            }
            "allOf" => {
                for part in value.as_array().into_iter().flatten() {
                    is_object |= collect(part, definitions, depth + 1, flat)?;
                }
            }
            "anyOf" | "oneOf" => alternatives.extend(value.as_array().into_iter().flatten()),
            _ => flat.exact = false,
        }
    }
    for alternative in alternatives {
        let mut branch = Flat {
            steps: flat.steps,
            ..Flat::default()
        };
        let says_object = collect(alternative, definitions, depth + 1, &mut branch)?;
        flat.steps = branch.steps;
        let own = branch.properties.iter();
        if !own
            .into_iter()
            .all(|(name, schema)| flat.properties.get(name) == Some(schema))
        {
            return None;
        }
        is_object |= says_object;
        flat.exact = false;
    }
    // Beside such keywords, a limit on further properties would be the wrong one.
    if ["patternProperties", "unevaluatedProperties", "allOf", "$ref"]
        .iter()
        .any(|keyword| fields.contains_key(*keyword))
        && flat.additional.take().is_some()
    {
        flat.exact = false;
    }
    Some(is_object)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use serde_json::json;

    use super::*;

    fn flat(schema: &Value) -> Option<Flat> {
        let definitions = json!({"Base": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}});
        flatten(schema, definitions.as_object().unwrap())
    }

    #[test]
    fn parts_of_a_body_are_united_om_428() {
        let flat = flat(&json!({"allOf": [{"$ref": "#/$defs/Base"}, {"properties": {"name": {"type": "string"}}}], "required": ["name"]}))
            .unwrap();
        assert_eq!(
            Value::Object(flat.properties),
            json!({"id": {"type": "integer"}, "name": {"type": "string"}})
        );
        assert_eq!(flat.required.into_iter().collect::<Vec<_>>(), ["id", "name"]);
        assert!(flat.exact);
    }

    #[test]
    fn further_constraints_are_noted_and_different_alternatives_are_not_flattened() {
        let free = flat(&json!({"type": "object"})).unwrap();
        assert!(free.exact && free.properties.is_empty() && free.additional.is_none());
        let closed = flat(&json!({"type": "object", "additionalProperties": false})).unwrap();
        assert_eq!(closed.additional, Some(json!(false)));
        let either = flat(&json!({"type": "object", "properties": {"a": {}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}))
            .unwrap();
        assert!(!either.exact && either.required.is_empty());
        for schema in [
            json!({"oneOf": [{"properties": {"kind": {"const": "a"}}}, {"properties": {"kind": {"const": "b"}}}]}),
            json!({"type": "array", "items": {}}),
            json!({}),
            json!(true),
            json!({"$ref": "#/$defs/Absent"}),
        ] {
            assert!(flat(&schema).is_none(), "{schema}");
        }
    }
}
