//! ToolRegistry: handlers that expose tools to agents (OM-014 … OM-116).
//!
//! Reading order: the spec here, then [`handler`], its type blocks in [`transport`], [`retry`], [`auth`],
//! and [`sandbox`].

pub mod auth;
pub mod handler;
pub mod retry;
pub mod sandbox;
pub mod transport;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::handler::{
    ClientConfig, Delegation, Handler, HandlerType, Platform, PlatformService, ToolDefinition,
};
use crate::{enumeration::enumeration, schemas};

/// ToolRegistry defines the tool handlers that agents of its namespace can use.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "omnia.altairalabs.ai",
    version = "v1alpha1",
    kind = "ToolRegistry",
    plural = "toolregistries",
    namespaced,
    status = "ToolRegistryStatus",
    derive = "PartialEq",
    shortname = "tr",
    doc = "ToolRegistry defines the tool handlers that agents of its namespace can use.",
    printcolumn(name = "Tools", type_ = "integer", json_path = ".status.discoveredToolsCount"),
    printcolumn(name = "Policies", type_ = "integer", json_path = ".status.policyCount"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ToolRegistrySpec {
    /// Where tools come from. Each handler connects to one source and exposes one or more tools.
    // The upper bound keeps the estimated cost of the rules on handlers inside the API server's budget.
    #[schemars(schema_with = "handlers")]
    pub handlers: Vec<Handler>,
    /// Reachability probing of the handlers' endpoints. Absent means off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
    /// Per-session sandboxes that handlers can be served from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "sandboxes")]
    pub sandboxes: Vec<sandbox::Sandbox>,
}

fn handlers(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let mut schema = schemas::keyed_list::<Handler>(generator, "name");
    schema.insert("minItems".into(), 1.into());
    schema.insert("maxItems".into(), 1024.into());
    schema
}

fn sandboxes(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let mut schema = schemas::keyed_list::<sandbox::Sandbox>(generator, "name");
    schema.insert("maxItems".into(), 16.into());
    schema
}

/// Reachability probing: a TCP connection to each endpoint, on a timer.
// `enabled` has no default: a probe block that does not say whether it is on is refused (OM-106, V-10).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    /// Turns probing on.
    pub enabled: bool,
    /// How often endpoints are probed.
    #[serde(default = "probe_interval")]
    #[schemars(schema_with = "schemas::duration")]
    pub interval: String,
    /// Limit of each TCP connection attempt.
    #[serde(default = "probe_timeout")]
    #[schemars(schema_with = "schemas::duration")]
    pub timeout: String,
}

fn probe_interval() -> String {
    "60s".into()
}

fn probe_timeout() -> String {
    "5s".into()
}

enumeration! {
    /// Phase of a ToolRegistry (OM-109, OM-328).
    Phase {
        /// Not reconciled yet.
        Pending = "Pending",
        /// Every discovered tool is available.
        Ready = "Ready",
        /// Some tools are available and some are not (probing only).
        Degraded = "Degraded",
        /// A handler is invalid, or no tool is available.
        Failed = "Failed",
    }
}

enumeration! {
    /// State of one discovered tool (OM-114).
    ToolStatus {
        /// Configured, and reachable when probing is on.
        Available = "Available",
        /// The probe could not connect.
        Unavailable = "Unavailable",
        /// Not judged yet.
        Unknown = "Unknown",
    }
}

/// State of a ToolRegistry as last seen by its controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolRegistryStatus {
    /// Pending, Ready, Degraded or Failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Number of tools over all handlers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discovered_tools_count: Option<i32>,
    /// Number of ToolPolicies that select this registry. Zero means that every call is refused; absent means that
    /// no policy engine is installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_count: Option<i32>,
    /// sha256 over names, descriptions, schemas and endpoints of the tools; the tools' health does not change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_digest: Option<String>,
    /// When the handlers were last processed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::time")]
    pub last_discovery_time: Option<Time>,
    /// The tools found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub discovered_tools: Vec<DiscoveredTool>,
    /// Aspects of the current state, by type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::conditions")]
    pub conditions: Vec<Condition>,
    /// The metadata.generation that was last reconciled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// One tool of a handler.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveredTool {
    /// Name of the tool.
    pub name: String,
    /// Handler that serves it.
    pub handler_name: String,
    /// What the tool does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema of the arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::open_object")]
    pub input_schema: Option<serde_json::Value>,
    /// JSON Schema of the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::open_object")]
    pub output_schema: Option<serde_json::Value>,
    /// Where calls go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Available, Unavailable or Unknown.
    pub status: ToolStatus,
    /// When the endpoint was last probed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::time")]
    pub last_checked: Option<Time>,
    /// Why the tool is unavailable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
