//! A container engine in a test: the part of the Docker Engine API that is asked for, on a Unix socket. It runs nothing; a
//! test says what its containers do.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use axum::Json;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path as UrlPath, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use bytes::Bytes;
use mainstay_telemetry::task;
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

#[derive(Clone, Debug)]
pub(crate) struct FakeContainer {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) body: Value,
    pub(crate) status: &'static str,
    pub(crate) exit_code: i64,
    pub(crate) oom_killed: bool,
    pub(crate) output: Vec<String>,
}

impl FakeContainer {
    pub(crate) fn is_of(&self, container: &str) -> bool {
        self.body["Labels"]["dev.mainstay.container"] == container
    }
}

#[derive(Default)]
pub(crate) struct World {
    pub(crate) containers: Vec<FakeContainer>,
    pub(crate) images: Vec<String>,
    /// What a pull answers, until it succeeds; and what it was asked for and with which credentials.
    pub(crate) pull_error: Option<String>,
    pub(crate) pulls: Vec<(String, String)>,
    pub(crate) start_error: Option<String>,
    /// Where the ports of containers lead.
    pub(crate) published: BTreeMap<String, u16>,
    pub(crate) removed: Vec<String>,
    pub(crate) stopped: Vec<String>,
    pub(crate) garbage: bool,
    made: usize,
}

/// The engine. It stops answering when it is dropped, and keeps its containers.
pub(crate) struct Engine {
    pub(crate) socket: PathBuf,
    shared: Shared,
    serving: Option<JoinHandle<()>>,
}

/// What Podman says of a container whose program has ended, until it has cleaned up behind it. Docker's API has no such word.
const STOPPED: &str = "stopped";

#[derive(Clone)]
struct Shared {
    world: Arc<Mutex<World>>,
    changes: watch::Sender<u64>,
}

impl Shared {
    fn with<T>(&self, work: impl FnOnce(&mut World) -> T) -> T {
        let result = work(&mut self.world.lock().unwrap());
        self.changes.send_modify(|count| *count += 1);
        result
    }

    fn find(&self, id: &str) -> Option<FakeContainer> {
        let world = self.world.lock().unwrap();
        let mut containers = world.containers.iter();
        containers.find(|container| container.id == id).cloned()
    }
}

impl Engine {
    /// An engine that does not answer yet.
    pub(crate) fn new(folder: &Path) -> Self {
        let shared = Shared {
            world: Arc::default(),
            changes: watch::Sender::new(0),
        };
        shared.with(|world| world.images.push("tool:1".to_owned()));
        Self {
            socket: folder.join("engine.sock"),
            shared,
            serving: None,
        }
    }

    pub(crate) fn start(&mut self) {
        let listener = UnixListener::bind(&self.socket).unwrap();
        let router = router(self.shared.clone());
        self.serving = Some(task::spawn("engine", async move {
            axum::serve(listener, router).await.unwrap();
        }));
    }

    /// Stops answering, in the middle of whatever is asked. The containers go on.
    pub(crate) async fn stop(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.abort();
            let _ = serving.await;
            std::fs::remove_file(&self.socket).unwrap();
            // Connections that are open have tasks of their own, which end with this.
            self.shared.with(|world| world.garbage = true);
        }
    }

    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut World) -> T) -> T {
        self.shared.with(work)
    }

    /// A container ends.
    pub(crate) fn finish(&self, container: &str, exit_code: i64) {
        self.with(|world| {
            let mut all = world.containers.iter_mut();
            let found = all.find(|found| found.is_of(container) && found.status == "running");
            let found = found.expect("a container that runs");
            (found.status, found.exit_code) = (STOPPED, exit_code);
        });
    }

    /// Waits until the engine's world is as it should be.
    pub(crate) async fn until<T>(&self, what: &str, look: impl Fn(&World) -> Option<T>) -> T {
        let mut changes = self.shared.changes.subscribe();
        let waited = tokio::time::timeout(super::world::DEADLINE, async {
            loop {
                if let Some(found) = look(&self.shared.world.lock().unwrap()) {
                    return found;
                }
                changes.changed().await.unwrap();
            }
        });
        waited
            .await
            .unwrap_or_else(|_| panic!("not within the deadline: {what}"))
    }

    /// The container that runs for a container of a Pod.
    pub(crate) async fn running(&self, container: &str) -> FakeContainer {
        self.until("a container runs", |world| {
            let mut all = world.containers.iter();
            all.find(|found| found.is_of(container) && found.status == "running")
                .cloned()
        })
        .await
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(serving) = &self.serving {
            serving.abort();
        }
    }
}

fn router(shared: Shared) -> Router {
    let routes = Router::new()
        .route("/images/create", post(pull))
        .route("/images/{*name}", get(image))
        .route("/containers/create", post(create))
        .route("/containers/json", get(list))
        .route("/containers/{id}/json", get(inspect))
        .route("/containers/{id}/start", post(start))
        .route("/containers/{id}/stop", post(stop))
        .route("/containers/{id}/wait", post(wait))
        .route("/containers/{id}/logs", get(logs))
        .route("/containers/{id}", delete(remove));
    let routes = routes.layer(axum::middleware::from_fn_with_state(shared.clone(), spoil));
    Router::new()
        .route("/_ping", get(async || "OK"))
        .route("/v1.44/_ping", get(async || "OK"))
        .route("/version", get(version))
        .nest("/v1.44", routes.clone())
        .merge(routes)
        .with_state(shared)
}

/// Answers what nobody can read, while it is told to.
async fn spoil(
    State(shared): State<Shared>,
    request: axum::extract::Request,
    next: axum::middleware::Next,
) -> Response {
    if shared.world.lock().unwrap().garbage {
        return (StatusCode::OK, "{ this is no answer").into_response();
    }
    next.run(request).await
}

fn missing(what: &str) -> Response {
    refused(StatusCode::NOT_FOUND, &format!("no such {what}"))
}

fn refused(status: StatusCode, message: &str) -> Response {
    (status, Json(json!({ "message": message }))).into_response()
}

async fn version() -> Json<Value> {
    Json(json!({ "ApiVersion": "1.44", "Components": [{ "Name": "Engine", "Version": "1" }] }))
}

async fn image(State(shared): State<Shared>, UrlPath(path): UrlPath<String>) -> Response {
    let name = path.trim_end_matches("/json").to_owned();
    if shared.with(|world| world.images.contains(&name)) {
        Json(
            json!({ "Id": format!("sha256:{name}"), "RepoDigests": [], "Size": 5, "Config": { "User": "" } }),
        )
        .into_response()
    } else {
        missing("image")
    }
}

async fn pull(
    State(shared): State<Shared>,
    Query(query): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
) -> Response {
    let name = format!("{}:{}", query["fromImage"], query["tag"]);
    let credentials = headers
        .get("x-registry-auth")
        .map_or("", |value| value.to_str().unwrap());
    let error = shared.with(|world| {
        world.pulls.push((name.clone(), credentials.to_owned()));
        if world.pull_error.is_none() {
            world.images.push(name);
        }
        world.pull_error.clone()
    });
    let last = match error {
        Some(message) => json!({ "errorDetail": { "message": message } }),
        None => json!({ "status": "Done" }),
    };
    format!("{}\n{last}\n", json!({ "status": "Pulling" })).into_response()
}

async fn create(
    State(shared): State<Shared>,
    Query(query): Query<BTreeMap<String, String>>,
    Json(body): Json<Value>,
) -> Response {
    let id = shared.with(|world| {
        world.made += 1;
        let id = format!("id{}", world.made);
        world.containers.push(FakeContainer {
            id: id.clone(),
            name: query["name"].clone(),
            body,
            status: "created",
            exit_code: 0,
            oom_killed: false,
            output: Vec::new(),
        });
        id
    });
    (StatusCode::CREATED, Json(json!({ "Id": id, "Warnings": [] }))).into_response()
}

async fn list(State(shared): State<Shared>) -> Json<Value> {
    // Without its filter, as one that does not know it.
    let containers = shared.world.lock().unwrap().containers.clone();
    let listed = containers.iter().map(|container| {
        json!({ "Id": container.id, "Names": [format!("/{}", container.name)], "Labels": container.body["Labels"] })
    });
    Json(listed.collect())
}

async fn inspect(State(shared): State<Shared>, UrlPath(id): UrlPath<String>) -> Response {
    let Some(container) = shared.find(&id) else {
        return missing("container");
    };
    if container.status == STOPPED {
        shared.with(|world| {
            let mut all = world.containers.iter_mut();
            if let Some(found) = all.find(|found| found.id == id) {
                found.status = "exited";
            }
        });
    }
    let published = shared.world.lock().unwrap().published.clone();
    let bindings = container.body["HostConfig"]["PortBindings"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    let ports: serde_json::Map<String, Value> = bindings
        .keys()
        .filter_map(|name| {
            let port = published.get(name)?.to_string();
            Some((name.clone(), json!([{ "HostIp": "127.0.0.1", "HostPort": port }])))
        })
        .collect();
    Json(json!({
        "Id": container.id,
        "State": {
            "Status": container.status, "Running": container.status == "running",
            "ExitCode": container.exit_code, "OOMKilled": container.oom_killed,
        },
        "NetworkSettings": { "Ports": ports },
    }))
    .into_response()
}

async fn start(State(shared): State<Shared>, UrlPath(id): UrlPath<String>) -> Response {
    let error = shared.with(|world| {
        let error = world.start_error.clone();
        if error.is_none() {
            let mut all = world.containers.iter_mut();
            if let Some(found) = all.find(|found| found.id == id) {
                found.status = "running";
            }
        }
        error
    });
    match error {
        Some(message) => refused(StatusCode::BAD_REQUEST, &message),
        None => StatusCode::NO_CONTENT.into_response(),
    }
}

async fn stop(State(shared): State<Shared>, UrlPath(id): UrlPath<String>) -> Response {
    shared.with(|world| {
        world.stopped.push(id.clone());
        let mut all = world.containers.iter_mut();
        if let Some(found) = all.find(|found| found.id == id) {
            (found.status, found.exit_code) = (STOPPED, 143);
        }
    });
    StatusCode::NO_CONTENT.into_response()
}

/// Waits until a container does not run, or the engine is stopped.
async fn ended(shared: &Shared, id: &str) -> Option<FakeContainer> {
    let mut changes = shared.changes.subscribe();
    loop {
        let garbage = shared.world.lock().unwrap().garbage;
        match shared.find(id) {
            Some(container) if container.status == "running" && !garbage => {}
            found => return found,
        }
        changes.changed().await.ok()?;
    }
}

async fn wait(State(shared): State<Shared>, UrlPath(id): UrlPath<String>) -> Response {
    match ended(&shared, &id).await {
        Some(container) => Json(json!({ "StatusCode": container.exit_code })).into_response(),
        None => missing("container"),
    }
}

async fn logs(State(shared): State<Shared>, UrlPath(id): UrlPath<String>) -> Response {
    let frames = async_stream(shared, id);
    Response::new(Body::from_stream(frames))
}

/// The output of a container in frames, each with the header of the engine's protocol.
fn async_stream(
    shared: Shared,
    id: String,
) -> impl futures::Stream<Item = Result<Bytes, std::convert::Infallible>> {
    futures::stream::unfold((shared, id, 0), async |(shared, id, sent)| {
        let mut changes = shared.changes.subscribe();
        loop {
            let garbage = shared.world.lock().unwrap().garbage;
            let container = shared.find(&id)?;
            if let Some(line) = container.output.get(sent).filter(|_| !garbage) {
                let text = format!("2026-01-01T00:00:{:02}.5Z {line}\n", sent + 1);
                let length = u32::try_from(text.len()).unwrap().to_be_bytes();
                let frame = [&[1, 0, 0, 0], length.as_slice(), text.as_bytes()].concat();
                return Some((Ok(Bytes::from(frame)), (shared, id, sent + 1)));
            }
            if container.status != "running" || garbage {
                return None;
            }
            changes.changed().await.ok()?;
        }
    })
}

async fn remove(State(shared): State<Shared>, UrlPath(id): UrlPath<String>) -> Response {
    let found = shared.with(|world| {
        let at = world.containers.iter().position(|container| container.id == id)?;
        let container = world.containers.remove(at);
        world.removed.push(container.name);
        Some(())
    });
    match found {
        Some(()) => StatusCode::NO_CONTENT.into_response(),
        None => missing("container"),
    }
}
