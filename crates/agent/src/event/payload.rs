//! The facts of each event type.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Declares the facts of all event types: a type is written and read by its name in the envelope.
macro_rules! payloads {
    ($($(#[$doc:meta])* $variant:ident($facts:ident) = $kind:literal,)*) => {
        /// The facts of one event, by its type.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Payload {
            $($(#[$doc])* $variant($facts),)*
        }

        impl Payload {
            /// The type as it stands in the envelope.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $kind,)*
                }
            }

            /// Type and facts for the envelope.
            pub(crate) fn to_parts(&self) -> (&'static str, Value) {
                let data = match self {
                    $(Self::$variant(facts) => serde_json::to_value(facts),)*
                };
                // The facts serialise to objects with text keys; there is nothing that could fail.
                (self.kind(), data.unwrap_or_default())
            }

            /// `None` for a type this program does not know, and for facts it cannot read.
            pub(crate) fn from_parts(kind: &str, data: &Value) -> Option<Self> {
                match kind {
                    $($kind => $facts::deserialize(data).ok().map(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

payloads! {
    /// A turn began.
    TurnStarted(TurnStarted) = "turn.started",
    /// The user or the agent said something.
    Message(Message) = "message",
    /// A call of the model began.
    ModelStarted(ModelStarted) = "model.started",
    /// A piece of text of the running attempt. Never stored.
    ModelDelta(ModelDelta) = "model.delta",
    /// The attempt waits, and why.
    ModelWaiting(ModelWaiting) = "model.waiting",
    /// The attempt goes on with another provider.
    ModelFailedOver(ModelFailedOver) = "model.failed_over",
    /// What was shown of an attempt is void; another follows.
    ModelRestarted(ModelRestarted) = "model.restarted",
    /// A call of the model failed.
    ModelFailed(ModelFailed) = "model.failed",
    /// A provider that failed is left alone for a while.
    ModelCooled(ModelCooled) = "model.cooled",
    /// A call of the model ended.
    ModelDone(ModelDone) = "model.done",
    /// The policy engine judged a tool call.
    PolicyDecided(PolicyDecided) = "policy.decided",
    /// A tool call is about to be sent.
    ToolStarted(ToolStarted) = "tool.started",
    /// A tool call has a result.
    ToolFinished(ToolFinished) = "tool.finished",
    /// The connected client is asked to run a tool.
    ClientToolRequested(ClientToolRequested) = "client_tool.requested",
    /// A call of the model went or would go beyond a budget.
    BudgetExceeded(BudgetExceeded) = "budget.exceeded",
    /// A threshold of a budget was crossed.
    BudgetAlerted(BudgetAlerted) = "budget.alerted",
    /// Tokens and cost of one call of the model.
    Usage(UsageRecord) = "usage",
    /// The turn ended with an answer.
    TurnDone(TurnDone) = "turn.done",
    /// The turn ended with an error.
    TurnFailed(TurnFailed) = "turn.failed",
    /// The turn was cancelled.
    TurnCancelled(TurnCancelled) = "turn.cancelled",
}

/// Whether a turn is over with an event of this type.
pub(super) fn ends_turn(kind: &str) -> bool {
    matches!(kind, "turn.done" | "turn.failed" | "turn.cancelled")
}

impl Payload {
    /// Whether the turn is over with this event.
    pub fn ends_turn(&self) -> bool {
        ends_turn(self.kind())
    }

    /// Whether this event must be on the disk before it is shown: it was promised to somebody (`message`,
    /// `turn.*`), or it is the intent of a side effect.
    pub fn must_be_durable(&self) -> bool {
        self.ends_turn()
            || matches!(
                self,
                Self::TurnStarted(_) | Self::Message(_) | Self::ToolStarted(_)
            )
    }
}

/// Which pack a turn runs with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackReference {
    /// Id of the pack.
    pub id: String,
    /// Its version.
    pub version: String,
    /// Digest of its bytes.
    pub digest: String,
}

/// Who sent the message, as policies see it (OM-502).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Caller {
    /// How the caller was recognised.
    pub origin: String,
    /// Stable id within the origin.
    pub subject: String,
    /// The person behind the caller.
    pub end_user: String,
    /// Claims of a verified token.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub claims: BTreeMap<String, Value>,
}

/// `turn.started`: everything that is needed to continue the turn after a crash.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TurnStarted {
    /// The pack that was loaded when the session was opened.
    pub pack: PackReference,
    /// Key of the prompt.
    pub prompt: String,
    /// Provider entry of the agent.
    pub provider: String,
    /// Model name; empty where the provider chooses.
    pub model: String,
    /// Values of the caller for the prompt's variables.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// Who sent the message.
    #[serde(default)]
    pub caller: Caller,
    /// Whether the sender's connection can run client tools (OM-435).
    #[serde(default)]
    pub client_tools: bool,
    /// Key by which the client recognises its message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_key: Option<String>,
    /// Names in `metadata` that are no variables of the prompt, the first few: the values had no effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unused: Vec<String>,
    /// Longest the turn may run, in milliseconds (OM-369).
    pub ceiling_ms: u64,
}

/// `message`: what the user wrote, or the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Id of the stored message.
    pub message_id: String,
    /// `user` or `assistant`.
    pub role: String,
    /// The text.
    pub content: String,
}

/// `model.started`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelStarted {
    /// Number of the call within the turn, from 1.
    pub attempt: u32,
    /// Round of model and tools within the turn, from 1.
    pub round: u32,
    /// Provider entry.
    pub provider: String,
    /// Model name.
    pub model: String,
}

/// `model.delta`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelDelta {
    /// The attempt the text belongs to.
    pub attempt: u32,
    /// Where in the attempt's text this piece begins, in bytes of UTF-8.
    pub offset: u64,
    /// The piece.
    pub text: String,
}

/// `model.waiting`: the attempt has not failed, but nothing of its answer is to be expected at once (contract 8).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelWaiting {
    /// The attempt that waits.
    pub attempt: u32,
    /// Provider entry that is waited for.
    pub provider: String,
    /// Stable word: that of the failure before a repetition, or `ModelProviderOnTrial` while other calls find out
    /// whether the provider answers again.
    pub reason: String,
    /// For people.
    pub message: String,
    /// HTTP status of the failure, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Time until the provider is asked again, in milliseconds; absent while that depends on other calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
}

/// `model.failed_over`: the attempt goes on with the next provider of the chain (OR-220, OR-221).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelFailedOver {
    /// The attempt.
    pub attempt: u32,
    /// Provider entry that failed or is left alone.
    pub from: String,
    /// Provider entry that is asked next.
    pub to: String,
    /// Stable word.
    pub reason: String,
    /// For people.
    pub message: String,
    /// HTTP status, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
}

/// `model.restarted`: readers drop what they have of the attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelRestarted {
    /// The attempt that is void.
    pub attempt: u32,
    /// Why.
    pub reason: String,
}

/// `model.failed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelFailed {
    /// The attempt.
    pub attempt: u32,
    /// What it had said until then.
    pub text: String,
    /// Stable word.
    pub reason: String,
    /// For people.
    pub message: String,
    /// HTTP status, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
}

/// `model.cooled`: an attempt's provider failed so often that everybody leaves it alone for a while (OR-222, OR-226).
/// The attempt itself may go on with another provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelCooled {
    /// The attempt during which it happened.
    pub attempt: u32,
    /// Provider entry that is left alone.
    pub provider: String,
    /// Until when.
    pub until: Timestamp,
    /// Failed calls in a row.
    pub failures: u32,
    /// Stable word for the last failure.
    pub reason: String,
    /// The last failure, for people.
    pub message: String,
    /// HTTP status of the last failure, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
}

/// `model.done`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelDone {
    /// The attempt.
    pub attempt: u32,
    /// The round.
    pub round: u32,
    /// All its text, after guardrails.
    pub text: String,
    /// The calls it asked for, in its order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<RecordedCall>,
    /// Why it ended.
    pub finish: String,
    /// Guardrails that the text broke (OM-565).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guardrails: Vec<UsedGuardrail>,
}

/// A guardrail that changed a text (OM-565).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsedGuardrail {
    /// Type of the validator.
    pub validator: String,
    /// What was wrong.
    pub reason: String,
    /// Whether the round ended.
    pub stopped: bool,
}

/// A tool call as the model asked for it (OM-590).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedCall {
    /// Unique within the turn.
    pub id: String,
    /// Name as the model wrote it.
    pub name: String,
    /// Text of the arguments as the model wrote it.
    pub arguments: String,
}

/// `policy.decided` (OM-494).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PolicyDecided {
    /// The call.
    pub call_id: String,
    /// The tool.
    pub tool: String,
    /// Whether the call goes through.
    pub allow: bool,
    /// The ToolPolicy that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Rule or built-in reason of a denial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denied_by: Option<String>,
    /// Text of the denial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// `enforce` or `audit`.
    pub mode: String,
    /// An audit policy would have refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub would_deny: bool,
    /// Names of the headers that the policy adds to the call; their values may be secret.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub injected_headers: Vec<String>,
    /// The steps of the decision.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub trace: Value,
}

/// `tool.started`: the intent, stored before the call is sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolStarted {
    /// The call.
    pub call_id: String,
    /// The tool.
    pub tool: String,
    /// The handler that serves it.
    pub handler: String,
    /// The arguments as the model gave them.
    pub arguments: Value,
    /// Whether the call may be sent again when its outcome is unknown.
    pub repeat_safe: bool,
    /// Whether this is such a repetition.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
}

/// How a tool call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallOutcome {
    /// The tool answered.
    Succeeded,
    /// The tool answered with an error, or could not be reached.
    Failed,
    /// A policy refused; nothing was sent.
    Denied,
    /// The call could not be made as asked: unknown name, arguments that are no object, a limit.
    Refused,
    /// It was sent and nobody knows what came of it.
    Unknown,
}

/// `tool.finished`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolFinished {
    /// The call.
    pub call_id: String,
    /// The tool.
    pub tool: String,
    /// How it ended.
    pub outcome: CallOutcome,
    /// Whether the model sees an error.
    pub is_error: bool,
    /// What the model sees.
    pub content: String,
    /// How long the call took, in milliseconds.
    pub duration_ms: u64,
    /// How often it was sent.
    pub attempts: u32,
    /// Stable word for an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// HTTP status of the last answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
}

/// `client_tool.requested` (OM-432).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClientToolRequested {
    /// The call.
    pub call_id: String,
    /// The tool.
    pub tool: String,
    /// The arguments.
    pub arguments: Value,
    /// What to ask the user (OM-433).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consent_message: Option<String>,
    /// What kind of tool it is (OM-433).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<String>,
}

/// `usage`: one call of the model (OM-497).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UsageRecord {
    /// The attempt.
    pub attempt: u32,
    /// Provider entry.
    pub provider: String,
    /// Model name.
    pub model: String,
    /// Tokens of the request.
    pub input_tokens: u64,
    /// Tokens of the answer.
    pub output_tokens: u64,
    /// Those of the request that were cached.
    pub cached_tokens: u64,
    /// Cost by the provider's prices; absent without prices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

/// `budget.exceeded`: once a turn (OM-204).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BudgetExceeded {
    /// The Provider whose budget it is, as `NAMESPACE/NAME`.
    pub provider: String,
    /// `daily` or `monthly`.
    pub period: String,
    /// The limit.
    pub limit_usd: f64,
    /// What was spent and put aside for other calls.
    pub spent_usd: f64,
    /// What the call may cost at most.
    pub needed_usd: f64,
    /// `warn`, `pauseJobs` or `block`; with `block` the call was not made.
    pub action: String,
}

/// `budget.alerted`: in the turn whose call crossed it, once a period (OM-204).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BudgetAlerted {
    /// The Provider whose budget it is, as `NAMESPACE/NAME`.
    pub provider: String,
    /// `daily` or `monthly`.
    pub period: String,
    /// The threshold.
    pub percent: u32,
    /// The limit.
    pub limit_usd: f64,
    /// What was spent and put aside.
    pub spent_usd: f64,
}

/// Sums over a turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Rounds of model and tools.
    pub rounds: u32,
    /// Tool calls asked for.
    pub tool_calls: u32,
    /// Tokens of all requests.
    pub input_tokens: u64,
    /// Tokens of all answers.
    pub output_tokens: u64,
    /// Cost; absent without prices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

/// `turn.done`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnDone {
    /// The answer, which is the `message` event just before.
    pub message_id: String,
    /// Sums.
    #[serde(flatten)]
    pub totals: Totals,
}

/// `turn.failed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnFailed {
    /// Stable word.
    pub reason: String,
    /// For people.
    pub message: String,
    /// What to try.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// `turn.cancelled`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnCancelled {
    /// Who or what cancelled.
    pub reason: String,
    /// What the running attempt had said.
    pub text: String,
}
