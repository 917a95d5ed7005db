//! What the broker is asked and what it answers (OM-482…OM-490): plain data, no evaluation.
//!
//! The JSON form is the one of `POST /v1/decision` (OM-485), so that a broker in another process
//! and the one in this process cannot drift apart.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `deniedBy` of a call that no policy permits (OM-482).
pub const NO_MATCHING_PERMIT: &str = "no-matching-permit";

/// `deniedBy` of a call whose broker gave no answer in time (OM-488).
pub const BROKER_UNREACHABLE: &str = "policy-broker-unreachable";

/// Who caused a tool call, as far as the facade could tell.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Identity {
    /// Where the identity comes from: `anonymous`, `token`, `oidc`, …
    pub origin: String,
    /// Stable id of the caller inside its origin.
    pub subject: String,
    /// The person on whose behalf the caller acts, when known.
    pub end_user: String,
    /// Workspace of the agent.
    pub workspace: String,
    /// Name of the agent that makes the call.
    pub agent: String,
    /// Claims of the caller's verified token.
    pub claims: BTreeMap<String, Value>,
}

/// One tool call as the broker sees it (OM-485…OM-487).
#[derive(Debug, Clone, PartialEq)]
pub struct DecisionRequest {
    /// Name of the ToolRegistry; decisions never use the handler's name (OM-486).
    pub registry: String,
    /// Name of the tool as the model called it.
    pub tool: String,
    /// Handler that serves the tool; for the record only.
    pub handler: String,
    /// The arguments as the model gave them, runtime-only ones included (OM-487).
    pub body: Value,
    /// Headers of the call, by canonical name (`X-Omnia-Tool-Name`).
    pub headers: BTreeMap<String, String>,
    /// Who caused the call.
    pub identity: Identity,
}

/// Whether a policy refuses or only reports (OM-192, OM-489).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// A denial refuses the call.
    #[default]
    Enforce,
    /// A denial is reported as `wouldDeny`; the call goes through.
    Audit,
}

/// The broker's answer (OM-485).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// Whether the call may be made.
    pub allow: bool,
    /// The rule, required claim or built-in reason that refused it (or would have, in audit mode).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denied_by: Option<String>,
    /// Text for the model and the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Mode of the policy that decided.
    #[serde(default)]
    pub mode: Mode,
    /// An audit policy would have refused the call (OM-489).
    #[serde(default)]
    pub would_deny: bool,
    /// Headers to add to the outbound call (OM-491); only set when the call is allowed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub injected_headers: BTreeMap<String, String>,
    /// What was evaluated, in order, up to the step that decided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trace: Vec<TraceStep>,
}

impl Decision {
    /// The error result that the model sees instead of the tool's answer (OM-490): the message, then what
    /// refused the call. `None` when the call is allowed.
    pub fn denial_text(&self) -> Option<String> {
        if self.allow {
            return None;
        }
        let mut text = "tool call denied by policy".to_owned();
        if let Some(message) = self.message.as_deref().filter(|message| !message.is_empty()) {
            text.push_str(": ");
            text.push_str(message);
        }
        if let Some(denied_by) = &self.denied_by {
            text.push_str(&format!(" (rule: {denied_by})"));
        }
        Some(text)
    }

    /// Name of the ToolPolicy that decided, for logs and records (OM-494): the one that refused, or would have; for
    /// a plain permit the last one that was judged. `None` when no policy selects the tool, or none is in force.
    pub fn deciding_policy(&self) -> Option<&str> {
        let refusing = self.denied_by.as_deref().and_then(|denied_by| {
            self.trace
                .iter()
                .find(|step| step.rule == denied_by && step.result != StepResult::False)
        });
        let judged = || {
            self.trace
                .iter()
                .rfind(|step| step.result != StepResult::Injected)
        };
        refusing.or_else(judged).map(|step| step.policy.as_str())
    }
}

/// One evaluated rule, claim or injected header of one policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TraceStep {
    /// Name of the ToolPolicy.
    pub policy: String,
    /// Name of the rule, or `required-claim:CLAIM`, or `header-injection:HEADER`.
    pub rule: String,
    /// The CEL source; empty for steps that are not expressions.
    pub expression: String,
    /// How it came out.
    pub result: StepResult,
    /// The values the expression read, by path (`body.id`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, Value>,
}

/// Outcome of one [`TraceStep`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StepResult {
    /// The expression was true.
    True,
    /// The expression was false.
    False,
    /// The expression could not be evaluated; `onFailure` decided (OM-488).
    Failed(String),
    /// A required claim is missing (OM-487).
    ClaimMissing,
    /// A header was computed and is added to the call (OM-491). Neither its value nor what it was computed from is
    /// shown: both may be for the backend alone.
    Injected,
}
