//! Leads `pods/log` of the API to the logs of the local node.

use std::sync::{Arc, OnceLock};

use futures::{FutureExt, StreamExt, future::BoxFuture};
use mainstay_kubeapi::{LogError, LogRequest, LogSource, LogStream};
use mainstay_localnode::logs::PodLogs;

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
