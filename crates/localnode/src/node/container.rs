//! One run of a container: a role as a task, or a process with a task that follows it; and the ports of a role.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use async_trait::async_trait;
use futures::future::BoxFuture;
use mainstay_telemetry::task;
use mainstay_workload::{Ports, ReadinessState, Role, ServeError, WorkloadContext};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use super::engine::run::Report;
use crate::pods::{DeclaredPort, PodTable};

/// What a run tells the Pod it belongs to.
#[derive(Debug)]
pub(super) enum Event {
    Readiness {
        container: usize,
        state: ReadinessState,
    },
    Exited {
        container: usize,
        outcome: Outcome,
    },
    /// A container in an engine.
    Foreign {
        container: usize,
        report: Report,
    },
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Completed,
    Failed(String),
    Panicked(String),
    /// Its process ended, otherwise than well.
    Exited {
        code: i32,
        reason: &'static str,
        message: Option<String>,
    },
    /// It did not end when it was told to.
    Aborted,
    /// It was told to end before it had begun.
    NotStarted,
}

impl Outcome {
    /// Exit code, reason and message, as a process would have given them.
    pub(super) fn describe(self) -> (i32, &'static str, Option<String>) {
        match self {
            Self::Completed => (0, "Completed", None),
            Self::Failed(message) => (1, "Error", Some(message)),
            // What a Rust program that panics exits with.
            Self::Panicked(message) => (101, "Error", Some(format!("panicked: {message}"))),
            Self::Exited {
                code,
                reason,
                message,
            } => (code, reason, message),
            Self::NotStarted => (137, "ContainerStatusUnknown", None),
            // Killed by signal 9.
            Self::Aborted => (
                137,
                "Error",
                Some("it did not end within its grace period".to_owned()),
            ),
        }
    }
}

/// A run that goes on.
#[derive(Debug)]
pub(super) struct Run {
    cancellation: CancellationToken,
    abort: AbortHandle,
    readiness: watch::Receiver<ReadinessState>,
}

impl Run {
    /// Starts the work. Its end and each change of its readiness arrive in `events`.
    pub(super) fn start(
        container: usize,
        work: BoxFuture<'static, Outcome>,
        cancellation: CancellationToken,
        readiness: watch::Receiver<ReadinessState>,
        events: mpsc::Sender<Event>,
    ) -> Self {
        let running = task::spawn("role", work);
        let abort = running.abort_handle();
        // Ends with the role, whose end it reports.
        task::spawn("container", report(container, running, readiness.clone(), events));
        Self {
            cancellation,
            abort,
            readiness,
        }
    }

    /// How it is now.
    pub(super) fn readiness(&self) -> ReadinessState {
        self.readiness.borrow().clone()
    }

    /// Tells the role to end.
    pub(super) fn cancel(&self) {
        self.cancellation.cancel();
    }

    /// Ends the role at its next await.
    pub(super) fn abort(&self) {
        self.abort.abort();
    }
}

impl Drop for Run {
    /// A role does not outlive the task that follows it, whatever ended that.
    fn drop(&mut self) {
        self.abort.abort();
    }
}

async fn report(
    container: usize,
    mut running: tokio::task::JoinHandle<Outcome>,
    mut readiness: watch::Receiver<ReadinessState>,
    events: mpsc::Sender<Event>,
) {
    let mut watching = true;
    let ended = loop {
        tokio::select! {
            ended = &mut running => break ended,
            changed = readiness.changed(), if watching => {
                if changed.is_err() {
                    // The role dropped its end; the last state stands.
                    watching = false;
                    continue;
                }
                let state = readiness.borrow_and_update().clone();
                if events.send(Event::Readiness { container, state }).await.is_err() {
                    watching = false;
                }
            }
        }
    };
    let outcome = match ended {
        Ok(outcome) => outcome,
        Err(error) if error.is_panic() => {
            Outcome::Panicked(task::panic_message(error.into_panic().as_ref()).to_owned())
        }
        Err(_) => Outcome::Aborted,
    };
    // Without a receiver the Pod is gone, and nobody asks.
    let _ = events.send(Event::Exited { container, outcome }).await;
}

/// The work of a role in this process.
pub(super) async fn as_task(role: Arc<dyn Role>, context: WorkloadContext) -> Outcome {
    match role.run(context).await {
        Ok(()) => Outcome::Completed,
        Err(error) => Outcome::Failed(error.message),
    }
}

/// The ports of one container: each a free loopback port, or a router that the front door asks.
#[derive(Debug)]
pub(super) struct ContainerPorts {
    pub(super) pods: PodTable,
    pub(super) uid: String,
    pub(super) container: String,
    pub(super) declared: Vec<DeclaredPort>,
}

impl ContainerPorts {
    /// The name under which a port is kept: it can be asked for by its name or its number.
    pub(super) fn declared(&self, port: &str) -> Option<&str> {
        let number = port.parse::<u16>().ok();
        let own = self
            .declared
            .iter()
            .filter(|declared| declared.container == self.container);
        let mut own = own.filter(|declared| declared.name == port || Some(declared.number) == number);
        own.next().map(|declared| declared.name.as_str())
    }
}

#[async_trait]
impl Ports for ContainerPorts {
    async fn listen(&self, name: &str) -> io::Result<TcpListener> {
        let Some(port) = self.declared(name) else {
            let text = format!("container {:?} declares no port {name:?}", self.container);
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        self.pods
            .listening(&self.uid, &self.container, port, listener.local_addr()?);
        Ok(listener)
    }

    fn serve(&self, name: &str, router: axum::Router) -> Result<(), ServeError> {
        let Some(port) = self.declared(name) else {
            return Err(ServeError::Undeclared {
                name: name.to_owned(),
            });
        };
        if self.pods.serve(&self.uid, &self.container, port, router) {
            Ok(())
        } else {
            Err(ServeError::Taken {
                name: name.to_owned(),
            })
        }
    }
}
