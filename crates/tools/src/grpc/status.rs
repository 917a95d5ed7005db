//! What a gRPC status says about the call, the backend and another attempt (OM-064, OM-395).

use std::error::Error;

use mainstay_workload::ConnectError;
use tonic::{Code, Status};

use super::channel::DialError;
use crate::{breaker::Verdict, http::unanswered, invocation::FailureReason};

/// An attempt without a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    /// The status that decides about another attempt; `None` where none may be made.
    pub(super) code: Option<Code>,
    pub(super) reason: FailureReason,
    pub(super) message: String,
}

impl Fault {
    pub(super) fn of(status: &Status) -> Self {
        if let Some(dial) = cause(status) {
            return Self::of_dial(dial);
        }
        let code = status.code();
        Self {
            code: Some(code),
            reason: FailureReason::GrpcStatus,
            message: format!("gRPC {}: {}", name(code), status.message()),
        }
    }

    fn of_dial(error: &DialError) -> Self {
        let (code, reason) = match error {
            DialError::Connect(error) => (
                match error {
                    ConnectError::TimedOut { .. } => Some(Code::DeadlineExceeded),
                    error if error.is_network() => Some(Code::Unavailable),
                    // It would fail the same way again.
                    _ => None,
                },
                unanswered(error),
            ),
            DialError::File { .. } | DialError::Tls { .. } => (None, FailureReason::CredentialUnavailable),
        };
        Self {
            code,
            reason,
            message: error.to_string(),
        }
    }

    /// What the attempt says about the backend (OM-373): a refusal shows that it works.
    pub(super) fn verdict(&self) -> Verdict {
        match self.code {
            Some(
                Code::Unavailable | Code::DeadlineExceeded | Code::Internal | Code::Unknown | Code::DataLoss,
            ) => Verdict::Fails,
            Some(_) => Verdict::Works,
            None => Verdict::Unknown,
        }
    }
}

/// Why there is no connection, where that is why there is no response.
fn cause(status: &Status) -> Option<&DialError> {
    let mut link = status.source();
    while let Some(error) = link {
        if let Some(dial) = error.downcast_ref::<DialError>() {
            return Some(dial);
        }
        link = error.source();
    }
    None
}

/// The name of a code in a `retryableStatusCodes` list.
pub(super) fn name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
