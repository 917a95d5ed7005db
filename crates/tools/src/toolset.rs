//! The tools of one agent: what it is offered, what it may call, and the call itself (C.1, C.2).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use mainstay_telemetry::{clock::SharedClock, random::SharedRandom};
use mainstay_workload::{Connector, FileRoot};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    arguments::ArgumentCheck,
    breaker::{Breaker, Verdict},
    config::{HandlerConfig, HandlerType, ToolsConfig},
    http::{CallContext, HttpTool},
    invocation::{FailureReason, ToolInvocation, ToolOutcome},
    policy::{Decision, DecisionRequest, Identity, PolicyEngine},
    propagation::{AgentIdentity, policy_headers, propagated},
    support::supported,
    transport::Transport,
};

/// Time a turn has besides its longest tool (OM-369).
const TURN_ALLOWANCE: Duration = Duration::from_secs(120);

/// What a toolset gets from its workload.
#[derive(Debug, Clone)]
pub struct ToolsetOptions {
    /// The way out.
    pub connector: Connector,
    /// Mounted files: credentials.
    pub files: FileRoot,
    /// Wall clock, for `Retry-After` dates.
    pub clock: SharedClock,
    /// Chance, for jitter and trace ids.
    pub random: SharedRandom,
    /// The policies in force; [`PolicyEngine::disabled`] where there is no policy engine (OM-483).
    pub policy: PolicyEngine,
    /// The agent.
    pub agent: AgentIdentity,
}

/// A tool the registry has; the prompt's list decides whether a model is offered it (OM-358).
#[derive(Debug, Clone, PartialEq)]
pub struct OfferedTool {
    /// Name the model calls it by.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The author's schema of the arguments (OM-359).
    pub parameters: Value,
    /// The handler that serves it.
    pub handler: String,
    /// Wall-clock limit of one attempt (OM-368).
    pub timeout: Duration,
    /// Who executes it.
    pub kind: ToolKind,
    /// Whether a call whose outcome is unknown after a crash may be made again.
    pub repeat_safe: bool,
}

/// Who executes a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolKind {
    /// [`Toolset::execute`] calls an HTTP endpoint.
    Http,
    /// The connected client (OM-432). A set value replaces the pack's (OM-433).
    Client {
        /// Asked before the tool runs.
        consent_message: Option<String>,
        /// Kinds of data it touches.
        categories: Option<Vec<String>>,
    },
}

/// A handler, or one of its tools, that is not offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable {
    /// The handler.
    pub handler: String,
    /// Stable word for conditions and logs.
    pub reason: &'static str,
    /// Why, for people.
    pub message: String,
}

#[derive(Debug)]
struct Tool {
    offered: OfferedTool,
    check: ArgumentCheck,
    http: Option<HttpTool>,
    breaker: Breaker,
}

/// See the [module](self). Loading never fails as a whole: one bad handler leaves the others.
#[derive(Debug)]
pub struct Toolset {
    registry: String,
    agent: AgentIdentity,
    tools: BTreeMap<String, Tool>,
    unavailable: Vec<Unavailable>,
    ceiling: Duration,
    policy: PolicyEngine,
    transport: Arc<dyn Transport>,
    files: FileRoot,
    clock: SharedClock,
    random: SharedRandom,
}

impl Toolset {
    /// Makes the tools of `config` ready. Nothing is sent and no credential is read.
    pub fn load(config: &ToolsConfig, options: ToolsetOptions) -> Self {
        let transport: Arc<dyn Transport> = Arc::new(options.connector.clone());
        Self::over(config, options, transport)
    }

    pub(crate) fn over(config: &ToolsConfig, options: ToolsetOptions, transport: Arc<dyn Transport>) -> Self {
        let mut tools: BTreeMap<String, Result<Tool, Unavailable>> = BTreeMap::new();
        let mut unavailable = Vec::new();
        for handler in &config.handlers {
            let loaded = load_tool(handler);
            if let Err(refused) = &loaded {
                tracing::warn!(
                    registry = config.registry,
                    handler = handler.name,
                    reason = refused.reason,
                    "{}",
                    refused.message
                );
                unavailable.push(refused.clone());
            }
            // An unavailable handler keeps its place too: its calls must not go to another backend
            // that happens to have a tool of the same name (OM-035).
            let Some(name) = tool_name(handler) else {
                continue;
            };
            if tools.insert(name.clone(), loaded).is_some() {
                tracing::warn!(
                    registry = config.registry,
                    tool = name,
                    handler = handler.name,
                    "several handlers have this tool; the later one serves it"
                );
            }
        }
        let longest = config.handlers.iter().map(|handler| handler.timeout).max();
        Self {
            registry: config.registry.clone(),
            agent: options.agent,
            tools: tools
                .into_iter()
                .filter_map(|(name, tool)| Some((name, tool.ok()?)))
                .collect(),
            unavailable,
            ceiling: longest.map_or(TURN_ALLOWANCE, |longest| {
                TURN_ALLOWANCE.saturating_add(longest.max(crate::config::DEFAULT_TIMEOUT))
            }),
            policy: options.policy,
            transport,
            files: options.files,
            clock: options.clock,
            random: options.random,
        }
    }

    /// Name of the ToolRegistry.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The tools that can be called, by name.
    pub fn descriptors(&self) -> Vec<OfferedTool> {
        self.tools.values().map(|tool| tool.offered.clone()).collect()
    }

    /// The tool called `name`.
    pub fn tool(&self, name: &str) -> Option<&OfferedTool> {
        self.tools.get(name).map(|tool| &tool.offered)
    }

    /// Handlers that are not served, in the registry's order.
    pub fn unavailable(&self) -> &[Unavailable] {
        &self.unavailable
    }

    /// Longest time of a turn: two minutes and the longest handler timeout (OM-369).
    pub fn ceiling(&self) -> Duration {
        self.ceiling
    }

    /// Asks the broker, once per invocation (OM-366, OM-399). The backend is not contacted.
    ///
    /// Client tools are asked about like all others (OM-493). A name the registry does not have is
    /// not, since no policy can permit it; [`Toolset::execute`] then says so to the model.
    pub fn decide(&self, invocation: &ToolInvocation) -> Decision {
        let Some(tool) = self.tools.get(&invocation.tool) else {
            return Decision {
                denied_by: Some("tool-not-offered".to_owned()),
                message: Some(not_offered(&invocation.tool)),
                ..Decision::default()
            };
        };
        let propagated = propagated(&self.agent, &self.registry, invocation, &*self.random);
        self.policy.decide(&DecisionRequest {
            registry: self.registry.clone(),
            tool: invocation.tool.clone(),
            handler: tool.offered.handler.clone(),
            body: invocation.arguments.clone(),
            headers: policy_headers(invocation, &propagated),
            identity: self.identity(&invocation.identity),
        })
    }

    fn identity(&self, caller: &Identity) -> Identity {
        let mut identity = caller.clone();
        identity.agent.clone_from(&self.agent.name);
        if identity.workspace.is_empty() {
            identity.workspace.clone_from(&self.agent.workspace);
        }
        identity
    }

    /// What ends a call before anything is sent: an unknown name, a refusal, arguments that do not
    /// match. `None` means that it may be sent. For client tools this is all there is to check before
    /// the client is asked.
    pub fn refusal(&self, invocation: &ToolInvocation, decision: &Decision) -> Option<ToolOutcome> {
        let Some(tool) = self.tools.get(&invocation.tool) else {
            let message = not_offered(&invocation.tool);
            return Some(ToolOutcome::error(FailureReason::ToolNotOffered, message));
        };
        if let Some(text) = decision.denial_text() {
            return Some(ToolOutcome::error(FailureReason::PolicyDenied, text));
        }
        let checked = tool.check.check(&invocation.arguments);
        checked
            .err()
            .map(|message| ToolOutcome::error(FailureReason::ArgumentsInvalid, message))
    }

    /// Makes the call that `decision` allows, with all its attempts. Every failure is an outcome for
    /// the model, never an error of the turn (OM-372).
    pub async fn execute(&self, invocation: &ToolInvocation, decision: &Decision) -> ToolOutcome {
        let began = Instant::now();
        let mut outcome = match self.refusal(invocation, decision) {
            Some(refused) => refused,
            None => self.send(invocation, decision).await,
        };
        outcome.duration = began.elapsed();
        tracing::info!(
            registry = self.registry,
            tool = %mainstay_telemetry::text::escape(&invocation.tool, 64),
            call = %mainstay_telemetry::text::escape(&invocation.call_id, 64),
            is_error = outcome.is_error,
            reason = ?outcome.reason,
            status = outcome.status,
            attempts = outcome.attempts,
            duration_ms = u64::try_from(outcome.duration.as_millis()).unwrap_or(u64::MAX),
            "tool call finished"
        );
        outcome
    }

    async fn send(&self, invocation: &ToolInvocation, decision: &Decision) -> ToolOutcome {
        let (Some(tool), Value::Object(arguments)) =
            (self.tools.get(&invocation.tool), &invocation.arguments)
        else {
            let message = not_offered(&invocation.tool);
            return ToolOutcome::error(FailureReason::ToolNotOffered, message);
        };
        let Some(http) = &tool.http else {
            return ToolOutcome::error(
                FailureReason::ClientRequired,
                format!(
                    "tool `{}` runs in the connected client, and there is none",
                    invocation.tool
                ),
            );
        };
        let permit = match tool.breaker.admit() {
            Ok(permit) => permit,
            Err(rest) => {
                return ToolOutcome::error(
                    FailureReason::CircuitOpen,
                    format!(
                        "tool `{}` failed several times in a row and rests for {} s",
                        invocation.tool,
                        rest.as_secs().max(1)
                    ),
                );
            }
        };
        let propagated = propagated(&self.agent, &self.registry, invocation, &*self.random);
        let context = CallContext {
            transport: &*self.transport,
            files: &self.files,
            clock: &self.clock,
            random: &self.random,
            propagated: &propagated,
            injected: &decision.injected_headers,
            cancel: &invocation.cancel,
        };
        let called = http.call(&context, arguments).await;
        permit.settle(verdict(&called.result, called.status));
        let (content, reason) = match called.result {
            Ok(content) => (content, None),
            Err(failure) => (Value::String(failure.message), Some(failure.reason)),
        };
        ToolOutcome {
            content,
            is_error: reason.is_some(),
            reason,
            attempts: called.attempts,
            duration: Duration::ZERO,
            status: called.status,
        }
    }
}

/// OM-373: an answer that refuses the call shows that the backend works.
fn verdict(result: &Result<Value, crate::http::Failure>, status: Option<u16>) -> Verdict {
    match result {
        Ok(_) => Verdict::Works,
        Err(failure) => match failure.reason {
            FailureReason::NetworkError | FailureReason::TimedOut => Verdict::Fails,
            FailureReason::HttpStatus if status.is_some_and(|status| status >= 500) => Verdict::Fails,
            FailureReason::HttpStatus | FailureReason::ResponseInvalid => Verdict::Works,
            _ => Verdict::Unknown,
        },
    }
}

fn not_offered(tool: &str) -> String {
    format!(
        "there is no tool `{}`",
        mainstay_telemetry::text::escape(tool, 64)
    )
}

fn tool_name(handler: &HandlerConfig) -> Option<String> {
    handler.tool.as_ref().map(|tool| tool.name.clone())
}

fn load_tool(handler: &HandlerConfig) -> Result<Tool, Unavailable> {
    let unavailable = |reason, message: String| Unavailable {
        handler: handler.name.clone(),
        reason,
        message,
    };
    supported(handler).map_err(|refused| unavailable(refused.reason, refused.message))?;
    let missing = |block: &str| {
        unavailable(
            "HandlerInvalid",
            format!(
                "handler `{}`: `{block}` is required for type `{}`",
                handler.name, handler.kind
            ),
        )
    };
    let definition = handler.tool.as_ref().ok_or_else(|| missing("tool"))?;
    let check = ArgumentCheck::compile(&definition.input_schema).map_err(|problem| {
        unavailable(
            "InputSchemaInvalid",
            format!(
                "handler `{}`: `tool.inputSchema` cannot be used: {problem}",
                handler.name
            ),
        )
    })?;
    let (kind, http) = if handler.kind == HandlerType::Http {
        let config = handler.http.as_ref().ok_or_else(|| missing("httpConfig"))?;
        (ToolKind::Http, Some(HttpTool::new(handler, config)))
    } else {
        let client = handler.client.clone().unwrap_or_default();
        let kind = ToolKind::Client {
            consent_message: client.consent_message,
            categories: client.categories,
        };
        (kind, None)
    };
    Ok(Tool {
        offered: OfferedTool {
            name: definition.name.clone(),
            description: definition.description.clone(),
            parameters: definition.input_schema.clone(),
            handler: handler.name.clone(),
            timeout: handler.timeout,
            kind,
            repeat_safe: http.as_ref().is_some_and(HttpTool::is_repeat_safe),
        },
        check,
        http,
        breaker: Breaker::new(),
    })
}

#[cfg(test)]
mod tests;
