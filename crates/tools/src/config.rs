//! What the controllers render for an agent: `/etc/omnia/tools/tools.yaml` (OM-365).
//!
//! Durations and numbers are typed here; the manifest's text forms end in the controllers. Credentials
//! are only ever paths of mounted files (OM-401).

use std::{collections::BTreeMap, fmt, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Default of `timeout` (OM-032).
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// Default of `retryOn` (OM-061).
pub const DEFAULT_RETRY_ON: [u16; 6] = [408, 429, 500, 502, 503, 504];

/// Default of `retryableStatusCodes` (OM-064).
pub const DEFAULT_RETRYABLE_STATUS_CODES: [&str; 3] =
    ["UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED"];

/// The rendered file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolsConfig {
    /// Name of the ToolRegistry; decisions are made by it (OM-486).
    pub registry: String,
    /// Namespace of the ToolRegistry.
    pub namespace: String,
    /// Handlers in the registry's order, which decides between equal tool names (OM-035).
    #[serde(default)]
    pub handlers: Vec<HandlerConfig>,
}

impl ToolsConfig {
    /// Reads the rendered file.
    ///
    /// # Errors
    /// The parser's message with line and column.
    pub fn parse(text: &str) -> Result<Self, String> {
        serde_saphyr::from_str(text).map_err(|error| error.without_snippet().to_string())
    }

    /// The file's text: JSON, which is YAML whose strings cannot be mistaken for something else.
    ///
    /// # Errors
    /// A value that cannot be written; none of these types has one.
    pub fn render(&self) -> Result<String, String> {
        serde_json::to_string_pretty(self).map_err(|error| error.to_string())
    }
}

/// One handler (OM-020…OM-032).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HandlerConfig {
    /// Name, unique in the registry.
    pub name: String,
    /// Kind of backend.
    #[serde(rename = "type")]
    pub kind: HandlerType,
    /// The address, for the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The tool of an explicit handler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<ToolDefinition>,
    /// For `http`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpConfig>,
    /// For `openapi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub openapi: Option<OpenapiConfig>,
    /// For `mcp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp: Option<McpConfig>,
    /// For `grpc`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpc: Option<GrpcConfig>,
    /// For `client`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientConfig>,
    /// Credential; `None` is the same as type `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<AuthConfig>,
    /// Header name → mounted file with its value (`headersFromSecret`, OM-043).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secret_headers: BTreeMap<String, String>,
    /// Wall-clock limit of one attempt (OM-368).
    #[serde(
        default = "default_timeout",
        with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required"
    )]
    pub timeout: Duration,
    /// `delegation.enabled` (OM-031).
    #[serde(default)]
    pub delegation: bool,
    /// Serves the handler from a sandbox (OM-029).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxReference>,
}

fn default_timeout() -> Duration {
    DEFAULT_TIMEOUT
}

impl HandlerConfig {
    /// A handler with defaults and nothing configured.
    pub fn new(name: impl Into<String>, kind: HandlerType) -> Self {
        Self {
            name: name.into(),
            kind,
            endpoint: None,
            tool: None,
            http: None,
            openapi: None,
            mcp: None,
            grpc: None,
            client: None,
            auth: None,
            secret_headers: BTreeMap::new(),
            timeout: DEFAULT_TIMEOUT,
            delegation: false,
            sandbox: None,
        }
    }
}

/// Kind of backend (OM-021).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HandlerType {
    /// An HTTP endpoint.
    Http,
    /// A gRPC service.
    Grpc,
    /// A Model Context Protocol server.
    Mcp,
    /// A service with an OpenAPI description.
    Openapi,
    /// The connected client.
    Client,
    /// The operator itself.
    Platform,
}

impl fmt::Display for HandlerType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Http => "http",
            Self::Grpc => "grpc",
            Self::Mcp => "mcp",
            Self::Openapi => "openapi",
            Self::Client => "client",
            Self::Platform => "platform",
        })
    }
}

/// What the model is told about a tool (OM-036…OM-039).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolDefinition {
    /// Name the model calls it by.
    pub name: String,
    /// What it does.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of the arguments; `null` where the registry has none.
    #[serde(default)]
    pub input_schema: Value,
    /// JSON Schema of the result; not enforced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
}

/// `httpConfig` with defaults applied (OM-040…OM-055).
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HttpConfig {
    /// Absolute URL.
    pub endpoint: String,
    /// Method; compared in upper case (OM-041).
    #[serde(default = "default_method")]
    pub method: String,
    /// Headers of every request (OM-042).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Content-Type of a body (OM-044).
    #[serde(default = "default_content_type")]
    pub content_type: String,
    /// Retries; `None` = one attempt (OM-045, OM-398).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<RetryPolicy>,
    /// URL with `{argument}` placeholders; replaces `endpoint` (OM-048).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url_template: Option<String>,
    /// Arguments that go to the query (OM-049).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub query_params: Vec<String>,
    /// Argument → header (OM-050).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub header_params: BTreeMap<String, String>,
    /// Query of every request (OM-051).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub static_query: BTreeMap<String, String>,
    /// Merged under the body of every request (OM-052).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub static_body: Option<Value>,
    /// JMESPath over the body (OM-053).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_mapping: Option<String>,
    /// JMESPath over the answer (OM-054).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_mapping: Option<String>,
    /// Top-level fields of the answer that are hidden (OM-055).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redact: Vec<String>,
}

fn default_method() -> String {
    "POST".to_owned()
}

fn default_content_type() -> String {
    "application/json".to_owned()
}

impl HttpConfig {
    /// A call of `endpoint` with every default (OM-041, OM-044).
    pub fn new(endpoint: impl Into<String>) -> Self {
        Self {
            endpoint: endpoint.into(),
            method: default_method(),
            headers: BTreeMap::new(),
            content_type: default_content_type(),
            retry_policy: None,
            url_template: None,
            query_params: Vec::new(),
            header_params: BTreeMap::new(),
            static_query: BTreeMap::new(),
            static_body: None,
            body_mapping: None,
            response_mapping: None,
            redact: Vec::new(),
        }
    }
}

impl fmt::Debug for HttpConfig {
    // Static headers, query and body are often misused for keys; names say enough in a log.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("HttpConfig")
            .field("method", &self.method)
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .field("retry_policy", &self.retry_policy)
            .finish_non_exhaustive()
    }
}

/// `openAPIConfig` (OM-083…OM-087).
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OpenapiConfig {
    /// Address of the document: OpenAPI 2.0, 3.0 or 3.1 in JSON (OM-083).
    #[serde(rename = "specURL")]
    pub spec_url: String,
    /// Stands in for the servers that the document names (OM-084).
    #[serde(rename = "baseURL", default, skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// Ids of the operations that become tools; empty means all (OM-085).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operation_filter: Vec<String>,
    /// Headers of every call, not of the document's request (OM-086).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Retries of calls; `None` = one attempt (OM-087, OM-398).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<RetryPolicy>,
}

impl OpenapiConfig {
    /// Every operation of the document at `spec_url`, where the document says.
    pub fn new(spec_url: impl Into<String>) -> Self {
        Self {
            spec_url: spec_url.into(),
            base_url: None,
            operation_filter: Vec::new(),
            headers: BTreeMap::new(),
            retry_policy: None,
        }
    }
}

impl fmt::Debug for OpenapiConfig {
    // Headers and a URL's query are often misused for keys; names say enough in a log.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("OpenapiConfig")
            .field("operation_filter", &self.operation_filter)
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .field("retry_policy", &self.retry_policy)
            .finish_non_exhaustive()
    }
}

/// `mcpConfig` (OM-079…OM-082).
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct McpConfig {
    /// How the server is spoken to.
    pub transport: McpTransport,
    /// Absolute URL of the server.
    pub endpoint: String,
    /// Names of the server's tools that are offered; empty means all (OM-081).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowlist: Vec<String>,
    /// Names of the server's tools that are not offered; without effect beside an allow list (OM-081).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocklist: Vec<String>,
    /// Retries of calls; `None` = one attempt (OM-082, OM-398). Only its backoff fields have a meaning
    /// here (OM-065).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<RetryPolicy>,
}

impl McpConfig {
    /// All tools of the server at `endpoint`.
    pub fn new(transport: McpTransport, endpoint: impl Into<String>) -> Self {
        Self {
            transport,
            endpoint: endpoint.into(),
            allowlist: Vec::new(),
            blocklist: Vec::new(),
            retry_policy: None,
        }
    }
}

impl fmt::Debug for McpConfig {
    // A URL is often misused for keys.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("McpConfig")
            .field("transport", &self.transport)
            .field("allowlist", &self.allowlist)
            .field("blocklist", &self.blocklist)
            .field("retry_policy", &self.retry_policy)
            .finish_non_exhaustive()
    }
}

/// How an MCP server is spoken to (OM-079).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum McpTransport {
    /// An event stream that announces where messages are posted: the transport of 2024-11-05.
    Sse,
    /// One address for everything: the transport since 2025-03-26.
    StreamableHttp,
}

/// `retryPolicy` with defaults applied (OM-057…OM-063).
///
/// `retryOn` left out is the default list; an empty list switches retries by status off (OM-061).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetryPolicy {
    /// Attempts in all, the first included.
    pub max_attempts: u32,
    /// Wait before the first retry.
    #[serde(
        default = "default_initial_backoff",
        with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required"
    )]
    pub initial_backoff: Duration,
    /// Growth of the wait.
    #[serde(default = "default_backoff_multiplier")]
    pub backoff_multiplier: f64,
    /// Upper bound of every wait.
    #[serde(
        default = "default_max_backoff",
        with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required"
    )]
    pub max_backoff: Duration,
    /// Statuses that are retried.
    #[serde(default = "default_retry_on")]
    pub retry_on: Vec<u16>,
    /// Whether failures without a status are retried.
    #[serde(default = "yes")]
    pub retry_on_network_error: bool,
    /// Whether `Retry-After` is a lower bound of the wait.
    #[serde(default = "yes")]
    pub respect_retry_after: bool,
}

fn default_initial_backoff() -> Duration {
    Duration::from_millis(100)
}

fn default_backoff_multiplier() -> f64 {
    2.0
}

fn default_max_backoff() -> Duration {
    Duration::from_secs(30)
}

fn default_retry_on() -> Vec<u16> {
    DEFAULT_RETRY_ON.to_vec()
}

fn yes() -> bool {
    true
}

impl RetryPolicy {
    /// When another attempt is made, should there be one.
    pub(crate) fn backoff(&self) -> Backoff {
        Backoff {
            max_attempts: self.max_attempts,
            initial: self.initial_backoff,
            multiplier: self.backoff_multiplier,
            longest: self.max_backoff,
        }
    }

    /// A policy with every default (OM-058…OM-063).
    pub fn new(max_attempts: u32) -> Self {
        Self {
            max_attempts,
            initial_backoff: default_initial_backoff(),
            backoff_multiplier: default_backoff_multiplier(),
            max_backoff: default_max_backoff(),
            retry_on: default_retry_on(),
            retry_on_network_error: true,
            respect_retry_after: true,
        }
    }
}

/// `clientConfig` (OM-027, OM-433). A set value replaces the pack's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClientConfig {
    /// Asked before the tool runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consent_message: Option<String>,
    /// Kinds of data it touches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub categories: Option<Vec<String>>,
}

/// `grpcConfig` (OM-073…OM-078). Paths are those of mounted files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GrpcConfig {
    /// `host:port`.
    pub endpoint: String,
    /// Whether the connection is TLS.
    #[serde(default)]
    pub tls: bool,
    /// The certificate that the server is shown; only together with its key (OM-075).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_cert_path: Option<String>,
    /// The private key of that certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_key_path: Option<String>,
    /// Certificates that the server's is verified with, in place of the machine's (OM-076).
    #[serde(rename = "tlsCAPath", default, skip_serializing_if = "Option::is_none")]
    pub tls_ca_path: Option<String>,
    /// Whether the server is not verified at all (OM-077).
    #[serde(default)]
    pub tls_insecure_skip_verify: bool,
    /// Retries; `None` = one attempt (OM-078, OM-398).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<GrpcRetryPolicy>,
}

impl GrpcConfig {
    /// Plain calls of `endpoint`.
    pub fn new(endpoint: impl Into<String>) -> Self {
        Self {
            endpoint: endpoint.into(),
            tls: false,
            tls_cert_path: None,
            tls_key_path: None,
            tls_ca_path: None,
            tls_insecure_skip_verify: false,
            retry_policy: None,
        }
    }
}

/// `retryPolicy` of a `grpc` handler with defaults applied (OM-064, OM-065).
///
/// `retryableStatusCodes` left out is the default list; an empty list switches retries by code off.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GrpcRetryPolicy {
    /// Attempts in all, the first included.
    pub max_attempts: u32,
    /// Wait before the first retry.
    #[serde(
        default = "default_initial_backoff",
        with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required"
    )]
    pub initial_backoff: Duration,
    /// Growth of the wait.
    #[serde(default = "default_backoff_multiplier")]
    pub backoff_multiplier: f64,
    /// Upper bound of every wait.
    #[serde(
        default = "default_max_backoff",
        with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required"
    )]
    pub max_backoff: Duration,
    /// Names of the codes that are retried, in upper snake case.
    #[serde(default = "default_retryable_status_codes")]
    pub retryable_status_codes: Vec<String>,
}

fn default_retryable_status_codes() -> Vec<String> {
    DEFAULT_RETRYABLE_STATUS_CODES.map(str::to_owned).to_vec()
}

impl GrpcRetryPolicy {
    /// A policy with every default (OM-058…OM-060, OM-064).
    pub fn new(max_attempts: u32) -> Self {
        Self {
            max_attempts,
            initial_backoff: default_initial_backoff(),
            backoff_multiplier: default_backoff_multiplier(),
            max_backoff: default_max_backoff(),
            retryable_status_codes: default_retryable_status_codes(),
        }
    }

    /// When another attempt is made, should there be one.
    pub(crate) fn backoff(&self) -> Backoff {
        Backoff {
            max_attempts: self.max_attempts,
            initial: self.initial_backoff,
            multiplier: self.backoff_multiplier,
            longest: self.max_backoff,
        }
    }
}

/// What every retry policy has in common (OM-057…OM-060, OM-065).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Backoff {
    /// Attempts in all, the first included.
    pub(crate) max_attempts: u32,
    /// Wait before the first retry.
    pub(crate) initial: Duration,
    /// Growth of the wait.
    pub(crate) multiplier: f64,
    /// Upper bound of every wait.
    pub(crate) longest: Duration,
}

/// The `auth` stanza, its Secret already mounted (OM-066, OM-401).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AuthConfig {
    /// How the credential is sent.
    #[serde(rename = "type")]
    pub kind: AuthType,
    /// Mounted file with the credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential_file: Option<String>,
    /// Whom a token is for: the backend (OM-069, OM-070).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// The header that carries a token; `Authorization` where none is named (OM-070).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
}

/// How a credential is sent (OM-066).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AuthType {
    /// Not at all.
    #[default]
    None,
    /// `Authorization: Bearer`.
    Bearer,
    /// `Authorization: Basic`.
    Basic,
    /// A projected ServiceAccount token.
    ServiceAccount,
    /// A token of the Pod's cloud identity.
    WorkloadIdentity,
}

impl fmt::Display for AuthType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::None => "none",
            Self::Bearer => "bearer",
            Self::Basic => "basic",
            Self::ServiceAccount => "serviceAccount",
            Self::WorkloadIdentity => "workloadIdentity",
        })
    }
}

/// A port of one of the registry's sandboxes (OM-029).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SandboxReference {
    /// The sandbox.
    pub name: String,
    /// The port's name.
    pub port: String,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn an_empty_retry_on_stays_different_from_an_absent_one_om_061() {
        let policy = |text: &str| serde_json::from_str::<RetryPolicy>(text).unwrap();
        assert_eq!(policy(r#"{"maxAttempts":3}"#).retry_on, DEFAULT_RETRY_ON);
        let empty = policy(r#"{"maxAttempts":3,"retryOn":[]}"#);
        assert!(empty.retry_on.is_empty());
        let again: RetryPolicy = serde_json::from_value(json!(empty)).unwrap();
        assert!(again.retry_on.is_empty());

        let policy = |text: &str| serde_json::from_str::<GrpcRetryPolicy>(text).unwrap();
        let default = policy(r#"{"maxAttempts":3}"#);
        assert_eq!(default.retryable_status_codes, DEFAULT_RETRYABLE_STATUS_CODES);
        let empty = policy(r#"{"maxAttempts":3,"retryableStatusCodes":[]}"#);
        let again: GrpcRetryPolicy = serde_json::from_value(json!(empty)).unwrap();
        assert!(again.retryable_status_codes.is_empty());
    }

    #[test]
    fn what_is_left_out_gets_its_default_om_365() {
        let config = ToolsConfig::parse(
            "registry: helpdesk\nnamespace: default\nhandlers:\n- name: a\n  type: http\n  http:\n    endpoint: http://a\n    retryPolicy:\n      maxAttempts: 2\n",
        )
        .unwrap();
        let mut expected = HandlerConfig::new("a", HandlerType::Http);
        let mut http = HttpConfig::new("http://a");
        http.retry_policy = Some(RetryPolicy::new(2));
        expected.http = Some(http);
        assert_eq!(config.handlers, [expected]);
        assert_eq!(config.handlers[0].timeout, Duration::from_secs(30));
    }

    #[test]
    fn what_is_rendered_is_read_back_om_365() {
        let mut handler = HandlerConfig::new("get-order", HandlerType::Http);
        handler.timeout = Duration::from_millis(1_500);
        handler.tool = Some(ToolDefinition {
            name: "get_order".to_owned(),
            description: "yes".to_owned(),
            input_schema: json!({"type": "object", "x-note": "1e3"}),
            output_schema: None,
        });
        handler.auth = Some(AuthConfig {
            kind: AuthType::ServiceAccount,
            credential_file: Some("/a".to_owned()),
            ..AuthConfig::default()
        });
        let mut http = HttpConfig::new("http://orders/");
        http.static_body = Some(json!({"on": "off"}));
        handler.http = Some(http);
        let mut openapi = OpenapiConfig::new("http://orders/openapi.json");
        openapi.base_url = Some("http://orders/v1".to_owned());
        openapi.operation_filter = vec!["orders/list".to_owned()];
        openapi.retry_policy = Some(RetryPolicy::new(2));
        handler.openapi = Some(openapi);
        let mut mcp = McpConfig::new(McpTransport::StreamableHttp, "http://code/mcp");
        mcp.allowlist = vec!["Read".to_owned()];
        mcp.retry_policy = Some(RetryPolicy::new(2));
        handler.mcp = Some(mcp);
        let mut grpc = GrpcConfig::new("orders:50051");
        grpc.tls_ca_path = Some("/ca.pem".to_owned());
        grpc.retry_policy = Some(GrpcRetryPolicy::new(2));
        handler.grpc = Some(grpc);
        let config = ToolsConfig {
            registry: "no".to_owned(),
            namespace: "default".to_owned(),
            handlers: vec![handler],
        };
        assert_eq!(ToolsConfig::parse(&config.render().unwrap()).unwrap(), config);
    }

    #[test]
    fn an_unknown_field_is_refused_with_its_line() {
        let error = ToolsConfig::parse("registry: a\nnamespace: b\nhandler: []\n").unwrap_err();
        assert!(error.contains("handler") && error.contains("line 3"), "{error}");
    }
}
