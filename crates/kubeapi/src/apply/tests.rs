#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::schema::{ListType, MapType, NodeKind};

fn node(kind: NodeKind) -> Node {
    Node::new(kind)
}

fn object(properties: impl IntoIterator<Item = (&'static str, Node)>) -> Node {
    let properties: BTreeMap<String, Arc<Node>> = properties
        .into_iter()
        .map(|(name, node)| (name.to_owned(), Arc::new(node)))
        .collect();
    node(NodeKind::Object {
        properties,
        additional: None,
    })
}

fn string() -> Node {
    node(NodeKind::String)
}

fn integer() -> Node {
    node(NodeKind::Integer)
}

fn map_of(value: Node) -> Node {
    node(NodeKind::Object {
        properties: BTreeMap::new(),
        additional: Some(Arc::new(value)),
    })
}

fn list_of(items: Node, list_type: ListType, keys: &[&str]) -> Node {
    let mut list = node(NodeKind::Array {
        items: Arc::new(items),
    });
    list.list_type = list_type;
    list.list_map_keys = keys.iter().map(|key| (*key).to_owned()).collect();
    list
}

/// A kind with one field for each way of merging.
fn schema() -> Node {
    let mut protocol = string();
    protocol.default = Some(json!("TCP"));
    let port = object([("port", integer()), ("protocol", protocol), ("name", string())]);
    let container = object([
        ("name", string()),
        ("image", string()),
        ("ports", list_of(port, ListType::Map, &["port", "protocol"])),
    ]);
    let mut free = node(NodeKind::Object {
        properties: BTreeMap::new(),
        additional: None,
    });
    free.preserve_unknown_fields = true;
    let mut whole = map_of(string());
    whole.map_type = MapType::Atomic;
    let condition = object([("type", string()), ("status", string())]);
    object([
        ("apiVersion", string()),
        ("kind", string()),
        (
            "metadata",
            object([
                ("name", string()),
                ("namespace", string()),
                ("uid", string()),
                ("resourceVersion", string()),
                ("labels", map_of(string())),
                ("annotations", map_of(string())),
                ("finalizers", list_of(string(), ListType::Set, &[])),
                ("managedFields", list_of(map_of(string()), ListType::Atomic, &[])),
            ]),
        ),
        (
            "spec",
            object([
                ("replicas", integer()),
                ("paused", node(NodeKind::Boolean)),
                ("args", list_of(string(), ListType::Atomic, &[])),
                ("containers", list_of(container, ListType::Map, &["name"])),
                ("free", free),
                ("whole", whole),
            ]),
        ),
        (
            "status",
            object([
                ("conditions", list_of(condition, ListType::Map, &["type"])),
                ("ready", integer()),
            ]),
        ),
    ])
}

fn options(manager: &str) -> ApplyOptions {
    ApplyOptions {
        manager: manager.to_owned(),
        force: false,
        api_version: "apps/v1".to_owned(),
        subresource: String::new(),
        now: "2026-01-02T03:04:05Z".parse().unwrap(),
        reset_fields: reset_fields("Deployment", false, true, ""),
    }
}

fn deployment(spec: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"}, "spec": spec})
}

fn managed(object: &Value) -> &Value {
    &object["metadata"]["managedFields"]
}

#[test]
fn ka_027_an_applied_object_records_its_manager() {
    let schema = schema();
    let configuration = deployment(json!({
        "replicas": 2,
        "args": ["a"],
        "containers": [{"name": "web", "image": "i", "ports": [{"port": 80}]}],
        "free": {"a": {"b": [1]}},
        "whole": {"x": "y"},
    }));
    let applied = apply(&schema, None, &configuration, &options("me")).unwrap();
    assert_eq!(
        managed(&applied),
        &json!([{
            "manager": "me", "operation": "Apply", "apiVersion": "apps/v1", "time": "2026-01-02T03:04:05Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {
                "f:replicas": {},
                "f:args": {},
                "f:containers": {"k:{\"name\":\"web\"}": {
                    ".": {}, "f:name": {}, "f:image": {},
                    "f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}},
                }},
                "f:free": {"f:a": {".": {}, "f:b": {}}},
                "f:whole": {},
            }},
        }])
    );
}

#[test]
fn ka_027_a_conflict_names_the_manager_the_version_and_the_field() {
    let schema = schema();
    let mut live = deployment(json!({"replicas": 1}));
    track_update(&schema, None, &mut live, &options("kubectl-client-side-apply"));
    let error = apply(
        &schema,
        Some(&live),
        &deployment(json!({"replicas": 2})),
        &options("me"),
    )
    .unwrap_err();
    assert_eq!(
        error.message,
        "Apply failed with 1 conflict: conflict with \"kubectl-client-side-apply\" using apps/v1: .spec.replicas"
    );
    assert_eq!(error.reason, Reason::Conflict);
    assert_eq!(error.causes.len(), 1);
    assert_eq!(error.causes[0].reason, "FieldManagerConflict");
    assert_eq!(error.causes[0].field, ".spec.replicas");
    assert_eq!(
        error.causes[0].message,
        "conflict with \"kubectl-client-side-apply\" using apps/v1"
    );
}

#[test]
fn ka_027_several_conflicts_are_listed_by_manager() {
    let schema = schema();
    let first = apply(
        &schema,
        None,
        &deployment(json!({"replicas": 1, "containers": [{"name": "web", "image": "a"}]})),
        &options("first"),
    )
    .unwrap();
    let mut live = first.clone();
    live["spec"]["paused"] = json!(false);
    track_update(&schema, Some(&first), &mut live, &options("second"));
    let wanted =
        deployment(json!({"replicas": 2, "paused": true, "containers": [{"name": "web", "image": "b"}]}));
    let error = apply(&schema, Some(&live), &wanted, &options("me")).unwrap_err();
    assert_eq!(
        error.message,
        "Apply failed with 3 conflicts: conflicts with \"first\":\n- .spec.replicas\n\
         - .spec.containers[name=\"web\"].image\nconflicts with \"second\" using apps/v1:\n- .spec.paused"
    );
}

#[test]
fn ka_027_force_takes_ownership() {
    let schema = schema();
    let live = apply(
        &schema,
        None,
        &deployment(json!({"replicas": 1, "paused": true})),
        &options("first"),
    )
    .unwrap();
    let mut forced = options("me");
    forced.force = true;
    let result = apply(&schema, Some(&live), &deployment(json!({"replicas": 2})), &forced).unwrap();
    assert_eq!(result["spec"], json!({"replicas": 2, "paused": true}));
    let owners: Vec<(&str, &Value)> = managed(&result)
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (entry["manager"].as_str().unwrap(), &entry["fieldsV1"]))
        .collect();
    assert_eq!(
        owners,
        [
            ("first", &json!({"f:spec": {"f:paused": {}}})),
            ("me", &json!({"f:spec": {"f:replicas": {}}}))
        ]
    );
}

#[test]
fn ka_027_the_same_value_is_shared_without_a_conflict() {
    let schema = schema();
    let live = apply(
        &schema,
        None,
        &deployment(json!({"replicas": 1})),
        &options("first"),
    )
    .unwrap();
    let result = apply(
        &schema,
        Some(&live),
        &deployment(json!({"replicas": 1})),
        &options("me"),
    )
    .unwrap();
    assert_eq!(managed(&result).as_array().unwrap().len(), 2);
}

#[test]
fn ka_027_what_is_no_longer_applied_goes_unless_another_manager_has_it() {
    let schema = schema();
    let both =
        json!({"replicas": 1, "containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "y"}]});
    let live = apply(&schema, None, &deployment(both), &options("me")).unwrap();
    let live = apply(
        &schema,
        Some(&live),
        &deployment(json!({"replicas": 1})),
        &options("other"),
    )
    .unwrap();
    let result = apply(
        &schema,
        Some(&live),
        &deployment(json!({"containers": [{"name": "b", "image": "y"}]})),
        &options("me"),
    )
    .unwrap();
    assert_eq!(
        result["spec"],
        json!({"replicas": 1, "containers": [{"name": "b", "image": "y"}]})
    );
    let result = apply(&schema, Some(&result), &deployment(json!({})), &options("other")).unwrap();
    assert_eq!(
        result["spec"],
        json!({"containers": [{"name": "b", "image": "y"}]})
    );
}

#[test]
fn ka_027_a_map_goes_with_its_last_applied_key_and_stays_for_another_manager() {
    let schema = schema();
    let labelled = |labels: Value| {
        let mut object = deployment(json!({"replicas": 1}));
        object["metadata"]["labels"] = labels;
        object
    };
    let live = apply(&schema, None, &labelled(json!({"a": "1"})), &options("me")).unwrap();
    let gone = apply(
        &schema,
        Some(&live),
        &deployment(json!({"replicas": 1})),
        &options("me"),
    )
    .unwrap();
    assert!(gone["metadata"].get("labels").is_none(), "{gone}");

    let mut shared = live.clone();
    shared["metadata"]["labels"]["b"] = json!("2");
    track_update(&schema, Some(&live), &mut shared, &options("other"));
    let kept = apply(
        &schema,
        Some(&shared),
        &deployment(json!({"replicas": 1})),
        &options("me"),
    )
    .unwrap();
    assert_eq!(kept["metadata"]["labels"], json!({"b": "2"}));
}

#[test]
fn ka_027_list_items_keep_the_applied_order_and_the_place_of_foreign_items() {
    let schema = schema();
    let named = |names: &[&str]| {
        let items: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        deployment(json!({"containers": items}))
    };
    let mut live = named(&["a", "x", "b", "c"]);
    track_update(&schema, None, &mut live, &options("other"));
    let result = apply(&schema, Some(&live), &named(&["c", "a", "new"]), &options("me")).unwrap();
    let names: Vec<&str> = result["spec"]["containers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["x", "b", "c", "a", "new"]);
}

#[test]
fn ka_027_sets_are_merged_and_atomic_lists_and_maps_replaced() {
    let schema = schema();
    let mut live = deployment(json!({"args": ["a", "b"], "whole": {"a": "1", "b": "2"}}));
    live["metadata"]["finalizers"] = json!(["one"]);
    track_update(&schema, None, &mut live, &options("other"));
    let mut wanted = deployment(json!({"args": ["c"], "whole": {"c": "3"}}));
    wanted["metadata"]["finalizers"] = json!(["two"]);
    let mut forced = options("me");
    forced.force = true;
    let result = apply(&schema, Some(&live), &wanted, &forced).unwrap();
    assert_eq!(result["spec"], json!({"args": ["c"], "whole": {"c": "3"}}));
    assert_eq!(result["metadata"]["finalizers"], json!(["one", "two"]));
    let mine = &managed(&result)[0];
    assert_eq!(
        mine["fieldsV1"]["f:metadata"],
        json!({"f:finalizers": {"v:\"two\"": {}}})
    );
}

#[test]
fn ka_027_an_apply_that_changes_nothing_leaves_the_object_as_it_was() {
    let schema = schema();
    let configuration = deployment(json!({"replicas": 1, "containers": [{"name": "a"}]}));
    let live = apply(&schema, None, &configuration, &options("me")).unwrap();
    let mut later = options("me");
    later.now = "2027-01-01T00:00:00Z".parse().unwrap();
    assert_eq!(apply(&schema, Some(&live), &configuration, &later).unwrap(), live);
}

#[test]
fn ka_027_an_untracked_object_is_owned_by_before_first_apply() {
    let schema = schema();
    let mut live = deployment(json!({"replicas": 1}));
    live["metadata"]["uid"] = json!("u");
    let error = apply(
        &schema,
        Some(&live),
        &deployment(json!({"replicas": 2})),
        &options("me"),
    )
    .unwrap_err();
    assert_eq!(
        error.message,
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using apps/v1: .spec.replicas"
    );
}

#[test]
fn ka_027_kubectl_takes_over_what_client_side_apply_set() {
    let schema = schema();
    let configuration = deployment(json!({"replicas": 1}));
    let mut live = configuration.clone();
    live["metadata"]["annotations"] =
        json!({"kubectl.kubernetes.io/last-applied-configuration": configuration.to_string()});
    track_update(&schema, None, &mut live, &options("kubectl-client-side-apply"));
    let result = apply(
        &schema,
        Some(&live),
        &deployment(json!({"replicas": 3})),
        &options("kubectl"),
    )
    .unwrap();
    assert_eq!(result["spec"]["replicas"], 3);
    let annotation = result["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"]
        .as_str()
        .unwrap();
    assert!(annotation.contains("\"replicas\":3"), "{annotation}");
    // What somebody changed since is still a conflict.
    let mut scaled = live.clone();
    scaled["spec"]["replicas"] = json!(7);
    track_update(&schema, Some(&live), &mut scaled, &options("autoscaler"));
    let error = apply(
        &schema,
        Some(&scaled),
        &deployment(json!({"replicas": 3})),
        &options("kubectl"),
    )
    .unwrap_err();
    assert!(
        error
            .message
            .contains("conflict with \"autoscaler\" using apps/v1: .spec.replicas"),
        "{error}"
    );
}

#[test]
fn ka_027_a_configuration_that_does_not_fit_the_schema_is_refused_with_the_path() {
    let schema = schema();
    let refused = |spec: Value| {
        apply(&schema, None, &deployment(spec), &options("me"))
            .unwrap_err()
            .message
            .clone()
    };
    let prefix = "failed to create typed patch object (default/web; apps/v1, Kind=Deployment): ";
    assert_eq!(
        refused(json!({"bogus": 1})),
        format!("{prefix}.spec.bogus: field not declared in schema")
    );
    assert_eq!(
        refused(json!({"containers": [{"image": "x"}]})),
        format!(
            "{prefix}.spec.containers: element 0: associative list with keys has an element that omits all key \
             fields [\"name\"] (and doesn't have default values for any key fields)"
        )
    );
    assert_eq!(
        refused(json!({"containers": [{"name": "a"}, {"name": "a"}]})),
        format!("{prefix}.spec.containers: duplicate entries for key [name=\"a\"]")
    );
    assert_eq!(
        refused(json!({"replicas": "two"})),
        format!("{prefix}.spec.replicas: expected numeric (int or float), got string")
    );
}

#[test]
fn ka_027_managed_fields_cannot_be_applied_nor_another_version() {
    let schema = schema();
    let mut configuration = deployment(json!({}));
    configuration["metadata"]["managedFields"] = json!([]);
    let error = apply(&schema, None, &configuration, &options("me")).unwrap_err();
    assert_eq!(
        (error.reason, error.message.as_str()),
        (Reason::BadRequest, "metadata.managedFields must be nil")
    );
    let mut configuration = deployment(json!({}));
    configuration["apiVersion"] = json!("v1");
    let error = apply(&schema, None, &configuration, &options("me")).unwrap_err();
    assert_eq!(error.message, "invalid object type: /v1, Kind=Deployment");
}

#[test]
fn ka_027_an_update_moves_ownership_of_what_it_changed() {
    let schema = schema();
    let live = apply(
        &schema,
        None,
        &deployment(json!({"replicas": 1, "paused": true})),
        &options("me"),
    )
    .unwrap();
    let mut changed = live.clone();
    changed["spec"]["replicas"] = json!(5);
    changed["spec"].as_object_mut().unwrap().remove("paused");
    let mut later = options("hand");
    later.now = "2026-02-02T00:00:00Z".parse().unwrap();
    track_update(&schema, Some(&live), &mut changed, &later);
    assert_eq!(
        managed(&changed),
        &json!([{
            "manager": "hand", "operation": "Update", "apiVersion": "apps/v1", "time": "2026-02-02T00:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}}},
        }])
    );
}

#[test]
fn ka_027_main_resource_and_status_are_tracked_apart() {
    let schema = schema();
    let mut live = deployment(json!({"replicas": 1}));
    live["status"] = json!({"ready": 1});
    track_update(&schema, None, &mut live, &options("user"));
    assert_eq!(
        managed(&live)[0]["fieldsV1"],
        json!({"f:spec": {".": {}, "f:replicas": {}}})
    );

    let mut with_status = live.clone();
    with_status["status"] = json!({"ready": 2, "conditions": [{"type": "Ready", "status": "True"}]});
    with_status["metadata"]["managedFields"] = json!([]);
    let mut status = options("controller");
    status.subresource = "status".to_owned();
    status.reset_fields = reset_fields("Deployment", false, true, "status");
    track_update(&schema, Some(&live), &mut with_status, &status);
    let entries = managed(&with_status).as_array().unwrap();
    assert_eq!(entries.len(), 2, "a status writer cannot reset the record");
    let controller = entries
        .iter()
        .find(|entry| entry["manager"] == "controller")
        .unwrap();
    assert_eq!(controller["subresource"], "status");
    assert_eq!(
        controller["fieldsV1"],
        json!({"f:status": {
            "f:ready": {},
            "f:conditions": {".": {}, "k:{\"type\":\"Ready\"}": {".": {}, "f:type": {}, "f:status": {}}},
        }})
    );
    let error = {
        let mut foreign = options("user");
        foreign.subresource = "status".to_owned();
        foreign.reset_fields = status.reset_fields.clone();
        let mut wanted = deployment(json!({}));
        wanted["status"] = json!({"ready": 9});
        apply(&schema, Some(&with_status), &wanted, &foreign).unwrap_err()
    };
    assert_eq!(
        error.message,
        "Apply failed with 1 conflict: conflict with \"controller\" with subresource \"status\" using apps/v1: \
         .status.ready"
    );
}

#[test]
fn ka_027_a_created_built_in_object_does_not_own_the_structs_that_are_always_there() {
    let mut schema = schema();
    schema.definition = Some("io.k8s.api.apps.v1.Deployment".into());
    let mut live = deployment(json!({"replicas": 1}));
    live["metadata"]["labels"] = json!({"a": "b"});
    track_update(&schema, None, &mut live, &options("user"));
    assert_eq!(
        managed(&live)[0]["fieldsV1"],
        json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}}, "f:spec": {"f:replicas": {}}})
    );
}

#[test]
fn ka_027_each_endpoint_ignores_what_it_puts_back() {
    let ignores = |fields: &FieldSet, path: &[&str]| {
        let path: Vec<PathElement> = path.iter().map(|name| PathElement::field(*name)).collect();
        fields.has(&path)
    };
    assert!(ignores(&reset_fields("Widget", true, true, ""), &["status"]));
    assert!(reset_fields("Widget", true, false, "").is_empty());
    assert!(ignores(
        &reset_fields("Widget", true, true, "status"),
        &["metadata"]
    ));
    assert!(!ignores(
        &reset_fields("Service", false, true, "status"),
        &["metadata"]
    ));
    assert!(ignores(
        &reset_fields("Deployment", false, true, "status"),
        &["metadata", "labels"]
    ));
    assert!(ignores(
        &reset_fields("Namespace", false, true, "finalize"),
        &["status"]
    ));
    assert!(reset_fields("Deployment", false, true, "scale").is_empty());
}

#[test]
fn ka_027_an_update_may_reset_the_record_and_an_absent_record_keeps_it() {
    let schema = schema();
    let live = apply(&schema, None, &deployment(json!({"replicas": 1})), &options("me")).unwrap();
    for reset in [json!([]), json!([{}])] {
        let mut candidate = live.clone();
        candidate["metadata"]["managedFields"] = reset;
        track_update(&schema, Some(&live), &mut candidate, &options("hand"));
        assert!(candidate["metadata"].get("managedFields").is_none());
    }
    let mut candidate = live.clone();
    candidate["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("managedFields");
    track_update(&schema, Some(&live), &mut candidate, &options("hand"));
    assert_eq!(candidate, live);
}

#[test]
fn ka_027_only_ten_update_managers_are_kept() {
    let schema = schema();
    let mut live = deployment(json!({"free": {}}));
    track_update(&schema, None, &mut live, &options("m00"));
    for number in 1..15 {
        let mut next = live.clone();
        next["spec"]["free"][format!("f{number}")] = json!(number);
        let mut options = options(&format!("m{number:02}"));
        options.now = format!("2026-01-02T03:05:{number:02}Z").parse().unwrap();
        track_update(&schema, Some(&live), &mut next, &options);
        live = next;
    }
    let names: Vec<&str> = managed(&live)
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["manager"].as_str().unwrap())
        .collect();
    assert_eq!(names.len(), 10);
    assert_eq!(names[0], "ancient-changes");
    assert_eq!(names[9], "m14");
}

#[test]
fn ka_027_fields_v1_is_read_and_written_as_the_reference_does() {
    let fields = json!({
        "f:metadata": {"f:labels": {".": {}, "f:app.kubernetes.io/name": {}}, "f:finalizers": {"v:\"a<b\"": {}}},
        "f:spec": {"i:3": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}}},
    });
    let set = decode_fields(&fields).unwrap();
    let mut written = fields.clone();
    written["f:metadata"]["f:finalizers"] = json!({"v:\"a\\u003cb\"": {}});
    assert_eq!(encode_fields(&set), written);
    assert!(decode_fields(&json!({"spec": {}})).is_err());
    assert!(decode_fields(&json!({"k:{": {}})).is_err());
    assert_eq!(
        decode_fields(&json!({"z:later": {}, "f:a": {}}))
            .unwrap()
            .paths()
            .len(),
        1
    );
}

#[test]
fn ka_027_a_list_that_became_atomic_is_owned_as_a_whole() {
    let schema = schema();
    let mut live = deployment(json!({"args": ["a"]}));
    live["metadata"]["uid"] = json!("u");
    live["metadata"]["managedFields"] = json!([{
        "manager": "old", "operation": "Apply", "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:args": {"v:\"a\"": {}}}},
    }]);
    let error = apply(
        &schema,
        Some(&live),
        &deployment(json!({"args": ["b"]})),
        &options("me"),
    )
    .unwrap_err();
    assert_eq!(
        error.message,
        "Apply failed with 1 conflict: conflict with \"old\": .spec.args"
    );
}

#[test]
fn ka_027_a_manager_comes_from_the_user_agent_when_none_is_named() {
    assert_eq!(manager_of_user_agent("kubectl/v1.37.0 (linux/amd64)"), "kubectl");
    assert_eq!(manager_of_user_agent("curl"), "curl");
    assert_eq!(manager_of_user_agent(&"x".repeat(300)).len(), 128);
}

/// Specs without an empty container: one that is emptied is taken out, as on the reference, and an explicit empty
/// one then only appears with the next apply.
fn specs() -> impl Strategy<Value = Value> {
    let containers = proptest::collection::btree_map("[abc]", "[xy]", 1..3).prop_map(|entries| {
        Value::Array(
            entries
                .into_iter()
                .map(|(name, image)| json!({"name": name, "image": image}))
                .collect(),
        )
    });
    (
        0..3i64,
        proptest::option::of(proptest::collection::vec("[ab]", 0..3)),
        proptest::option::of(containers),
        proptest::option::of(proptest::collection::btree_map("[pq]", 0..2i64, 1..3)),
    )
        .prop_map(|(replicas, args, containers, free)| {
            let mut spec = Map::new();
            for (name, value) in [
                ("replicas", json!(replicas)),
                ("args", json!(args)),
                ("containers", json!(containers)),
                ("free", json!(free)),
            ] {
                if !value.is_null() {
                    spec.insert(name.to_owned(), value);
                }
            }
            Value::Object(spec)
        })
}

proptest! {
    #[test]
    fn ka_027_apply_is_idempotent(first in specs(), second in specs(), third in specs()) {
        let schema = schema();
        let mut forced = options("me");
        forced.force = true;
        let mut other = options("other");
        other.force = true;
        let live = apply(&schema, None, &deployment(first), &forced).unwrap();
        let live = apply(&schema, Some(&live), &deployment(second), &other).unwrap();
        let third = deployment(third);
        let once = apply(&schema, Some(&live), &third, &forced).unwrap();
        let twice = apply(&schema, Some(&once), &third, &forced).unwrap();
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn ka_027_a_field_set_survives_writing_and_reading(spec in specs()) {
        let schema = schema();
        let set = walk::field_set(Type::root(&schema), &deployment(spec));
        prop_assert_eq!(decode_fields(&encode_fields(&set)).unwrap(), set);
    }

    #[test]
    fn ka_027_sets_obey_the_laws_of_sets(first in specs(), second in specs()) {
        let schema = schema();
        let left = walk::field_set(Type::root(&schema), &deployment(first));
        let right = walk::field_set(Type::root(&schema), &deployment(second));
        prop_assert_eq!(left.union(&right), right.union(&left));
        prop_assert_eq!(left.intersection(&right), right.intersection(&left));
        prop_assert_eq!(left.difference(&right).union(&left.intersection(&right)), left.clone());
        prop_assert!(left.difference(&right).intersection(&right).is_empty());
        prop_assert!(left.difference(&left).is_empty());
    }

    #[test]
    fn ka_027_an_applied_configuration_is_in_the_result(first in specs(), second in specs()) {
        let schema = schema();
        let mut forced = options("me");
        forced.force = true;
        let live = apply(&schema, None, &deployment(first), &options("other")).unwrap();
        let wanted = deployment(second);
        let result = apply(&schema, Some(&live), &wanted, &forced).unwrap();
        let missing = walk::field_set(Type::root(&schema), &wanted)
            .difference(&walk::field_set(Type::root(&schema), &result));
        prop_assert!(missing.is_empty(), "{:?}", missing.paths());
    }
}
