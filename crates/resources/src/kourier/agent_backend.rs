//! AgentBackend: where an agent is reached, and in which words (AK-050 … AK-053).

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::{reference::AuthoritySecret, schemas};

/// Most headers of an AgentBackend (AK-013).
pub const HEADER_LIMIT: u32 = 32;
/// Longest name of a header, in bytes (AK-013).
pub const HEADER_NAME_LIMIT: u32 = 256;

/// AgentBackend is an agent that Bindings call.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "agentkourier.dev",
    version = "v1alpha1",
    kind = "AgentBackend",
    plural = "agentbackends",
    namespaced,
    derive = "PartialEq",
    shortname = "akbackend",
    shortname = "akbackends",
    category = "agentkourier",
    doc = "AgentBackend is an agent that Bindings call.",
    printcolumn(name = "Dialect", type_ = "string", json_path = ".spec.dialect"),
    printcolumn(name = "URL", type_ = "string", json_path = ".spec.url"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!(self.dialect in ['openai-chat', 'openai-responses', 'anthropic-messages']) || has(self.model)",
     "message": "model is required for dialects openai-chat, openai-responses and anthropic-messages"},
    {"rule": "self.dialect != 'omnia-websocket' || (has(self.agent) && has(self.agent.name))",
     "message": "agent.name is required for dialect omnia-websocket"},
    {"rule": "!self.url.startsWith('ws') || self.dialect == 'omnia-websocket'",
     "message": "a ws or wss url is for dialect omnia-websocket only"}
]))]
pub struct AgentBackendSpec {
    /// How the backend is spoken to: a2a, omnia-websocket, openai-chat, … A broker says in the status of the Bindings when it
    /// does not know the dialect.
    #[schemars(schema_with = "dialect")]
    pub dialect: String,
    /// Where the backend is reached.
    #[schemars(schema_with = "url")]
    pub url: String,
    /// Headers sent with each call. Credentials do not belong here: a Binding's identity.tokenSecretRef names them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "headers")]
    pub headers: BTreeMap<String, String>,
    /// Namespaces whose Bindings may use this backend, or *; only its own when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::allowed_namespaces")]
    pub allowed_namespaces: Vec<String>,
    /// The model, for dialects that name one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "model")]
    pub model: Option<String>,
    /// The system prompt, for dialects of models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "instructions")]
    pub instructions: Option<String>,
    /// Most tokens of an answer, for dialects of models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "max_output_tokens")]
    pub max_output_tokens: Option<i32>,
    /// The agent behind the url, for dialects that serve several there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Agent>,
    /// How long a turn may take, 1s to 24h.
    #[serde(default = "timeout")]
    #[schemars(schema_with = "schemas::duration")]
    pub timeout: String,
    /// How long a turn may be silent, 1s to 24h.
    #[serde(default = "idle_timeout")]
    #[schemars(schema_with = "schemas::duration")]
    pub idle_timeout: String,
    /// Whether the answer is asked for piece by piece.
    #[serde(default = "streaming")]
    pub streaming: bool,
    /// How the backend is trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
}

fn timeout() -> String {
    "30m".to_owned()
}

fn idle_timeout() -> String {
    "5m".to_owned()
}

fn streaming() -> bool {
    true
}

/// Not an enumeration: whether a broker has an adapter for it is the broker's to say (AK-012).
fn dialect(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": "^[a-z][a-z0-9-]{0,62}$", "maxLength": 63 })
}

fn url(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "pattern": r"^(https?|wss?)://[^\s/?#]+",
        "maxLength": 2048,
        "x-kubernetes-validations": [
            { "rule": "!self.matches('^[a-z]+://[^/?#]*@')",
              "message": "a url holds no user and no password; a Binding's identity.tokenSecretRef names a credential" },
            { "rule": "!self.contains('#')", "message": "a url of a backend has no fragment" },
        ],
    })
}

/// What a name may be made of is a rule, because a schema says nothing of a map's keys.
fn headers(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": HEADER_LIMIT,
        "additionalProperties": { "type": "string", "maxLength": 4096, "pattern": r"^[^\r\n\x00]*$" },
        "x-kubernetes-validations": [
            { "rule": format!("self.all(name, size(name) <= {HEADER_NAME_LIMIT})"),
              "message": format!("a header's name has at most {HEADER_NAME_LIMIT} bytes") },
            { "rule": r#"self.all(name, name.matches("^[-!#$%&'*+.^_`|~0-9A-Za-z]+$"))"#,
              "message": "a header's name is made of letters, digits and -!#$%&'*+.^_`|~" },
        ],
    })
}

fn model(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": 256 })
}

fn instructions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "maxLength": 16384 })
}

fn max_output_tokens(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "format": "int32", "minimum": 1, "maximum": 1_000_000 })
}

/// An agent that the backend serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    /// Name of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::object_name")]
    pub name: Option<String>,
    /// Its namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::namespace")]
    pub namespace: Option<String>,
}

/// How a server is trusted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tls {
    /// Certificates, in PEM form, that the backend's certificate is checked against.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_secret_ref: Option<AuthoritySecret>,
}
