//! The contract between a role and whatever runs it.

use std::{collections::BTreeMap, io, sync::Arc};

use async_trait::async_trait;
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::CancellationToken;

use crate::{Connector, FileRoot, process::calls::Caller};

/// Everything a role may use. Cloning shares it.
#[derive(Clone)]
pub struct WorkloadContext {
    /// The container's arguments behind the role's name.
    pub arguments: Vec<String>,
    /// The container's environment, with references resolved.
    pub environment: BTreeMap<String, String>,
    /// The mounted files.
    pub files: FileRoot,
    /// The way out.
    pub connector: Connector,
    /// The Pod's log.
    pub log: WorkloadLog,
    /// Who the workload is to the Kubernetes API.
    pub identity: Identity,
    /// The way in.
    pub ports: Arc<dyn Ports>,
    /// Says whether the workload can serve.
    pub readiness: Readiness,
    /// Cancelled when the Pod is to end. The role stops accepting work, finishes what it must, and returns.
    pub cancellation: CancellationToken,
    /// Where the process is the workload's alone, the way to ask the server for what they share.
    pub server: Option<Caller>,
}

impl WorkloadContext {
    /// Whether the process is the workload's alone: what ends the process then ends nobody else.
    pub fn own_process(&self) -> bool {
        self.server.is_some()
    }
}

impl std::fmt::Debug for WorkloadContext {
    // The environment may hold secrets: only its names are shown.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("WorkloadContext")
            .field("arguments", &self.arguments)
            .field("environment", &self.environment.keys().collect::<Vec<_>>())
            .field("files", &self.files)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// Who a workload is.
#[derive(Clone)]
pub struct Identity {
    /// The Kubernetes API, as this workload's ServiceAccount.
    pub client: kube::Client,
    /// The Pod's namespace.
    pub namespace: String,
    /// The ServiceAccount's name.
    pub service_account: String,
    /// The Pod's name.
    pub pod: String,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Identity")
            .field("namespace", &self.namespace)
            .field("service_account", &self.service_account)
            .field("pod", &self.pod)
            .finish_non_exhaustive()
    }
}

/// How a workload is reached.
#[async_trait]
pub trait Ports: Send + Sync {
    /// Listens on the container port named `name`. On a laptop that is a free loopback port, which the Pod's Services
    /// lead to; in a container the port itself.
    ///
    /// # Errors
    ///
    /// `NotFound` when the container declares no port of that name; else what binding it said.
    async fn listen(&self, name: &str) -> io::Result<TcpListener>;

    /// Serves `router` under the port name `name`. On a laptop the front door hands requests to it without a socket; in
    /// a container it is served on the port.
    ///
    /// # Errors
    ///
    /// When the name is served already or the port cannot be bound.
    fn serve(&self, name: &str, router: axum::Router) -> Result<(), ServeError>;
}

/// Why a router is not served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Two routers under one name.
    #[error("port {name:?} is served already")]
    Taken {
        /// The port's name.
        name: String,
    },
    /// The container declares no such port.
    #[error("the container declares no port named {name:?}")]
    Undeclared {
        /// The port's name.
        name: String,
    },
    /// The port cannot be bound.
    #[error("port {name:?} cannot be bound: {source}")]
    Bind {
        /// The port's name.
        name: String,
        /// Why.
        source: io::Error,
    },
}

/// Whether a workload can serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadinessState {
    /// It can.
    Ready,
    /// It cannot, and why, in words for the Pod's condition.
    NotReady(String),
}

/// The workload's end of its readiness; whoever runs it holds the other.
#[derive(Clone, Debug)]
pub struct Readiness {
    sender: Arc<watch::Sender<ReadinessState>>,
}

impl Readiness {
    /// A readiness that starts as not ready, and the end to watch it by.
    pub fn new() -> (Self, watch::Receiver<ReadinessState>) {
        let (sender, receiver) = watch::channel(ReadinessState::NotReady("starting".to_owned()));
        (
            Self {
                sender: Arc::new(sender),
            },
            receiver,
        )
    }

    /// The workload can serve.
    pub fn ready(&self) {
        self.set(ReadinessState::Ready);
    }

    /// The workload cannot serve, because of `reason`.
    pub fn not_ready(&self, reason: impl Into<String>) {
        self.set(ReadinessState::NotReady(reason.into()));
    }

    fn set(&self, state: ReadinessState) {
        self.sender.send_if_modified(|current| {
            let changed = *current != state;
            *current = state;
            changed
        });
    }
}

/// Takes a Pod's log lines.
pub trait LogSink: Send + Sync {
    /// One line, without its newline.
    fn line(&self, line: &str);
}

/// The Pod's log, as `kubectl logs` shows it.
#[derive(Clone)]
pub struct WorkloadLog {
    sink: Arc<dyn LogSink>,
}

impl WorkloadLog {
    /// A log that goes to `sink`.
    pub fn new(sink: Arc<dyn LogSink>) -> Self {
        Self { sink }
    }

    /// Writes each line of `text`. Never hand it a secret.
    pub fn line(&self, text: impl AsRef<str>) {
        for line in text.as_ref().lines() {
            self.sink.line(line);
        }
    }
}

impl std::fmt::Debug for WorkloadLog {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("WorkloadLog")
    }
}

/// Why a role ended before it was told to. The message is shown in the Pod's status.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct RoleError {
    /// What went wrong, naming the object and field or file; never a secret.
    pub message: String,
}

impl RoleError {
    /// An error with `message`.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
        }
    }
}

/// A part of the program that runs as a Pod.
#[async_trait]
pub trait Role: Send + Sync {
    /// Runs until the context's cancellation or a failure. Returning `Ok` is exit code 0, an error exit code 1.
    async fn run(&self, context: WorkloadContext) -> Result<(), RoleError>;
}

/// The known roles by name, which is a container's first argument.
pub type Roles = BTreeMap<String, Arc<dyn Role>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_starts_as_not_ready_and_reports_each_change_once() {
        let (readiness, mut receiver) = Readiness::new();
        assert_eq!(
            *receiver.borrow_and_update(),
            ReadinessState::NotReady("starting".to_owned())
        );
        readiness.ready();
        assert!(receiver.has_changed().unwrap_or(false));
        assert_eq!(*receiver.borrow_and_update(), ReadinessState::Ready);
        readiness.ready();
        assert!(!receiver.has_changed().unwrap_or(true));
    }
}
