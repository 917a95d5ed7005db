//! What a cluster adds around its API, for one machine: Deployments become ReplicaSets, ReplicaSets become Pods, Pods
//! get a Node, and Pods of our own image run as tasks in this process.
//!
//! | part | module | what it does |
//! |---|---|---|
//! | controllers | `deployment`, `replica_set` | what kube-controller-manager does for these two kinds |
//! | binding | `scheduler` | gives each Pod the one Node there is |
//! | running | `node` | what a kubelet does, for Pods of our own image |
//! | Services | `services`, `directory` | from a Service's name to a live endpoint; what kube-proxy and DNS do |
//!
//! Each of the first three can be switched off ([`Parts`]), because another program may do it: a real cluster has all of
//! them. Main types: [`LocalNodeOptions`] → [`LocalNode::run`], and the [`Handle`] that gives out Pod logs, routers and
//! the resolver of Service names.
//!
//! What this crate must never do: keep state of its own that the API does not have (a restart starts from the objects),
//! write anything but through the API, let one Pod's failure reach another, or run a foreign image.
//!
//! Start reading at `node/pod.rs` (the life of a Pod), then `deployment/plan.rs`.

mod deployment;
mod directory;
mod error;
mod logs;
mod node;
mod owner;
mod replica_set;
mod scheduler;
mod services;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use mainstay_telemetry::clock::SharedClock;
use mainstay_telemetry::task;
use mainstay_workload::{Roles, ServiceResolver};
use tokio_util::sync::CancellationToken;

pub use directory::{Facade, Facades};
pub use logs::{LogError, LogLines, LogQuery, PodLogs};
pub use node::{BackOffOptions, Identities};
pub use services::LOCAL_ADDRESS;

/// The name of the one Node.
pub const NODE: &str = "mainstay";

/// Which parts run in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Deployments and ReplicaSets.
    pub controllers: bool,
    /// Pods get their Node.
    pub binding: bool,
    /// Pods run.
    pub running: bool,
}

impl Parts {
    /// All of them.
    pub fn all() -> Self {
        Self {
            controllers: true,
            binding: true,
            running: true,
        }
    }
}

/// What a local node is built from.
pub struct LocalNodeOptions {
    /// The Kubernetes API, as the parts themselves.
    pub client: Client,
    /// The Kubernetes API, as the workloads.
    pub identities: Arc<dyn Identities>,
    /// Which parts run.
    pub parts: Parts,
    /// What a Pod of our own image can be, by its first argument.
    pub roles: Roles,
    /// Where each Pod has its mounted files, by UID.
    pub pods_folder: PathBuf,
    /// Where logs are kept; those of Pods below `pods`.
    pub logs_folder: PathBuf,
    /// Whether workloads may reach private and loopback addresses.
    pub allow_private: bool,
    /// The time in statuses and logs.
    pub clock: SharedClock,
    /// Waits between the runs of a container that ends.
    pub back_off: BackOffOptions,
    /// How long the Pods may take to end when the process does.
    pub drain: Duration,
}

impl LocalNodeOptions {
    /// All parts, the kubelet's waits, ten seconds to drain.
    pub fn new(
        client: Client,
        identities: Arc<dyn Identities>,
        roles: Roles,
        pods_folder: impl Into<PathBuf>,
        logs_folder: impl Into<PathBuf>,
        clock: SharedClock,
    ) -> Self {
        Self {
            client,
            identities,
            parts: Parts::all(),
            roles,
            pods_folder: pods_folder.into(),
            logs_folder: logs_folder.into(),
            allow_private: true,
            clock,
            back_off: BackOffOptions::default(),
            drain: Duration::from_secs(10),
        }
    }
}

/// The local node, ready to run.
pub struct LocalNode {
    client: Client,
    parts: Parts,
    clock: SharedClock,
    services: services::ServiceWatch,
    node: node::Node,
}

/// The way to a running local node. Clones share it.
#[derive(Clone, Debug)]
pub struct Handle {
    resolver: Arc<services::Resolver>,
    facades: Facades,
    logs: PodLogs,
}

impl Handle {
    /// Resolves names of Services; for a connector outside of Pods.
    pub fn resolver(&self) -> Arc<dyn ServiceResolver> {
        Arc::clone(&self.resolver) as Arc<dyn ServiceResolver>
    }

    /// The routers that ready Pods serve; for the front door.
    pub fn facades(&self) -> Facades {
        self.facades.clone()
    }

    /// The logs of Pods.
    pub fn logs(&self) -> PodLogs {
        self.logs.clone()
    }
}

impl LocalNode {
    /// Prepares the parts; nothing happens before [`LocalNode::run`].
    pub fn new(options: LocalNodeOptions) -> (Self, Handle) {
        let directory = directory::Directory::new();
        let logs = PodLogs::default();
        let (services, resolver) = services::new(options.client.clone(), directory.clone());
        let handle = Handle {
            resolver: Arc::clone(&resolver),
            facades: Facades::new(directory.clone()),
            logs: logs.clone(),
        };
        let node = node::Node::new(node::NodeOptions {
            client: options.client.clone(),
            node: NODE.to_owned(),
            roles: options.roles,
            identities: options.identities,
            resolver,
            allow_private: options.allow_private,
            directory,
            logs,
            pods_folder: options.pods_folder,
            logs_folder: options.logs_folder,
            clock: Arc::clone(&options.clock),
            back_off: options.back_off,
            drain: options.drain,
        });
        let local = Self {
            client: options.client,
            parts: options.parts,
            clock: options.clock,
            services,
            node,
        };
        (local, handle)
    }

    /// Runs the parts until it is cancelled and the Pods have ended. A part that panics ends the others and this.
    pub async fn run(self, cancellation: CancellationToken) {
        let stop = cancellation.child_token();
        let mut tasks = vec![task::spawn("services", self.services.run(stop.clone()))];
        if self.parts.controllers {
            let (client, clock) = (self.client.clone(), Arc::clone(&self.clock));
            tasks.push(task::spawn(
                "deployments",
                deployment::run(client.clone(), Arc::clone(&clock), stop.clone()),
            ));
            tasks.push(task::spawn(
                "replica-sets",
                replica_set::run(client, clock, stop.clone()),
            ));
        }
        if self.parts.binding {
            tasks.push(task::spawn(
                "scheduler",
                scheduler::run(self.client.clone(), NODE.to_owned(), stop.clone()),
            ));
        }
        if self.parts.running {
            tasks.push(task::spawn("node", self.node.run(stop.clone())));
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
