//! Why something that was asked of a server failed.

use http::StatusCode;
use mainstay_workload::ConnectError;
use rmcp::{ErrorData, ServiceError};

use crate::invocation::FailureReason;

/// See the [module](self). The text holds no credential.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(super) struct McpFailure {
    pub(super) reason: FailureReason,
    pub(super) message: String,
    /// The session is gone, and a new one may do (OM-422).
    pub(super) is_session_lost: bool,
    /// Another attempt may go better (OM-396).
    pub(super) may_retry: bool,
    /// HTTP status of the answer.
    pub(super) status: Option<u16>,
}

impl McpFailure {
    /// A failure that a further attempt may overcome.
    pub(super) fn transient(reason: FailureReason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            is_session_lost: false,
            may_retry: true,
            status: None,
        }
    }

    /// A failure that would come again.
    pub(super) fn lasting(reason: FailureReason, message: impl Into<String>) -> Self {
        Self {
            may_retry: false,
            ..Self::transient(reason, message)
        }
    }

    /// The session is gone.
    pub(super) fn session_lost(message: impl Into<String>) -> Self {
        Self {
            is_session_lost: true,
            ..Self::transient(FailureReason::NetworkError, message)
        }
    }

    /// No answer arrived.
    pub(super) fn unanswered(error: &ConnectError) -> Self {
        let message = error.to_string();
        match error {
            ConnectError::TimedOut { .. } => Self::transient(FailureReason::TimedOut, message),
            ConnectError::AddressRefused { .. } => Self::lasting(FailureReason::AddressRefused, message),
            error if error.is_network() => Self::session_lost(message),
            _ => Self::lasting(FailureReason::RequestInvalid, message),
        }
    }

    /// The answer says with its status that it is none. `body` is what is quoted of it.
    pub(super) fn status(status: StatusCode, body: &str) -> Self {
        let code = status.as_u16();
        let message = if status.is_redirection() {
            format!("HTTP {code}: redirects are not followed, use the address it leads to")
        } else {
            format!("HTTP {code}: {body}")
        };
        Self {
            status: Some(code),
            ..Self::transient(FailureReason::HttpStatus, message)
        }
    }

    /// An error of the protocol, as the server words it.
    pub(super) fn protocol(error: &ErrorData) -> Self {
        let message = format!(
            "the server answers with error {}: {}",
            error.code.0, error.message
        );
        Self::transient(FailureReason::ProtocolError, message)
    }

    /// What the library says of a request, where the way to the server has noted nothing.
    pub(super) fn service(error: &ServiceError) -> Self {
        match error {
            ServiceError::McpError(error) => Self::protocol(error),
            ServiceError::TransportClosed => {
                Self::session_lost("the connection to the server ended before its answer")
            }
            ServiceError::TransportSend(_) => Self::session_lost("the request could not be sent"),
            ServiceError::Timeout { timeout } => {
                Self::transient(FailureReason::TimedOut, format!("no answer within {timeout:?}"))
            }
            ServiceError::UnexpectedResponse => Self::transient(
                FailureReason::ResponseInvalid,
                "the server's answer is of another kind than the request",
            ),
            other => Self::transient(FailureReason::ProtocolError, other.to_string()),
        }
    }
}
