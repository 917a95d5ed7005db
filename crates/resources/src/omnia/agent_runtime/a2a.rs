//! The agent-to-agent facade and the agents it calls (OM-130).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{enumeration::enumeration, omnia::reference::LocalName, schemas};

/// Settings of an a2a facade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct A2a {
    /// Port of the endpoint beside another facade.
    #[serde(default = "port")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// How long finished tasks are kept.
    #[serde(rename = "taskTTL", default = "task_ttl")]
    #[schemars(schema_with = "schemas::duration")]
    pub task_ttl: String,
    /// How long idle conversations are kept.
    #[serde(rename = "conversationTTL", default = "conversation_ttl")]
    #[schemars(schema_with = "schemas::duration")]
    pub conversation_ttl: String,
    /// Where tasks are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_store: Option<TaskStore>,
    /// What the agent says about itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_card: Option<AgentCard>,
    /// Agents that this one calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "clients")]
    pub clients: Vec<Client>,
}

fn port() -> i32 {
    9999
}

fn task_ttl() -> String {
    "1h".into()
}

fn conversation_ttl() -> String {
    "30m".into()
}

fn clients(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemas::keyed_list::<Client>(generator, "name")
}

enumeration! {
    /// Store of tasks.
    #[derive(Default)]
    TaskStoreType {
        /// With the agent.
        #[default]
        Memory = "memory",
        /// Redis.
        Redis = "redis",
    }
}

/// Where tasks are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskStore {
    /// memory or redis.
    #[serde(rename = "type", default)]
    pub kind: TaskStoreType,
    /// Address of the Redis server.
    #[serde(rename = "redisURL", default, skip_serializing_if = "Option::is_none")]
    pub redis_url: Option<String>,
    /// Secret whose key url holds the address; wins over redisURL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redis_secret_ref: Option<LocalName>,
}

/// What an agent says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentCard {
    /// Name shown.
    #[schemars(schema_with = "schemas::non_empty")]
    pub name: String,
    /// What the agent does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Version of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Who provides the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub organization: Option<String>,
    /// What the agent can be asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<AgentSkill>,
    /// Protocol features.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<AgentCapabilities>,
    /// Content types of input.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub default_input_modes: Vec<String>,
    /// Content types of output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub default_output_modes: Vec<String>,
}

/// Something an agent can be asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentSkill {
    /// Identifier of the skill.
    #[schemars(schema_with = "schemas::non_empty")]
    pub id: String,
    /// Name shown.
    #[schemars(schema_with = "schemas::non_empty")]
    pub name: String,
    /// What it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Keywords.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Example requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
}

/// Protocol features of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentCapabilities {
    /// Streams its answers.
    #[serde(default)]
    pub streaming: bool,
    /// Sends push notifications.
    #[serde(default)]
    pub push_notifications: bool,
}

/// An agent that this one calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.agentRuntimeRef) != has(self.url)", "message": "a client has exactly one of agentRuntimeRef and url"}
]))]
pub struct Client {
    /// Name of the client.
    #[schemars(schema_with = "schemas::non_empty")]
    pub name: String,
    /// An AgentRuntime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_runtime_ref: Option<AgentRuntimeRef>,
    /// Endpoint of another agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Offers the other agent's skills as tools.
    #[serde(default)]
    pub expose_as_tools: bool,
    /// Authentication to the other agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authentication: Option<ClientAuthentication>,
}

/// An AgentRuntime.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentRuntimeRef {
    /// Name of the agent.
    #[schemars(schema_with = "schemas::non_empty")]
    pub name: String,
    /// Namespace of the agent; this one's when unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Authentication to another agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClientAuthentication {
    /// Secret whose key token holds a bearer token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalName>,
}
