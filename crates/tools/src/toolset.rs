//! The tools of one agent: what it is offered, what it may call, and the call itself (C.1, C.2).
//!
//! What is offered can change while the agent runs: some handlers find out their tools in the
//! background ([`Toolset::changes`]). Each question is answered by what is known at that moment.

mod discovery;
mod inspection;
mod loading;
mod surface;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use mainstay_telemetry::{clock::SharedClock, random::SharedRandom, task};
use mainstay_workload::{Connector, FileRoot};
use serde_json::Value;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::{CancellationToken, DropGuard};

pub use self::inspection::{ListedTool, ToolListing};
use self::surface::{Publisher, Surfaces};
pub(crate) use self::{
    discovery::{Discovered, ToolSource, Undiscovered, named},
    surface::Tool,
};
use crate::{
    config::{HandlerType, ToolsConfig},
    delegation::{Delegation, DelegationRequest, DelegationSigner},
    executor::CallContext,
    http::credentials::CredentialSources,
    invocation::{FailureReason, ToolInvocation, ToolOutcome},
    openapi::SourceContext,
    policy::{Decision, PolicyEngine},
    propagation::{AgentIdentity, decision_request, propagated},
    token::AzureIdentity,
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
    /// The workload's environment, which names its cloud identity where it has one (OM-402).
    pub environment: BTreeMap<String, String>,
    /// Who signs statements about calls; without one, handlers that enable delegation cannot be called.
    pub delegation: Option<Arc<dyn DelegationSigner>>,
    /// Wall clock, for `Retry-After` dates and the life of tokens.
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
    /// [`Toolset::execute`] calls the backend.
    Backend,
    /// The connected client (OM-432). A set value replaces the pack's (OM-433).
    Client {
        /// Asked before the tool runs.
        consent_message: Option<String>,
        /// Kinds of data it touches.
        categories: Option<Vec<String>>,
    },
}

/// A handler whose tools are not offered, or may be out of date or not be all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable {
    /// The handler.
    pub handler: String,
    /// Stable word for conditions and logs.
    pub reason: &'static str,
    /// Why, for people.
    pub message: String,
}

/// See the [module](self). Loading never fails as a whole: one bad handler leaves the others.
#[derive(Debug)]
pub struct Toolset {
    registry: String,
    /// The registry's namespace.
    namespace: String,
    /// The type of each handler, by its name.
    types: BTreeMap<String, HandlerType>,
    // Handlers whose tools are found out while the agent runs.
    sources: BTreeSet<String>,
    agent: AgentIdentity,
    surfaces: Arc<Surfaces>,
    ceiling: Duration,
    policy: PolicyEngine,
    transport: Arc<dyn Transport>,
    credentials: CredentialSources,
    delegation: Option<Arc<dyn DelegationSigner>>,
    clock: SharedClock,
    random: SharedRandom,
    // Ends the tasks that find out tools.
    _tasks: DropGuard,
}

impl Toolset {
    /// Makes the tools of `config` ready. Handlers that describe themselves are asked in the background,
    /// from now on and until the toolset is dropped ([`Toolset::settled`] waits for them).
    ///
    /// # Panics
    /// With such a handler, when called outside a tokio runtime.
    pub fn load(config: &ToolsConfig, options: ToolsetOptions) -> Self {
        let transport: Arc<dyn Transport> = Arc::new(options.connector.clone());
        Self::over(config, options, transport)
    }

    pub(crate) fn over(config: &ToolsConfig, options: ToolsetOptions, transport: Arc<dyn Transport>) -> Self {
        let credentials = CredentialSources {
            cloud: Arc::new(AzureIdentity::new(
                &options.environment,
                options.files.clone(),
                Arc::clone(&transport),
                Arc::clone(&options.clock),
            )),
            files: options.files,
        };
        let context = SourceContext {
            registry: config.registry.clone(),
            transport: Arc::clone(&transport),
            connector: options.connector.clone(),
            credentials: credentials.clone(),
        };
        let mut places = Vec::new();
        let mut sources = Vec::new();
        for (index, handler) in config.handlers.iter().enumerate() {
            let (place, source) = loading::load(handler, &context);
            match (source, &place.problem) {
                (Some(source), _) => sources.push((index, source)),
                (None, Some(refused)) => tracing::warn!(
                    registry = config.registry,
                    handler = handler.name,
                    reason = refused.reason,
                    "{}",
                    refused.message
                ),
                (None, None) => {}
            }
            places.push(place);
        }
        let names = sources.iter().map(|(index, _)| *index);
        let names = names.filter_map(|index| config.handlers.get(index));
        let names = names.map(|handler| handler.name.clone()).collect();
        let surfaces = Surfaces::new(&config.registry, places);
        let cancel = CancellationToken::new();
        for (index, source) in sources {
            let publisher = Publisher {
                surfaces: Arc::clone(&surfaces),
                index,
            };
            let kept = discovery::keep(source, publisher, Arc::clone(&options.random));
            let cancel = cancel.clone();
            task::spawn("tool discovery", cancel.run_until_cancelled_owned(kept));
        }
        let longest = config.handlers.iter().map(|handler| handler.timeout).max();
        Self {
            registry: config.registry.clone(),
            namespace: config.namespace.clone(),
            types: config
                .handlers
                .iter()
                .map(|handler| (handler.name.clone(), handler.kind))
                .collect(),
            sources: names,
            agent: options.agent,
            surfaces,
            ceiling: longest.map_or(TURN_ALLOWANCE, |longest| {
                TURN_ALLOWANCE.saturating_add(longest.max(crate::config::DEFAULT_TIMEOUT))
            }),
            policy: options.policy,
            transport,
            credentials,
            delegation: options.delegation,
            clock: options.clock,
            random: options.random,
            _tasks: cancel.drop_guard(),
        }
    }

    /// Name of the ToolRegistry.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The tools that can be called now, by name.
    pub fn descriptors(&self) -> Vec<OfferedTool> {
        let surface = self.surfaces.current();
        surface.tools.values().map(|tool| tool.offered.clone()).collect()
    }

    /// The tool called `name`, as it is now.
    pub fn tool(&self, name: &str) -> Option<OfferedTool> {
        Some(self.find(name)?.offered.clone())
    }

    fn find(&self, name: &str) -> Option<Arc<Tool>> {
        self.surfaces.current().tools.get(name).map(Arc::clone)
    }

    /// Handlers that are not served, or not yet, in the registry's order.
    pub fn unavailable(&self) -> Vec<Unavailable> {
        self.surfaces.current().unavailable.clone()
    }

    /// Those of [`Toolset::unavailable`] whose backend lists its tools itself: what the backend has and the agent does
    /// not know. Only a running agent can tell (OM-327, OM-419), and a registry's status repeats it (D6).
    pub fn undiscovered(&self) -> Vec<Unavailable> {
        let mut problems = self.unavailable();
        problems.retain(|problem| self.sources.contains(&problem.handler));
        problems
    }

    /// Counts the changes of what is offered.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.surfaces.changes()
    }

    /// Returns once every handler that describes itself was asked, with or without success, or after
    /// `limit`. An agent that waits for it offers a reachable backend's tools in its first turn.
    pub async fn settled(&self, limit: Duration) {
        let mut changes = self.changes();
        // The sender lives as long as `self`, so an error is only the limit.
        let _ = tokio::time::timeout(limit, changes.wait_for(|_| !self.surfaces.current().pending)).await;
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
        let Some(tool) = self.find(&invocation.tool) else {
            return Decision {
                denied_by: Some("tool-not-offered".to_owned()),
                message: Some(not_offered(&invocation.tool)),
                ..Decision::default()
            };
        };
        self.policy.decide(&decision_request(
            &self.agent,
            &self.registry,
            &tool.offered.handler,
            invocation,
        ))
    }

    /// What ends a call before anything is sent: an unknown name, a refusal, arguments that do not
    /// match. `None` means that it may be sent. For client tools this is all there is to check before
    /// the client is asked.
    pub fn refusal(&self, invocation: &ToolInvocation, decision: &Decision) -> Option<ToolOutcome> {
        let Some(tool) = self.find(&invocation.tool) else {
            let message = not_offered(&invocation.tool);
            return Some(ToolOutcome::error(FailureReason::ToolNotOffered, message));
        };
        if let Some(text) = decision.denial_text() {
            return Some(ToolOutcome::error(FailureReason::PolicyDenied, text));
        }
        let checked = tool
            .check
            .check(&invocation.arguments)
            .and_then(|arguments| match &tool.executor {
                Some(executor) => executor.check(arguments),
                None => Ok(()),
            });
        checked
            .err()
            .map(|message| ToolOutcome::error(FailureReason::ArgumentsInvalid, message))
    }

    /// Makes the call that `decision` allows, with all its attempts. Every failure is an outcome for
    /// the model, never an error of the turn (OM-372).
    pub async fn execute(&self, invocation: &ToolInvocation, decision: &Decision) -> ToolOutcome {
        match self.refusal(invocation, decision) {
            Some(refused) => self.finished(invocation, refused, Instant::now()),
            None => self.execute_checked(invocation, decision).await,
        }
    }

    /// As [`Toolset::execute`], for a caller that has asked [`Toolset::refusal`] about this very
    /// invocation: a large schema is not evaluated a second time. The decision is obeyed all the same.
    pub async fn execute_checked(&self, invocation: &ToolInvocation, decision: &Decision) -> ToolOutcome {
        let began = Instant::now();
        let outcome = match decision.denial_text() {
            Some(text) => ToolOutcome::error(FailureReason::PolicyDenied, text),
            None => self.send(invocation, decision).await,
        };
        self.finished(invocation, outcome, began)
    }

    fn finished(&self, invocation: &ToolInvocation, mut outcome: ToolOutcome, began: Instant) -> ToolOutcome {
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

    fn delegation(&self, invocation: &ToolInvocation, handler: &str) -> Delegation<'_> {
        Delegation {
            signer: self.delegation.as_deref(),
            request: DelegationRequest {
                end_user: invocation.identity.end_user.clone(),
                agent: self.agent.name.clone(),
                namespace: self.agent.namespace.clone(),
                session: invocation.session.clone(),
                registry: format!("{}/{}", self.namespace, self.registry),
                handler: handler.to_owned(),
            },
        }
    }

    fn context<'a>(
        &'a self,
        propagated: &'a BTreeMap<String, String>,
        delegation: &'a Delegation<'a>,
        invocation: &'a ToolInvocation,
        decision: &'a Decision,
    ) -> CallContext<'a> {
        CallContext {
            transport: &*self.transport,
            credentials: &self.credentials,
            clock: &self.clock,
            random: &self.random,
            propagated,
            injected: &decision.injected_headers,
            delegation,
            cancel: &invocation.cancel,
        }
    }

    async fn send(&self, invocation: &ToolInvocation, decision: &Decision) -> ToolOutcome {
        let (Some(tool), Value::Object(arguments)) = (self.find(&invocation.tool), &invocation.arguments)
        else {
            let message = not_offered(&invocation.tool);
            return ToolOutcome::error(FailureReason::ToolNotOffered, message);
        };
        let Some(executor) = &tool.executor else {
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
        let propagated = propagated(&self.agent, &self.registry, invocation);
        let delegation = self.delegation(invocation, &tool.offered.handler);
        let context = self.context(&propagated, &delegation, invocation, decision);
        let called = executor.call(&context, arguments).await;
        permit.settle(called.verdict);
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

fn not_offered(tool: &str) -> String {
    format!(
        "there is no tool `{}`",
        mainstay_telemetry::text::escape(tool, 64)
    )
}

#[cfg(test)]
mod tests;
