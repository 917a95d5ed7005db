//! `pods/log`: what the API asks of whoever runs Pods. Requirements KA-010, KA-052.

use bytes::Bytes;
use futures::{future::BoxFuture, stream::BoxStream};
use jiff::Timestamp;

/// Which lines of a container's log are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRequest {
    /// The Pod's namespace.
    pub namespace: String,
    /// The Pod's name.
    pub pod: String,
    /// The Pod's uid, so that a successor of the same name is not read.
    pub uid: String,
    /// The container.
    pub container: String,
    /// Go on with lines that are written later, until the container ends.
    pub follow: bool,
    /// The run before the last restart.
    pub previous: bool,
    /// Begin each line with the time it was written.
    pub timestamps: bool,
    /// Only lines written since then.
    pub since: Option<Timestamp>,
    /// Only so many lines from the end.
    pub tail_lines: Option<u64>,
    /// Only so many bytes from the beginning.
    pub limit_bytes: Option<u64>,
}

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The container has not started; asked again later there may be one.
    #[error("container {container:?} in pod {pod:?} is waiting to start: {reason}")]
    NotStarted {
        /// The container.
        container: String,
        /// The Pod.
        pod: String,
        /// Why it waits.
        reason: String,
    },
    /// There is no log of the run before.
    #[error("previous terminated container {container:?} in pod {pod:?} not found")]
    NoPrevious {
        /// The container.
        container: String,
        /// The Pod.
        pod: String,
    },
    /// The log cannot be read.
    #[error("the log of container {container:?} in pod {pod:?} cannot be read: {source}")]
    Read {
        /// The container.
        container: String,
        /// The Pod.
        pod: String,
        /// What the file system answered.
        source: std::io::Error,
    },
}

/// Lines as they are read. Bounded by its reader: nothing is produced that is not asked for.
pub type LogStream = BoxStream<'static, std::io::Result<Bytes>>;

/// Reads the logs of Pods.
pub trait LogSource: Send + Sync {
    /// Opens a log.
    fn open(&self, request: LogRequest) -> BoxFuture<'_, Result<LogStream, LogError>>;
}
