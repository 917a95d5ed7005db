//! One tool call, from what the model asked to what it gets back.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::policy::Identity;

/// A call the model asked for.
#[derive(Debug, Clone)]
pub struct ToolInvocation {
    /// Id of the call within the conversation.
    pub call_id: String,
    /// The tool's name as the model wrote it.
    pub tool: String,
    /// The arguments; [`crate::arguments::parse`] makes them of the model's text.
    pub arguments: Value,
    /// The session.
    pub session: String,
    /// The turn.
    pub turn: String,
    /// Who caused the call.
    pub identity: Identity,
    /// Further headers of the call. Policies see all but credentials; `X-Omnia-Provider`,
    /// `X-Omnia-Model`, `traceparent` and `tracestate` are sent on (OM-374).
    pub headers: BTreeMap<String, String>,
    /// Ends the call, also while it waits for a retry (OM-392).
    pub cancel: CancellationToken,
}

/// What came of a call. Holds no credential and nothing a handler's `redact` hides (OM-389, OM-590).
#[derive(Debug, Clone, PartialEq)]
pub struct ToolOutcome {
    /// The result for the model; a text when it is an error.
    pub content: Value,
    /// Whether the call failed or was refused (OM-372).
    pub is_error: bool,
    /// Why it failed.
    pub reason: Option<FailureReason>,
    /// Requests sent.
    pub attempts: u32,
    /// From the start of [`crate::Toolset::execute`] to its end.
    pub duration: Duration,
    /// HTTP status of the last answer.
    pub status: Option<u16>,
}

/// Why a call failed: stable words for records and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FailureReason {
    /// The name was not offered (OM-363).
    ToolNotOffered,
    /// A policy refused it (OM-490).
    PolicyDenied,
    /// The arguments do not match the schema (OM-364).
    ArgumentsInvalid,
    /// No request could be made of the arguments (OM-377, OM-378, OM-383).
    RequestInvalid,
    /// The handler's credential is not there (OM-403).
    CredentialUnavailable,
    /// The address may not be called.
    AddressRefused,
    /// The backend answered with an error (OM-387).
    HttpStatus,
    /// The backend answered with a gRPC status other than OK (OM-395).
    GrpcStatus,
    /// The backend answered with an error of its protocol (OM-396).
    ProtocolError,
    /// The backend answered that the tool failed (OM-416, OM-419).
    ToolError,
    /// No answer arrived.
    NetworkError,
    /// No answer within the handler's `timeout` (OM-368).
    TimedOut,
    /// The answer cannot be used (OM-386, OM-390).
    ResponseInvalid,
    /// The turn was cancelled.
    Cancelled,
    /// Too many failures in a row; the tool rests (OM-373).
    CircuitOpen,
    /// Only a connected client can run it (OM-435).
    ClientRequired,
}

impl ToolOutcome {
    /// A failure before any request.
    pub fn error(reason: FailureReason, message: impl Into<String>) -> Self {
        Self {
            content: Value::String(message.into()),
            is_error: true,
            reason: Some(reason),
            attempts: 0,
            duration: Duration::ZERO,
            status: None,
        }
    }

    /// The result as text: a text as it is, everything else as JSON.
    pub fn text(&self) -> String {
        match &self.content {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }
}
