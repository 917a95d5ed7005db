//! Leads `pods/log` of the API to the logs of the local node.

use std::sync::{Arc, OnceLock};

use futures::future::BoxFuture;
use mainstay_kubeapi::{LogError, LogRequest, LogSource, LogStream};
use mainstay_localnode::logs::{self, LogQuery, PodLogs};

/// The logs, once the node is there. The API is opened before it.
#[derive(Clone, Default)]
pub(super) struct Logs {
    node: Arc<OnceLock<PodLogs>>,
}

impl Logs {
    /// The node's logs are these.
    pub(super) fn connect(&self, logs: PodLogs) {
        // Connected once, at start; a second time would change nothing.
        let _ = self.node.set(logs);
    }
}

impl LogSource for Logs {
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
            node.open(query).await.map_err(|error| match error {
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
