#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::schema::{Node, NodeKind};

fn object(properties: impl IntoIterator<Item = (&'static str, Node)>) -> Node {
    let properties: BTreeMap<String, Arc<Node>> = properties
        .into_iter()
        .map(|(name, node)| (name.to_owned(), Arc::new(node)))
        .collect();
    Node::new(NodeKind::Object {
        properties,
        additional: None,
    })
}

fn string() -> Node {
    Node::new(NodeKind::String)
}

fn list(items: Node, strategy: &[&str], key: Option<&str>) -> Node {
    let mut node = Node::new(NodeKind::Array {
        items: Arc::new(items),
    });
    node.patch_strategy = strategy.iter().map(|text| (*text).to_owned()).collect();
    node.patch_merge_key = key.map(str::to_owned);
    node
}

/// A pod template in the small.
fn schema() -> Node {
    let environment = object([("name", string()), ("value", string())]);
    let container = object([
        ("name", string()),
        ("image", string()),
        ("env", list(environment, &["merge"], Some("name"))),
        ("args", list(string(), &[], None)),
    ]);
    let mut strategy = object([
        ("type", string()),
        ("rollingUpdate", object([("maxSurge", Node::new(NodeKind::Any))])),
    ]);
    strategy.patch_strategy = vec!["retainKeys".to_owned()];
    let toleration = object([("key", string())]);
    object([
        (
            "metadata",
            object([("finalizers", list(string(), &["merge"], None))]),
        ),
        (
            "spec",
            object([
                ("strategy", strategy),
                ("containers", list(container, &["merge"], Some("name"))),
                ("tolerations", list(toleration, &[], None)),
            ]),
        ),
    ])
}

fn patched(document: Value, patch: &Value) -> Value {
    let mut document = document;
    strategic_merge(&schema(), &mut document, patch).unwrap();
    document
}

fn refused(document: Value, patch: &Value) -> Box<ApiError> {
    let mut changed = document.clone();
    let error = strategic_merge(&schema(), &mut changed, patch).unwrap_err();
    assert_eq!(changed, document, "a refused patch changes nothing");
    error
}

#[test]
fn ka_027_json_patch_applies_all_operations_or_none() {
    let mut document = json!({"a": {"b": [1, 2]}, "c": "x"});
    let patch = json!([
        {"op": "test", "path": "/a/b/0", "value": 1},
        {"op": "add", "path": "/a/b/-", "value": 3},
        {"op": "move", "from": "/c", "path": "/d"},
        {"op": "replace", "path": "/a/b/0", "value": 9},
        {"op": "copy", "from": "/d", "path": "/a~1b"},
        {"op": "test", "path": "/gone", "value": null},
    ]);
    json_patch(&mut document, &patch).unwrap();
    assert_eq!(document, json!({"a": {"b": [9, 2, 3]}, "d": "x", "a/b": "x"}));

    let before = document.clone();
    for patch in [
        json!([{"op": "add", "path": "/x", "value": 1}, {"op": "test", "path": "/d", "value": "y"}]),
        json!([{"op": "remove", "path": "/nothing"}]),
        json!([{"op": "replace", "path": "/d/nothing", "value": 1}]),
        json!([{"op": "test", "path": "/d/nothing", "value": null}]),
        json!([{"op": "add", "path": "/no/parent", "value": 1}]),
        json!([{"op": "frobnicate", "path": "/d"}]),
    ] {
        let error = json_patch(&mut document, &patch).unwrap_err();
        assert_eq!(error.reason, Reason::Invalid);
        assert_eq!(
            error.message,
            "the server rejected our request due to an error in our request"
        );
        assert_eq!(document, before);
    }
}

#[test]
fn ka_027_json_patch_is_as_lenient_with_absent_fields_as_the_reference() {
    let mut document = json!({"a": {}});
    let patch = json!([
        {"op": "replace", "path": "/a/new", "value": 1},
        {"op": "copy", "from": "/a/none", "path": "/a/copied"},
        {"op": "add", "path": "/a/empty"},
    ]);
    json_patch(&mut document, &patch).unwrap();
    assert_eq!(document, json!({"a": {"new": 1, "copied": null, "empty": null}}));
}

#[test]
fn ka_027_json_patch_refuses_what_is_not_a_list_and_too_long_lists() {
    let mut document = json!({});
    let error = json_patch(&mut document, &json!({"op": "add"})).unwrap_err();
    assert_eq!(error.reason, Reason::BadRequest);
    assert_eq!(
        error.message,
        "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
    );
    let operations = vec![json!({"op": "add", "path": "/a", "value": 1}); 10_001];
    let error = json_patch(&mut document, &Value::from(operations)).unwrap_err();
    assert_eq!(error.reason, Reason::RequestEntityTooLarge);
    assert_eq!(
        error.message,
        "The allowed maximum operations in a JSON patch is 10000, got 10001"
    );
}

#[test]
fn ka_008_repeated_copying_does_not_grow_without_bound() {
    let mut document = json!({"a": {"x": "0123456789"}});
    let operations: Vec<Value> = (0..64)
        .map(|number| json!({"op": "copy", "from": "/a", "path": format!("/a/c{number}")}))
        .collect();
    assert_eq!(
        json_patch(&mut document, &Value::from(operations))
            .unwrap_err()
            .reason,
        Reason::Invalid
    );
    assert_eq!(document, json!({"a": {"x": "0123456789"}}));
}

#[test]
fn ka_008_long_lists_are_merged_in_reasonable_time() {
    let names = |range: std::ops::Range<u32>| -> Vec<Value> {
        range
            .map(|number| json!({"name": format!("c{number}")}))
            .collect()
    };
    let document = json!({
        "spec": {"containers": names(0..40_000)},
        "metadata": {"finalizers": (0..40_000).map(|number| json!(format!("f{number}"))).collect::<Vec<_>>()},
    });
    let patch = json!({
        "spec": {"containers": names(20_000..60_000)},
        "metadata": {"finalizers": (20_000..60_000).map(|number| json!(format!("f{number}"))).collect::<Vec<_>>()},
    });
    // Quadratic work here would take minutes.
    let result = patched(document, &patch);
    assert_eq!(result["spec"]["containers"].as_array().unwrap().len(), 60_000);
    assert_eq!(result["metadata"]["finalizers"].as_array().unwrap().len(), 60_000);
}

#[test]
fn ka_027_merge_patch_deletes_with_null_and_refuses_lists() {
    let mut document = json!({"a": {"b": 1, "c": 2}, "l": [1, 2]});
    merge_patch(
        &mut document,
        &json!({"a": {"b": null, "d": {"e": null}}, "l": [{"x": null}, null]}),
    )
    .unwrap();
    assert_eq!(document, json!({"a": {"c": 2, "d": {}}, "l": [{}, null]}));
    let error = merge_patch(&mut document, &json!([])).unwrap_err();
    assert_eq!(
        error.message,
        "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
    );
}

#[test]
fn ka_027_strategic_merge_merges_lists_by_key_and_replaces_lists_without_strategy() {
    let document = json!({"spec": {
        "containers": [
            {"name": "a", "image": "1", "env": [{"name": "X", "value": "x"}]},
            {"name": "b", "image": "2", "args": ["p"]},
        ],
        "tolerations": [{"key": "k"}],
    }});
    let patch = json!({"spec": {
        "containers": [
            {"name": "a", "env": [{"name": "Y", "value": "y"}]},
            {"name": "b", "args": ["q"]},
            {"name": "c", "image": "3"},
        ],
        "tolerations": [{"key": "other"}],
    }});
    assert_eq!(
        patched(document, &patch),
        json!({"spec": {
            "containers": [
                {"name": "a", "image": "1", "env": [{"name": "Y", "value": "y"}, {"name": "X", "value": "x"}]},
                {"name": "b", "image": "2", "args": ["q"]},
                {"name": "c", "image": "3"},
            ],
            "tolerations": [{"key": "other"}],
        }})
    );
}

#[test]
fn ka_027_strategic_merge_honours_directives() {
    let containers =
        json!({"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]}});
    assert_eq!(
        patched(
            containers.clone(),
            &json!({"spec": {"containers": [{"name": "a", "$patch": "delete"}]}})
        ),
        json!({"spec": {"containers": [{"name": "b", "image": "2"}]}})
    );
    assert_eq!(
        patched(
            containers.clone(),
            &json!({"spec": {"containers": [{"name": "z", "image": "9"}, {"$patch": "replace"}]}})
        ),
        json!({"spec": {"containers": [{"name": "z", "image": "9"}]}})
    );
    assert_eq!(
        patched(
            containers.clone(),
            &json!({"spec": {"$patch": "replace", "tolerations": []}})
        ),
        json!({"spec": {"tolerations": []}})
    );
    assert_eq!(
        patched(containers.clone(), &json!({"spec": {"$patch": "delete"}})),
        json!({"spec": {}})
    );
    assert_eq!(
        patched(containers, &json!({"spec": {"containers": null, "none": null}})),
        json!({"spec": {}})
    );
    assert_eq!(
        patched(
            json!({"metadata": {"finalizers": ["a", "b", "c"]}}),
            &json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["b"], "finalizers": ["d"]}})
        ),
        json!({"metadata": {"finalizers": ["d", "a", "c"]}})
    );
    assert_eq!(
        patched(
            json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}),
            &json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}})
        ),
        json!({"spec": {"strategy": {"type": "Recreate"}}})
    );
}

#[test]
fn ka_027_strategic_merge_sets_the_element_order() {
    let document = json!({"spec": {"containers": [
        {"name": "a"}, {"name": "injected"}, {"name": "b"}, {"name": "c"},
    ]}});
    let patch = json!({"spec": {
        "$setElementOrder/containers": [{"name": "c"}, {"name": "a"}, {"name": "b"}],
        "containers": [{"name": "a", "image": "2"}],
    }});
    let result = patched(document, &patch);
    let names: Vec<&str> = result["spec"]["containers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["injected", "c", "a", "b"]);
    assert_eq!(result["spec"]["containers"][2]["image"], "2");
}

#[test]
fn ka_027_strategic_merge_refuses_with_the_texts_of_the_reference() {
    let document = json!({"spec": {"containers": [{"name": "a"}], "strategy": {"type": "x"}}});
    let error = refused(
        document.clone(),
        &json!({"spec": {"containers": [{"image": "x"}]}}),
    );
    assert_eq!(
        error.message,
        "map: map[image:x] does not contain declared merge key: name"
    );
    let error = refused(document.clone(), &json!({"spec": {"$patch": "upsert"}}));
    assert_eq!(
        error.message,
        "unknown patch type: upsert in map: map[$patch:upsert]"
    );
    let error = refused(
        document.clone(),
        &json!({"spec": {"strategy": {"$retainKeys": ["a"], "b": 1}}}),
    );
    assert_eq!(
        (error.reason, error.message.as_str()),
        (Reason::BadRequest, "invalid patch format of retainKeys")
    );
    let order = json!({"spec": {
        "$setElementOrder/containers": [{"name": "a"}, {"name": "b"}],
        "containers": [{"name": "b"}, {"name": "a"}],
    }});
    assert!(
        refused(document.clone(), &order)
            .message
            .starts_with("The order in patch list:")
    );
    assert_eq!(refused(document, &json!([])).reason, Reason::BadRequest);
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(1)),
        Just(json!("x")),
        Just(json!([1, {"a": 2}])),
        Just(Value::Null)
    ];
    leaf.prop_recursive(3, 16, 3, |inner| {
        proptest::collection::btree_map("[abc]", inner, 0..3)
            .prop_map(|entries| Value::Object(entries.into_iter().collect()))
    })
}

fn objects() -> impl Strategy<Value = Value> {
    proptest::collection::btree_map("[abc]", values(), 0..3)
        .prop_map(|entries| Value::Object(entries.into_iter().collect()))
}

proptest! {
    #[test]
    fn ka_027_merge_patch_is_idempotent(document in objects(), patch in objects()) {
        let mut once = document.clone();
        merge_patch(&mut once, &patch).unwrap();
        let mut twice = once.clone();
        merge_patch(&mut twice, &patch).unwrap();
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn ka_027_an_empty_merge_patch_changes_nothing(document in objects()) {
        let mut result = document.clone();
        merge_patch(&mut result, &json!({})).unwrap();
        prop_assert_eq!(&result, &document);
        strategic_merge(&schema(), &mut result, &json!({})).unwrap();
        prop_assert_eq!(result, document);
    }

    #[test]
    fn ka_027_strategic_merge_never_loses_an_item_it_does_not_name(
        stored in proptest::collection::btree_set("[a-f]", 0..6),
        sent in proptest::collection::btree_set("[a-f]", 0..6),
    ) {
        let items = |names: &std::collections::BTreeSet<String>| -> Value {
            names.iter().map(|name| json!({"name": name})).collect()
        };
        let result = patched(
            json!({"spec": {"containers": items(&stored)}}),
            &json!({"spec": {"containers": items(&sent)}}),
        );
        let mut names: Vec<&str> = result["spec"]["containers"]
            .as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect();
        names.sort_unstable();
        let expected: Vec<&str> = stored.union(&sent).map(String::as_str).collect();
        prop_assert_eq!(names, expected);
    }
}
