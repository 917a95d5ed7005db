//! How each format is asked for an answer in JSON (OR-201, OM-533).
//!
//! | wanted | Chat Completions | Responses | Messages |
//! |---|---|---|---|
//! | any JSON | `response_format.type: json_object` | `text.format.type: json_object` | a sentence of the system prompt |
//! | JSON by a schema | `response_format.json_schema` | `text.format` | `output_config.format`, or the sentence |
//!
//! Providers bind an answer to a schema only where every object lists all of its properties as required and allows no
//! others ([`is_closed`]). Another schema is told, and not enforced; what an answer is worth is found out by whoever
//! asked.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::request::ResponseFormat;

// Deeper schemas are not looked into, and so count as open.
const MAX_DEPTH: usize = 32;

/// `response_format` of Chat Completions.
pub(super) fn to_chat(format: &ResponseFormat) -> Option<Value> {
    match format {
        ResponseFormat::Text => None,
        ResponseFormat::Json => Some(json!({"type": "json_object"})),
        ResponseFormat::Schema { name, schema } => Some(json!({
            "type": "json_schema",
            "json_schema": {"name": wire_name(name), "schema": &**schema, "strict": is_closed(schema)},
        })),
    }
}

/// What a `response_format` of Chat Completions asks for.
pub(super) fn from_chat(format: Option<&Value>) -> ResponseFormat {
    let inner = format.and_then(|format| format.get("json_schema"));
    read(format, inner)
}

/// `text` of Responses.
pub(super) fn to_responses(format: &ResponseFormat) -> Option<Value> {
    let format = match format {
        ResponseFormat::Text => return None,
        ResponseFormat::Json => json!({"type": "json_object"}),
        ResponseFormat::Schema { name, schema } => json!({
            "type": "json_schema", "name": wire_name(name), "schema": &**schema, "strict": is_closed(schema),
        }),
    };
    Some(json!({"format": format}))
}

/// What a `text` of Responses asks for.
pub(super) fn from_responses(text: Option<&Value>) -> ResponseFormat {
    let format = text.and_then(|text| text.get("format"));
    read(format, format)
}

/// How Messages is asked.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ForMessages {
    /// `output_config`.
    pub(super) config: Option<Value>,
    /// What is added to the system prompt, where the format has no field for it.
    pub(super) instruction: Option<String>,
}

pub(super) fn to_messages(format: &ResponseFormat) -> ForMessages {
    match format {
        ResponseFormat::Text => ForMessages::default(),
        ResponseFormat::Json => ForMessages {
            config: None,
            instruction: Some("Answer with one JSON value and nothing else.".to_owned()),
        },
        ResponseFormat::Schema { schema, .. } if is_closed(schema) => ForMessages {
            config: Some(json!({"format": {"type": "json_schema", "schema": &**schema}})),
            instruction: None,
        },
        ResponseFormat::Schema { schema, .. } => ForMessages {
            config: None,
            instruction: Some(format!(
                "Answer with one JSON value that conforms to the following JSON Schema, and nothing else.\n{schema}"
            )),
        },
    }
}

/// What an `output_config` of Messages asks for.
pub(super) fn from_messages(config: Option<&Value>) -> ResponseFormat {
    let format = config.and_then(|config| config.get("format"));
    read(format, format)
}

fn read(format: Option<&Value>, schema: Option<&Value>) -> ResponseFormat {
    let kind = format
        .and_then(|format| format.get("type"))
        .and_then(Value::as_str);
    match kind {
        Some("json_object") => ResponseFormat::Json,
        Some("json_schema") => ResponseFormat::Schema {
            name: schema
                .and_then(|schema| schema.get("name"))
                .and_then(Value::as_str)
                .unwrap_or("answer")
                .to_owned(),
            schema: Arc::new(
                schema
                    .and_then(|schema| schema.get("schema"))
                    .cloned()
                    .unwrap_or_else(|| json!({})),
            ),
        },
        _ => ResponseFormat::Text,
    }
}

/// Providers take letters, digits, `_` and `-`, at most 64 of them.
fn wire_name(name: &str) -> String {
    let fit = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
    let name: String = name
        .chars()
        .map(|letter| if fit(letter) { letter } else { '_' })
        .take(64)
        .collect();
    if name.is_empty() {
        "answer".to_owned()
    } else {
        name
    }
}

/// Whether the root is an object, and every object lists all of its properties as required and allows no others.
fn is_closed(schema: &Value) -> bool {
    schema.get("type").and_then(Value::as_str) == Some("object") && closed(schema, 0)
}

fn closed(schema: &Value, depth: usize) -> bool {
    let Value::Object(schema) = schema else {
        // `true` and `false` say nothing that a provider could bind an answer to.
        return false;
    };
    if depth == MAX_DEPTH {
        return false;
    }
    let is_object = schema.contains_key("properties")
        || match schema.get("type") {
            Some(Value::String(kind)) => kind == "object",
            Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
            _ => false,
        };
    if is_object && !lists_all(schema) {
        return false;
    }
    let below = |keyword: &str| -> Vec<&Value> {
        match schema.get(keyword) {
            Some(Value::Object(map)) if matches!(keyword, "properties" | "$defs" | "definitions") => {
                map.values().collect()
            }
            Some(Value::Array(list)) => list.iter().collect(),
            Some(one @ Value::Object(_)) => vec![one],
            _ => Vec::new(),
        }
    };
    [
        "properties",
        "$defs",
        "definitions",
        "items",
        "anyOf",
        "allOf",
        "oneOf",
    ]
    .into_iter()
    .flat_map(below)
    .all(|schema| closed(schema, depth + 1))
}

fn lists_all(schema: &Map<String, Value>) -> bool {
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let none = Map::new();
    let properties = schema
        .get("properties")
        .and_then(Value::as_object)
        .unwrap_or(&none);
    schema.get("additionalProperties") == Some(&Value::Bool(false))
        && properties.keys().all(|name| required.contains(&name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(schema: Value) -> ResponseFormat {
        ResponseFormat::Schema {
            name: "order".to_owned(),
            schema: Arc::new(schema),
        }
    }

    fn open() -> Value {
        json!({"type": "object", "properties": {"id": {"type": "integer"}}})
    }

    fn shut() -> Value {
        json!({"type": "object", "additionalProperties": false, "required": ["id", "lines"], "properties": {
            "id": {"type": "integer"},
            "lines": {"type": "array", "items": {
                "type": "object", "additionalProperties": false, "required": [], "properties": {}}},
        }})
    }

    #[test]
    fn chat_completions_and_responses_name_the_schema_or_201() {
        assert_eq!(to_chat(&ResponseFormat::Text), None);
        assert_eq!(
            to_chat(&ResponseFormat::Json),
            Some(json!({"type": "json_object"}))
        );
        for (author, strict) in [(open(), false), (shut(), true)] {
            let format = schema(author.clone());
            assert_eq!(
                to_chat(&format),
                Some(json!({"type": "json_schema",
                    "json_schema": {"name": "order", "schema": author, "strict": strict}}))
            );
            assert_eq!(
                to_responses(&format),
                Some(
                    json!({"format": {"type": "json_schema", "name": "order", "schema": author, "strict": strict}})
                )
            );
        }
    }

    #[test]
    fn messages_binds_a_closed_schema_and_is_told_the_others_or_201() {
        let bound = to_messages(&schema(shut()));
        assert_eq!(
            bound.config,
            Some(json!({"format": {"type": "json_schema", "schema": shut()}}))
        );
        assert_eq!(bound.instruction, None);
        let told = to_messages(&schema(open()));
        assert_eq!(told.config, None);
        assert!(
            told.instruction
                .is_some_and(|text| text.ends_with(&open().to_string()))
        );
        assert!(
            to_messages(&ResponseFormat::Json)
                .instruction
                .is_some_and(|text| text.contains("one JSON value"))
        );
        assert_eq!(to_messages(&ResponseFormat::Text), ForMessages::default());
    }

    #[test]
    fn what_is_written_is_read_back_or_201() {
        for format in [ResponseFormat::Text, ResponseFormat::Json, schema(shut())] {
            assert_eq!(from_chat(to_chat(&format).as_ref()), format);
            assert_eq!(from_responses(to_responses(&format).as_ref()), format);
        }
        let config = to_messages(&schema(shut())).config;
        let ResponseFormat::Schema { schema, .. } = from_messages(config.as_ref()) else {
            panic!("{config:?}");
        };
        assert_eq!(*schema, shut());
        assert_eq!(from_chat(Some(&json!({"type": "grammar"}))), ResponseFormat::Text);
    }

    #[test]
    fn a_schema_with_anything_open_in_it_is_not_closed() {
        let with = |part: Value| json!({"type": "object", "additionalProperties": false, "required": ["a"], "properties": {"a": part}});
        assert!(is_closed(&with(json!({"type": ["string", "null"]}))));
        assert!(is_closed(&with(json!({"anyOf": [{"type": "string"}, shut()]}))));
        for part in [
            open(),
            json!(true),
            json!({"type": "array", "items": open()}),
            json!({"anyOf": [{"type": "null"}, open()]}),
            json!({"type": ["object", "null"]}),
        ] {
            assert!(!is_closed(&with(part.clone())), "{part}");
        }
        assert!(!is_closed(&json!({"type": "array", "items": {"type": "string"}})));
        let mut deep = json!({"type": "string"});
        for _ in 0..100 {
            deep = json!({"type": "array", "items": deep});
        }
        assert!(!is_closed(&with(deep)));
    }

    #[test]
    fn a_name_is_one_that_providers_take() {
        assert_eq!(wire_name("order v1.2"), "order_v1_2");
        assert_eq!(wire_name(""), "answer");
        assert_eq!(wire_name(&"x".repeat(100)).len(), 64);
    }
}
