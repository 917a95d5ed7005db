#![allow(clippy::unwrap_used, clippy::expect_used)]
use serde_json::json;

use super::*;

fn texts(schema: &Value, object: &Value) -> Vec<String> {
    let node = Node::from_crd_schema(schema).expect("reads");
    validate(&node, object).iter().map(ToString::to_string).collect()
}

fn spec(properties: Value) -> Value {
    json!({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}})
}

/// A schema for `spec.x`, and a value for it.
fn faults(schema: Value, value: Value) -> Vec<String> {
    texts(&spec(json!({"x": schema})), &json!({"spec": {"x": value}}))
}

#[test]
fn each_check_speaks_with_the_words_of_the_reference() {
    // KA-013
    let cases = [
        (
            json!({"type": "integer"}),
            json!("a"),
            "spec.x: Invalid value: \"string\": spec.x in body must be of type integer: \"string\"",
        ),
        (
            json!({"type": "string"}),
            json!(null),
            "spec.x: Invalid value: \"null\": spec.x in body must be of type string: \"null\"",
        ),
        (
            json!({"x-kubernetes-int-or-string": true}),
            json!(true),
            "spec.x: Invalid value: \"boolean\": spec.x in body must be of type integer,string: \"boolean\"",
        ),
        (
            json!({"type": "string", "pattern": "^[CG][A-Z0-9]+$"}),
            json!("general"),
            "spec.x: Invalid value: \"general\": spec.x in body should match '^[CG][A-Z0-9]+$'",
        ),
        (
            json!({"type": "string", "enum": ["a", "b"]}),
            json!("c"),
            "spec.x: Unsupported value: \"c\": supported values: \"a\", \"b\"",
        ),
        (
            json!({"type": "string", "maxLength": 2}),
            json!("abc"),
            "spec.x: Too long: may not be more than 2 bytes",
        ),
        (
            json!({"type": "string", "minLength": 2}),
            json!("a"),
            "spec.x: Invalid value: \"a\": spec.x in body should be at least 2 chars long",
        ),
        (
            json!({"type": "integer", "minimum": 1}),
            json!(0),
            "spec.x: Invalid value: 0: spec.x in body should be greater than or equal to 1",
        ),
        (
            json!({"type": "number", "maximum": 1.5, "exclusiveMaximum": true}),
            json!(1.5),
            "spec.x: Invalid value: 1.5: spec.x in body should be less than 1.5",
        ),
        (
            json!({"type": "integer", "multipleOf": 5}),
            json!(7),
            "spec.x: Invalid value: 7: spec.x in body should be a multiple of 5",
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "maxItems": 1}),
            json!(["a", "b"]),
            "spec.x: Too many: 2: must have at most 1 item",
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "minItems": 1}),
            json!([]),
            "spec.x: Invalid value: 0: spec.x in body should have at least 1 items",
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1}),
            json!({}),
            "spec.x: Invalid value: 0: spec.x in body should have at least 1 properties",
        ),
        (
            json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}}),
            json!({}),
            "spec.x.a: Required value",
        ),
        (
            json!({"type": "string", "format": "date-time"}),
            json!("today"),
            "spec.x: Invalid value: \"today\": spec.x in body must be of type date-time: \"today\"",
        ),
        (
            json!({"type": "integer", "format": "int32"}),
            json!(3_000_000_000_i64),
            "<nil>: Invalid value: \"\": Checked value must be of type integer with format int32 in spec.x",
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
            json!({"k": 1}),
            "spec.x.k: Invalid value: \"integer\": spec.x.k in body must be of type string: \"integer\"",
        ),
        (
            json!({"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}}),
            json!([{"n": 1}, {"n": "b"}]),
            "spec.x[1].n: Invalid value: \"string\": spec.x[1].n in body must be of type integer: \"string\"",
        ),
    ];
    for (schema, value, expected) in cases {
        assert_eq!(faults(schema.clone(), value), [expected], "{schema}");
    }
}

#[test]
fn good_values_pass() {
    // KA-013
    let cases = [
        (json!({"type": "integer"}), json!(5.0)),
        (json!({"type": "number"}), json!(5)),
        (json!({"type": "string", "nullable": true}), json!(null)),
        (json!({"x-kubernetes-int-or-string": true}), json!("80%")),
        (
            json!({"x-kubernetes-preserve-unknown-fields": true}),
            json!({"any": ["thing"]}),
        ),
        (json!({"type": "number", "enum": [1, 2.5]}), json!(1.0)),
        (json!({"type": "string", "format": "no-such-format"}), json!("x")),
    ];
    for (schema, value) in cases {
        assert_eq!(faults(schema.clone(), value), [] as [String; 0], "{schema}");
    }
}

#[test]
fn junctors_report_what_failed_and_the_closest_alternative() {
    // KA-013
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}]});
    assert_eq!(
        faults(schema.clone(), json!({"a": "1", "b": "2"})),
        [
            "<nil>: Invalid value: \"\": \"spec.x\" must validate one and only one schema (oneOf). Found 2 valid alternatives"
        ]
    );
    assert_eq!(
        faults(schema, json!({})),
        [
            "<nil>: Invalid value: \"\": \"spec.x\" must validate one and only one schema (oneOf). Found none valid",
            "spec.x.a: Required value",
        ]
    );
    let any = json!({"type": "integer", "anyOf": [{"minimum": 10}, {"maximum": 0}]});
    assert_eq!(faults(any.clone(), json!(12)), [] as [String; 0]);
    assert_eq!(
        faults(any, json!(5))[0],
        "<nil>: Invalid value: \"\": \"spec.x\" must validate at least one schema (anyOf)"
    );
    let not = json!({"type": "string", "not": {"enum": ["x"]}});
    assert_eq!(
        faults(not, json!("x")),
        ["<nil>: Invalid value: \"\": \"spec.x\" must not validate the schema (not)"]
    );
    let all = json!({"type": "integer", "allOf": [{"minimum": 10}]});
    assert_eq!(
        faults(all, json!(1)),
        [
            "spec.x: Invalid value: 1: spec.x in body should be greater than or equal to 10",
            "<nil>: Invalid value: \"\": \"spec.x\" must validate all the schemas (allOf). None validated",
        ]
    );
}

#[test]
fn an_update_is_not_refused_for_a_fault_that_was_there_and_stays() {
    // KA-013, ratcheting
    let node = Node::from_crd_schema(&spec(json!({
        "a": {"type": "string", "maxLength": 1},
        "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "properties": {"name": {"type": "string"}, "v": {"type": "integer", "minimum": 1}}}},
        "atomic": {"type": "array", "items": {"type": "integer", "minimum": 1}},
    })))
    .expect("reads");
    let old = json!({"spec": {"a": "long", "list": [{"name": "x", "v": 0}], "atomic": [0]}});
    let faults = |new: Value| -> Vec<String> {
        validate_update(&node, &new, Some(&old))
            .iter()
            .map(|error| error.path.to_string())
            .collect()
    };
    assert_eq!(
        faults(
            json!({"spec": {"a": "long", "list": [{"name": "y", "v": 1}, {"name": "x", "v": 0}], "atomic": [0]}})
        ),
        [] as [String; 0]
    );
    assert_eq!(
        faults(json!({"spec": {"a": "longer", "list": [{"name": "x", "v": -1}], "atomic": [0, 1]}})),
        ["spec.a", "spec.atomic[0]", "spec.list[0].v"]
    );
}
