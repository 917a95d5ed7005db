//! What the engine needs of tools: what there is, whether a call may be made, and making it.
//!
//! The steps are apart so that the intent of a call can be stored between the decision and the sending
//! (contract 7).

pub mod by_hand;
mod registry;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
pub use mainstay_tools::Preview;
pub use mainstay_tools::policy::{Considered, Decision, Explanation, Finding, StepResult, TraceStep};
use serde::{Deserialize, Serialize};
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
    /// The engine itself: a tool of a built-in namespace, which is no tool of the registry and not judged (OM-362,
    /// OM-493).
    Builtin,
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

    /// What is known of the registry's tools beside what models are told, and of handlers without tools.
    fn registry(&self) -> RegistryFacts {
        RegistryFacts::default()
    }

    /// How a call would be decided and why; `headers` are what else the caller sends. Makes no record of it.
    async fn explain(&self, request: &ToolRequest, _headers: &BTreeMap<String, String>) -> Explanation {
        Explanation {
            decision: self.decide(request).await,
            judged: false,
            policies: Vec::new(),
        }
    }

    /// The request of a call that `explanation` allows, without sending it; `None` where there is none to show.
    ///
    /// # Errors
    ///
    /// What ends the call before anything is sent.
    async fn preview(
        &self,
        _request: &ToolRequest,
        _explanation: &Explanation,
    ) -> Result<Option<Preview>, ToolAnswer> {
        Ok(None)
    }
}

/// What is known of a registry beside what models are told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegistryFacts {
    /// Type of the handler and selecting policies, by the tool's name.
    pub tools: BTreeMap<String, ToolFacts>,
    /// Handlers that are not served, or not yet.
    pub unavailable: Vec<UnavailableHandler>,
}

/// What is known of a tool beside what models are told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolFacts {
    /// The type of its handler, as manifests spell it.
    pub handler_type: String,
    /// The ToolPolicies that select it; `None` where calls are not judged (OM-483).
    pub policies: Option<Vec<String>>,
}

/// A handler without tools, or whose tools may be out of date.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnavailableHandler {
    /// The handler.
    pub handler: String,
    /// Stable word.
    pub reason: String,
    /// For people.
    pub message: String,
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
