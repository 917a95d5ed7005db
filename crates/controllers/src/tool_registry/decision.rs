//! What a registry's status says (OM-323 … OM-344). Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mainstay_resources::{
    condition_types,
    conditions::{ConditionStatus, NewCondition, remove_condition, set_condition},
    discovery,
    omnia::{
        ToolRegistry, ToolRegistrySpec, ToolRegistryStatus,
        tool_registry::{DiscoveredTool, Phase, ToolStatus},
    },
    reasons,
    validation::{self, tool_registry::CallRules},
};
use mainstay_workload::address::{self, Rule};
use url::Url;

use super::{ProbeResults, report::Problem, sandboxes};

/// What the handlers give, before anything is probed.
pub(super) struct Discovery {
    /// Faults of handlers in one line, or empty.
    errors: String,
    handlers: usize,
    /// Tools of the handlers without a fault.
    pub(super) tools: Vec<DiscoveredTool>,
}

/// The rules of those who make the calls, in words for a condition.
pub(crate) struct RuntimeRules;

impl CallRules for RuntimeRules {
    /// The connector's (OM-325). Private addresses, loopback and names inside the cluster are allowed.
    fn refused_host(&self, url: &Url) -> Option<String> {
        let refusal = address::refused_url_host(url, true)?;
        let what = match refusal.rule {
            Rule::MetadataName => "a cloud metadata service",
            Rule::LinkLocal | Rule::MetadataAddress => "a link-local or cloud metadata address",
            Rule::ManyReceivers => "a multicast or broadcast address",
            Rule::Private => "a private or loopback address",
        };
        Some(format!("host {} is {what}", refusal.address))
    }

    fn mapping_fault(&self, expression: &str) -> Option<String> {
        mainstay_tools::support::mapping_fault(expression)
    }
}

pub(super) fn discover(spec: &ToolRegistrySpec) -> Discovery {
    let verdict = validation::tool_registry::validate(spec, &RuntimeRules);
    Discovery {
        errors: verdict.message(),
        handlers: verdict.valid.len(),
        tools: discovery::discover(&verdict.valid),
    }
}

/// Writes what a probe found into the tools. A tool whose endpoint was not probed has no address and stays available
/// (OM-330).
pub(super) fn apply_probe(tools: &mut [DiscoveredTool], results: &ProbeResults, now: Timestamp) {
    for tool in tools {
        let Some(result) = tool.endpoint.as_ref().and_then(|endpoint| results.get(endpoint)) else {
            continue;
        };
        tool.last_checked = Some(Time(now));
        match result {
            Ok(()) => tool.status = ToolStatus::Available,
            Err(error) => {
                tool.status = ToolStatus::Unavailable;
                tool.error = Some(error.clone());
            }
        }
    }
}

fn phase(discovery: &Discovery) -> Phase {
    let available = discovery
        .tools
        .iter()
        .filter(|tool| tool.status == ToolStatus::Available)
        .count();
    if !discovery.errors.is_empty() || available == 0 {
        Phase::Failed
    } else if available == discovery.tools.len() {
        Phase::Ready
    } else {
        Phase::Degraded
    }
}

/// What other objects say about a registry.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Names of the policies that select it, or `None` without a policy engine.
    pub(super) policies: Option<Vec<String>>,
    /// What its handlers lack in running agents, and in which.
    pub(super) missing: Vec<(Problem, Vec<String>)>,
}

/// The whole status.
pub(super) fn status(
    registry: &ToolRegistry,
    discovery: Discovery,
    told: &Told,
    now: Timestamp,
) -> ToolRegistryStatus {
    let policies = told.policies.as_deref();
    let mut status = registry.status.clone().unwrap_or_default();
    let generation = registry.metadata.generation;
    let time = Time(now);
    let phase = phase(&discovery);
    let mut conditions = std::mem::take(&mut status.conditions);
    let mut set = |condition: NewCondition| set_condition(&mut conditions, condition, generation, &time);

    set(ready(&discovery, phase));
    set(degraded(&discovery, phase));
    set(handlers_valid(&discovery));
    set(tools_discovered(&discovery));
    if let Some(names) = policies {
        set(policy_bound(names));
    }
    if !told.missing.is_empty() {
        set(tools_listed(&told.missing));
    }
    let about_sandboxes = sandboxes::conditions(&registry.spec);
    for condition in about_sandboxes.values().flatten() {
        set(condition.clone());
    }
    // A condition that does not apply is absent, not Unknown (OM-007).
    if policies.is_none() {
        remove_condition(&mut conditions, condition_types::POLICY_BOUND);
    }
    if told.missing.is_empty() {
        remove_condition(&mut conditions, condition_types::TOOLS_LISTED);
    }
    for (kind, condition) in about_sandboxes {
        if condition.is_none() {
            remove_condition(&mut conditions, kind);
        }
    }

    ToolRegistryStatus {
        phase: Some(phase),
        discovered_tools_count: i32::try_from(discovery.tools.len()).ok(),
        // Zero is written: it is the value to look for (OM-111).
        policy_count: policies.and_then(|names| i32::try_from(names.len()).ok()),
        content_digest: Some(discovery::content_digest(&discovery.tools)),
        last_discovery_time: Some(time),
        discovered_tools: discovery.tools,
        conditions,
        observed_generation: generation,
    }
}

fn ready(discovery: &Discovery, phase: Phase) -> NewCondition {
    let kind = condition_types::READY;
    if !discovery.errors.is_empty() {
        return NewCondition::unmet(kind, reasons::VALIDATION_FAILED, discovery.errors.clone());
    }
    match phase {
        // Some tools can be called (DD-19).
        Phase::Ready | Phase::Degraded => NewCondition::met(
            kind,
            reasons::TOOLS_DISCOVERED,
            "handlers are valid and tools are available",
        ),
        Phase::Failed | Phase::Pending => {
            NewCondition::unmet(kind, reasons::NO_TOOLS_AVAILABLE, "no tool is available")
        }
    }
}

fn degraded(discovery: &Discovery, phase: Phase) -> NewCondition {
    let kind = condition_types::DEGRADED;
    if phase != Phase::Degraded {
        return NewCondition::unmet(
            kind,
            reasons::ALL_TOOLS_AVAILABLE,
            format!("the phase is {phase}"),
        );
    }
    let unavailable: Vec<&str> = discovery
        .tools
        .iter()
        .filter(|tool| tool.status == ToolStatus::Unavailable)
        .map(|tool| tool.name.as_str())
        .collect();
    NewCondition::met(
        kind,
        reasons::SOME_TOOLS_UNAVAILABLE,
        format!(
            "{} of {} tool(s) cannot be reached: {}",
            unavailable.len(),
            discovery.tools.len(),
            unavailable.join(", ")
        ),
    )
}

fn handlers_valid(discovery: &Discovery) -> NewCondition {
    let kind = condition_types::HANDLERS_VALID;
    if discovery.errors.is_empty() {
        NewCondition::met(
            kind,
            reasons::HANDLERS_VALID,
            format!("{} handler(s) are valid", discovery.handlers),
        )
    } else {
        NewCondition::unmet(kind, reasons::VALIDATION_FAILED, discovery.errors.clone())
    }
}

fn tools_discovered(discovery: &Discovery) -> NewCondition {
    let message = format!(
        "Discovered {} tool(s) from {} handler(s)",
        discovery.tools.len(),
        discovery.handlers
    );
    let (status, reason) = if discovery.tools.is_empty() {
        (ConditionStatus::False, reasons::NO_TOOLS_DISCOVERED)
    } else {
        (ConditionStatus::True, reasons::TOOLS_DISCOVERED)
    };
    NewCondition {
        kind: condition_types::TOOLS_DISCOVERED,
        status,
        reason,
        message,
    }
}

/// D6: what cannot be listed in full is not only said in the logs of Pods.
fn tools_listed(missing: &[(Problem, Vec<String>)]) -> NewCondition {
    let told: Vec<String> = missing
        .iter()
        .map(|(problem, agents)| {
            format!(
                "{}: {} (agent {})",
                problem.reason,
                problem.message,
                agents.join(", ")
            )
        })
        .collect();
    NewCondition::unmet(
        condition_types::TOOLS_LISTED,
        reasons::TOOLS_MISSING,
        told.join("; "),
    )
}

fn policy_bound(names: &[String]) -> NewCondition {
    let kind = condition_types::POLICY_BOUND;
    if names.is_empty() {
        NewCondition::unmet(
            kind,
            reasons::NO_POLICY_SELECTS_REGISTRY,
            "no ToolPolicy selects this registry; the policy broker denies by default, so it refuses every call",
        )
    } else {
        NewCondition::met(
            kind,
            reasons::POLICY_SELECTS_REGISTRY,
            format!("selected by {} ToolPolicy(s): [{}]", names.len(), names.join(" ")),
        )
    }
}

/// Conditions that may not apply, by type.
pub(super) type Optional = BTreeMap<&'static str, Option<NewCondition>>;

#[cfg(test)]
mod tests;
