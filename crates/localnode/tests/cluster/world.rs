//! A cluster in a test: the embedded API in memory, the local node, and a few roles.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use axum::extract::{Path as UrlPath, State};
use axum::routing::get;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, Service};
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::api::{ListParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource};
use mainstay_kubeapi::{Api as KubeApi, ApiOptions, Identity};
use mainstay_localnode::{
    BackOffOptions, Clients, ContainerEngineOptions, Handle, Isolation, JobBackOffOptions, LocalNode,
    LocalNodeOptions, Parts,
};
use mainstay_store::kube::{KubeOptions, KubeStore};
use mainstay_telemetry::clock::{self, SharedClock};
use mainstay_telemetry::{random, task};
use mainstay_workload::{
    Connector, ConnectorOptions, OutboundRequest, Role, RoleError, Roles, ServiceResolver, WorkloadContext,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

pub(crate) struct World {
    folder: tempfile::TempDir,
    api: KubeApi,
    client: Client,
    pub(crate) handle: Handle,
    running: JoinHandle<()>,
    stop: CancellationToken,
    api_stop: CancellationToken,
    shared: TestShared,
}

#[derive(Clone)]
struct TestShared {
    clock: SharedClock,
    events: Arc<Mutex<Vec<String>>>,
    gate: watch::Sender<bool>,
}

struct ByAccount(KubeApi);

impl Clients for ByAccount {
    fn client(&self, namespace: &str, service_account: &str) -> Client {
        self.0
            .client(Identity::service_account(namespace, service_account))
    }
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::start_with(Parts::default(), BackOffOptions::default()).await
    }

    pub(crate) async fn start_with(parts: Parts, back_off: BackOffOptions) -> Self {
        Self::start_at(clock::system(), parts, back_off).await
    }

    /// A cluster whose time is `clock`'s.
    pub(crate) async fn start_at(clock: SharedClock, parts: Parts, back_off: BackOffOptions) -> Self {
        let store = KubeStore::open(KubeOptions::in_memory()).unwrap();
        let api = KubeApi::open(ApiOptions::new(store, Arc::clone(&clock), random::system()))
            .await
            .unwrap();
        let api_stop = CancellationToken::new();
        let background = api.clone();
        let token = api_stop.clone();
        task::spawn("api", async move { background.run(token).await });
        let shared = TestShared {
            events: Arc::default(),
            gate: watch::Sender::new(false),
            clock,
        };
        let folder = tempfile::tempdir().unwrap();
        Self::run(folder, api, api_stop, shared, parts, back_off)
    }

    /// A cluster whose Pods of images by others run in the engine at `socket`.
    pub(crate) async fn start_in_engine(socket: &Path, back_off: BackOffOptions) -> Self {
        let mut world = Self::start_with(
            Parts {
                controllers: false,
                binding: false,
                running: false,
            },
            back_off,
        )
        .await;
        world.stop.cancel();
        tokio::time::timeout(DEADLINE, &mut world.running)
            .await
            .unwrap()
            .unwrap();
        let engine = ContainerEngineOptions {
            sockets: vec![socket.to_owned()],
            used: world.folder().join("container-engine"),
            kubernetes: "https://127.0.0.1:1".to_owned(),
            certificate_authority: CERTIFICATE.to_owned(),
        };
        Self::run_with(
            world.folder,
            world.api,
            world.api_stop,
            world.shared,
            (Parts::default(), back_off, Some(engine)),
        )
    }

    fn run(
        folder: tempfile::TempDir,
        api: KubeApi,
        api_stop: CancellationToken,
        shared: TestShared,
        parts: Parts,
        back_off: BackOffOptions,
    ) -> Self {
        Self::run_with(folder, api, api_stop, shared, (parts, back_off, None))
    }

    fn run_with(
        folder: tempfile::TempDir,
        api: KubeApi,
        api_stop: CancellationToken,
        shared: TestShared,
        (parts, back_off, engine): (Parts, BackOffOptions, Option<ContainerEngineOptions>),
    ) -> Self {
        let client = api.client(Identity::component("localnode"));
        let node = LocalNode::new(LocalNodeOptions {
            client: client.clone(),
            clients: Arc::new(ByAccount(api.clone())),
            roles: roles(&shared),
            pods_directory: folder.path().join("pods"),
            logs_directory: folder.path().join("logs"),
            host_environment: [("LENT".to_owned(), "by the host".to_owned())].into(),
            clock: Arc::clone(&shared.clock),
            random: random::system(),
            certificate_authority: Some(CERTIFICATE.to_owned()),
            parts,
            isolation: Isolation::Task,
        })
        .with_container_engine(engine)
        .with_back_off(back_off)
        .with_job_back_off(JobBackOffOptions {
            initial: Duration::from_millis(1),
            limit: Duration::from_millis(1),
        });
        let handle = node.handle();
        let stop = CancellationToken::new();
        let running = task::spawn("local-node", node.run(stop.clone()));
        Self {
            folder,
            api,
            client,
            handle,
            running,
            stop,
            api_stop,
            shared,
        }
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(DEADLINE, self.running)
            .await
            .unwrap()
            .unwrap();
        self.api_stop.cancel();
    }

    /// The process ends and another one starts on the same objects and files.
    pub(crate) async fn restart(self) -> Self {
        self.stop.cancel();
        tokio::time::timeout(DEADLINE, self.running)
            .await
            .unwrap()
            .unwrap();
        Self::run(
            self.folder,
            self.api,
            self.api_stop,
            self.shared,
            Parts::default(),
            BackOffOptions::default(),
        )
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn events(&self) -> Vec<String> {
        self.shared.events.lock().unwrap().clone()
    }

    pub(crate) fn open_gate(&self) {
        self.shared.gate.send_replace(true);
    }

    pub(crate) async fn within<T>(&self, future: impl Future<Output = T>) -> T {
        tokio::time::timeout(DEADLINE, future)
            .await
            .expect("not within the deadline")
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), "default")
    }

    pub(crate) fn cluster_api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = ClusterResourceScope>,
    {
        Api::all(self.client.clone())
    }

    pub(crate) async fn create<K>(&self, object: Value) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + DeserializeOwned
            + serde::Serialize
            + Clone
            + std::fmt::Debug,
    {
        let object: K = serde_json::from_value(object).unwrap();
        self.api::<K>()
            .create(&PostParams::default(), &object)
            .await
            .unwrap()
    }

    /// A Service of the Pods that carry the label `app` with this name.
    pub(crate) async fn service(&self, name: &str) {
        self.create::<Service>(json!({
            "metadata": { "name": name, "namespace": "default" },
            "spec": { "selector": { "app": name }, "ports": [{ "port": 80, "targetPort": 8080 }] },
        }))
        .await;
        let resolver = self.handle.services.clone();
        let name = name.to_owned();
        self.eventually("the Service is known", move || {
            resolver.resolve(&name, 80, "default") != mainstay_workload::Resolution::NotAService
        })
        .await;
    }

    /// Waits for what no watch reports, by looking again whenever the runtime has nothing better to do.
    async fn eventually(&self, what: &str, holds: impl Fn() -> bool) {
        let looked = tokio::time::timeout(DEADLINE, async {
            while !holds() {
                tokio::task::yield_now().await;
            }
        });
        assert!(looked.await.is_ok(), "not within the deadline: {what}");
    }

    /// Waits until the object of this name is as it should be.
    pub(crate) async fn until<K>(&self, name: &str, holds: impl Fn(&K) -> bool) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + DeserializeOwned
            + Clone
            + std::fmt::Debug
            + Send
            + 'static,
    {
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let mut stream = Box::pin(watcher(self.api::<K>(), config).applied_objects());
        let mut last = None;
        let found = tokio::time::timeout(DEADLINE, async {
            use futures::StreamExt;
            while let Some(object) = stream.next().await {
                let object = object.unwrap();
                if holds(&object) {
                    return object;
                }
                last = Some(object);
            }
            panic!("the watch ended");
        })
        .await;
        found.unwrap_or_else(|_| panic!("{name} is not as it should be: {last:#?}"))
    }

    /// Waits until the list is as it should be.
    pub(crate) async fn until_list<K>(&self, parameters: &ListParams, holds: impl Fn(&[K]) -> bool)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + DeserializeOwned
            + Clone
            + std::fmt::Debug
            + Send
            + 'static,
    {
        use futures::StreamExt;
        let mut changes = Box::pin(watcher(self.api::<K>(), watcher::Config::default()));
        let waited = tokio::time::timeout(DEADLINE, async {
            loop {
                let items = self.api::<K>().list(parameters).await.unwrap().items;
                if holds(&items) {
                    return;
                }
                changes.next().await.unwrap().unwrap();
            }
        });
        if waited.await.is_err() {
            let items = self.api::<K>().list(parameters).await.unwrap().items;
            panic!("the list is not as it should be: {items:#?}");
        }
    }

    /// The Pods with this `app` label that are not about to end.
    pub(crate) async fn pods(&self, app: &str) -> Vec<Pod> {
        let parameters = ListParams::default().labels(&format!("app={app}"));
        let pods = self.api::<Pod>().list(&parameters).await.unwrap();
        pods.into_iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none())
            .collect()
    }

    /// Asks over the connector, as a workload in the namespace would.
    pub(crate) async fn get(&self, url: &str) -> String {
        let connector = Connector::new(ConnectorOptions {
            resolver: Arc::new(self.handle.services.clone()),
            namespace: "default".to_owned(),
            allow_private: true,
        })
        .unwrap();
        let request = OutboundRequest {
            method: axum::http::Method::GET,
            url: url.parse().unwrap(),
            headers: axum::http::HeaderMap::default(),
            body: None,
            deadline: DEADLINE,
        };
        let response = connector.send(request).await.unwrap();
        let (body, _) = response.bytes_capped(1 << 20).await.unwrap();
        String::from_utf8(body.to_vec()).unwrap()
    }

    pub(crate) async fn until_answer(&self, url: &str, expected: &str) {
        self.within(async { while self.get(url).await != expected {} })
            .await;
    }
}

/// Stands for the API's certificate authority.
pub(crate) const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\n";

pub(crate) fn has_failed(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Failed")
}

/// Of the Pod's first container.
pub(crate) fn container_status(pod: &Pod) -> &ContainerStatus {
    &pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0]
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Reason and message of the first container that waits.
pub(crate) fn waiting_reason(pod: &Pod) -> Option<(String, String)> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    let waiting = statuses
        .iter()
        .find_map(|status| status.state.as_ref()?.waiting.clone())?;
    Some((
        waiting.reason.unwrap_or_default(),
        waiting.message.unwrap_or_default(),
    ))
}

fn roles(shared: &TestShared) -> Roles {
    let mut roles = Roles::new();
    for name in ["echo", "fail", "panic", "complete", "stubborn", "gate", "facade"] {
        roles.insert(
            name.to_owned(),
            Arc::new(TestRole {
                name,
                shared: shared.clone(),
            }),
        );
    }
    roles
}

struct TestRole {
    name: &'static str,
    shared: TestShared,
}

#[async_trait]
impl Role for TestRole {
    async fn run(&self, context: WorkloadContext) -> Result<(), RoleError> {
        let pod = context.identity.pod.clone();
        match self.name {
            "fail" => {
                context.log.line("about to fail");
                return Err(RoleError::new("file /etc/x has no field y"));
            }
            "panic" => panic!("on purpose"),
            "complete" => {
                self.shared
                    .events
                    .lock()
                    .unwrap()
                    .push(format!("{pod} completed {}", context.arguments.join(" ")));
                return Ok(());
            }
            "stubborn" => {
                context.readiness.ready();
                std::future::pending::<()>().await;
            }
            "facade" => {
                let answer = format!("hello from {pod}");
                let router = axum::Router::new().route("/hello", get(move || async move { answer }));
                context
                    .ports
                    .serve("http", router)
                    .map_err(|error| RoleError::new(error.to_string()))?;
                context.readiness.ready();
                context.cancellation.cancelled().await;
                return Ok(());
            }
            "gate" => {
                context.readiness.not_ready("gate is closed");
                let mut gate = self.shared.gate.subscribe();
                let readiness = context.readiness.clone();
                task::spawn("gate", async move {
                    if gate.wait_for(|open| *open).await.is_ok() {
                        readiness.ready();
                    }
                });
            }
            _ => {}
        }
        let listener = context
            .ports
            .listen("http")
            .await
            .map_err(|error| RoleError::new(error.to_string()))?;
        if self.name == "echo" {
            context.readiness.ready();
        }
        let router = axum::Router::new()
            .route(
                "/pod",
                get(|State(context): State<WorkloadContext>| async move { context.identity.pod }),
            )
            .route("/env/{name}", get(environment))
            .route("/file/{*path}", get(file))
            .with_state(context.clone());
        let cancelled = context.cancellation.clone();
        axum::serve(listener, router)
            .with_graceful_shutdown(async move { cancelled.cancelled().await })
            .await
            .map_err(|error| RoleError::new(error.to_string()))?;
        self.shared
            .events
            .lock()
            .unwrap()
            .push(format!("{pod} cancelled"));
        Ok(())
    }
}

async fn environment(State(context): State<WorkloadContext>, UrlPath(name): UrlPath<String>) -> String {
    context.environment.get(&name).cloned().unwrap_or_default()
}

async fn file(State(context): State<WorkloadContext>, UrlPath(path): UrlPath<String>) -> String {
    context
        .files
        .read_to_string(&format!("/{path}"))
        .unwrap_or_else(|error| error.to_string())
}

/// Runs a local node on the client and tells it to end at once.
pub(crate) async fn ends_when_cancelled(client: Client) {
    struct Same(Client);
    impl Clients for Same {
        fn client(&self, _: &str, _: &str) -> Client {
            self.0.clone()
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let node = LocalNode::new(LocalNodeOptions {
        client: client.clone(),
        clients: Arc::new(Same(client)),
        roles: Roles::new(),
        pods_directory: folder.path().join("pods"),
        logs_directory: folder.path().join("logs"),
        host_environment: std::collections::BTreeMap::new(),
        clock: clock::system(),
        random: random::system(),
        certificate_authority: Some(CERTIFICATE.to_owned()),
        parts: Parts::default(),
        isolation: Isolation::Task,
    });
    let stop = CancellationToken::new();
    let running = task::spawn("local-node", node.run(stop.clone()));
    // The parts have asked the API and wait for it.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    stop.cancel();
    tokio::time::timeout(DEADLINE, running)
        .await
        .expect("it ends")
        .unwrap();
}
