//! Schemas that contain themselves, and documents made to keep a reader busy (D1).

use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::json;
use url::Url;

use super::*;
use crate::arguments::ArgumentCheck;

fn with_schemas(body: Value, schemas: Value) -> Value {
    json!({"openapi": "3.0.0", "paths": {
        "/nodes": {"post": {"operationId": "add", "requestBody": {"content": {"application/json": {"schema": body}}}}},
        "/ping": {"get": {"operationId": "ping", "parameters": [{"name": "n", "in": "query", "schema": {"type": "integer"}}]}},
    }, "components": {"schemas": schemas}})
}

fn refers(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// Reads the document and runs a check with what it gave; neither may take long.
fn bounded(document: &Value, arguments: &Value) -> (Document, Result<(), String>) {
    let began = Instant::now();
    let read = read(document);
    let add = operation(&read, "add");
    let checked = ArgumentCheck::compile(&add.input_schema)
        .unwrap()
        .check(arguments)
        .map(|_| ())
        .and_then(|()| {
            Call::new(add, Url::parse("http://h/").unwrap()).check(arguments.as_object().unwrap())
        });
    assert!(add.input_schema.to_string().len() < 400_000);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    // The other operation is as it would be without it.
    assert_eq!(
        operation(&read, "ping").input_schema["properties"],
        json!({"n": {"type": "integer"}})
    );
    (read, checked)
}

#[test]
fn a_node_with_children_keeps_its_cycle_d1() {
    let node = json!({"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": refers("Node")}}});
    let document = with_schemas(refers("Node"), json!({"Node": node}));
    let tree = json!({"name": "a", "children": [{"name": "b", "children": [{"name": "c"}]}]});
    let (read, checked) = bounded(&document, &tree);
    assert_eq!(checked, Ok(()));
    let schema = &operation(&read, "add").input_schema;
    assert_eq!(
        schema["properties"]["children"]["items"],
        json!({"$ref": "#/$defs/Node"})
    );
    // The cycle is not cut: a mistake three levels down is found.
    let wrong = json!({"name": "a", "children": [{"name": "b", "children": [{"name": 7}]}]});
    let error = bounded(&document, &wrong).1.unwrap_err();
    assert!(error.contains("/children/0/children/0/name"), "{error}");
}

#[test]
fn the_cycle_through_all_of_a_map_and_one_of_d1() {
    let leaf = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    for (schemas, arguments) in [
        (
            json!({"Node": {"allOf": [refers("Base"), {"type": "object", "properties": {"children": {"type": "array", "items": refers("Node")}}}]}, "Base": leaf}),
            json!({"name": "a", "children": [{"name": "b"}]}),
        ),
        (
            json!({"Node": {"type": "object", "properties": {"byName": {"type": "object", "additionalProperties": refers("Node")}}}}),
            json!({"byName": {"a": {"byName": {}}}}),
        ),
        (
            json!({"Node": {"type": "object", "properties": {"next": {"oneOf": [{"type": "string"}, refers("Node")]}}}}),
            json!({"next": {"next": "end"}}),
        ),
        // Cycles that consume nothing.
        (
            json!({"Node": {"allOf": [refers("Node"), {"type": "object", "properties": {"a": {"type": "integer"}}}]}}),
            json!({"a": 1}),
        ),
        (
            json!({"Node": {"type": "object", "properties": {"a": refers("A")}}, "A": refers("B"), "B": refers("A")}),
            json!({"a": 1}),
        ),
        (
            json!({"Node": {"type": "object", "properties": {"a": refers("A")}}, "A": {"oneOf": [refers("A"), {"anyOf": [refers("A")]}]}}),
            json!({"a": 1}),
        ),
        (
            json!({"Node": {"type": "object", "not": refers("Node")}}),
            json!({"a": 1}),
        ),
    ] {
        let document = with_schemas(refers("Node"), schemas);
        assert_eq!(bounded(&document, &arguments).1, Ok(()), "{document}");
    }
}

#[test]
fn a_body_that_refers_to_itself_and_the_whole_document_are_bounded_d1() {
    for body in [
        json!({"$ref": "#"}),
        json!({"$ref": "#/paths/~1nodes/post/requestBody/content/application~1json/schema"}),
    ] {
        let document = with_schemas(body, json!({}));
        let read = read(&document);
        assert_eq!(read.operations.len(), 2);
    }
}

#[test]
fn a_document_whose_schemas_multiply_is_bounded_d1() {
    // Each level refers to the next one in several places: written out, 4^40 schemas.
    for keyword in ["properties", "anyOf"] {
        let mut schemas = serde_json::Map::new();
        for level in 0..40 {
            let next = refers(&format!("S{}", level + 1));
            let schema = if keyword == "anyOf" {
                json!({"anyOf": [next, next, next, next]})
            } else {
                json!({"type": "object", "properties": {"a": next, "b": next, "c": next, "d": next}})
            };
            schemas.insert(format!("S{level}"), schema);
        }
        schemas.insert("S40".to_owned(), json!({"type": "object"}));
        let body = json!({"type": "object", "properties": {"top": refers("S0")}});
        let document = with_schemas(body, Value::Object(schemas));
        let arguments = json!({"top": {"a": {"b": {}}}});
        assert_eq!(bounded(&document, &arguments).1, Ok(()));
    }
}

#[test]
fn long_chains_and_deep_nesting_are_bounded_d1() {
    // A chain of ten thousand references, straight and through a property.
    for through in [false, true] {
        let mut schemas = serde_json::Map::new();
        for link in 0..10_000 {
            let next = refers(&format!("L{}", link + 1));
            let schema = if through {
                json!({"type": "object", "properties": {"next": next}})
            } else {
                next
            };
            schemas.insert(format!("L{link}"), schema);
        }
        schemas.insert("L10000".to_owned(), json!({"type": "object"}));
        let body = json!({"type": "object", "properties": {"top": refers("L0")}});
        let arguments = json!({"top": {"next": {"next": {}}}});
        let document = with_schemas(body, Value::Object(schemas));
        assert_eq!(bounded(&document, &arguments).1, Ok(()));
    }
    // As deep as the parser lets it be, and through references once more in each definition.
    let mut schemas = serde_json::Map::new();
    for level in 0..100 {
        let mut schema = refers(&format!("D{}", level + 1));
        for _ in 0..25 {
            schema = json!({"allOf": [{"type": "object", "properties": {"x": schema}}]});
        }
        schemas.insert(format!("D{level}"), schema);
    }
    let body = json!({"type": "object", "properties": {"top": refers("D0")}});
    let mut arguments = json!({});
    for _ in 0..100 {
        arguments = json!({"x": arguments});
    }
    let document = with_schemas(body, Value::Object(schemas));
    assert_eq!(bounded(&document, &json!({"top": arguments})).1, Ok(()));
}

#[test]
fn a_large_schema_is_cut_and_the_document_goes_on_d1() {
    let properties: serde_json::Map<String, Value> = (0..20_000)
        .map(|index| {
            (
                format!("property{index}"),
                json!({"type": "string", "description": "x".repeat(100)}),
            )
        })
        .collect();
    let schemas =
        json!({"Huge": {"type": "object", "properties": properties, "additionalProperties": false}});
    let body = json!({"type": "object", "properties": {"huge": refers("Huge")}});
    // A property that was cut is not refused.
    let arguments = json!({"huge": {"property9999": "x"}});
    assert_eq!(bounded(&with_schemas(body, schemas), &arguments).1, Ok(()));
}

#[test]
fn what_many_operations_share_is_paid_once_d1() {
    // A hundred operations share one path item whose parts are as large as they can be.
    let many = |count: usize, value: Value| Value::Array(vec![value; count]);
    let unknown: serde_json::Map<String, Value> =
        (0..50_000).map(|index| (format!("x{index}"), json!(1))).collect();
    let wide: serde_json::Map<String, Value> = (0..5_000)
        .map(|index| (format!("{}é", "p".repeat(1 + index % 60)), refers("Odd")))
        .collect();
    let equal: serde_json::Map<String, Value> = ('\u{4e00}'..'\u{6e00}')
        .map(|letter| (letter.to_string(), json!({})))
        .collect();
    let required: Vec<Value> = equal.keys().map(|name| json!(name)).collect();
    let methods: serde_json::Map<String, Value> = ["delete", "patch", "post", "put"]
        .into_iter()
        .zip(["Odd", "Wide", "Equal", "Choice"])
        .map(|(method, schema)| {
            let operation = json!({
                "operationId": "x".repeat(100_000), "summary": "y".repeat(100_000), "servers": [{"url": "z".repeat(100_000)}],
                "requestBody": {"content": {"application/json": {"schema": refers(schema)}}},
            });
            (method.to_owned(), operation)
        })
        .collect();
    let paths: serde_json::Map<String, Value> = (0..25)
        .map(|index| {
            (
                format!("/p{index}"),
                json!({"$ref": "#/components/pathItems/Shared"}),
            )
        })
        .collect();
    let document = json!({"openapi": "3.1.0", "paths": paths, "components": {
        "pathItems": {"Shared": methods},
        "schemas": {
            "Odd": Value::Object(unknown),
            "Wide": {"type": "object", "properties": wide},
            "Equal": {"type": "object", "properties": equal, "required": required},
            "Choice": {"type": "object", "properties": {"a": {"enum": many(50_000, json!("v")), "type": many(50_000, json!("t"))}}, "oneOf": many(5_000, refers("Wide"))},
        },
    }});
    let began = Instant::now();
    let result = parse(document.to_string().as_bytes(), &ParseOptions::default());
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    assert_eq!(result.unwrap().operations.len(), 100);
}

#[test]
fn a_schema_that_would_fill_a_models_context_is_told_with_definitions() {
    let part = json!({"type": "object", "properties": (0..20).map(|index| (format!("p{index}"), json!({"type": "string", "description": "d".repeat(400)}))).collect::<serde_json::Map<_, _>>()});
    let uses: serde_json::Map<String, Value> = (0..20)
        .map(|index| (format!("use{index}"), refers("Part")))
        .collect();
    let document = with_schemas(
        json!({"type": "object", "properties": uses}),
        json!({"Part": part}),
    );
    let arguments = json!({"use7": {"p3": "x"}});
    let (read, checked) = bounded(&document, &arguments);
    assert_eq!(checked, Ok(()));
    let schema = &operation(&read, "add").input_schema;
    assert_eq!(schema["properties"]["use7"], json!({"$ref": "#/$defs/Part"}));
    assert!(schema.to_string().len() < 8_000);
    assert!(bounded(&document, &json!({"use7": {"p3": 5}})).1.is_err());
}

/// A schema whose references lead anywhere among the definitions.
fn schema(count: usize) -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        3 => (0..count).prop_map(|index| refers(&format!("S{index}"))),
        1 => Just(json!({"type": "string"})),
        1 => Just(json!({"type": ["object", "null"], "nullable": true})),
        1 => any::<bool>().prop_map(Value::Bool),
        1 => Just(refers("absent")),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            (
                prop_oneof![Just("allOf"), Just("anyOf"), Just("oneOf"), Just("prefixItems")],
                prop::collection::vec(inner.clone(), 1..4)
            )
                .prop_map(|(keyword, schemas)| json!({keyword: schemas})),
            (
                prop_oneof![
                    Just("not"),
                    Just("if"),
                    Just("items"),
                    Just("additionalProperties")
                ],
                inner.clone()
            )
                .prop_map(|(keyword, schema)| json!({keyword: schema})),
            (inner.clone(), inner).prop_map(
                |(a, b)| json!({"type": "object", "properties": {"a": a, "b": b}, "required": ["a"]})
            ),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_reader_ends_on_every_graph_of_references_d1(
        (count, schemas, body) in (1_usize..12).prop_flat_map(|count| {
            (Just(count), prop::collection::vec(schema(count), count), schema(count))
        }),
    ) {
        let definitions: serde_json::Map<String, Value> =
            (0..count).map(|index| format!("S{index}")).zip(schemas).collect();
        let document = with_schemas(body, Value::Object(definitions));
        let (read, _) = bounded(&document, &json!({"a": {"b": {"a": 1}}, "body": {"a": [1, {"b": "x"}]}}));
        let (again, _) = bounded(&document, &json!({}));
        prop_assert_eq!(
            &operation(&read, "add").input_schema,
            &operation(&again, "add").input_schema
        );
        // Every local reference that is told to a model exists.
        let schema = &operation(&read, "add").input_schema;
        let text = schema.to_string();
        for part in text.split("\"$ref\":\"#/$defs/").skip(1) {
            let name = part.split('"').next().unwrap();
            prop_assert!(schema["$defs"].get(name).is_some(), "{}", text);
        }
    }

    #[test]
    fn no_text_breaks_the_reader(text in ".{0,200}", key in "paths|components|servers|parameters") {
        let _ = parse(text.as_bytes(), &ParseOptions::default());
        let document = json!({"openapi": "3.0.0", key: {"/": {"get": text.clone(), "parameters": [text]}}});
        let _ = parse(document.to_string().as_bytes(), &ParseOptions::default());
    }
}
