//! Create, get, update, patch and apply.

use std::collections::BTreeMap;

use axum::body::Body;
use http::{Request, StatusCode};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::harness::{CONFIG_MAPS, Server, config_map};

#[tokio::test]
async fn a_kube_client_in_process_creates_reads_and_replaces_ka_002_ka_020_ka_021() {
    let server = Server::start().await;
    let api: Api<ConfigMap> = Api::default_namespaced(server.client());
    let mut wanted = ConfigMap {
        metadata: ObjectMeta {
            name: Some("a".to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([("k".to_owned(), "1".to_owned())])),
        ..ConfigMap::default()
    };
    let created = api.create(&PostParams::default(), &wanted).await.unwrap();
    assert!(created.metadata.uid.is_some() && created.metadata.creation_timestamp.is_some());
    let read = api.get("a").await.unwrap();
    assert_eq!(read, created);
    wanted
        .metadata
        .resource_version
        .clone_from(&created.metadata.resource_version);
    wanted.data = Some(BTreeMap::from([("k".to_owned(), "2".to_owned())]));
    let replaced = api.replace("a", &PostParams::default(), &wanted).await.unwrap();
    assert_ne!(
        replaced.metadata.resource_version,
        created.metadata.resource_version
    );
    assert_eq!(replaced.metadata.uid, created.metadata.uid);
    assert_eq!(api.list(&Default::default()).await.unwrap().items.len(), 1);
    assert!(api.get_opt("b").await.unwrap().is_none());
}

#[tokio::test]
async fn a_stale_version_is_a_conflict_with_the_text_of_the_reference_ka_022() {
    let server = Server::start().await;
    let created = server
        .post(CONFIG_MAPS, &config_map("a", json!({"k": "1"})))
        .await
        .json();
    let mut second = created.clone();
    second["data"]["k"] = json!("2");
    assert_eq!(
        server.put(&format!("{CONFIG_MAPS}/a"), &second).await.status,
        StatusCode::OK
    );
    let answer = server.put(&format!("{CONFIG_MAPS}/a"), &second).await;
    assert_eq!(answer.status, StatusCode::CONFLICT);
    assert_eq!(
        answer.message(),
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to \
         the latest version and try again"
    );
}

#[tokio::test]
async fn an_update_that_changes_nothing_keeps_its_version_ka_021() {
    let server = Server::start().await;
    let created = server
        .post(CONFIG_MAPS, &config_map("a", json!({"k": "1"})))
        .await
        .json();
    let again = server.put(&format!("{CONFIG_MAPS}/a"), &created).await.json();
    assert_eq!(
        again["metadata"]["resourceVersion"],
        created["metadata"]["resourceVersion"]
    );
    let patched = server
        .merge(&format!("{CONFIG_MAPS}/a"), &json!({"data": {"k": "1"}}))
        .await
        .json();
    assert_eq!(
        patched["metadata"]["resourceVersion"],
        created["metadata"]["resourceVersion"]
    );
}

#[tokio::test]
async fn creating_what_is_there_is_already_exists_ka_006() {
    let server = Server::start().await;
    server.post(CONFIG_MAPS, &config_map("a", json!({}))).await;
    let answer = server.post(CONFIG_MAPS, &config_map("a", json!({}))).await;
    assert_eq!(answer.status, StatusCode::CONFLICT);
    assert_eq!(
        answer.json(),
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "configmaps \"a\" already exists", "reason": "AlreadyExists",
            "details": {"name": "a", "kind": "configmaps"}, "code": 409,
        })
    );
}

#[tokio::test]
async fn a_name_is_generated_on_request_ka_020() {
    let server = Server::start().await;
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "web-"}});
    let first = server.post(CONFIG_MAPS, &body).await.json();
    let second = server.post(CONFIG_MAPS, &body).await.json();
    let name = first["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("web-") && name.len() == 9, "{name}");
    assert_ne!(first["metadata"]["name"], second["metadata"]["name"]);
}

#[tokio::test]
async fn a_bad_name_and_a_missing_namespace_are_refused_with_the_texts_of_the_reference_ka_008() {
    let server = Server::start().await;
    let answer = server
        .post(CONFIG_MAPS, &config_map("Not_A_Name", json!({})))
        .await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(answer.message().starts_with(
        "ConfigMap \"Not_A_Name\" is invalid: metadata.name: Invalid value: \"Not_A_Name\": a lowercase RFC 1123 \
         subdomain must consist of"
    ));
    let answer = server
        .post(
            "/api/v1/namespaces/nowhere/configmaps",
            &config_map("a", json!({})),
        )
        .await;
    assert_eq!(
        (answer.status, answer.message()),
        (
            StatusCode::NOT_FOUND,
            "namespaces \"nowhere\" not found".to_owned()
        )
    );
}

#[tokio::test]
async fn unknown_fields_warn_by_default_and_are_refused_when_strict_ka_014() {
    let server = Server::start().await;
    let mut body = config_map("a", json!({"k": "1"}));
    body["bogus"] = json!(1);
    let answer = server
        .post(&format!("{CONFIG_MAPS}?fieldValidation=Strict"), &body)
        .await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_eq!(
        answer.message(),
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"bogus\""
    );
    let answer = server.post(CONFIG_MAPS, &body).await;
    assert_eq!(answer.status, StatusCode::CREATED);
    assert_eq!(answer.warnings(), vec!["299 - \"unknown field \\\"bogus\\\"\""]);
    assert!(answer.json().get("bogus").is_none());
    let answer = server
        .write(
            "PUT",
            &format!("{CONFIG_MAPS}/a"),
            "application/json",
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"1","k":"2"}}"#
                .to_owned(),
        )
        .await;
    assert_eq!(
        answer.warnings(),
        vec!["299 - \"duplicate field \\\"data.k\\\"\""]
    );
}

#[tokio::test]
async fn a_dry_run_stores_nothing_ka_020() {
    let server = Server::start().await;
    let answer = server
        .post(&format!("{CONFIG_MAPS}?dryRun=All"), &config_map("a", json!({})))
        .await;
    assert_eq!(answer.status, StatusCode::CREATED);
    assert_eq!(
        server.get(&format!("{CONFIG_MAPS}/a")).await.status,
        StatusCode::NOT_FOUND
    );
    server.post(CONFIG_MAPS, &config_map("a", json!({}))).await;
    server
        .delete(&format!("{CONFIG_MAPS}/a?dryRun=All"), &Value::Null)
        .await;
    assert_eq!(
        server.get(&format!("{CONFIG_MAPS}/a")).await.status,
        StatusCode::OK
    );
}

#[tokio::test]
async fn a_yaml_body_is_read_ka_007() {
    let server = Server::start().await;
    let body = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: \"1\"\n";
    let answer = server
        .write("POST", CONFIG_MAPS, "application/yaml", body.to_owned())
        .await;
    assert_eq!(
        (answer.status, &answer.json()["data"]["k"]),
        (StatusCode::CREATED, &json!("1"))
    );
}

#[tokio::test]
async fn a_protobuf_body_of_a_built_in_kind_is_read_and_answered_in_json_ka_007() {
    let server = Server::start().await;
    let golden = include_str!("../../src/protobuf/golden.txt");
    let digits = golden.lines().next().unwrap();
    let body: Vec<u8> = (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
        .collect();
    let request = Request::post(CONFIG_MAPS)
        .header("content-type", "application/vnd.kubernetes.protobuf")
        .header("accept", "application/json,application/vnd.kubernetes.protobuf")
        .body(Body::from(body))
        .unwrap();
    let answer = server.send(request).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.message());
    assert_eq!(
        (&answer.json()["metadata"]["name"], &answer.json()["data"]["k"]),
        (&json!("a"), &json!("é"))
    );
}

#[tokio::test]
async fn a_body_in_an_unknown_format_or_too_large_is_refused_ka_007_ka_008() {
    let server = Server::with(|options| options.limits.body_bytes = 1000).await;
    let answer = server
        .write("POST", CONFIG_MAPS, "application/xml", String::new())
        .await;
    assert_eq!(answer.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let answer = server
        .post(CONFIG_MAPS, &config_map("a", json!({"k": "x".repeat(1000)})))
        .await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(answer.json()["reason"], "RequestEntityTooLarge");
}

#[tokio::test]
async fn server_side_apply_creates_merges_and_reports_conflicts_ka_027() {
    let server = Server::start().await;
    let path = format!("{CONFIG_MAPS}/a");
    let answer = server
        .apply(
            &format!("{path}?fieldManager=one"),
            &config_map("a", json!({"k": "1"})),
        )
        .await;
    assert_eq!(answer.status, StatusCode::CREATED);
    let answer = server
        .apply(
            &format!("{path}?fieldManager=two"),
            &config_map("a", json!({"l": "1"})),
        )
        .await;
    assert_eq!(
        (answer.status, answer.json()["data"].clone()),
        (StatusCode::OK, json!({"k": "1", "l": "1"}))
    );
    let answer = server
        .apply(
            &format!("{path}?fieldManager=two"),
            &config_map("a", json!({"k": "2"})),
        )
        .await;
    assert_eq!(answer.status, StatusCode::CONFLICT);
    assert_eq!(
        answer.json()["details"]["causes"][0]["reason"],
        "FieldManagerConflict"
    );
    let answer = server
        .apply(
            &format!("{path}?fieldManager=two&force=true"),
            &config_map("a", json!({"k": "2"})),
        )
        .await;
    assert_eq!(answer.json()["data"], json!({"k": "2"}));
    let answer = server.apply(&path, &config_map("a", json!({}))).await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn a_kube_client_applies_ka_002_ka_027() {
    let server = Server::start().await;
    let api: Api<ConfigMap> = Api::default_namespaced(server.client());
    let wanted = config_map("a", json!({"k": "1"}));
    let applied = api
        .patch("a", &PatchParams::apply("tester"), &Patch::Apply(&wanted))
        .await
        .unwrap();
    let entries = applied.metadata.managed_fields.clone().unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(
        (entries[0].manager.as_deref(), entries[0].operation.as_deref()),
        (Some("tester"), Some("Apply"))
    );
    let again = api
        .patch("a", &PatchParams::apply("tester"), &Patch::Apply(&wanted))
        .await
        .unwrap();
    assert_eq!(again, applied);
}

#[tokio::test]
async fn concurrent_patches_of_one_object_all_arrive_ka_022() {
    let server = Server::start().await;
    server.post(CONFIG_MAPS, &config_map("a", json!({}))).await;
    let path = format!("{CONFIG_MAPS}/a");
    let patches: Vec<Value> = (0..5)
        .map(|index| json!({"data": {format!("k{index}"): "1"}}))
        .collect();
    let answers = futures::future::join_all(patches.iter().map(|patch| server.merge(&path, patch))).await;
    assert!(answers.iter().all(|answer| answer.status == StatusCode::OK));
    assert_eq!(
        server.get(&path).await.json()["data"].as_object().unwrap().len(),
        5
    );
}

#[tokio::test]
async fn a_deployment_counts_generations_and_keeps_status_and_spec_apart_ka_021() {
    let server = Server::start().await;
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let answer = server.post(path, &deployment()).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.message());
    let created = answer.json();
    assert_eq!(created["metadata"]["generation"], 1);
    let one = format!("{path}/orders");
    let status = json!({"status": {"replicas": 1, "readyReplicas": 1, "observedGeneration": 1}, "spec": {"replicas": 9}});
    let written = server.merge(&format!("{one}/status"), &status).await.json();
    assert_eq!(
        (
            &written["spec"]["replicas"],
            &written["status"]["readyReplicas"],
            &written["metadata"]["generation"]
        ),
        (&json!(1), &json!(1), &json!(1))
    );
    let written = server
        .merge(
            &one,
            &json!({"status": {"readyReplicas": 7}, "spec": {"replicas": 2}}),
        )
        .await
        .json();
    assert_eq!(
        (
            &written["spec"]["replicas"],
            &written["status"]["readyReplicas"],
            &written["metadata"]["generation"]
        ),
        (&json!(2), &json!(1), &json!(2))
    );
    let labelled = server
        .merge(&one, &json!({"metadata": {"labels": {"a": "b"}}}))
        .await
        .json();
    assert_eq!(labelled["metadata"]["generation"], 2);
}

#[tokio::test]
async fn a_deployment_is_scaled_through_its_subresource_ka_010() {
    let server = Server::start().await;
    let path = "/apis/apps/v1/namespaces/default/deployments";
    server.post(path, &deployment()).await;
    let scale = server.get(&format!("{path}/orders/scale")).await.json();
    assert_eq!(
        (&scale["kind"], &scale["spec"]["replicas"]),
        (&json!("Scale"), &json!(1))
    );
    assert_eq!(scale["status"]["selector"], "app=orders");
    let scaled = server
        .merge(&format!("{path}/orders/scale"), &json!({"spec": {"replicas": 3}}))
        .await
        .json();
    assert_eq!(scaled["spec"]["replicas"], 3);
    let object = server.get(&format!("{path}/orders")).await.json();
    assert_eq!(
        (&object["spec"]["replicas"], &object["metadata"]["generation"]),
        (&json!(3), &json!(2))
    );
}

pub(crate) fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "orders"},
        "spec": {
            "selector": {"matchLabels": {"app": "orders"}},
            "template": {
                "metadata": {"labels": {"app": "orders"}},
                "spec": {"containers": [{"name": "main", "image": "mainstay"}]},
            },
        },
    })
}

#[tokio::test]
async fn services_get_addresses_of_their_own_ka_010() {
    let server = Server::start().await;
    let path = "/api/v1/namespaces/default/services";
    let service = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
               "spec": {"selector": {"app": name}, "ports": [{"port": 80}]}})
    };
    let bodies = [service("a"), service("b"), service("c")];
    let answers = futures::future::join_all(bodies.iter().map(|body| server.post(path, body))).await;
    let addresses: std::collections::HashSet<String> = answers
        .iter()
        .map(|answer| {
            answer.json()["spec"]["clusterIP"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        })
        .collect();
    assert!(
        addresses.len() == 3 && addresses.iter().all(|address| address.starts_with("10.")),
        "{addresses:?}"
    );
}

#[tokio::test]
async fn what_is_not_served_is_answered_like_the_reference_ka_006() {
    let server = Server::start().await;
    let answer = server.get("/nowhere").await;
    assert_eq!(
        (answer.status, answer.body.as_slice()),
        (StatusCode::NOT_FOUND, b"404 page not found\n".as_slice())
    );
    let answer = server.get("/apis/example.com/v1/things").await;
    assert_eq!(
        (answer.status, answer.body.as_slice()),
        (StatusCode::NOT_FOUND, b"404 page not found\n".as_slice())
    );
    let answer = server.get("/api/v1/things").await;
    assert_eq!(
        answer.message(),
        "the server could not find the requested resource"
    );
    let answer = server.delete("/apis/apps/v1/deployments", &Value::Null).await;
    assert_eq!(
        (answer.status, &answer.json()["reason"]),
        (StatusCode::METHOD_NOT_ALLOWED, &json!("MethodNotAllowed"))
    );
    let answer = server.get_as(CONFIG_MAPS, "text/html").await;
    assert_eq!(
        (answer.status, &answer.json()["reason"]),
        (StatusCode::NOT_ACCEPTABLE, &json!("NotAcceptable"))
    );
}

#[tokio::test]
async fn answers_are_written_in_yaml_and_protobuf_for_those_who_like_it_best_ka_007() {
    let server = Server::start().await;
    let map = json!({"metadata": {"name": "written"}, "data": {"k": "1"}});
    server.post(CONFIG_MAPS, &map).await;
    let path = format!("{CONFIG_MAPS}/written");
    let answer = server.get_as(&path, "application/yaml").await;
    assert_eq!(answer.headers["content-type"], "application/yaml");
    let text = String::from_utf8(answer.body).unwrap();
    assert!(
        text.starts_with("apiVersion: v1\ndata:\n  k: \"1\"\nkind: ConfigMap\n"),
        "{text}"
    );
    let answer = server.get_as(&path, "application/vnd.kubernetes.protobuf").await;
    assert_eq!(
        answer.headers["content-type"],
        "application/vnd.kubernetes.protobuf"
    );
    assert!(
        answer
            .body
            .starts_with(b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap")
    );
    let answer = server
        .get_as(&path, "application/vnd.kubernetes.protobuf, application/json")
        .await;
    assert_eq!(
        answer.headers["content-type"],
        "application/vnd.kubernetes.protobuf"
    );
    let missing = format!("{CONFIG_MAPS}/missing");
    let answer = server
        .get_as(&missing, "application/vnd.kubernetes.protobuf, application/json")
        .await;
    assert!(answer.body.starts_with(b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Status"));
    let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let answer = server.get_as(&path, metadata).await;
    assert!(
        answer
            .body
            .starts_with(b"k8s\0\x0a\x27\x0a\x0emeta.k8s.io/v1\x12\x15PartialObjectMetadata\x12")
    );
    // A refusal is no metadata.
    let answer = server.get_as(&missing, metadata).await;
    assert_eq!(
        (&answer.headers["content-type"], &answer.json()["reason"]),
        (&"application/json".parse().unwrap(), &json!("NotFound"))
    );
}

#[tokio::test]
async fn every_built_in_kind_has_protobuf_and_so_has_discovery_ka_007() {
    let server = Server::start().await;
    let mut documents = vec!["/api".to_owned(), "/apis".to_owned()];
    let mut collections = Vec::new();
    let groups = server.get("/apis").await.json();
    let versions = groups["groups"].as_array().unwrap().iter().flat_map(|group| {
        let versions = group["versions"].as_array().unwrap().iter();
        versions.map(|version| format!("/apis/{}", version["groupVersion"].as_str().unwrap()))
    });
    for base in versions.chain(["/api/v1".to_owned()]) {
        let resources = server.get(&base).await.json();
        for resource in resources["resources"].as_array().unwrap() {
            let verbs = resource["verbs"].as_array().unwrap();
            if verbs.contains(&json!("list")) {
                collections.push(format!("{base}/{}", resource["name"].as_str().unwrap()));
            }
        }
        documents.push(base);
    }
    assert!(collections.len() > 25, "{collections:?}");
    for path in documents.iter().chain(&collections) {
        let answer = server.get_as(path, "application/vnd.kubernetes.protobuf").await;
        assert_eq!(answer.status, StatusCode::OK, "{path}");
        assert_eq!(
            answer.headers["content-type"], "application/vnd.kubernetes.protobuf",
            "{path}"
        );
    }
}

#[tokio::test]
async fn anonymous_requests_reach_health_and_version_only_ka_040() {
    let server = Server::start().await;
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        let answer = server
            .send_anonymously(Request::get(path).body(Body::empty()).unwrap())
            .await;
        assert_eq!(answer.status, StatusCode::OK, "{path}");
    }
    for path in ["/api", "/metrics", CONFIG_MAPS, "/nowhere"] {
        let answer = server
            .send_anonymously(Request::get(path).body(Body::empty()).unwrap())
            .await;
        assert_eq!(
            (answer.status, &answer.json()["reason"]),
            (StatusCode::FORBIDDEN, &json!("Forbidden")),
            "{path}"
        );
    }
    let answer = server.get("/readyz?verbose").await;
    assert!(
        String::from_utf8(answer.body)
            .unwrap()
            .ends_with("readyz check passed\n")
    );
    assert_eq!(server.get("/version").await.json()["minor"], "37");
}

#[tokio::test]
async fn a_claimed_identity_in_a_header_counts_for_nothing_ka_042() {
    let server = Server::start().await;
    let request = Request::get(CONFIG_MAPS)
        .header("X-Remote-User", "kubernetes-admin")
        .header("Impersonate-User", "kubernetes-admin")
        .body(Body::empty())
        .unwrap();
    assert_eq!(
        server.send_anonymously(request).await.status,
        StatusCode::FORBIDDEN
    );
}

#[tokio::test]
async fn a_body_must_be_the_object_that_the_url_names_ka_006() {
    let server = Server::start().await;
    server.post(CONFIG_MAPS, &config_map("a", json!({}))).await;
    let path = format!("{CONFIG_MAPS}/a");
    for (body, text) in [
        (
            config_map("b", json!({})),
            "the name of the object (b) does not match the name on the URL (a)",
        ),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}),
            "the name of the object (a based on URL) was undeterminable: name must be provided",
        ),
        (
            json!({"apiVersion": "v2", "kind": "ConfigMap", "metadata": {"name": "a"}}),
            "ConfigMap in version \"v2\" cannot be handled as a ConfigMap: no kind \"ConfigMap\" is registered for version \"v2\" in scheme \"pkg/runtime/scheme.go:111\"",
        ),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "kube-system"}}),
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
    ] {
        let answer = server.put(&path, &body).await;
        assert_eq!(
            (answer.status, answer.message().as_str()),
            (StatusCode::BAD_REQUEST, text)
        );
    }
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x", "namespace": "y"}});
    let answer = server.post("/api/v1/namespaces", &namespace).await;
    assert_eq!(answer.status, StatusCode::CREATED);
    assert!(answer.json()["metadata"].get("namespace").is_none());
}

#[tokio::test]
async fn a_value_of_the_wrong_type_is_a_bad_request_with_the_decoders_text_ka_006() {
    let server = Server::start().await;
    let mut body = deployment();
    body["spec"]["replicas"] = json!("three");
    let answer = server
        .post("/apis/apps/v1/namespaces/default/deployments", &body)
        .await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert!(
        answer
            .message()
            .contains("json: cannot unmarshal string into Go struct field"),
        "{}",
        answer.message()
    );
}

#[tokio::test]
async fn a_server_without_its_store_says_that_it_is_not_healthy_ka_003() {
    let store =
        mainstay_store::kube::KubeStore::open(mainstay_store::kube::KubeOptions::in_memory()).unwrap();
    let options = mainstay_kubeapi::ApiOptions::new(
        store.clone(),
        mainstay_telemetry::clock::system(),
        mainstay_telemetry::random::system(),
    );
    let server = Server::over(options).await;
    assert_eq!(server.get("/livez/etcd").await.status, StatusCode::OK);
    store.close().await;
    let answer = server.get("/readyz").await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    let text = String::from_utf8(answer.body).unwrap();
    assert_eq!(
        text,
        "[+]ping ok\n[-]etcd failed\n[+]shutdown ok\nreadyz check failed\n"
    );
    let answer = server.post(CONFIG_MAPS, &config_map("a", json!({}))).await;
    assert_eq!(
        (answer.status, &answer.json()["reason"]),
        (StatusCode::SERVICE_UNAVAILABLE, &json!("ServiceUnavailable"))
    );
}

#[tokio::test]
async fn a_service_gets_ports_on_the_nodes_and_keeps_them_ka_010() {
    let server = Server::start().await;
    let services = "/api/v1/namespaces/default/services";
    let service = |name: &str, port: Value| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"type": "NodePort", "selector": {"app": "a"}, "ports": [port]}})
    };
    let first = server
        .post(services, &service("first", json!({"port": 80})))
        .await
        .json();
    let number = first["spec"]["ports"][0]["nodePort"].as_i64().unwrap();
    assert!((30_000..=32_767).contains(&number), "{number}");
    let asked = json!({"port": 80, "nodePort": number});
    let taken = server.post(services, &service("second", asked)).await;
    assert_eq!(
        taken.message(),
        format!(
            "Service \"second\" is invalid: spec.ports[0].nodePort: Invalid value: {number}: provided port is already allocated"
        )
    );
    let second = server
        .post(services, &service("second", json!({"port": 80})))
        .await
        .json();
    assert_ne!(second["spec"]["ports"][0]["nodePort"].as_i64(), Some(number));
    // An update that leaves the port out keeps it; a Service inside the cluster only gives it back.
    let kept = server
        .put(
            &format!("{services}/first"),
            &service("first", json!({"port": 80})),
        )
        .await
        .json();
    assert_eq!(kept["spec"]["ports"][0]["nodePort"].as_i64(), Some(number));
    let inside = server
        .merge(
            &format!("{services}/first"),
            &json!({"spec": {"type": "ClusterIP"}}),
        )
        .await
        .json();
    assert_eq!(inside["spec"]["ports"][0].get("nodePort"), None);
}

/// Each text is the reference's.
#[tokio::test]
async fn unknown_and_repeated_fields_are_told_in_the_order_of_the_document_ka_014() {
    let server = Server::start().await;
    let path = "/apis/apps/v1/namespaces/default/deployments?dryRun=All&fieldValidation=Strict";
    for (spec, told) in [
        (
            r#""zz":1,"aa":2,"replicas":1,"replicas":2,"#,
            r#"unknown field "spec.zz", unknown field "spec.aa", duplicate field "spec.replicas""#,
        ),
        (
            r#""replicas":1,"replicas":2,"replicas":3,"zz":1,"zz":2,"aa":{"b":1,"b":2},"#,
            r#"duplicate field "spec.replicas", unknown field "spec.zz", unknown field "spec.aa""#,
        ),
        (
            r#""strategy":{"x":1,"type":"Recreate","a":2},"strategy":{"x":3,"type":"Recreate","y":2},"#,
            r#"unknown field "spec.strategy.x", unknown field "spec.strategy.a", duplicate field "spec.strategy", unknown field "spec.strategy.y""#,
        ),
    ] {
        let body = format!(
            r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"o"}},"spec":{{{spec}
            "selector":{{"matchLabels":{{"a":"b"}}}},"template":{{"metadata":{{"labels":{{"a":"b"}}}},
            "spec":{{"containers":[{{"name":"n","image":"i","zeta":1,"alpha":2,"name":"n"}}]}}}}}}}}"#
        );
        let answer = server.write("POST", path, "application/json", body).await;
        let container = "spec.template.spec.containers[0]";
        assert_eq!(
            answer.message(),
            format!(
                "Deployment in version \"v1\" cannot be handled as a Deployment: strict decoding error: {told}, \
                 unknown field \"{container}.zeta\", unknown field \"{container}.alpha\", duplicate field \"{container}.name\""
            )
        );
    }
}
