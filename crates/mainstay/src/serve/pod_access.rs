//! Leads `pods/log`, `pods/portforward` and the proxies of the API to the local node.

use std::sync::{Arc, OnceLock};

use futures::future::BoxFuture;
use mainstay_kubeapi::{
    Connection, DialError, DialTarget, Dialer, LogError, LogRequest, LogSource, LogStream,
};
use mainstay_localnode::{
    Handle, dialing,
    logs::{self, LogQuery},
};

/// The Pods' logs and ports, once the node is there. The API is opened before it.
#[derive(Clone, Default)]
pub(super) struct PodAccess {
    node: Arc<OnceLock<Handle>>,
}

impl PodAccess {
    /// The node is this one.
    pub(super) fn connect(&self, node: Handle) {
        // Connected once, at start; a second time would change nothing.
        let _ = self.node.set(node);
    }
}

impl Dialer for PodAccess {
    fn dial(&self, target: DialTarget) -> BoxFuture<'_, Result<Box<dyn Connection>, DialError>> {
        Box::pin(async move {
            let node = self.node.get();
            match target {
                DialTarget::Pod { name, uid, port, .. } => {
                    let Some(node) = node else {
                        return Err(DialError::NotHere { pod: name });
                    };
                    let dialed = node.dialer.pod(&uid, port).await;
                    boxed(dialed.map_err(|error| refusal(error, &name)))
                }
                DialTarget::Service {
                    namespace,
                    name,
                    port,
                } => {
                    let Some(node) = node else {
                        return Err(DialError::NoEndpoint { service: name });
                    };
                    let dialed = node.dialer.service(&namespace, &name, port).await;
                    boxed(dialed.map_err(|error| refusal(error, &name)))
                }
            }
        })
    }
}

fn boxed(dialed: Result<dialing::PodConnection, DialError>) -> Result<Box<dyn Connection>, DialError> {
    dialed.map(|connection| -> Box<dyn Connection> { Box::new(connection) })
}

/// The same in the words of the API; `name` is that of the Pod, where it is about one.
fn refusal(error: dialing::DialError, name: &str) -> DialError {
    let pod = name.to_owned();
    match error {
        dialing::DialError::NotHere => DialError::NotHere { pod },
        dialing::DialError::NotListening { port, hint } => DialError::NotListening { pod, port, hint },
        dialing::DialError::NoEndpoint { service, .. } => DialError::NoEndpoint { service },
        dialing::DialError::Connect { source } => DialError::Connect { source },
    }
}

impl LogSource for PodAccess {
    fn open(&self, request: LogRequest) -> BoxFuture<'_, Result<LogStream, LogError>> {
        Box::pin(async move {
            let Some(node) = self.node.get() else {
                let reason = "the local node has not started".to_owned();
                return Err(LogError::NotStarted {
                    container: request.container,
                    pod: request.pod,
                    reason,
                });
            };
            let query = LogQuery {
                namespace: request.namespace,
                pod: request.pod,
                uid: request.uid,
                container: request.container,
                follow: request.follow,
                previous: request.previous,
                timestamps: request.timestamps,
                since: request.since,
                tail_lines: request.tail_lines,
                limit_bytes: request.limit_bytes,
            };
            node.logs.open(query).await.map_err(|error| match error {
                logs::LogError::NotStarted { container, pod } => LogError::NotStarted {
                    container,
                    pod,
                    reason: "it has not run yet".to_owned(),
                },
                logs::LogError::NoPrevious { container, pod } => LogError::NoPrevious { container, pod },
                logs::LogError::Read {
                    container,
                    pod,
                    source,
                } => LogError::Read {
                    container,
                    pod,
                    source,
                },
            })
        })
    }
}
