//! The outcome table of an agent (OM-257, OM-258, OM-261 … OM-266). Pure.

use mainstay_agent::{LoadedPack, PackError};
use mainstay_resources::{
    condition_types,
    omnia::{
        AgentRuntimeSpec, Provider, ToolRegistry,
        agent_runtime::{Phase, ProviderEntry},
        provider::{self, ProviderRole},
    },
    pack_version::{PackCandidate, Selection},
    reasons,
    validation::agent_runtime::needs_provider,
};

/// Why nothing is built now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Blocked {
    /// Type of the condition that says so.
    pub(super) kind: &'static str,
    /// Its reason.
    pub(super) reason: &'static str,
    /// Its message.
    pub(super) message: String,
    /// Phase of the agent.
    pub(super) phase: Phase,
    /// Whether a referenced object is missing, so that the reconcile is retried (OM-244).
    pub(super) retry: bool,
}

/// What became of `promptPackRef`.
pub(super) fn judge_pack(selection: Selection<'_>) -> Result<PackCandidate, Blocked> {
    let blocked = |reason, message, phase, retry| {
        Err(Blocked {
            kind: condition_types::PROMPT_PACK_READY,
            reason,
            message,
            phase,
            retry,
        })
    };
    match selection {
        Selection::Found(pack) => Ok(pack.clone()),
        Selection::NotFound(message) => blocked(reasons::PROMPT_PACK_NOT_FOUND, message, Phase::Failed, true),
        Selection::RefInvalid(message) => {
            blocked(reasons::PROMPT_PACK_REF_INVALID, message, Phase::Failed, false)
        }
        Selection::Invalid(pack) => {
            let message = format!("PromptPack {:?} is not valid: {}", pack.name, pack.failure);
            blocked(reasons::PROMPT_PACK_INVALID, message, Phase::Failed, false)
        }
        Selection::NotReady(pack) => {
            let message = format!("PromptPack {:?} has not been validated yet", pack.name);
            blocked(reasons::PROMPT_PACK_NOT_READY, message, Phase::Pending, false)
        }
    }
}

/// Whether the content of the pack can be run (OM-561, OM-565): by the runtime's own judgement, so that an agent says what
/// its pods would only say in their logs. The content of a live pack is judged by nobody else.
pub(super) fn judge_content(pack: &str, content: &[u8]) -> Result<LoadedPack, Blocked> {
    let error = match LoadedPack::load(content) {
        Ok(loaded) => return Ok(loaded),
        Err(error) => error,
    };
    let (reason, phase, what) = match &error {
        PackError::NoPrompt(_) => (reasons::PROMPT_AMBIGUOUS, Phase::Pending, "cannot be run"),
        PackError::Guardrail { .. } => (reasons::GUARDRAIL_NOT_SUPPORTED, Phase::Pending, "cannot be run"),
        PackError::Invalid(_) | PackError::Unreadable(_) => {
            (reasons::PROMPT_PACK_INVALID, Phase::Failed, "is not valid")
        }
    };
    Err(Blocked {
        kind: condition_types::PROMPT_PACK_READY,
        reason,
        message: format!("PromptPack {pack:?} {what}: {error}"),
        phase,
        retry: false,
    })
}

/// What became of `toolRegistryRef`.
#[derive(Clone, Debug)]
pub(super) enum Registry {
    /// There is none.
    NotReferenced,
    /// It names another namespace; no tools are ever loaded from there (OM-264).
    CrossNamespace(String),
    /// It does not exist; the agent runs without tools.
    NotFound(String),
    /// It is usable whatever its phase (OM-263).
    Found(Box<ToolRegistry>),
}

/// What became of a `providerRef`.
#[derive(Clone, Debug)]
pub(super) enum ProviderLookup {
    /// It names another namespace.
    CrossNamespace,
    /// It does not exist.
    Missing,
    /// It exists, but not in the form of its kind.
    Unreadable(String),
    /// It exists.
    Found(Box<Provider>),
}

/// One entry of `spec.providers`.
#[derive(Clone, Debug)]
pub(super) struct ProviderInput {
    pub(super) entry: ProviderEntry,
    pub(super) lookup: ProviderLookup,
}

/// An entry and its usable Provider.
#[derive(Clone, Debug)]
pub(super) struct UsableProvider {
    pub(super) entry: ProviderEntry,
    pub(super) provider: Provider,
}

/// Every provider is judged; a cause of `Failed` outranks one of `Pending` (OM-258).
pub(super) fn judge_providers(
    spec: &AgentRuntimeSpec,
    inputs: &[ProviderInput],
) -> Result<Vec<UsableProvider>, Blocked> {
    if !inputs.iter().any(|input| input.entry.role == ProviderRole::Llm) && needs_provider(spec) {
        return Err(Blocked {
            kind: condition_types::PROVIDER_READY,
            reason: reasons::NO_PROVIDER_CONFIGURED,
            message: "spec.providers has no entry of role llm, and a facade's messages need one".into(),
            phase: Phase::Failed,
            retry: false,
        });
    }
    let mut usable = Vec::new();
    let mut problems = Vec::new();
    for input in inputs {
        match judge_provider(input) {
            Ok(provider) => usable.push(provider),
            Err(problem) => problems.push(problem),
        }
    }
    let Some(first) = problems
        .iter()
        .find(|problem| problem.phase == Phase::Failed)
        .or(problems.first())
        .cloned()
    else {
        return Ok(usable);
    };
    Err(Blocked {
        message: problems
            .iter()
            .map(|problem| problem.message.as_str())
            .collect::<Vec<_>>()
            .join("; "),
        retry: problems.iter().any(|problem| problem.retry),
        ..first
    })
}

fn judge_provider(input: &ProviderInput) -> Result<UsableProvider, Blocked> {
    let entry = &input.entry;
    let name = &entry.provider_ref.name;
    let blocked = |reason, phase, retry, what: String| Blocked {
        kind: condition_types::PROVIDER_READY,
        reason,
        message: format!("entry {:?}: {what}", entry.name),
        phase,
        retry,
    };
    let provider = match &input.lookup {
        ProviderLookup::CrossNamespace => {
            let namespace = entry.provider_ref.namespace.as_deref().unwrap_or_default();
            let what = format!(
                "Provider {name:?} is in namespace {namespace:?}, and other namespaces are never used"
            );
            return Err(blocked(
                reasons::PROVIDER_CROSS_NAMESPACE,
                Phase::Failed,
                true,
                what,
            ));
        }
        ProviderLookup::Missing => {
            let what = format!("Provider {name:?} does not exist");
            return Err(blocked(reasons::PROVIDER_NOT_FOUND, Phase::Failed, true, what));
        }
        ProviderLookup::Unreadable(error) => {
            let what = format!("Provider {name:?} cannot be read: {error}");
            return Err(blocked(reasons::PROVIDER_NOT_READY, Phase::Pending, false, what));
        }
        ProviderLookup::Found(provider) => provider,
    };
    if provider.spec.role != entry.role {
        let what = format!(
            "Provider {name:?} has role {}, the entry has role {}",
            provider.spec.role, entry.role
        );
        return Err(blocked(reasons::ROLE_MISMATCH, Phase::Failed, false, what));
    }
    if entry.role == ProviderRole::Llm
        && let Err(error) =
            mainstay_llm::build::supported(name, provider.spec.kind.as_str(), provider.spec.role.as_str())
    {
        return Err(blocked(
            reasons::PROVIDER_TYPE_NOT_SUPPORTED,
            Phase::Failed,
            false,
            error.to_string(),
        ));
    }
    let status = provider.status.clone().unwrap_or_default();
    // A status for an older spec says nothing about this one; the Provider's own controller is about to write it.
    let current =
        status.observed_generation.is_none() || status.observed_generation >= provider.metadata.generation;
    if status.phase != Some(provider::Phase::Ready) || !current {
        let phase = status.phase.map_or("not known yet", |phase| phase.as_str());
        let cause = status
            .conditions
            .iter()
            .find(|condition| condition.status == "False")
            .map_or_else(String::new, |condition| format!(": {}", condition.message));
        let what = format!("Provider {name:?} is not Ready, its phase is {phase}{cause}");
        return Err(blocked(reasons::PROVIDER_NOT_READY, Phase::Pending, false, what));
    }
    let lacking: Vec<&str> = entry
        .required_capabilities
        .iter()
        .filter(|wanted| !provider.spec.capabilities.contains(wanted))
        .map(|wanted| wanted.as_str())
        .collect();
    if !lacking.is_empty() {
        let what = format!("Provider {name:?} does not list {}", lacking.join(", "));
        return Err(blocked(reasons::CAPABILITY_MISMATCH, Phase::Pending, false, what));
    }
    Ok(UsableProvider {
        entry: entry.clone(),
        provider: (**provider).clone(),
    })
}

#[cfg(test)]
mod tests;
