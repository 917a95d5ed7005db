//! How a new version of an agent takes over (OM-146, OM-158, OM-569 … OM-573).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PromptPackRef, ProviderEntry, ToolRegistryRef, Track};
use crate::{enumeration::enumeration, schemas};

/// How a new version takes over from the stable one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// What the candidate has other than the stable version. A rollout is active while they differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate: Option<Candidate>,
    /// Steps, in order.
    #[schemars(length(min = 1))]
    pub steps: Vec<Step>,
    /// How a user stays on one version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sticky_session: Option<StickySession>,
    /// What happens when the candidate fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback: Option<Rollback>,
    /// How traffic is divided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic_routing: Option<TrafficRouting>,
    /// Starts a rollout by itself when a newer version is published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<Trigger>,
}

/// What the candidate has other than the stable version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Candidate {
    /// Prompt pack of the candidate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_pack_ref: Option<PromptPackRef>,
    /// Models of the candidate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "provider_refs")]
    pub provider_refs: Vec<ProviderEntry>,
    /// Tools of the candidate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_registry_ref: Option<ToolRegistryRef>,
}

fn provider_refs(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemas::keyed_list::<ProviderEntry>(generator, "name")
}

/// One step of a rollout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "(has(self.setWeight) ? 1 : 0) + (has(self.pause) ? 1 : 0) + (has(self.analysis) ? 1 : 0) == 1",
     "message": "a step has exactly one of setWeight, pause and analysis"}
]))]
pub struct Step {
    /// Share of the traffic for the candidate, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub set_weight: Option<i32>,
    /// Waits for a time, or for an edit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<Pause>,
    /// Judges the candidate by metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub analysis: Option<Analysis>,
}

/// A pause in a rollout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pause {
    /// How long; until an edit when unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::duration")]
    pub duration: Option<String>,
}

/// A judgement of the candidate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Analysis {
    /// Name of a RolloutAnalysis in the namespace.
    #[schemars(schema_with = "schemas::non_empty")]
    pub template_name: String,
    /// Arguments of the analysis.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<AnalysisArgument>,
}

/// An argument of an analysis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnalysisArgument {
    /// Name.
    #[schemars(schema_with = "schemas::non_empty")]
    pub name: String,
    /// Value.
    pub value: String,
}

/// How a user stays on one version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StickySession {
    /// Header whose value decides the version.
    #[schemars(schema_with = "schemas::non_empty")]
    pub hash_on: String,
}

enumeration! {
    /// Who rolls back.
    #[derive(Default)]
    RollbackMode {
        /// The controller, when the candidate fails.
        Automatic = "automatic",
        /// A person.
        #[default]
        Manual = "manual",
        /// Nobody.
        Disabled = "disabled",
    }
}

/// What happens when the candidate fails.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollback {
    /// automatic, manual or disabled.
    #[serde(default)]
    pub mode: RollbackMode,
    /// Time after a rollback in which no new rollout starts.
    #[serde(default = "cooldown")]
    #[schemars(schema_with = "schemas::duration")]
    pub cooldown: String,
}

fn cooldown() -> String {
    "5m".into()
}

enumeration! {
    /// What divides the traffic.
    TrafficRoutingMode {
        /// Mesh objects that the controller owns.
        Mesh = "mesh",
        /// The number of pods of each version.
        ReplicaWeighted = "replicaWeighted",
        /// Mesh objects that the user owns.
        External = "external",
    }
}

/// How traffic is divided.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrafficRouting {
    /// mesh, replicaWeighted or external; mesh when there is one, when unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<TrafficRoutingMode>,
    /// Settings of mode mesh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<Mesh>,
    /// Objects of mode external.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub istio: Option<Istio>,
}

/// Settings of mesh objects that the controller owns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Mesh {
    /// Hosts that are matched; the agent's own Service when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Subset of the stable version.
    #[serde(default = "stable")]
    pub stable_subset: String,
    /// Subset of the candidate.
    #[serde(default = "canary")]
    pub candidate_subset: String,
}

fn stable() -> String {
    "stable".into()
}

fn canary() -> String {
    "canary".into()
}

/// Istio objects that the user owns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Istio {
    /// VirtualService whose weights are set.
    pub virtual_service: VirtualServiceRef,
    /// DestinationRule that has the subsets.
    pub destination_rule: DestinationRuleRef,
}

/// An Istio VirtualService.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualServiceRef {
    /// Name of the object.
    #[schemars(schema_with = "schemas::non_empty")]
    pub name: String,
    /// Names of the HTTP routes to set.
    #[schemars(length(min = 1))]
    pub routes: Vec<String>,
}

/// An Istio DestinationRule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DestinationRuleRef {
    /// Name of the object.
    #[schemars(schema_with = "schemas::non_empty")]
    pub name: String,
    /// Subset of the stable version.
    #[serde(default = "stable")]
    pub stable_subset: String,
    /// Subset of the candidate.
    #[serde(default = "canary")]
    pub candidate_subset: String,
}

/// What starts a rollout by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Trigger {
    /// Channel whose newest version becomes the candidate; needs a promptPackRef with a version.
    pub prompt_pack_channel: Track,
}

/// Progress of a rollout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStatus {
    /// Whether a rollout is running.
    #[serde(default)]
    pub active: bool,
    /// Index of the current step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_step: Option<i32>,
    /// Share of the traffic for the candidate, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_weight: Option<i32>,
    /// Version of the stable workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stable_version: Option<String>,
    /// Version of the candidate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate_version: Option<String>,
    /// When the rollout began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// When the current step began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_started_at: Option<String>,
    /// What the rollout is doing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Whether the share is exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic_weight_enforced: Option<bool>,
    /// Mode in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic_routing_mode: Option<String>,
    /// Whether the candidate is becoming the stable version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promoting: Option<bool>,
}
