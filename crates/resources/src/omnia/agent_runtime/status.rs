//! What the controller reports about an agent (OM-152 … OM-161).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rollout::RolloutStatus;
use crate::{enumeration::enumeration, schemas};

enumeration! {
    /// Phase of an AgentRuntime (OM-152, OM-257).
    Phase {
        /// Waits for something that exists, or for its first ready pod.
        Pending = "Pending",
        /// At least one pod is ready.
        Running = "Running",
        /// Something it refers to is missing or wrong.
        Failed = "Failed",
    }
}

/// State of an AgentRuntime as last seen by its controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentRuntimeStatus {
    /// Pending, Running or Failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Pods of the workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<Replicas>,
    /// Pack version of the stable workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_version: Option<String>,
    /// host:port at which the agent's facade can be reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_endpoint: Option<String>,
    /// Listeners for the management plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub management_endpoints: Option<ManagementEndpoints>,
    /// State of the a2a facade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub a2a: Option<A2aStatus>,
    /// Addresses of the facades.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facade: Option<FacadeStatus>,
    /// Progress of a rollout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutStatus>,
    /// Capabilities that the runtime reported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runtime_capabilities: Vec<String>,
    /// Aspects of the current state, by type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::conditions")]
    pub conditions: Vec<Condition>,
    /// The metadata.generation that was last reconciled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// Pods of a workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Replicas {
    /// Wanted.
    #[serde(default)]
    pub desired: i32,
    /// Ready.
    #[serde(default)]
    pub ready: i32,
    /// Available.
    #[serde(default)]
    pub available: i32,
}

/// Listeners for the management plane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManagementEndpoints {
    /// WebSocket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ws: Option<String>,
    /// Agent to agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub a2a: Option<String>,
    /// MCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp: Option<String>,
}

/// State of the a2a facade.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct A2aStatus {
    /// Address of the agent card.
    #[serde(rename = "agentCardURL", default, skip_serializing_if = "Option::is_none")]
    pub agent_card_url: Option<String>,
    /// Address of the endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// State of the agents that this one calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<A2aClientStatus>,
}

/// State of an agent that this one calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct A2aClientStatus {
    /// Name of the client.
    pub name: String,
    /// Address found.
    #[serde(rename = "resolvedURL", default, skip_serializing_if = "Option::is_none")]
    pub resolved_url: Option<String>,
    /// Whether it can be called.
    #[serde(default)]
    pub ready: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Addresses of the facades.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FacadeStatus {
    /// One entry per address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<FacadeEndpoint>,
}

/// One address of a facade.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FacadeEndpoint {
    /// Protocol of the facade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Whole address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Scheme of the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme: Option<String>,
    /// Host of the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Path of the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Port of the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
    /// Route that serves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route_name: Option<String>,
    /// Namespace of the route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route_namespace: Option<String>,
    /// Whether it works.
    #[serde(default)]
    pub valid: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
