//! How clients connect to an agent (OM-121 … OM-131).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::a2a::A2a;
use crate::{enumeration::enumeration, schemas};

enumeration! {
    /// Protocol of a facade (OM-122).
    #[derive(Default)]
    FacadeType {
        /// Conversations over a WebSocket.
        #[default]
        WebSocket = "websocket",
        /// Agent to agent.
        A2a = "a2a",
        /// Functions over HTTP.
        Rest = "rest",
        /// Functions as MCP tools.
        Mcp = "mcp",
        /// An image of the user's.
        Custom = "custom",
    }
}

enumeration! {
    /// What answers the messages of a facade (OM-124).
    #[derive(Default)]
    FacadeHandler {
        /// Repeats the input.
        Echo = "echo",
        /// Streams canned answers.
        Demo = "demo",
        /// The agent.
        #[default]
        Runtime = "runtime",
    }
}

/// One way for clients to connect.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self.type != 'custom' || has(self.image)", "message": "image is required for type custom"}
]))]
pub struct Facade {
    /// websocket, a2a, rest, mcp or custom.
    #[serde(rename = "type", default)]
    pub kind: FacadeType,
    /// Port that the facade listens on.
    #[serde(default = "port")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// echo repeats the input, demo streams canned answers, runtime is the agent.
    #[serde(default)]
    pub handler: FacadeHandler,
    /// How long open connections are served while the agent stops; at most 600s take effect.
    #[serde(default = "drain_timeout")]
    #[schemars(schema_with = "schemas::duration")]
    pub drain_timeout: String,
    /// How long the result of a tool that runs in the client is waited for.
    #[serde(default = "client_tool_timeout")]
    #[schemars(schema_with = "schemas::duration")]
    pub client_tool_timeout: String,
    /// Admits tokens of the management plane.
    #[serde(default = "enabled")]
    pub management_plane: bool,
    /// External route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expose: Option<Expose>,
    /// Image of the facade. Required for type custom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Environment variables of the facade's container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::open_objects")]
    pub extra_env: Vec<serde_json::Value>,
    /// Settings of an a2a facade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub a2a: Option<A2a>,
    /// Settings of an mcp facade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp: Option<McpFacade>,
}

/// Default port of a facade (OM-123).
#[must_use]
pub fn port() -> i32 {
    8080
}

fn drain_timeout() -> String {
    "30s".into()
}

fn client_tool_timeout() -> String {
    "60s".into()
}

fn enabled() -> bool {
    true
}

/// Request for an external route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Expose {
    /// Asks for a route.
    #[serde(default)]
    pub enabled: bool,
    /// Host name of the route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// Settings of an mcp facade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpFacade {
    /// Port of the MCP endpoint.
    #[serde(default = "mcp_port")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
}

fn mcp_port() -> i32 {
    9998
}
