//! Logs of Pods, and what a fault in one request means for others. Requirements KA-008, KA-010, KA-052.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::{StreamExt as _, future::BoxFuture, stream};
use http::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;
use mainstay_kubeapi::{LogError, LogRequest, LogSource, LogStream};
use serde_json::json;

use crate::harness::{CONFIG_MAPS, Server};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// Remembers what it was asked, and answers by the container's name.
#[derive(Default)]
struct Source {
    asked: Mutex<Vec<LogRequest>>,
}

impl LogSource for Source {
    fn open(&self, request: LogRequest) -> BoxFuture<'_, Result<LogStream, LogError>> {
        let container = request.container.clone();
        let pod = request.pod.clone();
        self.asked.lock().unwrap().push(request);
        Box::pin(async move {
            match container.as_str() {
                "waiting" => Err(LogError::NotStarted {
                    container,
                    pod,
                    reason: "ContainerCreating".to_owned(),
                }),
                "broken" => panic!("the log source is broken"),
                _ => {
                    let lines = ["one\n", "two\n"].map(|line| Ok(Bytes::from_static(line.as_bytes())));
                    Ok(stream::iter(lines).boxed())
                }
            }
        })
    }
}

async fn with_pod(source: Arc<Source>) -> Server {
    let server = Server::with(|options| options.logs = Some(source)).await;
    let containers: Vec<_> = ["main", "waiting", "broken"]
        .iter()
        .map(|name| json!({"name": name, "image": "mainstay"}))
        .collect();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": containers}});
    assert_eq!(server.post(PODS, &pod).await.status, StatusCode::CREATED);
    server
}

#[tokio::test]
async fn a_log_is_read_through_a_kube_client_ka_052() {
    let source = Arc::new(Source::default());
    let server = with_pod(Arc::clone(&source)).await;
    let api: kube::Api<Pod> = kube::Api::default_namespaced(server.client());
    let parameters = LogParams {
        container: Some("main".to_owned()),
        tail_lines: Some(5),
        timestamps: true,
        ..LogParams::default()
    };
    assert_eq!(api.logs("p", &parameters).await.unwrap(), "one\ntwo\n");
    let asked = source.asked.lock().unwrap().pop().unwrap();
    assert_eq!(
        (
            asked.container.as_str(),
            asked.tail_lines,
            asked.timestamps,
            asked.follow
        ),
        ("main", Some(5), true, false)
    );
    assert!(!asked.uid.is_empty());
}

#[tokio::test]
async fn a_log_is_cut_at_the_bytes_asked_for_ka_052() {
    let server = with_pod(Arc::default()).await;
    let answer = server
        .get(&format!("{PODS}/p/log?container=main&limitBytes=5"))
        .await;
    assert_eq!(String::from_utf8(answer.body).unwrap(), "one\nt");
}

#[tokio::test]
async fn a_log_that_is_not_there_says_why_ka_052() {
    let server = with_pod(Arc::default()).await;
    let answer = server.get(&format!("{PODS}/p/log")).await;
    assert_eq!(
        (answer.status, answer.message().as_str()),
        (
            StatusCode::BAD_REQUEST,
            "a container name must be specified for pod p, choose one of: [main waiting broken]"
        )
    );
    let answer = server.get(&format!("{PODS}/p/log?container=nope")).await;
    assert_eq!(answer.message(), "container nope is not valid for pod p");
    let answer = server.get(&format!("{PODS}/p/log?container=waiting")).await;
    assert_eq!(
        (answer.status, answer.message().as_str()),
        (
            StatusCode::BAD_REQUEST,
            "container \"waiting\" in pod \"p\" is waiting to start: ContainerCreating"
        )
    );
    let answer = server.get(&format!("{PODS}/nope/log")).await;
    assert_eq!(answer.message(), "pods \"nope\" not found");
}

#[tokio::test]
async fn the_node_of_a_pod_is_set_by_a_binding_and_by_nothing_else_ka_010() {
    let server = with_pod(Arc::default()).await;
    let pod = format!("{PODS}/p");
    let refused = |node: serde_json::Value| {
        let (server, pod) = (&server, &pod);
        async move {
            let answer = server.merge(pod, &json!({"spec": {"nodeName": node}})).await;
            assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{node}");
            assert!(
                answer
                    .message()
                    .contains("spec: Forbidden: pod updates may not change fields other than"),
                "{}",
                answer.message()
            );
        }
    };
    refused(json!("n1")).await;
    let binding =
        json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"name": "n1"}});
    let bound = server.post(&format!("{pod}/binding"), &binding).await;
    assert_eq!(bound.status, StatusCode::CREATED);
    refused(json!("n2")).await;
    refused(json!(null)).await;
    let same = server.merge(&pod, &json!({"spec": {"nodeName": "n1"}})).await;
    assert_eq!(same.status, StatusCode::OK);
}

#[tokio::test]
async fn a_request_that_panics_is_answered_and_concerns_no_other_ka_008() {
    let server = with_pod(Arc::default()).await;
    let answer = server.get(&format!("{PODS}/p/log?container=broken")).await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(answer.json()["reason"], "InternalError");
    assert_eq!(server.get(CONFIG_MAPS).await.status, StatusCode::OK);
}
