//! One handler of a registry (OM-020 … OM-039, OM-089 … OM-091).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    auth::Auth,
    sandbox::HandlerSandbox,
    transport::{GrpcConfig, HttpConfig, McpConfig, OpenApiConfig},
};
use crate::{enumeration::enumeration, schemas};

enumeration! {
    /// Kind of tool source a handler connects to.
    HandlerType {
        /// HTTP endpoint with a declared tool.
        Http = "http",
        /// gRPC service with a declared tool.
        Grpc = "grpc",
        /// MCP server; tools are listed at run time.
        Mcp = "mcp",
        /// OpenAPI document; operations become tools at run time.
        OpenApi = "openapi",
        /// Tool that runs in the connected client.
        Client = "client",
        /// Tools served by the operator itself.
        Platform = "platform",
    }
}

impl HandlerType {
    /// The field of the handler that configures this type.
    #[must_use]
    pub fn block(self) -> Option<&'static str> {
        match self {
            HandlerType::Http => Some("httpConfig"),
            HandlerType::Grpc => Some("grpcConfig"),
            HandlerType::Mcp => Some("mcpConfig"),
            HandlerType::OpenApi => Some("openAPIConfig"),
            HandlerType::Client => None,
            HandlerType::Platform => Some("platform"),
        }
    }

    /// Whether the manifest must declare the tool (OM-017, OM-022).
    #[must_use]
    pub fn needs_tool(self) -> bool {
        matches!(self, HandlerType::Http | HandlerType::Grpc | HandlerType::Client)
    }
}

/// A source of tools. Its address lives inside the block of its type.
// The rules are those that the reference attributes to the CRD (OM-031, OM-034, OM-043, OM-068, OM-072, OM-073,
// OM-103). A missing type block or tool definition is not among them: the controller reports it (OM-033).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!has(self.platform) || self.type == 'platform'",
     "message": "platform is only for handlers of type platform"},
    {"rule": "self.type != 'platform' || !has(self.auth)",
     "message": "auth is not permitted on a platform handler"},
    {"rule": "self.type != 'platform' || !has(self.clientConfig)",
     "message": "clientConfig is not permitted on a platform handler"},
    {"rule": "self.type != 'platform' || !has(self.delegation)",
     "message": "delegation is not permitted on a platform handler, whose calls always carry a delegation token"},
    {"rule": "self.type != 'platform' || !has(self.grpcConfig)",
     "message": "grpcConfig is not permitted on a platform handler"},
    {"rule": "self.type != 'platform' || !has(self.httpConfig)",
     "message": "httpConfig is not permitted on a platform handler"},
    {"rule": "self.type != 'platform' || !has(self.mcpConfig)",
     "message": "mcpConfig is not permitted on a platform handler"},
    {"rule": "self.type != 'platform' || !has(self.openAPIConfig)",
     "message": "openAPIConfig is not permitted on a platform handler"},
    {"rule": "self.type != 'platform' || !has(self.sandbox)",
     "message": "sandbox is not permitted on a platform handler"},
    {"rule": "self.type != 'platform' || !has(self.tool)",
     "message": "tool is not permitted on a platform handler"},
    {"rule": "self.type != 'client' || !has(self.sandbox)",
     "message": "sandbox is not permitted on a client handler"},
    {"rule": "self.type != 'client' || !has(self.delegation) || !self.delegation.enabled",
     "message": "delegation cannot be enabled on a client handler"},
    {"rule": "!has(self.auth) || !has(self.auth.connectionRef) || !has(self.sandbox)",
     "message": "auth.connectionRef is not permitted on a handler that addresses a sandbox"},
    {"rule": "!has(self.auth) || !has(self.httpConfig) || !(has(self.httpConfig.authType) || has(self.httpConfig.authSecretRef))",
     "message": "httpConfig.authType and httpConfig.authSecretRef cannot be combined with auth"},
    {"rule": "!has(self.auth) || !has(self.openAPIConfig) || !(has(self.openAPIConfig.authType) || has(self.openAPIConfig.authSecretRef))",
     "message": "openAPIConfig.authType and openAPIConfig.authSecretRef cannot be combined with auth"},
    {"rule": "!has(self.auth) || !has(self.auth.workloadIdentity) || !has(self.httpConfig) || !has(self.httpConfig.headersFromSecret) || self.httpConfig.headersFromSecret.all(header, header.lowerAscii() != self.auth.workloadIdentity.header.lowerAscii())",
     "message": "httpConfig.headersFromSecret cannot set the header that auth.workloadIdentity.header owns"},
    {"rule": "!has(self.sandbox) || self.type != 'mcp' || !has(self.mcpConfig) || self.mcpConfig.endpoint.startsWith('/')",
     "message": "mcpConfig.endpoint must be a path starting with / on a handler that addresses a sandbox"},
    {"rule": "!has(self.sandbox) || self.type != 'mcp' || !has(self.mcpConfig) || (has(self.mcpConfig.toolFilter) && has(self.mcpConfig.toolFilter.allowlist) && size(self.mcpConfig.toolFilter.allowlist) > 0)",
     "message": "mcpConfig.toolFilter.allowlist is required on a handler that addresses a sandbox"},
    {"rule": "!has(self.sandbox) || self.type != 'http' || !has(self.httpConfig) || self.httpConfig.endpoint.startsWith('/')",
     "message": "httpConfig.endpoint must be a path starting with / on a handler that addresses a sandbox"},
    {"rule": "!has(self.sandbox) || self.type != 'http' || !has(self.httpConfig) || !has(self.httpConfig.urlTemplate) || self.httpConfig.urlTemplate.startsWith('/')",
     "message": "httpConfig.urlTemplate must be a path starting with / on a handler that addresses a sandbox"},
    {"rule": "!has(self.sandbox) || self.type != 'openapi' || !has(self.openAPIConfig) || !has(self.openAPIConfig.baseURL) || self.openAPIConfig.baseURL.startsWith('/')",
     "message": "openAPIConfig.baseURL must be a path starting with / on a handler that addresses a sandbox"},
    {"rule": "!has(self.sandbox) || self.type != 'grpc' || !has(self.grpcConfig) || !has(self.grpcConfig.endpoint)",
     "message": "grpcConfig.endpoint must be unset on a handler that addresses a sandbox"},
    {"rule": "!has(self.sandbox) || self.type != 'grpc' || has(self.tool)",
     "message": "tool is required on a grpc handler that addresses a sandbox"},
    {"rule": "has(self.sandbox) || self.type != 'grpc' || !has(self.grpcConfig) || has(self.grpcConfig.endpoint)",
     "message": "grpcConfig.endpoint is required unless the handler addresses a sandbox"}
]))]
pub struct Handler {
    /// Name of the handler, unique in the registry.
    #[schemars(schema_with = "schemas::name")]
    pub name: String,
    /// Kind of tool source: http, grpc, mcp, openapi, client or platform.
    #[serde(rename = "type")]
    pub kind: HandlerType,
    /// The tool that the handler exposes. Required for http, grpc and client; not permitted for platform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<ToolDefinition>,
    /// Settings of an http handler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_config: Option<HttpConfig>,
    /// Settings of a grpc handler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpc_config: Option<GrpcConfig>,
    /// Settings of an mcp handler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp_config: Option<McpConfig>,
    /// Settings of an openapi handler.
    #[serde(rename = "openAPIConfig", default, skip_serializing_if = "Option::is_none")]
    pub open_api_config: Option<OpenApiConfig>,
    /// Settings of a client handler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_config: Option<ClientConfig>,
    /// The service of a platform handler. Not permitted for any other type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// Serves the handler from one of the registry's sandboxes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<HandlerSandbox>,
    /// How the runtime authenticates to the backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// Whether calls carry a token that names the end user, the agent and the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegation: Option<Delegation>,
    /// Wall-clock limit of each attempt of a call of any tool of this handler. A call that is repeated takes longer.
    #[serde(default = "handler_timeout")]
    #[schemars(schema_with = "schemas::duration")]
    pub timeout: String,
}

/// Default of [`Handler::timeout`] (OM-032).
#[must_use]
pub fn handler_timeout() -> String {
    "30s".into()
}

/// The description of a tool as the model sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolDefinition {
    /// Name that the model calls.
    #[schemars(length(min = 1, max = 64), regex(pattern = "^[a-z][a-z0-9_]*$"))]
    pub name: String,
    /// What the tool does, for people and for the model.
    pub description: String,
    /// JSON Schema of the arguments.
    #[schemars(schema_with = "schemas::open_object")]
    pub input_schema: serde_json::Value,
    /// JSON Schema of the result. Not enforced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::open_object")]
    pub output_schema: Option<serde_json::Value>,
}

/// Settings of a tool that runs in the connected client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClientConfig {
    /// Question put to the user before the tool runs. Replaces the one of the prompt pack's tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consent_message: Option<String>,
    /// Categories of the tool, for the client's consent dialogue. Replaces those of the prompt pack's tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub categories: Option<Vec<String>>,
}

/// The service that a platform handler exposes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Platform {
    /// discovery (the workspace catalog) or arena (runs of the mounted project).
    pub service: PlatformService,
}

enumeration! {
    /// Service of a platform handler (OM-091).
    PlatformService {
        /// The workspace catalog.
        Discovery = "discovery",
        /// Runs of the project mounted in the caller's sandbox.
        Arena = "arena",
    }
}

/// Delegation of the end user's identity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Delegation {
    /// Adds an X-Omnia-Delegation header, a short-lived signed token, to every call.
    #[serde(default)]
    pub enabled: bool,
}
