//! What a cluster adds around its API, for one machine: Deployments become ReplicaSets, ReplicaSets become Pods, Pods
//! get a Node, and Pods of our own image run as tasks in this process, or each as a process of its own. Jobs become Pods that end, CronJobs become Jobs.
//!
//! | part | module | what it does |
//! |---|---|---|
//! | controllers | `deployment`, `replica_set`, `job`, `cron_job`, `endpoints`, `autoscaler`, `root_certificate` | what kube-controller-manager does for these kinds; an autoscaler is told that nobody acts on it |
//! | binding | `scheduler` | gives each Pod the one Node there is |
//! | running | `node` | what a kubelet does: Pods of our own image as tasks or processes, others in a container engine |
//! | Services | [`services`], [`pods`], [`dialing`] | from a Service's name or a Pod's port to a live endpoint; what kube-proxy and DNS do, and a kubelet for port-forwards |
//!
//! Each of the first three can be switched off ([`Parts`]), because another program may do it: a real cluster has all of
//! them. Main types: [`LocalNodeOptions`] → [`LocalNode::run`], and the [`Handle`] that answers what others ask about
//! running Pods: their routers, their logs, connections to them, and what Service names mean.
//!
//! What this crate must never do: keep state of its own that the API does not have (a restart starts from the objects),
//! write anything but through the API, let one Pod's failure reach another, or touch a container of an engine that is not its own.
//!
//! Start reading at `node/pod.rs` (the life of a Pod), then `deployment/plan.rs`.

mod autoscaler;
mod cron_job;
mod deployment;
pub mod dialing;
mod endpoints;
mod error;
mod events;
mod job;
pub mod logs;
mod node;
mod owner;
pub mod pods;
mod replica_set;
mod root_certificate;
mod scheduler;
pub mod services;
mod shutdown;
mod waits;
mod writing;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use mainstay_telemetry::clock::SharedClock;
use mainstay_telemetry::random::SharedRandom;
use mainstay_telemetry::task;
use mainstay_workload::Roles;
use mainstay_workload::process::calls::Answers;
use tokio_util::sync::CancellationToken;

pub use job::JobBackOffOptions;
pub use node::{BackOffOptions, ContainerEngineOptions};

use dialing::PodDialer;
use events::Events;
use logs::PodLogs;
use pods::PodTable;
use services::Services;

/// The name of the one Node.
pub const NODE: &str = "mainstay";

/// The field manager of everything that is written here.
pub const FIELD_MANAGER: &str = "mainstay-localnode";

/// How long the Pods may take to end when the process does.
const DRAIN: Duration = Duration::from_secs(10);

/// Gives a Pod its client: the Kubernetes API as the Pod's ServiceAccount.
pub trait Clients: Send + Sync {
    /// The client of `service_account` in `namespace`.
    fn client(&self, namespace: &str, service_account: &str) -> Client;
}

/// Which parts run in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Deployments, ReplicaSets, Jobs and CronJobs, and the endpoints of Services.
    pub controllers: bool,
    /// Pods get their Node.
    pub binding: bool,
    /// Pods run.
    pub running: bool,
}

impl Default for Parts {
    /// All of them.
    fn default() -> Self {
        Self {
            controllers: true,
            binding: true,
            running: true,
        }
    }
}

/// How Pods of our own image run.
#[derive(Clone, Debug)]
pub enum Isolation {
    /// As tasks of this process: quick and small. A role that ends the process ends all of them.
    Task,
    /// Each as a process of its own, started from this program's binary: whatever ends that, ends one Pod.
    Process(ProcessOptions),
}

/// How a process for a Pod is started. It runs [`mainstay_workload::process::run`].
#[derive(Clone, Debug)]
pub struct ProcessOptions {
    /// The program.
    pub program: PathBuf,
    /// Its arguments; the Pod's title follows them.
    pub arguments: Vec<String>,
    /// The name that it is shown under, where that is not the program's path.
    pub shown_as: Option<String>,
    /// The environment of the process itself. The container's own reaches the role without it.
    pub environment: BTreeMap<String, String>,
    /// Where it finds the Kubernetes API: `https://HOST:PORT`.
    pub kubernetes: String,
    /// The certificate authority of that, in PEM.
    pub certificate_authority: String,
    /// The roles that the program runs so. Those that share state with this process stay tasks of it.
    pub roles: BTreeSet<String>,
    /// Answers what the processes ask for; without it they share nothing.
    pub answers: Option<Arc<dyn Answers>>,
}

/// What a local node is built from.
pub struct LocalNodeOptions {
    /// The Kubernetes API, as the parts themselves.
    pub client: Client,
    /// The Kubernetes API, as the workloads.
    pub clients: Arc<dyn Clients>,
    /// What a Pod of our own image can be, by its first argument.
    pub roles: Roles,
    /// Where each Pod has its mounted files, by UID: `DATA/pods`.
    pub pods_directory: PathBuf,
    /// Where the Pods' logs are kept: `DATA/logs/pods`.
    pub logs_directory: PathBuf,
    /// Variables that every Pod has unless it sets them itself, such as `OPENAI_API_KEY`. They never enter the API.
    pub host_environment: BTreeMap<String, String>,
    /// The time in statuses, Events and logs.
    pub clock: SharedClock,
    /// Where names of Events come from.
    pub random: SharedRandom,
    /// The certificate authority of the API in PEM, published to every namespace; `None` publishes nothing.
    pub certificate_authority: Option<String>,
    /// Which parts run.
    pub parts: Parts,
    /// How Pods run.
    pub isolation: Isolation,
}

/// The local node, ready to run.
pub struct LocalNode {
    options: LocalNodeOptions,
    back_off: BackOffOptions,
    job_back_off: JobBackOffOptions,
    container_engine: Option<ContainerEngineOptions>,
    handle: Handle,
    service_watch: services::ServiceWatch,
}

/// What others ask a running local node. Clones share it.
#[derive(Clone, Debug)]
pub struct Handle {
    /// The Pods that run here and their routers; for the front door.
    pub pods: PodTable,
    /// What Service names mean; for a connector outside of Pods.
    pub services: Services,
    /// The logs of the Pods; for `pods/log`.
    pub logs: PodLogs,
    /// Connections to Pods and Services; for `pods/portforward`.
    pub dialer: PodDialer,
}

impl LocalNode {
    /// Prepares the parts; nothing happens before [`LocalNode::run`].
    pub fn new(options: LocalNodeOptions) -> Self {
        let pods = PodTable::new();
        let (service_watch, services) = services::new(pods.clone());
        let handle = Handle {
            dialer: PodDialer::new(pods.clone(), services.clone()),
            pods,
            services,
            logs: PodLogs::default(),
        };
        Self {
            options,
            back_off: BackOffOptions::default(),
            job_back_off: JobBackOffOptions::default(),
            container_engine: None,
            handle,
            service_watch,
        }
    }

    /// Other waits between the runs of a container that ends than the kubelet's.
    #[must_use]
    pub fn with_back_off(self, back_off: BackOffOptions) -> Self {
        Self { back_off, ..self }
    }

    /// Other waits of a Job after failures of its Pods than kube-controller-manager's.
    #[must_use]
    pub fn with_job_back_off(self, job_back_off: JobBackOffOptions) -> Self {
        Self { job_back_off, ..self }
    }

    /// Where Pods of images by others run. Without it they stay pending.
    #[must_use]
    pub fn with_container_engine(self, container_engine: Option<ContainerEngineOptions>) -> Self {
        Self {
            container_engine,
            ..self
        }
    }

    /// What others ask it.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Runs the parts until it is cancelled and the Pods have ended. A part that panics ends the others and this.
    pub async fn run(self, cancellation: CancellationToken) {
        let Self {
            options,
            back_off,
            job_back_off,
            container_engine,
            handle,
            service_watch,
        } = self;
        let LocalNodeOptions {
            client, clock, parts, ..
        } = &options;
        let events = Events::new(client.clone(), Arc::clone(clock), Arc::clone(&options.random));
        let stop = cancellation.child_token();
        let mut tasks = vec![task::spawn(
            "services",
            service_watch.run(client.clone(), stop.clone()),
        )];
        if parts.controllers {
            let deployments =
                deployment::run(client.clone(), Arc::clone(clock), events.clone(), stop.clone());
            tasks.push(task::spawn("deployments", deployments));
            let replica_sets =
                replica_set::run(client.clone(), Arc::clone(clock), events.clone(), stop.clone());
            tasks.push(task::spawn("replica-sets", replica_sets));
            let jobs = job::run(
                client.clone(),
                Arc::clone(clock),
                events.clone(),
                job_back_off,
                stop.clone(),
            );
            tasks.push(task::spawn("jobs", jobs));
            let cron_jobs = cron_job::run(client.clone(), Arc::clone(clock), events.clone(), stop.clone());
            tasks.push(task::spawn("cron-jobs", cron_jobs));
            let endpoints = endpoints::run(client.clone(), handle.pods.clone(), stop.clone());
            tasks.push(task::spawn("endpoints", endpoints));
            let autoscalers = autoscaler::run(client.clone(), Arc::clone(clock), stop.clone());
            tasks.push(task::spawn("autoscalers", autoscalers));
            if let Some(certificate) = options.certificate_authority.clone() {
                let publisher = root_certificate::run(client.clone(), certificate, stop.clone());
                tasks.push(task::spawn("root-certificate", publisher));
            }
        }
        if parts.binding {
            let binding = scheduler::run(client.clone(), NODE.to_owned(), events.clone(), stop.clone());
            tasks.push(task::spawn("binding", binding));
        }
        if parts.running {
            let node = node::Node::new(options, back_off, container_engine, events, &handle);
            tasks.push(task::spawn("node", node.run(stop.clone())));
        }
        let (ended, _, others) = futures::future::select_all(tasks).await;
        if !stop.is_cancelled() {
            tracing::error!(
                panicked = ended.is_err(),
                "a part of the local node ended by itself"
            );
            stop.cancel();
        }
        futures::future::join_all(others).await;
    }
}

/// How long from `now` to `then`; nothing if it has passed.
fn until(now: Timestamp, then: Timestamp) -> Duration {
    Duration::try_from(then.duration_since(now)).unwrap_or_default()
}
