//! AgentRuntime: one agent, what it speaks with and how it is served (OM-117 … OM-161).
//!
//! The spec is here; [`facade`] is how clients connect, [`runtime`] how it is deployed, [`rollout`] how a new
//! version takes over, [`features`] the optional blocks, [`status`] what the controller reports.

pub mod a2a;
pub mod facade;
pub mod features;
pub mod rollout;
pub mod runtime;
pub mod status;

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    facade::{Facade, FacadeHandler, FacadeType},
    rollout::Rollout,
    runtime::Runtime,
    status::{AgentRuntimeStatus, Phase, Replicas},
};
use super::{
    provider::{Capability, ProviderRole},
    reference::{ConnectionBinding, LocalName},
};
use crate::{enumeration::enumeration, schemas};

/// AgentRuntime is an agent that clients can talk to.
// Rules: OM-118, OM-119 (function mode), OM-121 (facades per mode).
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "omnia.altairalabs.ai",
    version = "v1alpha1",
    kind = "AgentRuntime",
    plural = "agentruntimes",
    namespaced,
    status = "AgentRuntimeStatus",
    derive = "PartialEq",
    shortname = "agent",
    shortname = "ar",
    doc = "AgentRuntime is an agent that clients can talk to.",
    scale(
        spec_replicas_path = ".spec.runtime.replicas",
        status_replicas_path = ".status.replicas.desired"
    ),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.replicas.ready"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.activeVersion"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self.mode != 'agent' || self.facades.all(facade, facade.type in ['websocket', 'a2a', 'custom'])",
     "message": "mode agent takes facades of type websocket, a2a and custom"},
    {"rule": "self.mode != 'function' || self.facades.all(facade, facade.type in ['rest', 'mcp'])",
     "message": "mode function takes facades of type rest and mcp"},
    {"rule": "self.mode != 'function' || self.facades.exists_one(facade, facade.type == 'rest')",
     "message": "mode function needs exactly one facade of type rest"},
    {"rule": "self.mode != 'function' || (has(self.inputSchema) && has(self.outputSchema))",
     "message": "inputSchema and outputSchema are required in mode function"},
    {"rule": "self.mode != 'agent' || (!has(self.inputSchema) && !has(self.outputSchema))",
     "message": "inputSchema and outputSchema are not permitted in mode agent"},
    {"rule": "self.mode != 'agent' || !has(self.outputFormat)",
     "message": "outputFormat is only for mode function"}
]))]
pub struct AgentRuntimeSpec {
    /// agent for conversations, function for one structured call per request.
    #[serde(default)]
    pub mode: AgentMode,
    /// JSON Schema of a function's input. Required in mode function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::open_object")]
    pub input_schema: Option<serde_json::Value>,
    /// JSON Schema of a function's output. Required in mode function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::open_object")]
    pub output_schema: Option<serde_json::Value>,
    /// How a function's output is asked for: text, json or json_schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_format: Option<OutputFormat>,
    /// The prompt pack, and which of its versions.
    pub prompt_pack_ref: PromptPackRef,
    /// How clients connect. At most one of each type.
    #[schemars(schema_with = "facades")]
    pub facades: Vec<Facade>,
    /// The tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_registry_ref: Option<ToolRegistryRef>,
    /// Where the working state of conversations is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Context>,
    /// How the agent is deployed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<Runtime>,
    /// The models, by entry name. The entry called default, else the first of role llm, answers prompts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "providers")]
    pub providers: Vec<ProviderEntry>,
    /// Engine that runs the pack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub framework: Option<features::Framework>,
    /// Media files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media: Option<features::Media>,
    /// Evaluation of sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evals: Option<features::Evals>,
    /// Settings of the dashboard's console.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub console: Option<features::Console>,
    /// Speech in both directions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplex: Option<features::Duplex>,
    /// Authentication of clients outside the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_auth: Option<features::ExternalAuth>,
    /// Memory across sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<features::Memory>,
    /// Service group of the Workspace.
    #[serde(default = "service_group")]
    #[schemars(schema_with = "schemas::name")]
    pub service_group: String,
    /// SessionPrivacyPolicy of this agent's sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub privacy_policy_ref: Option<LocalName>,
    /// How a new version takes over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
    /// Merged into the pods. Has no effect where agents run inside the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::open_object")]
    pub pod_overrides: Option<serde_json::Value>,
    /// Annotations added to the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra_pod_annotations: BTreeMap<String, String>,
    /// Use of the registry's sandboxes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<AgentSandbox>,
}

fn service_group() -> String {
    "default".into()
}

fn facades(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let mut schema = schemas::keyed_list::<Facade>(generator, "type");
    schema.insert("minItems".into(), 1.into());
    schema.insert("maxItems".into(), 4.into());
    schema
}

fn providers(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemas::keyed_list::<ProviderEntry>(generator, "name")
}

enumeration! {
    /// What kind of service an agent is (OM-117).
    #[derive(Default)]
    AgentMode {
        /// Conversations.
        #[default]
        Agent = "agent",
        /// One structured call per request.
        Function = "function",
    }
}

enumeration! {
    /// How a function's output is asked for (OM-119).
    OutputFormat {
        /// Free text.
        Text = "text",
        /// JSON of any shape.
        Json = "json",
        /// JSON of the output schema's shape.
        JsonSchema = "json_schema",
    }
}

enumeration! {
    /// Channel of pack versions (OM-120, OM-306).
    #[derive(Default)]
    Track {
        /// Versions without a pre-release part.
        #[default]
        Stable = "stable",
        /// All versions.
        Prerelease = "prerelease",
    }
}

/// A prompt pack, by version or by channel. With neither, the stable channel is followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!has(self.version) || !has(self.track)", "message": "version and track cannot be combined"}
]))]
pub struct PromptPackRef {
    /// spec.packName of the pack; not the name of a PromptPack object.
    #[schemars(schema_with = "schemas::non_empty")]
    pub name: String,
    /// Version to stay on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Channel to follow: stable or prerelease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub track: Option<Track>,
}

/// A ToolRegistry of the agent's namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolRegistryRef {
    /// Name of the registry.
    #[schemars(schema_with = "schemas::non_empty")]
    pub name: String,
    /// Must be the agent's own namespace when set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

enumeration! {
    /// Store of working conversation state (OM-133).
    #[derive(Default)]
    ContextType {
        /// With the agent.
        #[default]
        Memory = "memory",
        /// Redis.
        Redis = "redis",
    }
}

/// Where the working state of conversations is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self.type != 'redis' || has(self.storeRef)", "message": "storeRef is required for type redis"}
]))]
pub struct Context {
    /// memory or redis.
    #[serde(rename = "type", default)]
    pub kind: ContextType,
    /// Secret whose key url holds the store's address. Required for redis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_ref: Option<LocalName>,
    /// How long the state of an idle conversation is kept.
    #[serde(default = "context_ttl")]
    #[schemars(schema_with = "schemas::duration")]
    pub ttl: String,
}

fn context_ttl() -> String {
    "24h".into()
}

/// A model under the name that the agent knows it by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProviderEntry {
    /// Name of the entry.
    #[schemars(schema_with = "schemas::name")]
    pub name: String,
    /// The Provider.
    pub provider_ref: ProviderRef,
    /// What the entry is used for; the Provider must have the same role.
    #[serde(default)]
    pub role: ProviderRole,
    /// Capabilities that the Provider must list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required_capabilities: Vec<Capability>,
}

/// A Provider of the agent's namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProviderRef {
    /// Name of the Provider.
    #[schemars(schema_with = "schemas::non_empty")]
    pub name: String,
    /// Must be the agent's own namespace when set; another one is never followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Use of the registry's sandboxes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentSandbox {
    /// Serves the registry's sandbox handlers.
    #[serde(default)]
    pub enabled: bool,
    /// Sandboxes that one session may hold over all sandboxes. Absent means no further limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_per_session: Option<i32>,
    /// Connections for the roles of the sandboxes' classes, in place of the registry's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connections: Vec<ConnectionBinding>,
}
