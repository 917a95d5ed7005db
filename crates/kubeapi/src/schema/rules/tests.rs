#![allow(clippy::unwrap_used, clippy::expect_used)]
use serde_json::json;

use super::*;

fn rules(schema: Value) -> Rules {
    compile_rules(&schema, &Node::from_crd_schema(&schema).expect("reads"))
}

fn texts(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

fn spec(properties: Value, validations: Value) -> Value {
    json!({"type": "object", "properties": {"spec": {
        "type": "object", "properties": properties, "x-kubernetes-validations": validations}}})
}

#[test]
fn a_broken_rule_is_reported_at_its_place_with_its_message() {
    // KA-015
    let rules = rules(spec(
        json!({"min": {"type": "integer"}, "max": {"type": "integer"}, "replica-name": {"type": "string"}}),
        json!([
            {"rule": "self.min <= self.max", "message": "min must not be above max"},
            {"rule": "self.min >= 0", "messageExpression": "'min is ' + string(self.min)", "fieldPath": ".min",
             "reason": "FieldValueForbidden"},
            {"rule": "!has(self.replica__dash__name) || self.replica__dash__name != ''"},
        ]),
    ));
    assert_eq!(
        texts(&rules.validate(&json!({"spec": {"min": -1, "max": -2, "replica-name": ""}}), None)),
        [
            "spec: Invalid value: \"object\": min must not be above max",
            "spec.min: Forbidden: min is -1",
            "spec: Invalid value: \"object\": failed rule: !has(self.replica__dash__name) || self.replica__dash__name != ''",
        ]
    );
    assert_eq!(rules.validate(&json!({"spec": {"min": 1, "max": 2}}), None), []);
}

#[test]
fn a_transition_rule_runs_only_where_there_is_an_old_value() {
    // KA-015
    let rules = rules(
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "name": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "is immutable"}]},
        }}}}),
    );
    let new = json!({"spec": {"name": "b"}});
    assert_eq!(rules.validate(&new, None), []);
    assert_eq!(rules.validate(&new, Some(&json!({"spec": {}}))), []);
    assert_eq!(
        texts(&rules.validate(&new, Some(&json!({"spec": {"name": "a"}})))),
        ["spec.name: Invalid value: \"b\": is immutable"]
    );
}

#[test]
fn an_optional_old_value_lets_a_transition_rule_run_on_creation() {
    // KA-015
    let rules = rules(spec(
        json!({"n": {"type": "integer"}}),
        json!([{"rule": "oldSelf.hasValue() || self.n == 0", "message": "begins at 0", "optionalOldSelf": true}]),
    ));
    assert_eq!(
        texts(&rules.validate(&json!({"spec": {"n": 1}}), None)),
        ["spec: Invalid value: \"object\": begins at 0"]
    );
    assert_eq!(
        rules.validate(&json!({"spec": {"n": 1}}), Some(&json!({"spec": {"n": 5}}))),
        []
    );
}

#[test]
fn an_unchanged_value_that_breaks_a_rule_does_not_refuse_an_update() {
    // KA-015, ratcheting
    let rules = rules(
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "a": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0", "message": "positive"}]},
            "b": {"type": "integer"},
        }}}}),
    );
    let old = json!({"spec": {"a": 0, "b": 1}});
    assert_eq!(rules.validate(&json!({"spec": {"a": 0, "b": 2}}), Some(&old)), []);
    assert_eq!(
        texts(&rules.validate(&json!({"spec": {"a": -1, "b": 1}}), Some(&old))),
        ["spec.a: Invalid value: -1: positive"]
    );
}

#[test]
fn items_of_a_map_list_find_their_old_value_by_key() {
    // KA-015
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"list": {
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string"}, "value": {"type": "integer"}},
            "x-kubernetes-validations": [{"rule": "self.value >= oldSelf.value", "message": "never falls"}]}}}}}});
    let rules = rules(schema);
    let old = json!({"spec": {"list": [{"name": "a", "value": 5}, {"name": "b", "value": 1}]}});
    let new = json!({"spec": {"list": [{"name": "b", "value": 2}, {"name": "a", "value": 4}, {"name": "c", "value": 0}]}});
    assert_eq!(
        texts(&rules.validate(&new, Some(&old))),
        ["spec.list[1]: Invalid value: \"object\": never falls"]
    );
}

#[test]
fn a_stored_rule_that_does_not_compile_is_told_of_each_object_it_would_judge() {
    // KA-015
    let rules = rules(spec(
        json!({"a": {"type": "string"}}),
        json!([{"rule": "self.b == 'x'"}, {"rule": "self.a != 'y'", "message": "not y"}]),
    ));
    assert_eq!(
        texts(&rules.validate(&json!({"spec": {"a": "y"}}), None)),
        [
            "spec: Invalid value: \"object\": rule compile error: compilation failed: ERROR: <input>:1:5: undefined field \
             'b'\n | self.b == 'x'\n | ....^",
            "spec: Invalid value: \"object\": not y",
        ]
    );
    assert_eq!(rules.validate(&json!({}), None), []);
}

#[test]
fn an_expensive_rule_ends_the_validation_instead_of_the_server() {
    // KA-015
    let rules = rules(spec(
        json!({"list": {"type": "array", "items": {"type": "integer"}}}),
        json!([{"rule": "self.list.all(a, self.list.all(b, self.list.all(c, a + b + c >= 0)))"}]),
    ));
    let object = json!({"spec": {"list": (0..400).collect::<Vec<_>>()}});
    let errors = texts(&rules.validate(&object, None));
    assert_eq!(errors.len(), 1);
    assert!(
        errors[0].contains("no further validation rules will be run"),
        "{errors:?}"
    );
}

#[test]
fn rules_see_only_what_the_schema_declares() {
    // KA-015
    let rules = rules(json!({"type": "object", "properties": {
    "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "properties": {"n": {"type": "number"}, "at": {"type": "string", "format": "date-time"}}}},
    "x-kubernetes-validations": [
        {"rule": "self.spec == self.spec", "message": "unequal"},
        {"rule": "self.spec.n == 1.0", "message": "not a double"},
        {"rule": "self.metadata.name == 'a' && !has(self.metadata.generateName)", "message": "metadata"},
        {"rule": "self.spec.at > timestamp('2000-01-01T00:00:00Z')", "message": "not a time"},
    ]}));
    let object = json!({"metadata": {"name": "a", "labels": {"x": "y"}},
        "spec": {"free": 1, "n": 1, "at": "2024-01-01T00:00:00Z"}});
    assert_eq!(texts(&rules.validate(&object, None)), [] as [String; 0]);
}
