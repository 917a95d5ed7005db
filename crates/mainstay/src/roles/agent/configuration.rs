//! What the agent's controller told it by environment variables (OM-272) and annotations of files.

use std::time::Duration;

use mainstay_resources::names;
use mainstay_tools::policy::OnUnreachable;
use mainstay_workload::{RoleError, WorkloadContext};

use super::DRAIN;

/// The longest time an agent may drain (OM-125).
const LONGEST_DRAIN: Duration = Duration::from_secs(600);

/// What answers messages (OM-124).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandlerMode {
    /// The engine.
    Runtime,
    /// The message itself.
    Echo,
    /// A canned answer.
    Demo,
}

/// The settings of one agent.
#[derive(Clone, Debug)]
pub(super) struct Configuration {
    pub(super) namespace: String,
    pub(super) agent: String,
    pub(super) handler: HandlerMode,
    pub(super) pack_path: String,
    pub(super) tools_path: String,
    pub(super) providers_path: String,
    pub(super) client_tool_timeout: Duration,
    /// Skills that are active at a time in a session (OM-168); the engine's own default where the pack says nothing.
    pub(super) active_skills: Option<usize>,
    pub(super) session_ttl: Duration,
    pub(super) drain_timeout: Duration,
    /// What a policy decision that is not given in time means (OM-488).
    pub(super) undecided: OnUnreachable,
}

impl Configuration {
    /// Reads the environment of the workload.
    pub(super) fn read(context: &WorkloadContext) -> Result<Self, RoleError> {
        let text = |name: &str, default: &str| {
            context
                .environment
                .get(name)
                .map_or_else(|| default.to_owned(), |value| value.clone())
        };
        let duration = |name: &str, default: Duration| match context.environment.get(name) {
            None => Ok(default),
            Some(value) => mainstay_resources::duration::parse_go(value)
                .map_err(|error| RoleError::new(format!("environment variable {name}={value:?}: {error}"))),
        };
        let agent = text("OMNIA_AGENT_NAME", "");
        if agent.is_empty() {
            return Err(RoleError::new("environment variable OMNIA_AGENT_NAME is not set"));
        }
        let handler = match text("OMNIA_HANDLER_MODE", "runtime").as_str() {
            "runtime" => HandlerMode::Runtime,
            "echo" => HandlerMode::Echo,
            "demo" => HandlerMode::Demo,
            other => {
                return Err(RoleError::new(format!(
                    "environment variable OMNIA_HANDLER_MODE={other:?} is none of `runtime`, `echo`, `demo`"
                )));
            }
        };
        let undecided = match text("POLICY_BROKER_FAIL_MODE", "closed").as_str() {
            "closed" => OnUnreachable::Deny,
            "open" => OnUnreachable::Allow,
            other => {
                return Err(RoleError::new(format!(
                    "environment variable POLICY_BROKER_FAIL_MODE={other:?} is none of `closed`, `open`"
                )));
            }
        };
        let active_skills = match context.environment.get(names::ACTIVE_SKILLS_VARIABLE) {
            None => None,
            Some(value) => Some(value.parse().map_err(|error| {
                RoleError::new(format!(
                    "environment variable {}={value:?}: {error}",
                    names::ACTIVE_SKILLS_VARIABLE
                ))
            })?),
        };
        Ok(Self {
            namespace: text("OMNIA_NAMESPACE", &context.identity.namespace),
            agent,
            handler,
            pack_path: text("OMNIA_PROMPTPACK_PATH", "/etc/omnia/pack/pack.json"),
            tools_path: text("OMNIA_TOOLS_CONFIG_PATH", "/etc/omnia/tools/tools.yaml"),
            providers_path: text(
                "OMNIA_PROVIDERS_CONFIG_PATH",
                "/etc/omnia/providers/providers.yaml",
            ),
            client_tool_timeout: duration("OMNIA_CLIENT_TOOL_TIMEOUT", Duration::from_secs(60))?,
            active_skills,
            session_ttl: duration("OMNIA_CONTEXT_TTL", Duration::from_secs(24 * 60 * 60))?,
            drain_timeout: duration("OMNIA_DRAIN_TIMEOUT", DRAIN)?.min(LONGEST_DRAIN),
            undecided,
        })
    }
}
