//! What of an agent's spec this version acts upon. Pure.

use mainstay_resources::{
    condition_types,
    omnia::{
        AgentRuntimeSpec,
        agent_runtime::{
            ContextType, Facade, FacadeType, Phase,
            features::{FrameworkType, MediaStorageType},
        },
    },
    reasons,
};

use super::decision::Blocked;

/// Whether clients can connect by a facade.
pub(super) fn is_served(facade: &Facade) -> bool {
    facade.kind == FacadeType::WebSocket
}

/// Whether the agent can be run at all: some other engine, or only facades that are not served, would be a running
/// agent that is not what the spec says.
pub(super) fn judge(spec: &AgentRuntimeSpec) -> Result<(), Blocked> {
    let blocked = |kind, reason, message| {
        Err(Blocked {
            kind,
            reason,
            message,
            phase: Phase::Failed,
            retry: false,
        })
    };
    if let Some(framework) = &spec.framework
        && framework.kind != FrameworkType::PromptKit
    {
        return blocked(
            condition_types::FRAMEWORK_READY,
            reasons::FRAMEWORK_IMAGE_UNAVAILABLE,
            format!(
                "spec.framework.type: {} is not supported by this version; promptkit is",
                framework.kind
            ),
        );
    }
    if !spec.facades.iter().any(is_served) {
        let kinds: Vec<&str> = spec.facades.iter().map(|facade| facade.kind.as_str()).collect();
        return blocked(
            condition_types::READY,
            reasons::FACADE_NOT_SUPPORTED,
            format!(
                "spec.facades: {} is not supported by this version; websocket is",
                kinds.join(", ")
            ),
        );
    }
    Ok(())
}

/// Fields that are accepted and have no effect.
pub(super) fn without_effect(spec: &AgentRuntimeSpec) -> Vec<&'static str> {
    let media = spec.media.as_ref().and_then(|media| media.storage.as_ref());
    [
        (
            spec.facades.iter().any(|facade| !is_served(facade)),
            "spec.facades other than websocket",
        ),
        (
            spec.facades
                .iter()
                .any(|facade| facade.expose.as_ref().is_some_and(|expose| expose.enabled)),
            "spec.facades[].expose",
        ),
        (
            spec.context
                .as_ref()
                .is_some_and(|context| context.kind == ContextType::Redis),
            "spec.context.type redis",
        ),
        (
            spec.runtime
                .as_ref()
                .and_then(|runtime| runtime.autoscaling.as_ref())
                .is_some_and(|autoscaling| autoscaling.enabled),
            "spec.runtime.autoscaling",
        ),
        (
            media.is_some_and(|storage| storage.kind != MediaStorageType::None),
            "spec.media.storage",
        ),
        (
            spec.evals.as_ref().is_some_and(|evals| evals.enabled),
            "spec.evals",
        ),
        (
            spec.duplex.as_ref().is_some_and(|duplex| duplex.enabled),
            "spec.duplex",
        ),
        (spec.external_auth.is_some(), "spec.externalAuth"),
        (
            spec.memory.as_ref().is_some_and(|memory| memory.enabled),
            "spec.memory",
        ),
        (spec.privacy_policy_ref.is_some(), "spec.privacyPolicyRef"),
        (
            spec.rollout
                .as_ref()
                .is_some_and(|rollout| rollout.candidate.is_some() || rollout.trigger.is_some()),
            "spec.rollout",
        ),
        (spec.pod_overrides.is_some(), "spec.podOverrides"),
    ]
    .into_iter()
    .filter_map(|(used, field)| used.then_some(field))
    .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, json};

    use super::*;

    fn spec(extra: Value) -> AgentRuntimeSpec {
        let mut spec = json!({ "promptPackRef": { "name": "p" }, "facades": [{}] });
        spec.as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn an_ordinary_agent_is_acted_upon_as_a_whole() {
        let ordinary =
            spec(json!({ "context": {}, "runtime": { "replicas": 2 }, "framework": {}, "memory": {} }));
        assert!(judge(&ordinary).is_ok());
        assert!(without_effect(&ordinary).is_empty());
    }

    #[test]
    fn what_would_make_another_agent_is_refused_by_name() {
        let reason = |extra| judge(&spec(extra)).unwrap_err().reason;
        assert_eq!(
            reason(json!({ "framework": { "type": "langchain" } })),
            "FrameworkImageUnavailable"
        );
        assert_eq!(
            reason(json!({ "facades": [{ "type": "a2a" }] })),
            "FacadeNotSupported"
        );
        assert!(judge(&spec(json!({ "facades": [{}, { "type": "a2a" }] }))).is_ok());
    }

    #[test]
    fn what_has_no_effect_is_listed() {
        let listed = without_effect(&spec(json!({
            "facades": [{}, { "type": "a2a" }],
            "memory": { "enabled": true },
            "runtime": { "autoscaling": { "enabled": true } },
            "rollout": { "steps": [{ "setWeight": 10 }], "candidate": {} },
        })));
        assert_eq!(
            listed,
            [
                "spec.facades other than websocket",
                "spec.runtime.autoscaling",
                "spec.memory",
                "spec.rollout"
            ]
        );
    }
}
