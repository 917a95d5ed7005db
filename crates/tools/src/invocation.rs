//! One tool call, from what the model asked to what it gets back.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::policy::{Decision, Identity};

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

    /// Data of a `tool.finished` event.
    pub fn event_data(&self, call_id: &str, tool: &str) -> Value {
        let mut data = json!({
            "callId": call_id,
            "tool": tool,
            "isError": self.is_error,
            "content": self.content,
            "attempts": self.attempts,
            "durationMs": u64::try_from(self.duration.as_millis()).unwrap_or(u64::MAX),
        });
        if let Some(reason) = self.reason {
            data["reason"] = json!(reason);
        }
        if let Some(status) = self.status {
            data["status"] = json!(status);
        }
        data
    }
}

/// Data of a `policy.decided` event. Injected headers are named without their values, which may hold
/// what only the backend should see.
pub fn decision_event_data(call_id: &str, tool: &str, registry: &str, decision: &Decision) -> Value {
    let mut data = json!({
        "callId": call_id,
        "tool": tool,
        "registry": registry,
        "allow": decision.allow,
        "mode": decision.mode,
        "wouldDeny": decision.would_deny,
        "trace": decision.trace,
    });
    if let Some(policy) = decision.deciding_policy() {
        data["policy"] = json!(policy);
    }
    if let Some(denied_by) = &decision.denied_by {
        data["deniedBy"] = json!(denied_by);
    }
    if let Some(message) = &decision.message {
        data["message"] = json!(message);
    }
    if !decision.injected_headers.is_empty() {
        data["injectedHeaders"] = decision.injected_headers.keys().cloned().collect();
    }
    data
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;
    use crate::policy::{StepResult, TraceStep};

    #[test]
    fn the_record_of_a_decision_names_policy_rule_and_values_but_no_header_value_om_494() {
        let decision = Decision {
            denied_by: Some("no-delete".to_owned()),
            message: Some("deletions need a person".to_owned()),
            injected_headers: BTreeMap::from([("X-Key".to_owned(), "secret".to_owned())]),
            trace: vec![TraceStep {
                policy: "orders-no-delete".to_owned(),
                rule: "no-delete".to_owned(),
                expression: "true".to_owned(),
                result: StepResult::True,
                values: BTreeMap::from([("body.id".to_owned(), json!("1017"))]),
            }],
            ..Decision::default()
        };
        let data = decision_event_data("call_1", "delete_order", "helpdesk", &decision);
        assert_eq!(data["deniedBy"], "no-delete");
        assert_eq!(data["policy"], "orders-no-delete");
        assert_eq!(data["trace"][0]["values"]["body.id"], "1017");
        assert_eq!(data["injectedHeaders"], json!(["X-Key"]));
        assert!(!data.to_string().contains("secret"));
    }

    #[test]
    fn the_record_of_an_outcome_has_duration_attempts_and_reason_om_590() {
        let outcome = ToolOutcome {
            attempts: 4,
            status: Some(503),
            duration: Duration::from_millis(1_250),
            ..ToolOutcome::error(FailureReason::HttpStatus, "HTTP 503: busy")
        };
        assert_eq!(
            outcome.event_data("c", "t"),
            json!({"callId": "c", "tool": "t", "isError": true, "content": "HTTP 503: busy", "attempts": 4, "durationMs": 1250, "reason": "HttpStatus", "status": 503})
        );
    }
}
