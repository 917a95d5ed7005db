//! Connections to the ports of Pods and Services: what the API asks of whoever runs Pods. Requirement KA-052.

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

/// A connection to a workload.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Which port is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DialTarget {
    /// A container port of a Pod.
    Pod {
        /// The Pod's namespace.
        namespace: String,
        /// The Pod's name.
        name: String,
        /// The Pod's uid, so that a successor of the same name is not reached.
        uid: String,
        /// The container port as the Pod declares it, which is not the port that is listened on.
        port: u16,
    },
    /// A port of a Service: that of any Pod behind it which serves.
    Service {
        /// The Service's namespace.
        namespace: String,
        /// The Service's name.
        name: String,
        /// The port of the Service itself.
        port: u16,
    },
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// Nobody here runs Pods, or not this one: it has not started, has ended, or runs elsewhere.
    #[error("pod {pod:?} does not run on this node")]
    NotHere {
        /// The Pod.
        pod: String,
    },
    /// The Pod runs and does not listen on that port. The words are those of a node of a cluster.
    #[error("failed to connect to localhost:{port} inside pod {pod:?}: connection refused: {hint}")]
    NotListening {
        /// The Pod.
        pod: String,
        /// The port asked for.
        port: u16,
        /// The ports that it listens on, in words.
        hint: String,
    },
    /// No Pod behind the Service serves that port.
    #[error("no endpoints available for service {service:?}")]
    NoEndpoint {
        /// The Service.
        service: String,
    },
    /// The port is listened on, and connecting to it failed.
    #[error("connecting failed: {source}")]
    Connect {
        /// What the system answered.
        source: std::io::Error,
    },
}

/// Connects to the ports of Pods and Services.
pub trait Dialer: Send + Sync {
    /// Opens a connection. The caller gives up on one that takes too long.
    fn dial(&self, target: DialTarget) -> BoxFuture<'_, Result<Box<dyn Connection>, DialError>>;
}
