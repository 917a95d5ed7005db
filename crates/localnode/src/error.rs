//! Errors of the controllers.

/// Why a round of a controller ended early. The object is looked at again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReconcileError {
    /// The API refused or could not be reached.
    #[error("{0}")]
    Api(#[source] Box<kube::Error>),
}

impl From<kube::Error> for ReconcileError {
    fn from(error: kube::Error) -> Self {
        Self::Api(Box::new(error))
    }
}

impl ReconcileError {
    /// Somebody else was faster; nothing is wrong.
    pub(crate) fn is_race(&self) -> bool {
        let Self::Api(error) = self;
        matches!(&**error, kube::Error::Api(status) if matches!(status.reason.as_str(), "Conflict" | "NotFound"))
    }
}
