//! Watches, by the nine rules. Requirement KA-026.

use std::{sync::Arc, time::Duration};

use axum::body::{Body, BodyDataStream};
use futures::{StreamExt as _, TryStreamExt as _};
use http::Request;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt as _,
    runtime::{Controller, controller::Action, watcher},
};
use mainstay_kubeapi::Identity;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::harness::{CONFIG_MAPS, DEADLINE, Server, config_map};

/// A watch, read event by event.
struct Events {
    stream: BodyDataStream,
    rest: Vec<u8>,
    deadline: Duration,
}

impl Events {
    async fn open(server: &Server, query: &str) -> Self {
        let mut request = Request::get(format!("{CONFIG_MAPS}?watch=1{query}"))
            .body(Body::empty())
            .unwrap();
        request.extensions_mut().insert(Identity::admin());
        let response = server.api.router().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        Self {
            stream: response.into_body().into_data_stream(),
            rest: Vec::new(),
            deadline: DEADLINE,
        }
    }

    /// The next event; `None` at the end.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let chunk = tokio::time::timeout(self.deadline, self.stream.next())
                .await
                .expect("an event in time")?;
            self.rest.extend_from_slice(&chunk.unwrap());
        }
    }

    /// Type and name of the next event.
    async fn short(&mut self) -> (String, String) {
        let event = self.next().await.expect("the watch goes on");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&event["type"]), text(&event["object"]["metadata"]["name"]))
    }
}

fn pair(kind: &str, name: &str) -> (String, String) {
    (kind.to_owned(), name.to_owned())
}

#[tokio::test]
async fn a_watch_from_a_version_brings_each_change_once_and_in_order() {
    let server = Server::start().await;
    let created = server
        .post(CONFIG_MAPS, &config_map("a", json!({"k": "1"})))
        .await
        .json();
    let version = created["metadata"]["resourceVersion"].as_str().unwrap();
    let mut events = Events::open(&server, &format!("&resourceVersion={version}")).await;
    server.post(CONFIG_MAPS, &config_map("b", json!({}))).await;
    server
        .merge(&format!("{CONFIG_MAPS}/a"), &json!({"data": {"k": "2"}}))
        .await;
    server.delete(&format!("{CONFIG_MAPS}/a"), &Value::Null).await;
    assert_eq!(events.short().await, pair("ADDED", "b"));
    assert_eq!(events.short().await, pair("MODIFIED", "a"));
    let deleted = events.next().await.unwrap();
    assert_eq!(
        (&deleted["type"], &deleted["object"]["data"]["k"]),
        (&json!("DELETED"), &json!("2"))
    );
    let list = server.get(CONFIG_MAPS).await.json();
    assert_eq!(
        deleted["object"]["metadata"]["resourceVersion"],
        list["metadata"]["resourceVersion"]
    );
}

#[tokio::test]
async fn a_watch_without_a_version_begins_with_what_is_there() {
    let server = Server::start().await;
    server.post(CONFIG_MAPS, &config_map("a", json!({}))).await;
    for query in ["", "&resourceVersion=0"] {
        let mut events = Events::open(&server, query).await;
        assert_eq!(events.short().await, pair("ADDED", "a"));
    }
}

#[tokio::test]
async fn a_compacted_version_is_one_error_event_in_a_good_stream() {
    let store =
        mainstay_store::kube::KubeStore::open(mainstay_store::kube::KubeOptions::in_memory()).unwrap();
    let options = mainstay_kubeapi::ApiOptions::new(
        store.clone(),
        mainstay_telemetry::clock::system(),
        mainstay_telemetry::random::system(),
    );
    let server = Server::over(options).await;
    server.post(CONFIG_MAPS, &config_map("a", json!({}))).await;
    server.post(CONFIG_MAPS, &config_map("b", json!({}))).await;
    let newest = store.revision();
    store.compact(Some(newest)).await.unwrap();
    let mut events = Events::open(&server, "&resourceVersion=1").await;
    let error = events.next().await.unwrap();
    assert_eq!(
        (&error["type"], &error["object"]["code"]),
        (&json!("ERROR"), &json!(410))
    );
    assert_eq!(error["object"]["reason"], "Expired");
    assert!(events.next().await.is_none());
    let mut events =
        Events::open(&server, "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=1&allowWatchBookmarks=true").await;
    assert_eq!(events.short().await, pair("ADDED", "a"));
}

#[tokio::test]
async fn a_streaming_list_ends_with_its_bookmark() {
    let server = Server::start().await;
    server.post(CONFIG_MAPS, &config_map("a", json!({}))).await;
    let query = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut events = Events::open(&server, query).await;
    assert_eq!(events.short().await, pair("ADDED", "a"));
    let bookmark = events.next().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(
        bookmark["object"]["metadata"]["annotations"],
        json!({"k8s.io/initial-events-end": "true"})
    );
    let mut events = Events::open(&server, &format!("{query}&resourceVersion=999999")).await;
    let error = events.next().await.unwrap();
    assert_eq!(
        (&error["type"], &error["object"]["code"]),
        (&json!("ERROR"), &json!(504))
    );
    assert_eq!(error["object"]["details"]["retryAfterSeconds"], 1);
}

#[tokio::test]
async fn a_plain_watch_ahead_of_the_server_waits() {
    let server = Server::start().await;
    let current: u64 = server.get(CONFIG_MAPS).await.json()["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let mut events = Events::open(&server, &format!("&resourceVersion={}", current + 1)).await;
    server.post(CONFIG_MAPS, &config_map("early", json!({}))).await;
    server.post(CONFIG_MAPS, &config_map("late", json!({}))).await;
    assert_eq!(events.short().await, pair("ADDED", "late"));
}

#[tokio::test]
async fn an_object_that_leaves_a_selector_is_deleted_and_one_that_enters_is_added() {
    let server = Server::start().await;
    let mut body = config_map("a", json!({"k": "1"}));
    body["metadata"]["labels"] = json!({"tier": "x"});
    server.post(CONFIG_MAPS, &body).await;
    let mut events = Events::open(&server, "&labelSelector=tier%3Dx").await;
    assert_eq!(events.short().await, pair("ADDED", "a"));
    let path = format!("{CONFIG_MAPS}/a");
    let left = server
        .merge(
            &path,
            &json!({"metadata": {"labels": {"tier": "y"}}, "data": {"k": "2"}}),
        )
        .await
        .json();
    let deleted = events.next().await.unwrap();
    assert_eq!(
        (&deleted["type"], &deleted["object"]["data"]["k"]),
        (&json!("DELETED"), &json!("1"))
    );
    assert_eq!(
        deleted["object"]["metadata"]["resourceVersion"],
        left["metadata"]["resourceVersion"]
    );
    server.merge(&path, &json!({"data": {"k": "3"}})).await;
    server
        .merge(&path, &json!({"metadata": {"labels": {"tier": "x"}}}))
        .await;
    assert_eq!(events.short().await, pair("ADDED", "a"));
}

#[tokio::test(start_paused = true)]
async fn a_watch_sends_bookmarks_on_request_and_keeps_its_deadline() {
    let server = Server::start().await;
    let mut events = Events::open(&server, "&allowWatchBookmarks=true&timeoutSeconds=90").await;
    events.deadline = Duration::from_secs(600);
    let begun = tokio::time::Instant::now();
    assert_eq!(events.next().await.unwrap()["type"], "BOOKMARK");
    assert_eq!(begun.elapsed().as_secs(), 60);
    assert_eq!(events.next().await.unwrap()["type"], "BOOKMARK");
    assert!(events.next().await.is_none());
    assert_eq!(begun.elapsed().as_secs(), 90);
    let mut events = Events::open(&server, "&timeoutSeconds=90").await;
    events.deadline = Duration::from_secs(600);
    assert!(events.next().await.is_none());
}

#[tokio::test]
async fn too_many_watches_are_told_so_before_a_stream_exists() {
    let server = Server::with(|options| options.limits.watches = 1).await;
    let _open = Events::open(&server, "").await;
    let answer = server.get(&format!("{CONFIG_MAPS}?watch=1")).await;
    assert_eq!(
        (
            answer.status.as_u16(),
            answer.headers["retry-after"].to_str().unwrap()
        ),
        (429, "1")
    );
}

#[tokio::test]
async fn the_watcher_of_kube_follows_with_both_strategies_ka_002() {
    let server = Server::start().await;
    server.post(CONFIG_MAPS, &config_map("a", json!({}))).await;
    for config in [
        watcher::Config::default(),
        watcher::Config::default().streaming_lists(),
    ] {
        let api: Api<ConfigMap> = Api::default_namespaced(server.client());
        let mut stream = Box::pin(watcher(api, config));
        let mut seen = Vec::new();
        while !matches!(seen.last(), Some(text) if text == "done") {
            let event = tokio::time::timeout(DEADLINE, stream.try_next())
                .await
                .unwrap()
                .unwrap()
                .unwrap();
            seen.push(match event {
                watcher::Event::Init => "init".to_owned(),
                watcher::Event::InitApply(object) => object.name_any(),
                watcher::Event::InitDone => "done".to_owned(),
                other => format!("{other:?}"),
            });
        }
        assert_eq!(seen, vec!["init", "a", "done"]);
        server
            .merge(
                &format!("{CONFIG_MAPS}/a"),
                &json!({"data": {"k": uuid::Uuid::new_v4().to_string()}}),
            )
            .await;
        let event = tokio::time::timeout(DEADLINE, stream.try_next())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert!(matches!(event, watcher::Event::Apply(object) if object.name_any() == "a"));
    }
}

#[tokio::test]
async fn a_controller_of_kube_reconciles_ka_002() {
    let server = Server::start().await;
    server.post(CONFIG_MAPS, &config_map("a", json!({}))).await;
    let client = server.client();
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let mut runs = Box::pin(Controller::new(api, watcher::Config::default()).run(
        |object: Arc<ConfigMap>, _context: Arc<()>| async move {
            assert_eq!(object.name_any(), "a");
            Ok::<_, std::convert::Infallible>(Action::requeue(Duration::from_secs(3600)))
        },
        |_object, error, _context| match *error {},
        Arc::new(()),
    ));
    let (reconciled, _action) = tokio::time::timeout(DEADLINE, runs.next())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(reconciled.name, "a");
}

#[tokio::test]
async fn a_watcher_that_reads_too_slowly_ends_without_an_error_and_resumes_or_lists() {
    let store =
        mainstay_store::kube::KubeStore::open(mainstay_store::kube::KubeOptions::in_memory()).unwrap();
    let options = mainstay_kubeapi::ApiOptions::new(
        store.clone(),
        mainstay_telemetry::clock::system(),
        mainstay_telemetry::random::system(),
    );
    let server = Server::over(options).await;
    let version = server.get(CONFIG_MAPS).await.json()["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut events = Events::open(&server, &format!("&resourceVersion={version}")).await;
    for name in ["a", "b", "c"] {
        server.post(CONFIG_MAPS, &config_map(name, json!({}))).await;
    }
    store.compact(Some(store.revision())).await.unwrap();
    assert!(events.next().await.is_none());
    let mut events = Events::open(&server, &format!("&resourceVersion={version}")).await;
    assert_eq!(events.next().await.unwrap()["object"]["code"], 410);
}

#[tokio::test]
async fn events_go_when_they_are_old_ka_031() {
    let server = Server::with(|options| options.limits.event_age = Duration::from_millis(10)).await;
    let path = "/api/v1/namespaces/default/events";
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "type": "Normal", "reason": "Started",
        "message": "m", "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"},
    });
    let answer = server.post(path, &event).await;
    assert_eq!(answer.status, 201, "{}", answer.message());
    server
        .until(&format!("{path}/e"), path, |answer| answer.status == 404)
        .await;
}

#[tokio::test]
async fn a_table_watch_describes_its_columns_once_ka_028() {
    let server = Server::start().await;
    server.post(CONFIG_MAPS, &config_map("a", json!({}))).await;
    server.post(CONFIG_MAPS, &config_map("b", json!({}))).await;
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut request = Request::get(format!("{CONFIG_MAPS}?{query}"))
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Body::empty())
        .unwrap();
    request.extensions_mut().insert(Identity::admin());
    let response = server.api.router().oneshot(request).await.unwrap();
    let mut events = Events {
        stream: response.into_body().into_data_stream(),
        rest: Vec::new(),
        deadline: DEADLINE,
    };
    let first = events.next().await.unwrap();
    assert_eq!(first["object"]["rows"][0]["cells"][0], "a");
    assert!(first["object"]["columnDefinitions"].is_array());
    let second = events.next().await.unwrap();
    assert_eq!(second["object"]["rows"][0]["cells"][0], "b");
    assert!(second["object"]["columnDefinitions"].is_null());
    let bookmark = events.next().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    let row = &bookmark["object"]["rows"][0];
    assert_eq!(
        row["object"]["metadata"]["annotations"],
        json!({"k8s.io/initial-events-end": "true"})
    );
    assert_eq!(
        row["object"]["metadata"]["resourceVersion"],
        bookmark["object"]["metadata"]["resourceVersion"]
    );
}

/// The frames that a watch in protobuf has sent when it ends after a second.
async fn frames(server: &Server, path: &str, accept: &str) -> Vec<Vec<u8>> {
    let answer = server.get_as(path, accept).await;
    assert_eq!(
        answer.headers["content-type"],
        "application/vnd.kubernetes.protobuf;stream=watch"
    );
    let (mut frames, mut rest) = (Vec::new(), answer.body.as_slice());
    while let Some((length, tail)) = rest.split_first_chunk::<4>() {
        let (frame, tail) = tail.split_at(usize::try_from(u32::from_be_bytes(*length)).unwrap());
        frames.push(frame.to_vec());
        rest = tail;
    }
    assert!(rest.is_empty());
    frames
}

#[tokio::test]
async fn a_watch_in_protobuf_has_frames_of_objects_bookmarks_and_errors_ka_007() {
    const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
    let store =
        mainstay_store::kube::KubeStore::open(mainstay_store::kube::KubeOptions::in_memory()).unwrap();
    let options = mainstay_kubeapi::ApiOptions::new(
        store.clone(),
        mainstay_telemetry::clock::system(),
        mainstay_telemetry::random::system(),
    );
    let server = Server::over(options).await;
    server
        .post(CONFIG_MAPS, &config_map("a", json!({"k": "1"})))
        .await;
    let streaming = "watch=1&timeoutSeconds=1&sendInitialEvents=true&allowWatchBookmarks=true\
                     &resourceVersionMatch=NotOlderThan&fieldSelector=metadata.name=a";
    let contains = |frame: &[u8], text: &[u8]| frame.windows(text.len()).any(|window| window == text);
    let written = frames(&server, &format!("{CONFIG_MAPS}?{streaming}"), PROTOBUF).await;
    assert!(written[0].starts_with(b"\x0a\x05ADDED\x12"));
    assert!(contains(&written[0], b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap"));
    assert!(written[1].starts_with(b"\x0a\x08BOOKMARK\x12"));
    assert!(contains(&written[1], b"k8s.io/initial-events-end"));
    let metadata = format!("{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{PROTOBUF}");
    let written = frames(&server, &format!("{CONFIG_MAPS}?{streaming}"), &metadata).await;
    assert!(contains(
        &written[0],
        b"\x0a\x0emeta.k8s.io/v1\x12\x15PartialObjectMetadata"
    ));
    server.post(CONFIG_MAPS, &config_map("b", json!({}))).await;
    store.compact(Some(store.revision())).await.unwrap();
    let written = frames(
        &server,
        &format!("{CONFIG_MAPS}?watch=1&resourceVersion=1"),
        PROTOBUF,
    )
    .await;
    assert_eq!(written.len(), 1);
    assert!(written[0].starts_with(b"\x0a\x05ERROR\x12"));
    assert!(contains(&written[0], b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Status"));
    let refused = server
        .get_as(&format!("{CONFIG_MAPS}?watch=1"), "application/yaml")
        .await;
    assert_eq!(refused.status, 406);
}
