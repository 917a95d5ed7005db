//! Kinds that come from definitions. Requirements KA-012, KA-013, KA-014.

use std::sync::{Arc, Mutex};

use http::StatusCode;
use mainstay_store::kube::{Body, Change, Expect, KubeOptions, KubeStore};
use serde_json::{Value, json};

use crate::harness::{CONFIG_MAPS, DEADLINE, Server, config_map};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "required": ["size"], "properties": {
                        "size": {"type": "integer", "minimum": 1},
                        "colour": {"type": "string", "default": "red", "enum": ["red", "blue"]},
                    }},
                    "status": {"type": "object", "properties": {"size": {"type": "integer"}}},
                }}},
                "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
            }],
        },
    })
}

fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

async fn with_widgets() -> Server {
    let server = Server::start().await;
    let answer = server.post(DEFINITIONS, &definition()).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.message());
    server
}

#[tokio::test]
async fn a_definition_is_established_and_served_when_its_creation_is_answered_ka_012() {
    let server = with_widgets().await;
    let stored = server
        .get(&format!("{DEFINITIONS}/widgets.example.com"))
        .await
        .json();
    let status = |kind: &str| {
        stored["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .find(|condition| condition["type"] == kind)
            .map(|condition| condition["status"].clone())
    };
    assert_eq!(status("NamesAccepted"), Some(json!("True")));
    assert_eq!(status("Established"), Some(json!("True")));
    assert_eq!(stored["status"]["storedVersions"], json!(["v1"]));
    let answer = server.post(WIDGETS, &widget("a", json!({"size": 1}))).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.message());
    assert_eq!(answer.json()["spec"], json!({"size": 1, "colour": "red"}));
    assert_eq!(answer.json()["metadata"]["generation"], 1);
}

#[tokio::test]
async fn values_outside_the_schema_are_refused_with_causes_ka_013() {
    let server = with_widgets().await;
    let answer = server.post(WIDGETS, &widget("a", json!({"size": 0}))).await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(
        answer.message(),
        "Widget.example.com \"a\" is invalid: spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1"
    );
    assert_eq!(answer.json()["details"]["causes"][0]["field"], "spec.size");
    let answer = server.post(WIDGETS, &widget("a", json!({}))).await;
    assert_eq!(
        answer.message(),
        "Widget.example.com \"a\" is invalid: spec.size: Required value"
    );
}

#[tokio::test]
async fn unknown_fields_of_a_custom_resource_are_pruned_or_refused_ka_014() {
    let server = with_widgets().await;
    let body = widget("a", json!({"size": 1, "bogus": 2}));
    let answer = server
        .post(&format!("{WIDGETS}?fieldValidation=Strict"), &body)
        .await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_eq!(
        answer.message(),
        "Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: unknown field \"spec.bogus\""
    );
    let answer = server.post(WIDGETS, &body).await;
    assert_eq!(
        answer.warnings(),
        vec!["299 - \"unknown field \\\"spec.bogus\\\"\""]
    );
    assert!(answer.json()["spec"].get("bogus").is_none());
}

#[tokio::test]
async fn the_status_of_a_custom_resource_is_apart_ka_012_ka_021() {
    let server = with_widgets().await;
    let mut body = widget("a", json!({"size": 2}));
    body["status"] = json!({"size": 9});
    let created = server.post(WIDGETS, &body).await.json();
    assert!(created.get("status").is_none());
    let written = server
        .merge(&format!("{WIDGETS}/a/status"), &json!({"status": {"size": 2}}))
        .await
        .json();
    assert_eq!(
        (&written["status"]["size"], &written["metadata"]["generation"]),
        (&json!(2), &json!(1))
    );
    let scale = server
        .merge(&format!("{WIDGETS}/a/scale"), &json!({"spec": {"replicas": 5}}))
        .await
        .json();
    assert_eq!(
        (&scale["spec"]["replicas"], &scale["status"]["replicas"]),
        (&json!(5), &json!(2))
    );
    let mut stale = created.clone();
    stale["metadata"]["resourceVersion"] = Value::Null;
    let answer = server.put(&format!("{WIDGETS}/a"), &stale).await;
    assert_eq!(
        answer.message(),
        "widgets.example.com \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    );
}

#[tokio::test]
async fn a_second_version_is_served_from_the_same_objects_ka_012() {
    let server = with_widgets().await;
    server.post(WIDGETS, &widget("a", json!({"size": 1}))).await;
    let mut changed = server
        .get(&format!("{DEFINITIONS}/widgets.example.com"))
        .await
        .json();
    let mut second = changed["spec"]["versions"][0].clone();
    second["name"] = json!("v2");
    second["storage"] = json!(false);
    second["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["shape"] =
        json!({"type": "string", "default": "round"});
    changed["spec"]["versions"].as_array_mut().unwrap().push(second);
    let answer = server
        .put(&format!("{DEFINITIONS}/widgets.example.com"), &changed)
        .await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.message());
    let read = server
        .get("/apis/example.com/v2/namespaces/default/widgets/a")
        .await
        .json();
    // Defaults are those of the version that objects are stored in; what another version adds is not there yet.
    assert_eq!(
        (&read["apiVersion"], &read["spec"]["shape"]),
        (&json!("example.com/v2"), &Value::Null)
    );
    let list = server.get("/apis/example.com/v2/widgets").await.json();
    assert_eq!(list["items"][0]["apiVersion"], "example.com/v2");
    let list = server.get("/apis/example.com/v1/widgets").await.json();
    assert_eq!(list["items"][0]["apiVersion"], "example.com/v1");
}

#[tokio::test]
async fn a_definition_goes_with_the_last_object_that_a_finalizer_held_ka_012() {
    let server = with_widgets().await;
    let mut held = widget("held", json!({"size": 1}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    server.post(WIDGETS, &held).await;
    let path = format!("{DEFINITIONS}/widgets.example.com");
    server.delete(&path, &Value::Null).await;
    let widget = format!("{WIDGETS}/held");
    let dying = |answer: &crate::harness::Answer| answer.json()["metadata"]["deletionTimestamp"].is_string();
    server.until(&widget, WIDGETS, dying).await;
    let released = server
        .merge(&widget, &json!({"metadata": {"finalizers": null}}))
        .await;
    assert_eq!(released.status, StatusCode::OK, "{}", released.message());
    server
        .until(&path, DEFINITIONS, |answer| {
            answer.status == StatusCode::NOT_FOUND
        })
        .await;
}

#[tokio::test]
async fn deleting_a_definition_deletes_its_objects_and_then_ends_watches_ka_012() {
    let server = with_widgets().await;
    server.post(WIDGETS, &widget("a", json!({"size": 1}))).await;
    let request = http::Request::get("/apis/example.com/v1/widgets?watch=1")
        .body(axum::body::Body::empty())
        .unwrap();
    let watch = tokio::time::timeout(DEADLINE, server.send(request));
    let name = format!("{DEFINITIONS}/widgets.example.com");
    let (watched, deleted) = tokio::join!(watch, async {
        // The watch is opened by the first poll of its future, which `join` makes before this one's.
        server.delete(&name, &Value::Null).await
    });
    assert_eq!(deleted.status, StatusCode::OK);
    let lines = String::from_utf8(watched.expect("the watch ends").body).unwrap();
    let kinds: Vec<String> = lines
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["type"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(kinds, vec!["ADDED", "DELETED"]);
    server
        .until(&name, DEFINITIONS, |answer| {
            answer.status == StatusCode::NOT_FOUND
        })
        .await;
    assert_eq!(server.get(WIDGETS).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn definitions_are_loaded_at_start_ka_012() {
    let store =
        mainstay_store::kube::KubeStore::open(mainstay_store::kube::KubeOptions::in_memory()).unwrap();
    let options = || {
        mainstay_kubeapi::ApiOptions::new(
            store.clone(),
            mainstay_telemetry::clock::system(),
            mainstay_telemetry::random::system(),
        )
    };
    let server = Server::over(options()).await;
    server.post(DEFINITIONS, &definition()).await;
    server.post(WIDGETS, &widget("a", json!({"size": 1}))).await;
    drop(server);
    let server = Server::over(options()).await;
    assert_eq!(
        server.get(&format!("{WIDGETS}/a")).await.json()["spec"]["size"],
        1
    );
}

/// Keeps what is logged at the level of errors, as `FIELD=VALUE` one after another.
#[derive(Clone, Default)]
struct Errors(Arc<Mutex<String>>);

impl tracing::field::Visit for Errors {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0.lock().unwrap().push_str(&format!("{field}={value:?} "));
    }
}

impl tracing::Subscriber for Errors {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::ERROR
    }

    fn new_span(&self, _span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _span: &tracing::span::Id, _values: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _span: &tracing::span::Id, _follows: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _span: &tracing::span::Id) {}

    fn exit(&self, _span: &tracing::span::Id) {}
}

#[tokio::test]
async fn a_stored_definition_that_cannot_be_used_is_logged_and_its_objects_stay_known_ka_012_ka_023() {
    let store = KubeStore::open(KubeOptions::in_memory()).unwrap();
    let options = || {
        mainstay_kubeapi::ApiOptions::new(
            store.clone(),
            mainstay_telemetry::clock::system(),
            mainstay_telemetry::random::system(),
        )
    };
    let server = Server::over(options()).await;
    server.post(DEFINITIONS, &definition()).await;
    let owner = server
        .post(CONFIG_MAPS, &config_map("owner", json!({})))
        .await
        .json();
    let mut owned = widget("a", json!({"size": 1}));
    owned["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"],
    }]);
    assert_eq!(server.post(WIDGETS, &owned).await.status, StatusCode::CREATED);
    drop(server);
    // As an older program may have accepted it.
    let stored = store
        .list("apiextensions.k8s.io/customresourcedefinitions", None)
        .items
        .remove(0);
    let mut broken: Value = serde_json::from_slice(&stored.value).unwrap();
    broken["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["name"] =
        json!({"type": "string", "pattern": "("});
    broken["metadata"]["resourceVersion"] = json!("");
    let text = broken.to_string();
    let version = "\"resourceVersion\":\"";
    let change = Change::Put {
        key: stored.key,
        body: Body {
            revision_at: text.find(version).map(|at| at + version.len()),
            bytes: text.into(),
        },
        expect: Expect::Revision(stored.revision),
    };
    store.commit(vec![change]).await.unwrap();

    let errors = Errors::default();
    let logging = tracing::subscriber::set_default(errors.clone());
    let server = Server::over(options()).await;
    drop(logging);
    let logged = errors.0.lock().unwrap().clone();
    assert!(
        logged.contains("widgets.example.com") && logged.contains("DefinitionUnusable"),
        "{logged}"
    );
    assert!(logged.contains("properties[name].pattern"), "{logged}");
    assert_eq!(server.get(WIDGETS).await.status, StatusCode::NOT_FOUND);

    let path = format!("{DEFINITIONS}/widgets.example.com");
    let mut corrected = server.get(&path).await.json();
    corrected["spec"] = definition()["spec"].clone();
    let answer = server.put(&path, &corrected).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.message());
    assert_eq!(server.get(&format!("{WIDGETS}/a")).await.status, StatusCode::OK);
    server.delete(&format!("{CONFIG_MAPS}/owner"), &Value::Null).await;
    server
        .until(&format!("{WIDGETS}/a"), WIDGETS, |answer| {
            answer.status == StatusCode::NOT_FOUND
        })
        .await;
}

#[tokio::test]
async fn a_table_has_the_columns_of_the_definition_ka_028() {
    let server = with_widgets().await;
    server.post(WIDGETS, &widget("a", json!({"size": 4}))).await;
    let table = server
        .get_as(
            WIDGETS,
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
        )
        .await
        .json();
    assert_eq!(table["kind"], "Table");
    let names: Vec<&str> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, vec!["Name", "Size"]);
    assert_eq!(table["rows"][0]["cells"], json!(["a", 4]));
}

#[tokio::test]
async fn a_custom_resource_has_no_protobuf_but_its_metadata_have_and_the_options_of_its_deletion_ka_007() {
    const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
    let server = with_widgets().await;
    server.post(WIDGETS, &widget("a", json!({"size": 1}))).await;
    let path = format!("{WIDGETS}/a");
    let answer = server.get_as(&path, PROTOBUF).await;
    assert_eq!(answer.status, StatusCode::NOT_ACCEPTABLE);
    let answer = server
        .get_as(&path, &format!("{PROTOBUF},application/json"))
        .await;
    assert_eq!(answer.json()["spec"]["size"], 1);
    for list in ["", "List"] {
        let metadata =
            format!("{PROTOBUF};as=PartialObjectMetadata{list};g=meta.k8s.io;v=v1,application/json");
        let read = if list.is_empty() { path.as_str() } else { WIDGETS };
        let answer = server.get_as(read, &metadata).await;
        assert_eq!(answer.headers["content-type"], PROTOBUF);
        assert!(answer.body.starts_with(b"k8s\0"));
    }
    // What a typed client sends: a grace period of none, and `Foreground`.
    let golden = include_str!("../../src/protobuf/golden.txt");
    let digits = golden.lines().nth(8).unwrap();
    let body: Vec<u8> = (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
        .collect();
    let request = http::Request::delete(&path)
        .header("content-type", PROTOBUF)
        .header(
            "accept",
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        )
        .body(axum::body::Body::from(body))
        .unwrap();
    let answer = server.send(request).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.message());
    let deleted = answer.json();
    assert_eq!(
        (&deleted["kind"], &deleted["metadata"]["finalizers"]),
        (&json!("PartialObjectMetadata"), &json!(["foregroundDeletion"]))
    );
}
