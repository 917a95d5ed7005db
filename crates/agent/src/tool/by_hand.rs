//! Tools as a person looks at them, and calls that a person makes: by the same steps as in a turn, without a model and
//! without a session (OM-358…OM-364, OM-366, OM-490).
//!
//! A call by hand is decided, checked and sent as the agent would. It stands in the server's log, and in no session.

use std::collections::BTreeMap;
use std::sync::Arc;

use mainstay_tools::policy::Decision;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    Explanation, Preview, RegistryTool, Runs, ToolAnswer, ToolFacts, ToolRequest, UnavailableHandler,
};
use crate::engine::Engine;
use crate::event::{CallOutcome, Caller};
use crate::pack::Admission;
use crate::pack_source::LoadedPack;
use crate::turn::judgement::{Objection, as_object, objection};
use crate::turn::surface::Surface;

/// How alike two names have to be for one to be proposed for the other: Jaro-Winkler, from 0 to 1.
const ALIKE: f64 = 0.85;
/// Names that are proposed for one.
const PROPOSALS: usize = 3;

/// The tools of an agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Listing {
    /// The registry's tools, by name.
    pub tools: Vec<Listed>,
    /// Handlers without tools.
    pub unavailable: Vec<UnavailableHandler>,
}

/// One tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Listed {
    /// Name the model calls it by.
    pub tool: String,
    /// Handler that serves it.
    pub handler: String,
    /// The handler's type, as manifests spell it.
    #[serde(rename = "type")]
    pub handler_type: String,
    /// Whether the agent's model may call it, and if not why.
    pub offered: Offer,
    /// The ToolPolicies that select it; `None` where calls are not judged (OM-483).
    pub policies: Option<Vec<String>>,
    /// What the model is told about it.
    pub description: String,
    /// JSON Schema of its arguments, as the model is told.
    pub parameters: Value,
}

/// Whether a tool is offered to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Offer {
    /// It is.
    Yes,
    /// The prompt does not list it (OM-358).
    NotListed,
    /// The prompt's blocklist takes it back (OM-361).
    Blocked,
    /// The prompt or the model takes no tools at all (OM-495, OM-564).
    NoTools,
}

/// A call that a person asks for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HandCall {
    /// The tool.
    pub tool: String,
    /// Its arguments; `null` are none, as in a turn.
    pub arguments: Value,
    /// Who asks, as policies see it.
    pub caller: Caller,
    /// What else the caller sends, as policies see it. Only a question about a decision has any.
    pub headers: BTreeMap<String, String>,
}

/// Why there is nothing to decide.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotCallable {
    /// The registry has no such tool.
    #[error("there is no tool `{tool}`{}", proposed(.alike))]
    Unknown {
        /// The name given.
        tool: String,
        /// Names that are meant, perhaps.
        alike: Vec<String>,
    },
    /// The agent's model is not offered the tool, so the agent would not call it.
    #[error("{0}")]
    NotOffered(String),
    /// The arguments are no object.
    #[error("{0}")]
    Arguments(String),
}

fn proposed(alike: &[String]) -> String {
    if alike.is_empty() {
        return String::new();
    }
    let names: Vec<String> = alike.iter().map(|name| format!("`{name}`")).collect();
    format!("; did you mean {}?", names.join(" or "))
}

/// What came of a call by hand.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HandResult {
    /// The tool.
    pub tool: String,
    /// Handler that serves it.
    pub handler: String,
    /// Whether nothing was sent on purpose.
    pub dry_run: bool,
    /// How the call ended; `None` for a dry run that found nothing against it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<CallOutcome>,
    /// Whether the model would see an error.
    pub is_error: bool,
    /// What the model would see: the tool's answer, or why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Stable word for an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// HTTP status of the last answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// How often it was sent.
    pub attempts: u32,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// The decision, and what every policy has to do with it.
    #[serde(flatten)]
    pub explanation: Explanation,
    /// The request that a dry run did not send; secrets are masked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Preview>,
}

impl Engine {
    /// The tools of the agent's registry as its next session gets them.
    pub async fn list_tools(&self) -> Listing {
        let pack = self.shared.packs.current().await;
        let tools = &self.shared.options.tools;
        let mut facts = tools.registry();
        let surface = self.surface(&pack);
        let listed = tools.tools().into_iter().map(|tool| {
            let ToolFacts {
                handler_type,
                policies,
            } = facts.tools.remove(&tool.name).unwrap_or_default();
            let offered = offer(&pack, &surface, &tool.name);
            let told = surface.described(&pack, tool);
            Listed {
                tool: told.name,
                handler: told.handler,
                handler_type,
                offered,
                policies,
                description: told.description,
                parameters: told.parameters,
            }
        });
        Listing {
            tools: listed.collect(),
            unavailable: facts.unavailable,
        }
    }

    /// How a call would be decided, and why. Nothing is sent or recorded; whether the model is offered the tool, and
    /// whether the arguments fit its schema, is not looked at.
    ///
    /// # Errors
    ///
    /// [`NotCallable::Unknown`] and [`NotCallable::Arguments`].
    pub async fn explain_call(&self, call: HandCall) -> Result<Explanation, NotCallable> {
        self.registered(&call.tool)?;
        let arguments = as_object(call.arguments).map_err(NotCallable::Arguments)?;
        let headers = call.headers.clone();
        let request = self.request(HandCall { arguments, ..call });
        let explanation = self.shared.options.tools.explain(&request, &headers).await;
        Ok(explanation.masked())
    }

    /// Makes a call as the agent would, or, for a dry run, everything but the call.
    ///
    /// # Errors
    ///
    /// [`NotCallable`]: there is nothing to decide about.
    pub async fn call_by_hand(&self, call: HandCall, dry_run: bool) -> Result<HandResult, NotCallable> {
        self.registered(&call.tool)?;
        let pack = self.shared.packs.current().await;
        let surface = self.surface(&pack);
        let tool = surface.find(&call.tool).map_err(|_| {
            NotCallable::NotOffered(not_offered(&call.tool, offer(&pack, &surface, &call.tool)))
        })?;
        let arguments = as_object(call.arguments).map_err(NotCallable::Arguments)?;
        let request = self.request(HandCall { arguments, ..call });
        let tools = Arc::clone(&self.shared.options.tools);
        // The same for a dry run: it tells what the call would meet.
        let against = |decision: &Decision| {
            objection(&*tools, &request, decision).or_else(|| {
                let at_client = matches!(tool.runs, Runs::AtClient { .. });
                at_client.then(client_required)
            })
        };
        let begun = Instant::now();
        let explanation = tools.explain(&request, &BTreeMap::new()).await;
        let mut result = HandResult {
            tool: request.tool.clone(),
            handler: tool.handler.clone(),
            dry_run,
            outcome: None,
            is_error: false,
            content: None,
            reason: None,
            status: None,
            attempts: 0,
            duration_ms: 0,
            explanation: explanation.clone().masked(),
            request: None,
        };
        if dry_run {
            if let Some(objection) = against(&explanation.decision) {
                result.objected(objection);
                return Ok(result);
            }
            match tools.preview(&request, &explanation).await {
                Ok(preview) => result.request = preview,
                Err(answer) => result.objected(Objection {
                    outcome: CallOutcome::Refused,
                    answer,
                }),
            }
            return Ok(result);
        }
        // Decided anew and not by the explanation: what is sent is what was logged as decided.
        let decision = tools.decide(&request).await;
        result.explanation.decision = decision.clone().masked();
        if let Some(objection) = against(&decision) {
            result.objected(objection);
            return Ok(result);
        }
        let answer = tools.execute(&request, &decision).await;
        let outcome = match answer.is_error {
            true => CallOutcome::Failed,
            false => CallOutcome::Succeeded,
        };
        result.objected(Objection { outcome, answer });
        result.duration_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(result)
    }

    fn surface(&self, pack: &LoadedPack) -> Surface {
        let options = &self.shared.options;
        Surface::new(
            pack,
            &self.shared.model,
            options.tools.tools(),
            options.surface_unlisted_tools,
        )
    }

    /// Whether the registry has the tool.
    fn registered(&self, tool: &str) -> Result<(), NotCallable> {
        let tools = self.shared.options.tools.tools();
        if tools.iter().any(|known| known.name == tool) {
            return Ok(());
        }
        Err(NotCallable::Unknown {
            tool: mainstay_telemetry::text::escape(tool, 64),
            alike: alike(tool, &tools),
        })
    }

    fn request(&self, call: HandCall) -> ToolRequest {
        let options = &self.shared.options;
        ToolRequest {
            call_id: "by-hand".to_owned(),
            tool: call.tool,
            arguments: call.arguments,
            session: options.random.uuid().to_string(),
            turn: options.random.uuid().to_string(),
            caller: call.caller,
            provider: self.shared.model.name.clone(),
            model: self.shared.model.model_name.clone(),
        }
    }
}

impl HandResult {
    fn objected(&mut self, objection: Objection) {
        let Objection { outcome, answer } = objection;
        self.outcome = Some(outcome);
        self.is_error = answer.is_error;
        self.content = Some(answer.content);
        self.reason = answer.reason;
        self.status = answer.status;
        self.attempts = answer.attempts;
    }
}

/// A tool that the connected client runs: a call by hand has none.
fn client_required() -> Objection {
    Objection {
        outcome: CallOutcome::Refused,
        answer: ToolAnswer {
            content: "the tool runs in the client of a conversation; `mainstay chat` is one".to_owned(),
            is_error: true,
            reason: Some("ClientRequired".to_owned()),
            ..ToolAnswer::default()
        },
    }
}

fn offer(pack: &LoadedPack, surface: &Surface, tool: &str) -> Offer {
    if surface.find(tool).is_ok() {
        return Offer::Yes;
    }
    match pack.allowlist.admission(tool) {
        Admission::Offered => Offer::NoTools,
        Admission::Blocked => Offer::Blocked,
        Admission::NotListed => Offer::NotListed,
    }
}

fn not_offered(tool: &str, offer: Offer) -> String {
    let why = match offer {
        Offer::Blocked => "the prompt's `tool_policy.blocklist` takes it back",
        Offer::NoTools => "its prompt or its model takes no tools",
        Offer::Yes | Offer::NotListed => "the prompt's `tools` do not list it",
    };
    format!("the agent is not offered tool `{tool}`: {why}")
}

/// The names that are most like `name`, the likeliest first.
fn alike(name: &str, tools: &[RegistryTool]) -> Vec<String> {
    let mut scored: Vec<(f64, &str)> = tools
        .iter()
        .map(|tool| (strsim::jaro_winkler(name, &tool.name), tool.name.as_str()))
        .filter(|(score, _)| *score >= ALIKE)
        .collect();
    scored.sort_by(|left, right| right.0.total_cmp(&left.0));
    scored
        .into_iter()
        .take(PROPOSALS)
        .map(|(_, name)| name.to_owned())
        .collect()
}
