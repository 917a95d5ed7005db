//! Collects what a reconcile found and turns it into the status (OM-152 … OM-161, OM-279 … OM-295). Pure.

use jiff::Timestamp;
use k8s_openapi::{api::apps::v1::Deployment, apimachinery::pkg::apis::meta::v1::Time};
use kube::ResourceExt;
use mainstay_resources::{
    condition_types,
    conditions::{ConditionStatus, NewCondition, find_condition, remove_condition, set_condition},
    names,
    omnia::{
        AgentRuntime, AgentRuntimeStatus, PromptPack,
        agent_runtime::{
            Facade, Phase, Replicas,
            status::{FacadeEndpoint, FacadeStatus},
        },
    },
    reasons,
    validation::agent_runtime::needs_provider,
};

use super::{
    apply::Failure,
    decision::{Blocked, Registry, UsableProvider},
    features::is_served,
    gather::Gathered,
    tools::Tools,
};
use crate::events::Notice;

/// What was built.
pub(super) struct Built {
    replicas: Replicas,
    version: String,
    /// Why no pod is ready, as far as a pod says it.
    cause: Option<String>,
}

impl Built {
    pub(super) fn new(deployment: &Deployment, gathered: &Gathered, cause: Option<String>) -> Self {
        let status = deployment.status.clone().unwrap_or_default();
        Self {
            replicas: Replicas {
                desired: deployment
                    .spec
                    .as_ref()
                    .and_then(|spec| spec.replicas)
                    .unwrap_or(1),
                ready: status.ready_replicas.unwrap_or(0),
                available: status.available_replicas.unwrap_or(0),
            },
            version: gathered.pack.spec.version.clone(),
            cause,
        }
    }
}

/// Every condition of an agent, except `Ready`, which each pass that writes decides.
const CONDITIONS: &[&str] = &[
    condition_types::FRAMEWORK_READY,
    condition_types::FEATURES_SUPPORTED,
    condition_types::PROMPT_PACK_READY,
    condition_types::TOOL_REGISTRY_READY,
    condition_types::PROVIDER_READY,
    condition_types::HANDLERS_SUPPORTED,
    condition_types::TOOLS_ALLOWLISTED,
    condition_types::SANDBOX_READY,
    condition_types::DEPLOYMENT_READY,
    condition_types::SERVICE_READY,
];

/// The findings of one reconcile.
pub(super) struct Report {
    before: AgentRuntimeStatus,
    new: AgentRuntimeStatus,
    /// What this pass decided, in order, one for each type. They meet the earlier ones only at the end: a condition that
    /// is decided twice must not seem to have changed in between (OM-007).
    decided: Vec<NewCondition>,
    generation: Option<i64>,
    now: Time,
    namespace: String,
    name: String,
    facades: Vec<Facade>,
    needs_provider: bool,
    front_door: Option<String>,
    /// A registry of another namespace keeps the agent from Running (OM-264).
    cross_namespace: Option<String>,
    build_failure: bool,
    notices: Vec<Notice>,
}

impl Report {
    pub(super) fn new(agent: &AgentRuntime, now: Timestamp, front_door: Option<String>) -> Self {
        let before = agent.status.clone().unwrap_or_default();
        // Set at the start, so that every write of this pass carries it, failing ones included (OM-161).
        let new = AgentRuntimeStatus {
            observed_generation: agent.metadata.generation,
            ..before.clone()
        };
        Self {
            before,
            new,
            decided: Vec::new(),
            generation: agent.metadata.generation,
            now: Time(now),
            namespace: agent.namespace().unwrap_or_default(),
            name: agent.name_any(),
            facades: agent.spec.facades.clone(),
            needs_provider: needs_provider(&agent.spec),
            front_door,
            cross_namespace: None,
            build_failure: false,
            notices: Vec::new(),
        }
    }

    fn set(&mut self, condition: NewCondition) {
        self.decided.retain(|decided| decided.kind != condition.kind);
        self.decided.push(condition);
    }

    /// The agent can be run; what of its spec has no effect is said, once for all.
    pub(super) fn without_effect(&mut self, fields: &[&str]) {
        if fields.is_empty() {
            return;
        }
        self.set(NewCondition::unmet(
            condition_types::FEATURES_SUPPORTED,
            reasons::FEATURE_NOT_SUPPORTED,
            format!(
                "these fields have no effect in this version: {}",
                fields.join(", ")
            ),
        ));
    }

    pub(super) fn pack_found(&mut self, pack: &PromptPack) {
        self.set(NewCondition::met(
            condition_types::PROMPT_PACK_READY,
            reasons::PROMPT_PACK_FOUND,
            format!("PromptPack {:?}, version {}", pack.name_any(), pack.spec.version),
        ));
    }

    pub(super) fn registry(&mut self, registry: &Registry) {
        let kind = condition_types::TOOL_REGISTRY_READY;
        match registry {
            Registry::NotReferenced => {}
            Registry::Found(registry) => self.set(NewCondition::met(
                kind,
                reasons::TOOL_REGISTRY_FOUND,
                format!("ToolRegistry {:?}", registry.name_any()),
            )),
            Registry::NotFound(message) => {
                self.set(NewCondition::unmet(
                    kind,
                    reasons::TOOL_REGISTRY_NOT_FOUND,
                    message.clone(),
                ));
            }
            Registry::CrossNamespace(message) => {
                let reason = reasons::TOOL_REGISTRY_CROSS_NAMESPACE;
                let repeated = find_condition(&self.before.conditions, kind)
                    .is_some_and(|condition| condition.reason == reason);
                if !repeated {
                    self.notices.push(Notice::warning(reason, message.clone()));
                }
                self.set(NewCondition::unmet(kind, reason, message.clone()));
                self.cross_namespace = Some(message.clone());
            }
        }
    }

    /// `mocked` says whether the agent answers from the mock in their place (OM-272).
    pub(super) fn providers_found(&mut self, providers: &[UsableProvider], mocked: bool) {
        let kind = condition_types::PROVIDER_READY;
        if !self.needs_provider {
            return;
        }
        let listed: Vec<String> = providers
            .iter()
            .map(|usable| format!("{} = {}", usable.entry.name, usable.provider.name_any()))
            .collect();
        self.set(NewCondition::met(
            kind,
            reasons::PROVIDER_FOUND,
            if mocked {
                format!(
                    "Provider(s): {}; the mock answers in their place, because of the annotation {}",
                    listed.join(", "),
                    names::MOCK_PROVIDER_ANNOTATION
                )
            } else {
                format!("Provider(s): {}", listed.join(", "))
            },
        ));
    }

    /// Conditions about the tools of a registry that was found.
    pub(super) fn tools(&mut self, tools: &Tools, sandbox_enabled: bool, unlisted: &[String]) {
        self.set(if tools.unsupported.is_empty() {
            NewCondition::met(
                condition_types::HANDLERS_SUPPORTED,
                reasons::ALL_HANDLERS_SUPPORTED,
                "every handler of the registry can be served",
            )
        } else {
            NewCondition::unmet(
                condition_types::HANDLERS_SUPPORTED,
                reasons::HANDLER_TYPE_NOT_SUPPORTED,
                format!("not offered to the model: {}", tools.unsupported.join("; ")),
            )
        });
        self.set(if unlisted.is_empty() {
            NewCondition::met(
                condition_types::TOOLS_ALLOWLISTED,
                reasons::ALL_TOOLS_LISTED,
                "every tool of the registry is listed by a prompt of the pack",
            )
        } else {
            NewCondition::unmet(
                condition_types::TOOLS_ALLOWLISTED,
                reasons::TOOLS_NOT_LISTED,
                format!(
                    "no prompt of the pack lists {}; the model is not offered them",
                    unlisted.join(", ")
                ),
            )
        });
        self.sandbox(tools, sandbox_enabled);
    }

    fn sandbox(&mut self, tools: &Tools, enabled: bool) {
        let kind = condition_types::SANDBOX_READY;
        if !tools.has_sandbox_handlers {
            // Absent.
        } else if enabled {
            self.set(NewCondition::unmet(
                kind,
                reasons::SANDBOX_NOT_SUPPORTED,
                "sandboxes are not served by this version; see HandlersSupported",
            ));
        } else {
            let handlers = tools.sandbox_not_enabled.join(", ");
            tracing::info!(namespace = %self.namespace, agent = %self.name, %handlers, "sandbox handlers left out");
            self.set(NewCondition::unmet(
                kind,
                reasons::SANDBOX_NOT_ENABLED,
                format!("spec.sandbox.enabled is not true, so these handlers are left out: {handlers}"),
            ));
        }
    }

    pub(super) fn blocked(&mut self, blocked: &Blocked) {
        if blocked.kind != condition_types::READY {
            self.set(NewCondition::unmet(
                blocked.kind,
                blocked.reason,
                blocked.message.clone(),
            ));
        }
        self.set(NewCondition::unmet(
            condition_types::READY,
            blocked.reason,
            blocked.message.clone(),
        ));
        let was = find_condition(&self.before.conditions, condition_types::READY)
            .map(|ready| ready.reason.as_str());
        let repeated = self.before.phase == Some(Phase::Failed) && was == Some(blocked.reason);
        if blocked.phase == Phase::Failed && !repeated {
            self.notices
                .push(Notice::warning(blocked.reason, blocked.message.clone()));
        }
        self.new.phase = Some(blocked.phase);
    }

    pub(super) fn built(&mut self, built: &Built) {
        self.set(NewCondition::met(
            condition_types::DEPLOYMENT_READY,
            reasons::DEPLOYMENT_CREATED,
            format!("Deployment {:?} is written", self.name),
        ));
        self.set(NewCondition::met(
            condition_types::SERVICE_READY,
            reasons::SERVICE_CREATED,
            format!("Service {:?} is written", self.name),
        ));
        let Replicas { desired, ready, .. } = built.replicas;
        let running = ready > 0 && self.cross_namespace.is_none();
        let (status, reason, message) = match (&self.cross_namespace, running) {
            (Some(message), _) => (
                ConditionStatus::False,
                reasons::TOOL_REGISTRY_CROSS_NAMESPACE,
                message.clone(),
            ),
            (None, true) => (
                ConditionStatus::True,
                reasons::RUNTIME_READY,
                format!("{ready} of {desired} pod(s) are ready"),
            ),
            (None, false) => (
                ConditionStatus::False,
                reasons::RUNTIME_NOT_READY,
                match &built.cause {
                    Some(cause) => format!("0 of {desired} pod(s) are ready; {cause}"),
                    None => format!("0 of {desired} pod(s) are ready"),
                },
            ),
        };
        self.set(NewCondition {
            kind: condition_types::READY,
            status,
            reason,
            message,
        });
        self.new.phase = Some(if running { Phase::Running } else { Phase::Pending });
        self.new.replicas = Some(built.replicas);
        self.new.active_version = Some(built.version.clone());
        self.addresses();
    }

    /// Where the agent can be reached: at the front door where there is one, else at its Service.
    fn addresses(&mut self) {
        let port = self.facades.first().map_or(
            mainstay_resources::omnia::agent_runtime::facade::port(),
            |facade| facade.port,
        );
        let Some(front_door) = &self.front_door else {
            self.new.service_endpoint = Some(format!(
                "{}.{}.svc.cluster.local:{port}",
                self.name, self.namespace
            ));
            self.new.facade = None;
            return;
        };
        self.new.service_endpoint = Some(front_door.clone());
        let (host, port) = front_door.rsplit_once(':').unwrap_or((front_door, ""));
        let path = format!("/agents/{}/{}/ws", self.namespace, self.name);
        let endpoints = self
            .facades
            .iter()
            .map(|facade| {
                if !is_served(facade) {
                    return FacadeEndpoint {
                        protocol: Some(facade.kind.to_string()),
                        valid: false,
                        reason: Some(reasons::FACADE_NOT_SUPPORTED.into()),
                        ..FacadeEndpoint::default()
                    };
                }
                FacadeEndpoint {
                    protocol: Some(facade.kind.to_string()),
                    url: Some(format!("ws://{front_door}{path}")),
                    scheme: Some("ws".into()),
                    host: Some(host.to_owned()),
                    path: Some(path.clone()),
                    port: port.parse().ok(),
                    valid: true,
                    ..FacadeEndpoint::default()
                }
            })
            .collect();
        self.new.facade = Some(FacadeStatus { endpoints });
    }

    /// Writes of the workload failed. The phase is kept (OM-257).
    pub(super) fn build_failed(&mut self, failures: &[Failure]) {
        self.build_failure = true;
        let fault = |kind| failures.iter().find(|failure| failure.condition == kind);
        for (kind, created, what) in [
            (
                condition_types::DEPLOYMENT_READY,
                reasons::DEPLOYMENT_CREATED,
                "Deployment",
            ),
            (
                condition_types::SERVICE_READY,
                reasons::SERVICE_CREATED,
                "Service",
            ),
        ] {
            self.set(match fault(kind) {
                Some(failure) => NewCondition::unmet(kind, failure.reason, failure.error.chain()),
                None => NewCondition::met(kind, created, format!("{what} {:?} is written", self.name)),
            });
        }
        if let Some(first) = failures.first() {
            self.set(NewCondition::unmet(
                condition_types::READY,
                first.reason,
                first.error.chain(),
            ));
        }
        self.new.phase.get_or_insert(Phase::Pending);
    }

    pub(super) fn has_build_failure(&self) -> bool {
        self.build_failure
    }

    /// The status, and the Events of what changed for the worse.
    pub(super) fn finish(mut self) -> (AgentRuntimeStatus, Vec<Notice>) {
        for kind in CONDITIONS {
            if !self.decided.iter().any(|decided| decided.kind == *kind) && !self.still_holds(kind) {
                remove_condition(&mut self.new.conditions, kind);
            }
        }
        for condition in std::mem::take(&mut self.decided) {
            set_condition(&mut self.new.conditions, condition, self.generation, &self.now);
        }
        (self.new, self.notices)
    }

    /// Whether a condition that this pass did not come to stays. What an earlier pass found of an input may not be true
    /// any more, and nobody could tell (OM-007, OM-258). A workload that was written is left as it is while the agent is
    /// blocked (OM-260), so that it is there stays true.
    fn still_holds(&self, kind: &str) -> bool {
        let workload = [condition_types::DEPLOYMENT_READY, condition_types::SERVICE_READY].contains(&kind);
        workload
            && find_condition(&self.before.conditions, kind)
                .is_some_and(|condition| condition.status == "True")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn agent(status: Option<AgentRuntimeStatus>) -> AgentRuntime {
        let spec = json!({ "promptPackRef": { "name": "p" }, "facades": [{}] });
        let mut agent = AgentRuntime::new("helpdesk", serde_json::from_value(spec).unwrap());
        agent.metadata.namespace = Some("default".into());
        agent.metadata.generation = Some(4);
        agent.status = status;
        agent
    }

    fn report(status: Option<AgentRuntimeStatus>) -> Report {
        Report::new(
            &agent(status),
            Timestamp::UNIX_EPOCH,
            Some("127.0.0.1:7480".into()),
        )
    }

    fn blocked(reason: &'static str, phase: Phase) -> Blocked {
        Blocked {
            kind: condition_types::PROVIDER_READY,
            reason,
            message: "m".into(),
            phase,
            retry: false,
        }
    }

    fn built(ready: i32) -> Built {
        Built {
            replicas: Replicas {
                desired: 2,
                ready,
                available: ready,
            },
            version: "1.0.0".into(),
            cause: None,
        }
    }

    fn failure(condition: &'static str, reason: &'static str) -> Failure {
        Failure {
            condition,
            reason,
            error: crate::ReconcileError::Missing { message: "m".into() },
        }
    }

    fn reason(status: &AgentRuntimeStatus, kind: &str) -> Option<String> {
        find_condition(&status.conditions, kind)
            .map(|condition| format!("{} {}", condition.status, condition.reason))
    }

    /// Everything of an earlier pass: found, judged, written.
    fn complete() -> AgentRuntimeStatus {
        let mut report = report(None);
        report.registry(&Registry::NotFound("m".into()));
        report.providers_found(&[], false);
        report.built(&built(1));
        report.finish().0
    }

    #[test]
    fn what_a_blocked_pass_did_not_judge_is_absent_om_007_om_258() {
        // The pack is missing now; nobody looked at the registry or the providers.
        let mut later = report(Some(complete()));
        later.blocked(&Blocked {
            kind: condition_types::PROMPT_PACK_READY,
            ..blocked(reasons::PROMPT_PACK_NOT_FOUND, Phase::Failed)
        });
        let (status, _) = later.finish();
        assert_eq!(
            reason(&status, "PromptPackReady").unwrap(),
            "False PromptPackNotFound"
        );
        assert_eq!(reason(&status, "Ready").unwrap(), "False PromptPackNotFound");
        for absent in ["ToolRegistryReady", "ProviderReady"] {
            assert_eq!(reason(&status, absent), None, "{absent}");
        }
        for kept in ["DeploymentReady", "ServiceReady"] {
            assert!(
                reason(&status, kept).unwrap().starts_with("True"),
                "{kept}: OM-260"
            );
        }
        // A fault of the workload that nobody looked at again is no present fault.
        let mut faulty = report(Some(complete()));
        faulty.blocked(&Blocked {
            kind: condition_types::DEPLOYMENT_READY,
            ..blocked(reasons::TOOL_AUTH_UNSUPPORTED, Phase::Failed)
        });
        let mut later = report(Some(faulty.finish().0));
        later.blocked(&blocked(reasons::PROVIDER_NOT_FOUND, Phase::Failed));
        assert_eq!(reason(&later.finish().0, "DeploymentReady"), None);
    }

    #[test]
    fn a_condition_decided_twice_in_a_pass_has_not_changed_in_between_om_007() {
        let mut first = report(None);
        first.blocked(&blocked(reasons::PROVIDER_NOT_READY, Phase::Pending));
        let (first, _) = first.finish();
        let mut second = Report::new(
            &agent(Some(first.clone())),
            Timestamp::from_second(9).unwrap(),
            None,
        );
        second.providers_found(&[], false);
        second.blocked(&blocked(reasons::PROVIDER_NOT_READY, Phase::Pending));
        assert_eq!(
            find_condition(&second.finish().0.conditions, "ProviderReady"),
            find_condition(&first.conditions, "ProviderReady")
        );
    }

    #[test]
    fn a_failed_write_is_said_of_its_own_object_and_the_agent_is_not_ready_om_282_om_283() {
        let mut report = report(Some(complete()));
        report.build_failed(&[failure(condition_types::SERVICE_READY, reasons::SERVICE_FAILED)]);
        let (status, _) = report.finish();
        assert_eq!(reason(&status, "ServiceReady").unwrap(), "False ServiceFailed");
        assert_eq!(
            reason(&status, "DeploymentReady").unwrap(),
            "True DeploymentCreated"
        );
        assert_eq!(reason(&status, "Ready").unwrap(), "False ServiceFailed");
        assert_eq!(status.phase, Some(Phase::Running), "the phase is kept (OM-257)");
    }

    #[test]
    fn an_agent_whose_pod_ends_says_why_om_284() {
        let mut report = report(None);
        let mut built = built(0);
        built.cause = Some("Pod \"p\": no".into());
        report.built(&built);
        let (status, _) = report.finish();
        let ready = find_condition(&status.conditions, "Ready").unwrap();
        assert_eq!(ready.message, "0 of 2 pod(s) are ready; Pod \"p\": no");
    }

    #[test]
    fn ready_pods_make_an_agent_running_om_255() {
        let mut running = report(None);
        running.built(&built(1));
        let (status, notices) = running.finish();
        assert_eq!(
            (status.phase, status.observed_generation),
            (Some(Phase::Running), Some(4))
        );
        assert_eq!(
            status.service_endpoint.as_deref(),
            Some("127.0.0.1:7480"),
            "OM-155"
        );
        let endpoint = &status.facade.as_ref().unwrap().endpoints[0];
        assert_eq!(
            endpoint.url.as_deref(),
            Some("ws://127.0.0.1:7480/agents/default/helpdesk/ws")
        );
        assert_eq!(
            find_condition(&status.conditions, "Ready").unwrap().reason,
            "RuntimeReady"
        );
        assert!(notices.is_empty());

        let mut waiting = report(None);
        waiting.built(&built(0));
        let (status, _) = waiting.finish();
        assert_eq!(status.phase, Some(Phase::Pending));
        let ready = find_condition(&status.conditions, "Ready").unwrap();
        assert_eq!(
            (ready.status.as_str(), ready.reason.as_str()),
            ("False", "RuntimeNotReady")
        );
    }

    #[test]
    fn a_blocked_agent_keeps_what_its_running_workload_reported_om_260() {
        let mut first = report(None);
        first.built(&built(2));
        let (running, _) = first.finish();
        let mut second = report(Some(running));
        second.blocked(&blocked(reasons::PROVIDER_NOT_READY, Phase::Pending));
        let (status, notices) = second.finish();
        assert_eq!(
            (status.phase, status.active_version.as_deref()),
            (Some(Phase::Pending), Some("1.0.0"))
        );
        assert_eq!(status.replicas.unwrap().ready, 2);
        assert_eq!(
            find_condition(&status.conditions, "ProviderReady")
                .unwrap()
                .reason,
            "ProviderNotReady"
        );
        assert_eq!(
            find_condition(&status.conditions, "Ready").unwrap().reason,
            "ProviderNotReady",
            "OM-284"
        );
        assert!(
            notices.is_empty(),
            "only a transition into Failed is an Event (OM-295)"
        );
    }

    #[test]
    fn a_transition_into_failed_is_one_event_om_295() {
        let mut first = report(None);
        first.blocked(&blocked(reasons::PROVIDER_NOT_FOUND, Phase::Failed));
        let (status, notices) = first.finish();
        assert_eq!(
            notices.iter().map(|notice| notice.reason).collect::<Vec<_>>(),
            ["ProviderNotFound"]
        );
        let mut again = report(Some(status));
        again.blocked(&blocked(reasons::PROVIDER_NOT_FOUND, Phase::Failed));
        assert!(again.finish().1.is_empty());
    }

    #[test]
    fn a_missing_registry_changes_no_phase_and_one_of_another_namespace_does_om_257_om_264() {
        let mut missing = report(None);
        missing.registry(&Registry::NotFound("m".into()));
        missing.built(&built(1));
        let (status, _) = missing.finish();
        assert_eq!(status.phase, Some(Phase::Running));
        assert_eq!(
            find_condition(&status.conditions, "ToolRegistryReady")
                .unwrap()
                .reason,
            "ToolRegistryNotFound"
        );

        let mut elsewhere = report(None);
        elsewhere.registry(&Registry::CrossNamespace("m".into()));
        elsewhere.built(&built(1));
        let (status, notices) = elsewhere.finish();
        assert_eq!(status.phase, Some(Phase::Pending));
        assert_eq!(
            find_condition(&status.conditions, "ToolRegistryReady")
                .unwrap()
                .reason,
            "ToolRegistryCrossNamespace"
        );
        assert_eq!(notices[0].reason, "ToolRegistryCrossNamespace");
    }

    #[test]
    fn without_a_registry_reference_its_conditions_are_absent_om_280() {
        let mut with = report(None);
        with.registry(&Registry::NotFound("m".into()));
        let (status, _) = with.finish();
        let mut without = report(Some(status));
        without.registry(&Registry::NotReferenced);
        assert!(find_condition(&without.finish().0.conditions, "ToolRegistryReady").is_none());
    }

    #[test]
    fn without_a_front_door_the_service_is_the_endpoint_om_155() {
        let mut report = Report::new(&agent(None), Timestamp::UNIX_EPOCH, None);
        report.built(&built(1));
        let endpoint = report.finish().0.service_endpoint;
        assert_eq!(
            endpoint.as_deref(),
            Some("helpdesk.default.svc.cluster.local:8080")
        );
    }
}
