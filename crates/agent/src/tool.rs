//! What the engine needs of tools: what there is, whether a call may be made, and making it.
//!
//! The steps are apart so that the intent of a call can be stored between the decision and the sending
//! (contract 7).

mod registry;

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use mainstay_tools::policy::Decision;
use serde_json::Value;

use crate::event::Caller;

/// Two minutes: what a turn may take beside its longest tool call (OM-369).
const TURN_BASE: Duration = Duration::from_secs(120);

/// A tool of the registry.
#[derive(Debug, Clone, PartialEq)]
pub struct RegistryTool {
    /// Name the model calls it by.
    pub name: String,
    /// What it does, unless the pack says it (OM-359).
    pub description: String,
    /// JSON Schema of its arguments, unless the pack gives one (OM-359).
    pub parameters: Value,
    /// Handler that serves it.
    pub handler: String,
    /// Who runs it.
    pub runs: Runs,
    /// Whether a call with an unknown outcome may be sent again.
    pub repeat_safe: bool,
}

/// Who runs a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Runs {
    /// This program, through the tool layer.
    Here,
    /// The connected client (OM-432). Set values replace those of the pack (OM-433).
    AtClient {
        /// What to ask the user.
        consent_message: Option<String>,
        /// What kind of tool it is.
        categories: Option<Vec<String>>,
    },
}

/// One call, as far as it is known before the decision.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolRequest {
    /// Unique within the turn.
    pub call_id: String,
    /// The tool.
    pub tool: String,
    /// An object.
    pub arguments: Value,
    /// The session.
    pub session: String,
    /// The turn.
    pub turn: String,
    /// Who sent the message.
    pub caller: Caller,
    /// Provider entry of the turn.
    pub provider: String,
    /// Model name of the turn.
    pub model: String,
}

/// What came of a call. A failed call is an answer too: the model decides how to go on (OM-372).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolAnswer {
    /// What the model reads.
    pub content: String,
    /// Whether it is an error.
    pub is_error: bool,
    /// How often the call was sent.
    pub attempts: u32,
    /// Stable word for an error.
    pub reason: Option<String>,
    /// HTTP status of the last answer.
    pub status: Option<u16>,
}

/// The tools of an agent.
#[async_trait]
pub trait ToolRunner: Debug + Send + Sync {
    /// What the registry has.
    fn tools(&self) -> Vec<RegistryTool>;

    /// How long a turn may take: two minutes and the longest timeout of a handler (OM-369).
    fn ceiling(&self) -> Duration;

    /// Whether the call may be made (OM-366). Never contacts the tool's backend.
    async fn decide(&self, request: &ToolRequest) -> Decision;

    /// What speaks against a call before anything is sent, beside the decision: arguments that do not fit the
    /// schema (OM-364).
    fn refusal(&self, _request: &ToolRequest, _decision: &Decision) -> Option<ToolAnswer> {
        None
    }

    /// Makes a call that was allowed. Dropping the future aborts it.
    async fn execute(&self, request: &ToolRequest, decision: &Decision) -> ToolAnswer;
}

/// An agent without a registry.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoTools;

#[async_trait]
impl ToolRunner for NoTools {
    fn tools(&self) -> Vec<RegistryTool> {
        Vec::new()
    }

    fn ceiling(&self) -> Duration {
        TURN_BASE
    }

    async fn decide(&self, _: &ToolRequest) -> Decision {
        Decision::default()
    }

    async fn execute(&self, request: &ToolRequest, _: &Decision) -> ToolAnswer {
        ToolAnswer {
            content: format!("there is no tool `{}`", request.tool),
            is_error: true,
            ..ToolAnswer::default()
        }
    }
}
