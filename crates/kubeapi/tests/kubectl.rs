//! What `kubectl` does over several requests, as single requests against the router: client-side and server-side
//! apply, patches, validation, tables. The texts are those a user reads. Requirements KA-014, KA-024, KA-027, KA-028.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "api/harness.rs"]
#[expect(dead_code, reason = "the harness serves another test program too")]
mod harness;

use harness::{Answer, Server};
use http::StatusCode;
use serde_json::{Value, json};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const WEB: &str = "/apis/apps/v1/namespaces/default/deployments/web";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const GADGETS: &str = "/apis/example.com/v1/namespaces/default/gadgets";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

fn deployment(replicas: i64, image: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": image}]},
            },
        },
    })
}

/// The object as client-side apply creates it: with itself in an annotation.
fn with_last_applied(object: &Value) -> Value {
    let mut annotated = object.clone();
    annotated["metadata"]["annotations"] = json!({LAST_APPLIED: format!("{object}\n")});
    annotated
}

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}},
                "selectableFields": [{"jsonPath": ".spec.colour"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {
                        "colour": {"type": "string"},
                        "size": {"type": "integer"},
                        "parts": {
                            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                            "items": {"type": "object", "required": ["name"], "properties": {
                                "name": {"type": "string"}, "count": {"type": "integer"},
                            }},
                        },
                        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                    }},
                    "status": {"type": "object", "properties": {
                        "phase": {"type": "string"},
                        "startedAt": {"type": "string", "format": "date-time"},
                        "conditions": {
                            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
                            "items": {"type": "object", "required": ["type"], "properties": {
                                "type": {"type": "string"}, "status": {"type": "string"},
                            }},
                        },
                    }},
                }}},
                "additionalPrinterColumns": [
                    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
                    {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
                    {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "priority": 1},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
            }],
        },
    })
}

fn gadget(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Gadget",
        "metadata": {"name": name, "namespace": "default"}, "spec": spec,
    })
}

async fn with_gadgets() -> Server {
    let server = Server::start().await;
    ok(&server.post(DEFINITIONS, &definition()).await);
    server
}

/// Asserts success and gives the object.
fn ok(answer: &Answer) -> Value {
    assert!(
        answer.status.is_success(),
        "{}: {}",
        answer.status,
        answer.message()
    );
    answer.json()
}

fn owner<'a>(object: &'a Value, manager: &str) -> &'a Value {
    object["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .find(|entry| entry["manager"] == manager)
        .unwrap_or_else(|| {
            panic!(
                "{manager} owns nothing in {}",
                object["metadata"]["managedFields"]
            )
        })
}

fn owners(object: &Value) -> Vec<String> {
    object["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["manager"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn a_field_of_client_side_apply_conflicts_with_another_manager_ka_027() {
    let server = Server::start().await;
    let path = format!("{DEPLOYMENTS}?fieldManager=kubectl-client-side-apply");
    ok(&server
        .post(&path, &with_last_applied(&deployment(1, "a:1")))
        .await);

    let answer = server
        .apply(&format!("{WEB}?fieldManager=helm"), &deployment(3, "a:1"))
        .await;
    let status = answer.json();
    assert_eq!(
        status,
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Conflict", "code": 409,
            "message": "Apply failed with 1 conflict: conflict with \"kubectl-client-side-apply\" using apps/v1: \
                        .spec.replicas",
            "details": {"causes": [{
                "reason": "FieldManagerConflict",
                "message": "conflict with \"kubectl-client-side-apply\" using apps/v1",
                "field": ".spec.replicas",
            }]},
        })
    );

    let answer = server
        .apply(&format!("{WEB}?fieldManager=helm"), &deployment(3, "a:2"))
        .await;
    assert_eq!(
        answer.message(),
        "Apply failed with 2 conflicts: conflicts with \"kubectl-client-side-apply\" using apps/v1:\n- .spec.replicas\n\
         - .spec.template.spec.containers[name=\"web\"].image"
    );

    let forced = ok(&server
        .apply(
            &format!("{WEB}?fieldManager=helm&force=true"),
            &deployment(3, "a:2"),
        )
        .await);
    assert_eq!(forced["spec"]["replicas"], 3);
    let before = &owner(&forced, "kubectl-client-side-apply")["fieldsV1"];
    assert!(before["f:spec"].get("f:replicas").is_none(), "{before}");
    assert_eq!(owner(&forced, "helm")["operation"], "Apply");
}

#[tokio::test]
async fn kubectl_moves_to_server_side_apply_without_conflicts_ka_027() {
    let server = Server::start().await;
    let path = format!("{DEPLOYMENTS}?fieldManager=kubectl-client-side-apply");
    ok(&server
        .post(&path, &with_last_applied(&deployment(1, "a:1")))
        .await);
    let moved = ok(&server
        .apply(&format!("{WEB}?fieldManager=kubectl"), &deployment(2, "a:2"))
        .await);
    assert_eq!(moved["spec"]["replicas"], 2);
    let annotation: Value =
        serde_json::from_str(moved["metadata"]["annotations"][LAST_APPLIED].as_str().unwrap()).unwrap();
    assert_eq!(annotation["spec"]["replicas"], 2);
}

#[tokio::test]
async fn an_apply_that_changes_nothing_keeps_the_version_ka_021_ka_027() {
    let server = Server::start().await;
    let path = format!("{WEB}?fieldManager=me");
    let first = server.apply(&path, &deployment(1, "a:1")).await;
    assert_eq!(first.status, StatusCode::CREATED);
    let second = server.apply(&path, &deployment(1, "a:1")).await;
    assert_eq!(second.status, StatusCode::OK);
    assert_eq!(second.json()["metadata"], first.json()["metadata"]);
}

#[tokio::test]
async fn defaults_are_owned_by_nobody_who_did_not_write_them_ka_027() {
    let server = Server::start().await;
    let applied = ok(&server
        .apply(&format!("{WEB}?fieldManager=me"), &deployment(1, "a:1"))
        .await);
    assert_eq!(
        applied["spec"]["strategy"]["type"], "RollingUpdate",
        "defaults are there"
    );
    assert_eq!(
        owner(&applied, "me")["fieldsV1"],
        json!({"f:spec": {
            "f:replicas": {},
            "f:selector": {},
            "f:template": {
                "f:metadata": {"f:labels": {"f:app": {}}},
                "f:spec": {"f:containers": {"k:{\"name\":\"web\"}": {".": {}, "f:name": {}, "f:image": {}}}},
            },
        }})
    );
    assert_eq!(owners(&applied), ["me"]);
}

#[tokio::test]
async fn what_is_no_longer_applied_is_removed_ka_027() {
    let server = with_gadgets().await;
    let path = format!("{GADGETS}/g?fieldManager=me");
    let full = gadget(
        "g",
        json!({"colour": "red", "size": 1, "parts": [{"name": "a", "count": 1}, {"name": "b"}], "tags": ["x", "y"]}),
    );
    ok(&server.apply(&path, &full).await);
    let other = gadget(
        "g",
        json!({"parts": [{"name": "b", "count": 2}], "tags": ["y", "z"]}),
    );
    ok(&server
        .apply(&format!("{GADGETS}/g?fieldManager=other"), &other)
        .await);
    let less = ok(&server.apply(&path, &gadget("g", json!({"size": 1}))).await);
    assert_eq!(
        less["spec"],
        json!({"size": 1, "parts": [{"name": "b", "count": 2}], "tags": ["y", "z"]})
    );
}

#[tokio::test]
async fn a_configuration_that_cannot_be_applied_is_refused_ka_027() {
    let server = with_gadgets().await;
    let path = format!("{GADGETS}/g?fieldManager=me");
    let answer = server.apply(&path, &gadget("g", json!({"bogus": 1}))).await;
    assert_eq!(
        answer.message(),
        "failed to create typed patch object (default/g; example.com/v1, Kind=Gadget): .spec.bogus: field not declared \
         in schema"
    );
    let twice = gadget("g", json!({"parts": [{"name": "a"}, {"name": "a"}]}));
    assert_eq!(
        server.apply(&path, &twice).await.message(),
        "failed to create typed patch object (default/g; example.com/v1, Kind=Gadget): .spec.parts: duplicate entries \
         for key [name=\"a\"]"
    );
    let mut managed = gadget("g", json!({}));
    managed["metadata"]["managedFields"] = json!([]);
    let answer = server.apply(&path, &managed).await;
    assert_eq!(
        (answer.status, answer.message().as_str()),
        (StatusCode::BAD_REQUEST, "metadata.managedFields must be nil")
    );
}

#[tokio::test]
async fn the_status_is_applied_and_owned_apart_ka_021_ka_027() {
    let server = with_gadgets().await;
    ok(&server
        .apply(
            &format!("{GADGETS}/g?fieldManager=user"),
            &gadget("g", json!({"size": 1})),
        )
        .await);
    let mut with_status = gadget("g", json!({"size": 9}));
    with_status["status"] = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    let path = format!("{GADGETS}/g/status?fieldManager=controller&force=true");
    let answered = ok(&server.apply(&path, &with_status).await);
    assert_eq!(
        (&answered["spec"]["size"], &answered["status"]["phase"]),
        (&json!(1), &json!("Running"))
    );
    let controller = owner(&answered, "controller");
    assert_eq!(controller["subresource"], "status");
    assert_eq!(
        controller["fieldsV1"],
        json!({"f:status": {
            "f:phase": {},
            "f:conditions": {"k:{\"type\":\"Ready\"}": {".": {}, "f:type": {}, "f:status": {}}},
        }})
    );
    // The main resource neither writes nor owns the status.
    let main = ok(&server
        .apply(&format!("{GADGETS}/g?fieldManager=user"), &with_status)
        .await);
    assert_eq!(
        owner(&main, "user")["fieldsV1"],
        json!({"f:spec": {"f:size": {}}})
    );
    assert_eq!(
        (&main["spec"]["size"], &main["status"]["phase"]),
        (&json!(9), &json!("Running"))
    );
}

#[tokio::test]
async fn an_edit_takes_ownership_and_a_user_agent_names_the_manager_ka_027() {
    let server = with_gadgets().await;
    ok(&server
        .apply(
            &format!("{GADGETS}/g?fieldManager=me"),
            &gadget("g", json!({"size": 1, "colour": "red"})),
        )
        .await);
    let edited = ok(&server
        .merge(&format!("{GADGETS}/g"), &json!({"spec": {"size": 2}}))
        .await);
    assert_eq!(
        owner(&edited, "tester")["fieldsV1"],
        json!({"f:spec": {"f:size": {}}})
    );
    assert_eq!(
        owner(&edited, "me")["fieldsV1"],
        json!({"f:spec": {"f:colour": {}}})
    );
    // `kubectl apply --server-side` now meets the edit.
    let answer = server
        .apply(
            &format!("{GADGETS}/g?fieldManager=me"),
            &gadget("g", json!({"size": 1, "colour": "red"})),
        )
        .await;
    assert_eq!(
        answer.message(),
        "Apply failed with 1 conflict: conflict with \"tester\" using example.com/v1: .spec.size"
    );
    // An update that resets the record leaves the object untracked.
    let mut reset = ok(&server.get(&format!("{GADGETS}/g")).await);
    reset["metadata"]["managedFields"] = json!([{}]);
    let reset = ok(&server.put(&format!("{GADGETS}/g"), &reset).await);
    assert!(
        reset["metadata"].get("managedFields").is_none(),
        "{}",
        reset["metadata"]
    );
}

#[tokio::test]
async fn client_side_apply_patches_by_strategic_merge_ka_027() {
    let server = Server::start().await;
    let mut first = deployment(1, "a:1");
    first["spec"]["template"]["spec"]["containers"][0]["env"] =
        json!([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]);
    ok(&server.post(DEPLOYMENTS, &with_last_applied(&first)).await);
    let patch = json!({
        "metadata": {"annotations": {LAST_APPLIED: "{}\n"}},
        "spec": {"template": {"spec": {
            "$setElementOrder/containers": [{"name": "sidecar"}, {"name": "web"}],
            "containers": [
                {"name": "sidecar", "image": "s:1"},
                {
                    "name": "web", "image": "a:2",
                    "$setElementOrder/env": [{"name": "C"}, {"name": "A"}],
                    "env": [{"name": "C", "value": "3"}, {"name": "B", "$patch": "delete"}],
                },
            ],
        }}},
    });
    let path = format!("{WEB}?fieldManager=kubectl-client-side-apply");
    let patched = ok(&server
        .write(
            "PATCH",
            &path,
            "application/strategic-merge-patch+json",
            patch.to_string(),
        )
        .await);
    let containers = patched["spec"]["template"]["spec"]["containers"]
        .as_array()
        .unwrap();
    assert_eq!(
        (&containers[0]["name"], &containers[1]["name"]),
        (&json!("sidecar"), &json!("web"))
    );
    assert_eq!(containers[1]["image"], "a:2");
    assert_eq!(
        containers[1]["env"],
        json!([{"name": "C", "value": "3"}, {"name": "A", "value": "1"}])
    );
    assert_eq!(patched["metadata"]["generation"], 2);
}

#[tokio::test]
async fn a_custom_resource_refuses_strategic_merge_ka_027() {
    let server = with_gadgets().await;
    ok(&server.post(GADGETS, &gadget("g", json!({}))).await);
    let answer = server
        .write(
            "PATCH",
            &format!("{GADGETS}/g"),
            "application/strategic-merge-patch+json",
            "{}".to_owned(),
        )
        .await;
    assert_eq!(answer.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert_eq!(
        answer.message(),
        "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, \
         application/merge-patch+json, application/apply-patch+yaml"
    );
}

#[tokio::test]
async fn a_json_patch_tests_before_it_changes_ka_027() {
    let server = with_gadgets().await;
    ok(&server.post(GADGETS, &gadget("g", json!({"size": 1}))).await);
    let patch = |patch: Value| {
        server.write(
            "PATCH",
            "/apis/example.com/v1/namespaces/default/gadgets/g",
            "application/json-patch+json",
            patch.to_string(),
        )
    };
    let answer = patch(json!([
        {"op": "test", "path": "/spec/size", "value": 7}, {"op": "replace", "path": "/spec/size", "value": 8},
    ]))
    .await;
    assert_eq!(
        (answer.status, answer.message().as_str()),
        (
            StatusCode::UNPROCESSABLE_ENTITY,
            "the server rejected our request due to an error in our request"
        )
    );
    assert_eq!(answer.json()["reason"], "Invalid");
    let changed = ok(&patch(json!([
        {"op": "test", "path": "/spec/size", "value": 1},
        {"op": "replace", "path": "/spec/size", "value": 8},
        {"op": "add", "path": "/metadata/labels", "value": {"a/b": "c"}},
        {"op": "remove", "path": "/metadata/labels/a~1b"},
    ]))
    .await);
    assert_eq!(changed["spec"]["size"], 8);
    let answer = patch(json!({"op": "add"})).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_eq!(
        answer.message(),
        "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
    );
}

#[tokio::test]
async fn strict_validation_names_every_unknown_and_repeated_field_ka_014() {
    let server = with_gadgets().await;
    let json_body = r#"{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"g"},
        "spec":{"size":1,"size":2,"bogus":1,"parts":[{"name":"a","bad":true}]}}"#;
    let yaml_body =
        "apiVersion: example.com/v1\nkind: Gadget\nmetadata: {name: g}\nspec:\n  size: 1\n  bogus: 1\n";
    let send = async |query: &str, content_type: &str, body: &str| {
        server
            .write(
                "POST",
                &format!("{GADGETS}{query}"),
                content_type,
                body.to_owned(),
            )
            .await
    };
    let answer = send("?fieldValidation=Strict", "application/json", json_body).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_eq!(
        answer.message(),
        "Gadget in version \"v1\" cannot be handled as a Gadget: strict decoding error: duplicate field \"spec.size\", \
         unknown field \"spec.bogus\", unknown field \"spec.parts[0].bad\""
    );
    let answer = send("?fieldValidation=Strict", "application/yaml", yaml_body).await;
    assert!(
        answer.message().contains("unknown field \"spec.bogus\""),
        "{}",
        answer.message()
    );
    let answer = send(
        "?fieldValidation=Ignore&dryRun=All",
        "application/json",
        json_body,
    )
    .await;
    assert_eq!(
        (ok(&answer)["spec"].clone(), answer.warnings()),
        (json!({"size": 2, "parts": [{"name": "a"}]}), Vec::new())
    );
    let answer = send("", "application/json", json_body).await;
    ok(&answer);
    assert_eq!(
        answer.warnings(),
        [
            "299 - \"duplicate field \\\"spec.size\\\"\"",
            "299 - \"unknown field \\\"spec.bogus\\\"\"",
            "299 - \"unknown field \\\"spec.parts[0].bad\\\"\"",
        ]
    );
    let answer = send("?fieldValidation=Perhaps", "application/json", json_body).await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn strict_validation_covers_patches_ka_014() {
    let server = with_gadgets().await;
    ok(&server.post(GADGETS, &gadget("g", json!({"size": 1}))).await);
    let path = format!("{GADGETS}/g?fieldValidation=Strict");
    let answer = server.merge(&path, &json!({"spec": {"bogus": 1}})).await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(
        answer
            .message()
            .ends_with("strict decoding error: unknown field \"spec.bogus\""),
        "{}",
        answer.message()
    );
    let answer = server
        .merge(&format!("{GADGETS}/g"), &json!({"spec": {"bogus": 1, "size": 2}}))
        .await;
    assert_eq!(ok(&answer)["spec"], json!({"size": 2}));
    assert_eq!(answer.warnings(), ["299 - \"unknown field \\\"spec.bogus\\\"\""]);
}

#[tokio::test]
async fn kubectl_get_shows_printer_columns_of_definitions_ka_028() {
    let server = with_gadgets().await;
    ok(&server.post(GADGETS, &gadget("g", json!({"size": 4}))).await);
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    ok(&server.merge(&format!("{GADGETS}/g/status"), &status).await);
    ok(&server.post(GADGETS, &gadget("h", json!({}))).await);
    let table = server.get_as(GADGETS, TABLE).await.json();
    let columns: Vec<(&str, &Value, &Value)> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| {
            (
                column["name"].as_str().unwrap(),
                &column["type"],
                &column["priority"],
            )
        })
        .collect();
    assert_eq!(
        columns,
        [
            ("Name", &json!("string"), &json!(0)),
            ("Phase", &json!("string"), &json!(0)),
            ("Ready", &json!("string"), &json!(0)),
            ("Size", &json!("integer"), &json!(1)),
            ("Age", &json!("date"), &json!(0)),
        ]
    );
    let cells = |row: usize| table["rows"][row]["cells"].as_array().unwrap()[..4].to_vec();
    assert_eq!(cells(0), [json!("g"), json!("Running"), json!("True"), json!(4)]);
    assert_eq!(cells(1), [json!("h"), Value::Null, Value::Null, Value::Null]);
    assert!(table["rows"][0]["cells"][4].as_str().unwrap().ends_with('s'));
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    assert!(
        table["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse::<u64>()
            .is_ok()
    );
}

#[tokio::test]
async fn kubectl_get_shows_the_usual_columns_of_built_in_kinds_ka_028() {
    let server = Server::start().await;
    ok(&server.post(DEPLOYMENTS, &deployment(3, "a:1")).await);
    let table = server.get_as(DEPLOYMENTS, TABLE).await.json();
    let names: Vec<&str> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| column["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "Name",
            "Ready",
            "Up-to-date",
            "Available",
            "Age",
            "Containers",
            "Images",
            "Selector"
        ]
    );
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(cells[..4], [json!("web"), json!("0/3"), json!(0), json!(0)]);
    assert_eq!(cells[5..], [json!("web"), json!("a:1"), json!("app=web")]);

    let namespaces = server.get_as("/api/v1/namespaces/default", TABLE).await.json();
    assert_eq!(
        namespaces["rows"][0]["cells"].as_array().unwrap()[..2],
        [json!("default"), json!("Active")]
    );
}

#[test]
fn every_built_in_kind_has_cells_for_its_columns_ka_028() {
    for kind in mainstay_kubeapi::builtin::Kinds::builtin().all() {
        let object = json!({"metadata": {"name": "x", "creationTimestamp": "2026-01-01T00:00:00Z"}});
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        let table = mainstay_kubeapi::table::table(kind, [&object], json!({}), now, "None");
        for (column, cell) in kind
            .columns
            .iter()
            .zip(table["rows"][0]["cells"].as_array().expect("a row has cells"))
        {
            assert!(!cell.is_null(), "{} has no cell for {}", kind.kind, column.name);
        }
    }
}

#[tokio::test]
async fn selectors_that_do_not_parse_are_bad_requests_with_the_texts_of_the_reference_ka_024() {
    let server = with_gadgets().await;
    ok(&server.post(GADGETS, &gadget("g", json!({"colour": "red"}))).await);
    for (query, message) in [
        (
            "labelSelector=a%3D%3D%3Db",
            "unable to parse requirement: found '=', expected: identifier",
        ),
        (
            "labelSelector=a%20in%20b",
            "unable to parse requirement: found 'b' expected: '('",
        ),
        (
            "fieldSelector=spec.size%3D1",
            "field label not supported: spec.size",
        ),
        (
            "fieldSelector=nothing",
            "invalid selector: 'nothing'; can't understand 'nothing'",
        ),
    ] {
        let answer = server.get(&format!("{GADGETS}?{query}")).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{query}");
        assert!(
            answer.message().ends_with(message),
            "{query}: {}",
            answer.message()
        );
    }
    let names = |answer: &Answer| answer.json()["items"].as_array().unwrap().len();
    assert_eq!(
        names(
            &server
                .get(&format!("{GADGETS}?fieldSelector=spec.colour%3Dred"))
                .await
        ),
        1
    );
    assert_eq!(
        names(
            &server
                .get(&format!("{GADGETS}?fieldSelector=spec.colour%3Dblue"))
                .await
        ),
        0
    );
    assert_eq!(
        names(&server.get(&format!("{GADGETS}?labelSelector=absent")).await),
        0
    );
}
