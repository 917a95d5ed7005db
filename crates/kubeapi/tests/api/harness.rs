//! A server in memory, and single requests against it.

use std::time::Duration;

use axum::{Router, body::Body};
use http::{Request, StatusCode, header};
use http_body_util::BodyExt as _;
use kube::Client;
use mainstay_kubeapi::{Api, ApiOptions, Identity};
use mainstay_store::kube::{KubeOptions, KubeStore};
use mainstay_telemetry::{clock, random, task};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::ServiceExt as _;

/// How long a test waits for something that must happen.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// A server with its background work, which ends with the test.
pub(crate) struct Server {
    pub(crate) api: Api,
    router: Router,
    _running: DropGuard,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    /// The `message` of a Status.
    pub(crate) fn message(&self) -> String {
        self.json()["message"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        self.headers
            .get_all(header::WARNING)
            .iter()
            .map(|value| value.to_str().unwrap().to_owned())
            .collect()
    }
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(adjust: impl FnOnce(&mut ApiOptions)) -> Self {
        let store = KubeStore::open(KubeOptions::in_memory()).unwrap();
        let mut options = ApiOptions::new(store, clock::system(), random::system());
        adjust(&mut options);
        Self::over(options).await
    }

    pub(crate) async fn over(options: ApiOptions) -> Self {
        let api = Api::open(options).await.unwrap();
        let cancellation = CancellationToken::new();
        let background = (api.clone(), cancellation.clone());
        task::spawn("kubeapi", async move { background.0.run(background.1).await });
        Self {
            router: api.router(),
            api,
            _running: cancellation.drop_guard(),
        }
    }

    pub(crate) fn client(&self) -> Client {
        self.api.client(Identity::component("test"))
    }

    /// Sends a request as the admin.
    pub(crate) async fn send(&self, mut request: Request<Body>) -> Answer {
        request.extensions_mut().insert(Identity::admin());
        self.send_anonymously(request).await
    }

    pub(crate) async fn send_anonymously(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes().to_vec();
        Answer {
            status: parts.status,
            headers: parts.headers,
            body,
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Request::get(path).body(Body::empty()).unwrap()).await
    }

    pub(crate) async fn get_as(&self, path: &str, accept: &str) -> Answer {
        self.send(
            Request::get(path)
                .header(header::ACCEPT, accept)
                .body(Body::empty())
                .unwrap(),
        )
        .await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.write("POST", path, "application/json", body.to_string())
            .await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Answer {
        self.write("PUT", path, "application/json", body.to_string())
            .await
    }

    pub(crate) async fn delete(&self, path: &str, options: &Value) -> Answer {
        let body = if options.is_null() {
            String::new()
        } else {
            options.to_string()
        };
        self.write("DELETE", path, "application/json", body).await
    }

    pub(crate) async fn merge(&self, path: &str, body: &Value) -> Answer {
        self.write("PATCH", path, "application/merge-patch+json", body.to_string())
            .await
    }

    pub(crate) async fn apply(&self, path: &str, body: &Value) -> Answer {
        self.write("PATCH", path, "application/apply-patch+yaml", body.to_string())
            .await
    }

    pub(crate) async fn write(&self, method: &str, path: &str, content_type: &str, body: String) -> Answer {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, content_type)
            .header(header::USER_AGENT, "tester/1.0")
            .body(Body::from(body))
            .unwrap();
        self.send(request).await
    }

    /// Waits until a get of `path` satisfies `done`, looking again whenever `watched` has an event.
    pub(crate) async fn until(&self, path: &str, watched: &str, done: impl Fn(&Answer) -> bool) -> Answer {
        use futures::StreamExt as _;
        let separator = if watched.contains('?') { '&' } else { '?' };
        let mut request = Request::get(format!("{watched}{separator}watch=1"))
            .body(Body::empty())
            .unwrap();
        request.extensions_mut().insert(Identity::admin());
        let mut events = self
            .router
            .clone()
            .oneshot(request)
            .await
            .unwrap()
            .into_body()
            .into_data_stream();
        tokio::time::timeout(DEADLINE, async {
            loop {
                let answer = self.get(path).await;
                if done(&answer) {
                    return answer;
                }
                events.next().await.expect("the watch goes on").unwrap();
            }
        })
        .await
        .unwrap_or_else(|_| panic!("{path} did not come to the awaited state"))
    }
}

/// A ConfigMap.
pub(crate) fn config_map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

/// The ConfigMaps of the default namespace.
pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
