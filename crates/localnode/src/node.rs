//! The node agent: runs the Pods that are bound to this Node, as tasks of this process or each as a process of its own. What
//! a kubelet does. Containers of other images run in a container engine (`engine.rs`).
//!
//! One watch brings the Pods; each has a task of its own (`pod.rs`), so that one that waits or fails holds up no other.
//! `image.rs` says what can run here, `objects.rs`, `environment.rs`, `volumes.rs` and `mount.rs` fill a container's
//! surroundings, `container.rs` runs it, as a task or by `process.rs`, `status.rs` says how it is, `registration.rs` keeps the Node object.

mod back_off;
mod container;
mod engine;
mod environment;
mod image;
mod mount;
mod objects;
mod pod;
mod process;
mod quantity;
mod registration;
mod status;
mod tokens;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use mainstay_telemetry::clock::SharedClock;
use mainstay_telemetry::task;
use mainstay_workload::{ConnectError, Connector, ConnectorOptions, Roles};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use back_off::BackOffOptions;
pub use engine::ContainerEngineOptions;
use engine::Engines;

use crate::events::Events;
use crate::logs::{ContainerName, PodLogs};
use crate::pods::PodTable;
use crate::services::Services;
use crate::{Clients, Handle, Isolation, LocalNodeOptions, NODE, ProcessOptions};
use pod::{Update, Worker};

/// What all Pods share.
pub(crate) struct Shared {
    client: Client,
    clients: Arc<dyn Clients>,
    roles: Roles,
    services: Services,
    processes: Option<Arc<ProcessOptions>>,
    engines: Option<Arc<Engines>>,
    pods: PodTable,
    logs: PodLogs,
    events: Events,
    objects: objects::ObjectSource,
    pods_folder: PathBuf,
    logs_folder: PathBuf,
    host_environment: BTreeMap<String, String>,
    clock: SharedClock,
    back_off: BackOffOptions,
    // Connectors keep connections open, so the Pods of a namespace share one. A std mutex: never held across an await.
    connectors: Mutex<BTreeMap<String, Connector>>,
    stamps: AtomicU64,
}

impl Shared {
    /// The connector of a namespace's Pods.
    fn connector(&self, namespace: &str) -> Result<Connector, ConnectError> {
        let mut connectors = self.connectors.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connector) = connectors.get(namespace) {
            return Ok(connector.clone());
        }
        let connector = Connector::new(ConnectorOptions {
            resolver: Arc::new(self.services.clone()),
            namespace: namespace.to_owned(),
            // A laptop's own programs are what its agents talk to.
            allow_private: true,
        })?;
        connectors.insert(namespace.to_owned(), connector.clone());
        Ok(connector)
    }

    fn log_folder(&self, namespace: &str, pod: &str, uid: &str) -> PathBuf {
        self.logs_folder.join(format!("{namespace}_{pod}_{uid}"))
    }

    /// A name for a version of a volume, unlike any before.
    fn stamp(&self) -> String {
        let now = self.clock.now().as_nanosecond();
        format!(
            "{now}-{}-{}",
            std::process::id(),
            self.stamps.fetch_add(1, Ordering::Relaxed)
        )
    }
}

/// The running part.
pub(crate) struct Node {
    shared: Arc<Shared>,
    objects: objects::ObjectWatch,
}

struct Running {
    updates: watch::Sender<Update>,
    task: JoinHandle<()>,
}

impl Node {
    pub(crate) fn new(
        options: LocalNodeOptions,
        back_off: BackOffOptions,
        engine: Option<ContainerEngineOptions>,
        events: Events,
        handle: &Handle,
    ) -> Self {
        let process = options.random.suffix(8);
        let engines = engine.map(|engine| Arc::new(Engines::new(engine, &options.pods_directory, process)));
        let (watch, source) = objects::new(options.client.clone());
        let shared = Shared {
            client: options.client,
            clients: options.clients,
            roles: options.roles,
            services: handle.services.clone(),
            processes: match options.isolation {
                Isolation::Task => None,
                Isolation::Process(processes) => Some(Arc::new(processes)),
            },
            engines,
            pods: handle.pods.clone(),
            logs: handle.logs.clone(),
            events,
            objects: source,
            pods_folder: options.pods_directory,
            logs_folder: options.logs_directory,
            host_environment: options.host_environment,
            clock: options.clock,
            back_off,
            connectors: Mutex::default(),
            stamps: AtomicU64::new(0),
        };
        Self {
            shared: Arc::new(shared),
            objects: watch,
        }
    }

    /// Runs Pods until it is cancelled; then tells all of them to end and waits for a bounded time.
    pub(crate) async fn run(self, cancellation: CancellationToken) {
        let Self { shared, objects } = self;
        // Ends after the Pods: they may still need what they mount.
        let watching = CancellationToken::new();
        let objects = task::spawn("pod-objects", objects.run(watching.clone()));
        let registration = task::spawn(
            "node-object",
            registration::run(shared.client.clone(), Arc::clone(&shared.clock), watching.clone()),
        );
        let sweeper = shared
            .engines
            .clone()
            .map(|engines| task::spawn("container-engine", engines.keep_clean(watching.clone())));
        let mut pods: BTreeMap<String, Running> = BTreeMap::new();
        let config = watcher::Config::default().fields(&format!("spec.nodeName={NODE}"));
        let mut stream = Box::pin(watcher(Api::<Pod>::all(shared.client.clone()), config).default_backoff());
        let mut listed: BTreeSet<String> = BTreeSet::new();
        loop {
            let event = tokio::select! {
                () = cancellation.cancelled() => break,
                event = stream.next() => event,
            };
            match event {
                Some(Ok(watcher::Event::Init)) => listed.clear(),
                Some(Ok(watcher::Event::InitApply(pod))) => {
                    listed.insert(pod.uid().unwrap_or_default());
                    apply(&shared, &mut pods, pod, &cancellation);
                }
                Some(Ok(watcher::Event::InitDone)) => {
                    for (uid, running) in &pods {
                        if !listed.contains(uid) {
                            running.updates.send_replace(None);
                        }
                    }
                    remove_leftovers(&shared.pods_folder, &listed);
                    remove_leftovers(&shared.logs_folder, &listed);
                }
                Some(Ok(watcher::Event::Apply(pod))) => apply(&shared, &mut pods, pod, &cancellation),
                Some(Ok(watcher::Event::Delete(pod))) => {
                    let uid = pod.uid().unwrap_or_default();
                    match pods.get(&uid) {
                        Some(running) if !running.task.is_finished() => {
                            running.updates.send_replace(None);
                        }
                        _ => remove_files(&shared, &pod, &uid),
                    }
                }
                Some(Err(error)) => tracing::warn!(%error, "the watch for Pods was interrupted"),
                None => break,
            }
            pods.retain(|_, running| !running.task.is_finished());
        }
        drain(pods, crate::DRAIN).await;
        watching.cancel();
        if let Some(sweeper) = sweeper {
            // As below.
            let _ = sweeper.await;
        }
        // Their only way to fail is a panic, which is logged where it happened.
        let _ = futures::future::join(objects, registration).await;
    }
}

fn apply(
    shared: &Arc<Shared>,
    pods: &mut BTreeMap<String, Running>,
    pod: Pod,
    cancellation: &CancellationToken,
) {
    let uid = pod.uid().unwrap_or_default();
    let pod = Arc::new(pod);
    if let Some(running) = pods.get(&uid)
        && !running.task.is_finished()
    {
        running.updates.send_replace(Some(pod));
        return;
    }
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if matches!(phase, Some("Succeeded" | "Failed")) {
        restore_logs(shared, &pod, &uid);
        return;
    }
    let (updates, receiver) = watch::channel(Some(Arc::clone(&pod)));
    let worker = Worker::new(Arc::clone(shared), pod, receiver, cancellation.child_token());
    let task = task::spawn("pod", worker.run());
    pods.insert(uid, Running { updates, task });
}

/// Lets the logs of a Pod that ended be read though the process that ran it is gone.
fn restore_logs(shared: &Shared, pod: &Pod, uid: &str) {
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    let folder = shared.log_folder(&namespace, &name, uid);
    let statuses = pod.status.iter().flat_map(|status| {
        [&status.init_container_statuses, &status.container_statuses]
            .into_iter()
            .flatten()
            .flatten()
    });
    for status in statuses {
        let container = ContainerName {
            namespace: &namespace,
            pod: &name,
            uid,
            container: &status.name,
        };
        if let Err(error) = shared
            .logs
            .restore(&folder, &container, status.restart_count, &shared.clock)
        {
            tracing::warn!(pod = %name, %namespace, container = %status.name, %error, "the log of a Pod that ended cannot be read");
        }
    }
}

/// Removes what is left of a Pod that ended before and is gone now.
fn remove_files(shared: &Shared, pod: &Pod, uid: &str) {
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    shared.pods.forget(uid);
    shared.logs.forget(uid);
    for folder in [
        shared.log_folder(&namespace, &name, uid),
        shared.pods_folder.join(uid),
    ] {
        match std::fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(path = %folder.display(), %error, "the files of a former Pod could not be removed");
            }
            _ => {}
        }
    }
}

/// Waits until all Pods have ended, at most for `limit`; what is left ends with the process.
async fn drain(pods: BTreeMap<String, Running>, limit: Duration) {
    let count = pods.len();
    // The senders live until the end: a Pod without one would take it for the end of the agent.
    let (_updates, tasks): (Vec<_>, Vec<_>) = pods
        .into_values()
        .map(|running| (running.updates, running.task))
        .unzip();
    let aborts: Vec<_> = tasks.iter().map(JoinHandle::abort_handle).collect();
    if tokio::time::timeout(limit, futures::future::join_all(tasks))
        .await
        .is_err()
    {
        tracing::warn!(pods = count, ?limit, "some Pods did not end in time");
        aborts.iter().for_each(tokio::task::AbortHandle::abort);
    }
}

/// Removes the folders of Pods that went away while no process ran. A folder's name is or ends in the Pod's UID.
fn remove_leftovers(folder: &Path, listed: &BTreeSet<String>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let uid = name.rsplit('_').next().unwrap_or(&name);
        if !listed.contains(uid)
            && let Err(error) = std::fs::remove_dir_all(entry.path())
        {
            tracing::warn!(path = %entry.path().display(), %error, "the files of a former Pod could not be removed");
        }
    }
}
