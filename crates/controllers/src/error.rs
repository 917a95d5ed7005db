//! Why a reconcile is tried again.

use mainstay_telemetry::text::with_causes;
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
        let mut text = self.to_string();
        if let ReconcileError::Api { source, .. } = self
            && let kube::Error::Api(status) = source.as_ref()
        {
            // The client's own text of an answer is a dump of the whole Status.
            let answer = if status.message.is_empty() {
                &status.reason
            } else {
                &status.message
            };
            text.push_str(&format!(": {answer} ({})", status.code));
        } else {
            text = with_causes(self);
        }
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// Whether a client error says that the object, or its kind, does not exist.
pub(crate) fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Whether a client error says that the object, as it would be then, breaks a rule of its kind.
pub(crate) fn is_invalid(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 422)
}

/// Whether a client error says that the object changed since it was read.
pub(crate) fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_the_api_is_one_line_without_a_dump_om_282_om_283() {
        let status = kube::core::Status::failure(
            "Service \"a\" is invalid:\n spec.ports[1].name: Duplicate value: \"facade\"",
            "Invalid",
        )
        .with_code(422);
        let error = ReconcileError::api("apply Service own/a")(kube::Error::Api(Box::new(status)));
        assert_eq!(
            error.chain(),
            "cannot apply Service own/a: Service \"a\" is invalid: spec.ports[1].name: Duplicate value: \"facade\" (422)"
        );
    }
}
