//! The role `agent`: one AgentRuntime's conversations.
//!
//! It reads what its controller rendered into its Pod: the pack, `tools.yaml`, `providers.yaml` and the credentials beside
//! them. Its policies it follows itself, so that a change is in force with the next call.

mod configuration;
mod policies;

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use async_trait::async_trait;
use mainstay_agent::{
    Budget, Budgets, Engine, EngineMetrics, EngineOptions, Hubs, Limits, ModelEntry, PackFile, PackSource,
    budget::BudgetLimits,
    builtin,
    claims::OnlyProcess,
    tool::{NoTools, ToolRunner},
};
use mainstay_controllers::tool_registry::Reporter;
use mainstay_llm::{
    BuildContext, BuildError, Cooldowns, Model, build, build_chain,
    config::{ProviderConfig, ProvidersConfig},
};
use mainstay_server::facade::{self, FacadeMetrics, FacadeOptions};
use mainstay_store::payload::PayloadStore;
use mainstay_telemetry::{clock::SharedClock, random::SharedRandom, task, text::with_causes};
use mainstay_tools::{
    AgentIdentity, Toolset, ToolsetOptions, Unavailable, config::ToolsConfig, delegation::DelegationSigner,
    policy::PolicyEngine,
};
use mainstay_workload::{Role, RoleError, WorkloadContext, WorkloadLog};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::configuration::{Configuration, HandlerMode};

/// The name of the container port that the facade is served under.
pub(crate) const FACADE_PORT: &str = "facade";
/// How long an agent waits at its start for backends that describe their tools themselves. Those that are later are asked
/// again in the background.
const DISCOVERED_WITHIN: Duration = Duration::from_secs(5);
/// How long until a report that could not be written is tried again.
const REPORTED_AGAIN: Duration = Duration::from_secs(30);
/// How long a role may take to end when nothing says otherwise.
const DRAIN: Duration = Duration::from_secs(30);

/// What every agent of this process shares.
#[derive(Clone)]
pub(crate) struct Agent {
    /// Where conversations are kept.
    pub(crate) payload: PayloadStore,
    /// The live sessions, so that two Pods of one agent do not run one session twice.
    pub(crate) hubs: Hubs,
    /// What is known of failing model providers, so that an outage costs a few attempts and not a few per agent.
    pub(crate) cooldowns: Cooldowns,
    /// What was spent on each model provider.
    pub(crate) budgets: Budgets,
    /// Wall-clock time.
    pub(crate) clock: SharedClock,
    /// Identifiers and jitter.
    pub(crate) random: SharedRandom,
    /// Figures of all facades.
    pub(crate) metrics: FacadeMetrics,
    /// Figures of all turns.
    pub(crate) turn_metrics: EngineMetrics,
    /// Whether ToolPolicies are a kind that is served and judged by.
    pub(crate) policy_engine: bool,
    /// Signs for whom an agent calls a tool. The key is the operator's, never the agent's (OM-414).
    pub(crate) delegation: Arc<dyn DelegationSigner>,
}

#[async_trait]
impl Role for Agent {
    async fn run(&self, context: WorkloadContext) -> Result<(), RoleError> {
        let configuration = Configuration::read(&context)?;
        let policy = PolicyEngine::with_on_unreachable(configuration.undecided);
        let engine = self.engine(&configuration, &context, &policy).await?;
        let follower = if self.policy_engine && configuration.handler == HandlerMode::Runtime {
            // Nothing is judged before the policies are known: a call would be refused for want of a permit that exists.
            let feed = policies::Feed::new(&context, policy).first_list().await?;
            Some(task::spawn("policies", feed.follow(context.cancellation.clone())))
        } else {
            policy.disable();
            None
        };
        match engine.resume_open_turns().await {
            Ok(0) => {}
            Ok(count) => context
                .log
                .line(format!("continuing {count} turn(s) that were interrupted")),
            Err(error) => {
                context.log.line(format!(
                    "interrupted turns cannot be read: {}",
                    with_causes(&error)
                ));
            }
        }
        let drained = CancellationToken::new();
        let options = FacadeOptions {
            shutdown: drained.clone(),
            metrics: self.metrics.clone(),
            ..FacadeOptions::default()
        };
        let router = facade::router(engine.clone(), options);
        context
            .ports
            .serve(FACADE_PORT, router)
            .map_err(|error| RoleError::new(error.to_string()))?;
        context.log.line(format!(
            "agent {}/{} is ready",
            configuration.namespace, configuration.agent
        ));
        context.readiness.ready();
        context.cancellation.cancelled().await;
        context.readiness.not_ready("draining");
        if !engine.drain(configuration.drain_timeout).await {
            context
                .log
                .line("turns that still ran were stopped; they are continued when the agent starts again");
        }
        drained.cancel();
        if let Some(follower) = follower
            && let Err(error) = follower.await
        {
            context.log.line(format!("the watch of policies failed: {error}"));
        }
        Ok(())
    }
}

impl Agent {
    async fn engine(
        &self,
        configuration: &Configuration,
        context: &WorkloadContext,
        policy: &PolicyEngine,
    ) -> Result<Engine, RoleError> {
        let options = EngineOptions {
            namespace: configuration.namespace.clone(),
            agent: configuration.agent.clone(),
            pack: pack(configuration, context)?,
            models: self.models(configuration, context)?,
            tools: self.tools(configuration, context, policy).await?,
            journal: Arc::new(self.payload.clone()),
            hubs: self.hubs.clone(),
            claims: Arc::new(OnlyProcess),
            clock: Arc::clone(&self.clock),
            random: Arc::clone(&self.random),
            limits: Limits {
                active_skills: configuration
                    .active_skills
                    .unwrap_or(Limits::default().active_skills),
                client_tool_timeout: configuration.client_tool_timeout,
                session_ttl: configuration.session_ttl,
                ..Limits::default()
            },
            surface_unlisted_tools: false,
            metrics: self.turn_metrics.clone(),
        };
        Engine::start(options).await.map_err(|error| {
            let reason = error.reason();
            RoleError::new(format!("{reason}: {}", with_causes(&error)))
        })
    }

    fn models(
        &self,
        configuration: &Configuration,
        context: &WorkloadContext,
    ) -> Result<Vec<ModelEntry>, RoleError> {
        let builtin: Arc<dyn Model> = match configuration.handler {
            HandlerMode::Echo => Arc::new(builtin::EchoModel),
            HandlerMode::Demo => Arc::new(builtin::DemoModel),
            HandlerMode::Runtime => return self.providers(configuration, context),
        };
        Ok(vec![ModelEntry::plain("default", builtin)])
    }

    fn providers(
        &self,
        configuration: &Configuration,
        context: &WorkloadContext,
    ) -> Result<Vec<ModelEntry>, RoleError> {
        let path = &configuration.providers_path;
        let text = context
            .files
            .read_to_string(path)
            .map_err(|error| RoleError::new(error.to_string()))?;
        let providers =
            ProvidersConfig::parse(&text).map_err(|error| RoleError::new(format!("{path}: {error}")))?;
        let surroundings = BuildContext {
            connector: context.connector.clone(),
            files: context.files.clone(),
            environment: context.environment.clone(),
            clock: Arc::clone(&self.clock),
            random: Arc::clone(&self.random),
        };
        providers
            .providers
            .iter()
            .filter(|provider| provider.role == "llm")
            .map(|provider| {
                let model = self
                    .model(provider, &surroundings)
                    .map_err(|error| RoleError::new(format!("{}: {error}", error.reason())))?;
                Ok(ModelEntry {
                    budget: self.budget(provider)?,
                    ..ModelEntry::from_config(provider, model)
                })
            })
            .collect()
    }

    /// The budget of a provider. One that cannot be read is no reason to spend without one.
    fn budget(&self, provider: &ProviderConfig) -> Result<Option<Budget>, RoleError> {
        let Some(controls) = &provider.cost_controls else {
            return Ok(None);
        };
        let limits = BudgetLimits::of(controls)
            .map_err(|error| RoleError::new(format!("provider `{}`: {error}", provider.name)))?;
        let scope = format!("{}/{}", provider.namespace, provider.provider);
        Ok((!limits.is_unlimited()).then(|| Budget {
            ledger: self.budgets.ledger(&scope),
            limits,
        }))
    }

    fn model(&self, provider: &ProviderConfig, context: &BuildContext) -> Result<Arc<dyn Model>, BuildError> {
        if provider.kind == "mock" {
            // What its scenario says is what happens: nothing is tried again or left alone.
            return build(provider, context);
        }
        build_chain(&provider.name, &[provider], context, &self.cooldowns)
    }

    async fn tools(
        &self,
        configuration: &Configuration,
        context: &WorkloadContext,
        policy: &PolicyEngine,
    ) -> Result<Arc<dyn ToolRunner>, RoleError> {
        if configuration.handler != HandlerMode::Runtime {
            return Ok(Arc::new(NoTools));
        }
        let path = &configuration.tools_path;
        let text = match context.files.read_to_string(path) {
            Ok(text) => text,
            // An agent without a registry has no file.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Arc::new(NoTools)),
            Err(error) => return Err(RoleError::new(error.to_string())),
        };
        let config = ToolsConfig::parse(&text).map_err(|error| RoleError::new(format!("{path}: {error}")))?;
        let toolset = Toolset::load(
            &config,
            ToolsetOptions {
                connector: context.connector.clone(),
                files: context.files.clone(),
                environment: context.environment.clone(),
                delegation: Some(Arc::clone(&self.delegation)),
                clock: Arc::clone(&self.clock),
                random: Arc::clone(&self.random),
                policy: policy.clone(),
                agent: AgentIdentity {
                    name: configuration.agent.clone(),
                    namespace: configuration.namespace.clone(),
                    workspace: String::new(),
                },
            },
        );
        toolset.settled(DISCOVERED_WITHIN).await;
        let toolset = Arc::new(toolset);
        let changes = toolset.changes();
        let reporter = Reporter::new(
            context.identity.client.clone(),
            &context.identity.namespace,
            &context.identity.pod,
            &configuration.agent,
            toolset.registry(),
        );
        let told = tell_problems(Arc::downgrade(&toolset), changes, context.log.clone(), reporter);
        task::spawn("tool problems", told);
        Ok(toolset)
    }
}

/// Says in the Pod's log which handlers lack what, as it changes, and in the registry's status what their backends have
/// that the agent does not know (D6), for as long as there is the toolset.
async fn tell_problems(
    toolset: Weak<Toolset>,
    mut changes: watch::Receiver<u64>,
    log: WorkloadLog,
    mut reporter: Reporter,
) {
    let mut known: Vec<Unavailable> = Vec::new();
    loop {
        let now = toolset.upgrade();
        let Some((now, undiscovered)) = now.map(|toolset| (toolset.unavailable(), toolset.undiscovered()))
        else {
            return;
        };
        for problem in now.iter().filter(|problem| !known.contains(problem)) {
            log.line(format!("{}: {}", problem.reason, problem.message));
        }
        for solved in known
            .iter()
            .filter(|solved| !now.iter().any(|problem| problem.handler == solved.handler))
        {
            log.line(format!(
                "handler `{}`: all of its tools are offered",
                solved.handler
            ));
        }
        known = now;
        let reported = reporter.report(&undiscovered).await;
        if let Err(error) = &reported {
            log.line(format!(
                "what is missing of the registry's tools cannot be reported, and is tried again: {error}"
            ));
        }
        let again = async {
            match reported {
                Ok(()) => std::future::pending().await,
                Err(_) => tokio::time::sleep(REPORTED_AGAIN).await,
            }
        };
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = again => {}
        }
    }
}

/// Where the pack comes from; `echo` and `demo` need none (OM-504).
fn pack(configuration: &Configuration, context: &WorkloadContext) -> Result<Arc<dyn PackSource>, RoleError> {
    if configuration.handler != HandlerMode::Runtime {
        return Ok(Arc::new(builtin::pack()));
    }
    let path = context
        .files
        .path(&configuration.pack_path)
        .map_err(|error| RoleError::new(format!("{}: {error}", configuration.pack_path)))?;
    Ok(Arc::new(PackFile::new(path)))
}
