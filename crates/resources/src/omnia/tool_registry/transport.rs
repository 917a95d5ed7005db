//! The type blocks: how each kind of handler reaches its backend (OM-040 … OM-056, OM-073 … OM-088).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::retry::{GrpcRetryPolicy, HttpRetryPolicy, McpRetryPolicy};
use crate::{enumeration::enumeration, omnia::reference::SecretKey, schemas};

enumeration! {
    /// Deprecated way of authentication, normalised into [`super::auth::Auth`] (OM-072).
    LegacyAuthType {
        /// A bearer token.
        Bearer = "bearer",
        /// A user name and password.
        Basic = "basic",
    }
}

/// Settings of an http handler.
// `Authorization` is refused in headersFromSecret at all times, whatever its case (OM-043, DD-12, V-14).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!has(self.headersFromSecret) || self.headersFromSecret.all(header, header.lowerAscii() != 'authorization')",
     "message": "headersFromSecret cannot set Authorization, which the auth stanza owns"}
]))]
pub struct HttpConfig {
    /// URL of the endpoint, or a path on the sandbox's port.
    #[schemars(schema_with = "schemas::non_empty")]
    pub endpoint: String,
    /// HTTP method.
    #[serde(default = "post")]
    #[schemars(schema_with = "schemas::non_empty")]
    pub method: String,
    /// Headers added to every request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Headers whose value is read from a Secret when the tool is called. Not for a header that auth owns.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub headers_from_secret: BTreeMap<String, SecretKey>,
    /// Content-Type of a request with a body.
    #[serde(default = "json")]
    #[schemars(schema_with = "schemas::non_empty")]
    pub content_type: String,
    /// When and how a call is repeated. Absent means one attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<HttpRetryPolicy>,
    /// Deprecated: use the handler's auth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_type: Option<LegacyAuthType>,
    /// Deprecated: use the handler's auth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_secret_ref: Option<SecretKey>,
    /// URL with {argument} placeholders, used in place of endpoint. Arguments placed here are not sent again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url_template: Option<String>,
    /// Arguments sent in the query string.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub query_params: Vec<String>,
    /// Arguments sent as headers: argument name to header name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub header_params: BTreeMap<String, String>,
    /// Query parameters set on every request and never shown to the model.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub static_query: BTreeMap<String, String>,
    /// JSON merged under the arguments in every request body and never shown to the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::open_value")]
    pub static_body: Option<serde_json::Value>,
    /// JMESPath expression that turns the body into the one that is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_mapping: Option<String>,
    /// JMESPath expression that turns the answer into what the model gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_mapping: Option<String>,
    /// Top-level fields of the answer whose value is hidden from the model and from records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redact: Vec<String>,
}

fn post() -> String {
    "POST".into()
}

fn json() -> String {
    "application/json".into()
}

/// Settings of a grpc handler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrpcConfig {
    /// Address host:port. Required unless the handler addresses a sandbox, and unset when it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub endpoint: Option<String>,
    /// Uses TLS.
    #[serde(default)]
    pub tls: bool,
    /// Client certificate in the runtime; used only together with tlsKeyPath.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_cert_path: Option<String>,
    /// Private key of the client certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_key_path: Option<String>,
    /// CA bundle that the server is verified with.
    #[serde(rename = "tlsCAPath", default, skip_serializing_if = "Option::is_none")]
    pub tls_ca_path: Option<String>,
    /// Skips the verification of the server.
    #[serde(default)]
    pub tls_insecure_skip_verify: bool,
    /// When and how a call is repeated. Absent means one attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<GrpcRetryPolicy>,
}

enumeration! {
    /// Transport of an MCP server (OM-079). There is no stdio.
    McpTransport {
        /// Server-sent events that announce a message URL.
        Sse = "sse",
        /// One endpoint for requests and event streams.
        StreamableHttp = "streamable-http",
    }
}

/// Settings of an mcp handler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpConfig {
    /// sse or streamable-http.
    pub transport: McpTransport,
    /// URL of the server, or a path on the sandbox's port.
    #[schemars(schema_with = "schemas::non_empty")]
    pub endpoint: String,
    /// Which of the server's tools are exposed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_filter: Option<ToolFilter>,
    /// When and how a failed tool call is repeated. Absent means one attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<McpRetryPolicy>,
}

/// Selection of tools by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolFilter {
    /// When not empty, only these tools are exposed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowlist: Vec<String>,
    /// Tools that are not exposed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocklist: Vec<String>,
}

/// Settings of an openapi handler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OpenApiConfig {
    /// URL of an OpenAPI 2 or 3 document in JSON.
    #[serde(rename = "specURL")]
    #[schemars(schema_with = "schemas::non_empty")]
    pub spec_url: String,
    /// Base URL in place of the document's own, or a path on the sandbox's port.
    #[serde(rename = "baseURL", default, skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// Operation ids that become tools; empty means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operation_filter: Vec<String>,
    /// Headers added to every operation call.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// When and how a call is repeated. Absent means one attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<HttpRetryPolicy>,
    /// Deprecated: use the handler's auth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_type: Option<LegacyAuthType>,
    /// Deprecated: use the handler's auth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_secret_ref: Option<SecretKey>,
}
