#![allow(clippy::unwrap_used, clippy::expect_used)]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn document() -> Value {
    json!({
        "spec": {"replicas": 3, "labels": {"app.kubernetes.io/name": "web", "a.b": "c"}, "ratio": 0.5},
        "status": {"conditions": [
            {"type": "Ready", "status": "True", "count": 2},
            {"type": "Progressing", "status": "False", "count": 10},
        ], "empty": []},
        "items": [1, 2, 3, 4, 5],
    })
}

fn found(path: &str) -> Vec<Value> {
    JsonPath::parse(path)
        .unwrap()
        .find(&document())
        .unwrap()
        .into_iter()
        .map(Cow::into_owned)
        .collect()
}

fn fails(path: &str) -> FindError {
    JsonPath::parse(path).unwrap().find(&document()).unwrap_err()
}

#[test]
fn ka_028_paths_follow_fields_indexes_and_ranges() {
    assert_eq!(found(".spec.replicas"), [json!(3)]);
    assert_eq!(found("{.spec.replicas}"), [json!(3)]);
    assert_eq!(found("$.spec.replicas"), [json!(3)]);
    assert_eq!(found(".items[0]"), [json!(1)]);
    assert_eq!(found(".items[-1]"), [json!(5)]);
    assert_eq!(found(".items[1:3]"), [json!(2), json!(3)]);
    assert_eq!(found(".items[-2:]"), [json!(4), json!(5)]);
    assert_eq!(found(".items[::2]"), [json!(1), json!(3), json!(5)]);
    assert_eq!(found(".items[0,2]"), [json!(1), json!(3)]);
    assert_eq!(found(".items[*]").len(), 5);
    assert_eq!(
        found(".status.conditions[*].type"),
        [json!("Ready"), json!("Progressing")]
    );
    assert_eq!(found(".spec.labels.*"), [json!("c"), json!("web")]);
    assert_eq!(found("..count"), [json!(2), json!(10)]);
    assert_eq!(found(".missing.deep"), [] as [Value; 0]);
}

#[test]
fn ka_028_field_names_with_dots_are_escaped_or_quoted() {
    assert_eq!(found(r".spec.labels.app\.kubernetes\.io/name"), [json!("web")]);
    assert_eq!(found(r".spec.labels['app\.kubernetes\.io/name']"), [json!("web")]);
    assert_eq!(found(r".spec['labels']['a\.b']"), [json!("c")]);
    assert_eq!(found(".spec['labels.a']"), [] as [Value; 0]);
}

#[test]
fn ka_028_filters_compare_texts_numbers_and_existence() {
    assert_eq!(
        found(".status.conditions[?(@.type==\"Ready\")].status"),
        [json!("True")]
    );
    assert_eq!(
        found(".status.conditions[?(@.type=='Ready')].status"),
        [json!("True")]
    );
    assert_eq!(
        found(".status.conditions[?(@.type!=\"Ready\")].type"),
        [json!("Progressing")]
    );
    assert_eq!(
        found(".status.conditions[?(@.count>2)].type"),
        [json!("Progressing")]
    );
    assert_eq!(
        found(".status.conditions[?(@.count>=2)].count"),
        [json!(2), json!(10)]
    );
    assert_eq!(
        fails(".status.conditions[?(@.count<2.5)].count"),
        FindError::Incomparable
    );
    assert_eq!(found(".status.conditions[?(@.count)].count").len(), 2);
    assert_eq!(found(".status.conditions[?(@.nothing)]"), [] as [Value; 0]);
    assert_eq!(found(".status.conditions[?(@.type==\"a)b\")]"), [] as [Value; 0]);
    assert_eq!(
        fails(".status.conditions[?(@.count==\"2\")]"),
        FindError::Incomparable
    );
    assert_eq!(fails(".spec[?(@.x==1)]"), FindError::NotAList);
}

#[test]
fn ka_028_what_cannot_be_followed_says_why() {
    assert_eq!(
        fails(".items[9]").to_string(),
        "array index out of bounds: index 9, length 5"
    );
    assert_eq!(
        fails(".status.empty[0]").to_string(),
        "array index out of bounds: index 0, length 0"
    );
    assert_eq!(
        fails(".items[3:1]").to_string(),
        "starting index 3 is greater than ending index 1"
    );
    assert_eq!(fails(".items[::0]"), FindError::Step);
    assert_eq!(fails(".spec[0]"), FindError::NotAList);
    assert_eq!(found(".items[2:2]"), [] as [Value; 0]);
}

#[test]
fn ka_028_malformed_paths_are_refused() {
    for (path, error) in [
        (".a[", ParseError::UnterminatedArray),
        (".a[x]", ParseError::Index("x".to_owned())),
        (".a[1:2:3:4]", ParseError::Index("1:2:3:4".to_owned())),
        (".a[?(@.b", ParseError::UnterminatedFilter),
        (".a[?(@.b)", ParseError::UnclosedFilter),
        (".a[?(@.b=1)]", ParseError::Operator("=".to_owned())),
        ("\"x", ParseError::UnterminatedText),
        ("%", ParseError::Character('%')),
        ("name", ParseError::Identifier("name".to_owned())),
        ("....a", ParseError::Recursive),
    ] {
        assert_eq!(JsonPath::parse(path).unwrap_err(), error, "{path}");
    }
}

#[test]
fn paths_of_fields_only_are_known() {
    assert_eq!(
        JsonPath::parse(".spec.replicas").unwrap().fields(),
        Some(vec!["spec", "replicas"])
    );
    assert_eq!(JsonPath::parse(".spec[0]").unwrap().fields(), None);
}

#[test]
fn found_values_are_printed_as_kubectl_prints_them() {
    assert_eq!(print(&json!("x y")), "x y");
    assert_eq!(print(&json!(["a", 1])), "[\"a\",1]");
    assert_eq!(print(&json!(true)), "true");
    assert_eq!(print(&json!(0.5)), "0.5");
    assert_eq!(print(&Value::Null), "null");
}

proptest! {
    #[test]
    fn parsing_and_following_never_panic(path in "[.a-c0-9\\[\\]?(@)='\"*:,$ {}\\\\\u{e9}-]{0,20}") {
        if let Ok(path) = JsonPath::parse(&path) {
            let _ = path.find(&json!({"a": [{"b": 1}, 2], "c": null}));
        }
    }
}
