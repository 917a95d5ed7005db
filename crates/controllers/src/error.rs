//! Why a reconcile is tried again.

use thiserror::Error;

/// A reconcile that has to be repeated. What is wrong with a spec is never one of these: it is recorded in the status,
/// and the next edit is the trigger (OM-243).
#[derive(Debug, Error)]
pub enum ReconcileError {
    /// A call of the API server failed; retried with backoff.
    #[error("cannot {operation}")]
    Api {
        /// What was tried, naming the object.
        operation: String,
        /// What the client says.
        #[source]
        source: Box<kube::Error>,
    },
    /// A referenced object does not exist. The status says so already; the retry is a second way to notice the
    /// object's creation, next to its watch (OM-244).
    #[error("{message}")]
    Missing {
        /// What is missing.
        message: String,
    },
    /// A generated object cannot be written down.
    #[error("cannot render {what}: {message}")]
    Render {
        /// The object.
        what: String,
        /// Why.
        message: String,
    },
}

impl ReconcileError {
    /// Wraps a client error.
    pub(crate) fn api(operation: impl Into<String>) -> impl FnOnce(kube::Error) -> ReconcileError {
        let operation = operation.into();
        move |source| ReconcileError::Api {
            operation,
            source: Box::new(source),
        }
    }

    /// The whole chain in one line.
    pub(crate) fn chain(&self) -> String {
        use std::error::Error;
        let mut text = self.to_string();
        let mut source = self.source();
        while let Some(cause) = source {
            text.push_str(": ");
            text.push_str(&cause.to_string());
            source = cause.source();
        }
        text
    }
}

/// Whether a client error says that the object, or its kind, does not exist.
pub(crate) fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Whether a client error says that the object changed since it was read.
pub(crate) fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}
