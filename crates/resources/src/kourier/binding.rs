//! Binding: one chat channel, and the agent that answers there (AK-020 … AK-041).

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::{
    reference::{ObjectReference, TokenSecret},
    schemas,
};

/// Most triggers of a Binding (AK-013).
pub const TRIGGER_LIMIT: u32 = 50;
/// Most extract entries of a trigger (AK-013).
pub const EXTRACT_LIMIT: u32 = 32;
/// Longest `match` and `exclude`: characters in the schema, bytes in a broker (AK-012, AK-013).
pub const EXPRESSION_LIMIT: u32 = 512;

/// Binding has an agent answer in a chat channel.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "agentkourier.dev",
    version = "v1alpha1",
    kind = "Binding",
    plural = "bindings",
    namespaced,
    status = "BindingStatus",
    derive = "PartialEq",
    shortname = "akbinding",
    shortname = "akbindings",
    category = "agentkourier",
    doc = "Binding has an agent answer in a chat channel.",
    printcolumn(name = "Channel", type_ = "string", json_path = ".spec.chat.channel"),
    printcolumn(name = "Backend", type_ = "string", json_path = ".spec.backendRef.name"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Served",
        type_ = "integer",
        json_path = ".status.servedGeneration",
        priority = 1
    ),
    printcolumn(
        name = "Connection",
        type_ = "string",
        json_path = ".spec.connectionRef.name",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct BindingSpec {
    /// The ChatConnection that the channel belongs to.
    pub connection_ref: ObjectReference,
    /// The AgentBackend that answers.
    pub backend_ref: ObjectReference,
    /// Where it answers.
    pub chat: Chat,
    /// On whose behalf the backend is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// Which messages start a turn although they do not mention the bot. The first one that matches does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "triggers")]
    pub triggers: Vec<Trigger>,
    /// Takes the Binding out of routing while it is true.
    #[serde(default)]
    pub suspend: bool,
}

fn triggers(generator: &mut SchemaGenerator) -> Schema {
    let items = generator.subschema_for::<Trigger>();
    json_schema!({ "type": "array", "items": items, "maxItems": TRIGGER_LIMIT })
}

/// A place of a chat service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Chat {
    /// Id of a public (C…) or private (G…) channel. Direct messages are not bound (AK-020).
    #[schemars(schema_with = "channel")]
    pub channel: String,
}

fn channel(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": "^[CG][A-Z0-9]+$", "maxLength": 64 })
}

/// On whose behalf a backend is called (AK-021 … AK-023).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.userId) || has(self.tokenSecretRef)",
     "message": "set userId, tokenSecretRef, or both"}
]))]
pub struct Identity {
    /// The user that the backend is told the call is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "user_id")]
    pub user_id: Option<String>,
    /// The credential that is sent to the backend; the Secret is in the Binding's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_secret_ref: Option<TokenSecret>,
}

fn user_id(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": 256, "pattern": r"^[^\x00-\x1f\x7f]*$" })
}

/// What starts a turn without a mention of the bot (AK-030).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Trigger {
    /// Regular expression (RE2) that the message matches.
    #[serde(rename = "match")]
    #[schemars(schema_with = "expression")]
    pub matches: String,
    /// Regular expression (RE2) that it does not match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "expression")]
    pub exclude: Option<String>,
    /// Values for the prompt: a name, and the regular expression that finds it in the message.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "extract")]
    pub extract: BTreeMap<String, String>,
    /// The prompt, a Go text/template. The message's text when unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "prompt_template")]
    pub prompt_template: Option<String>,
}

fn expression(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": EXPRESSION_LIMIT })
}

fn extract(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": EXTRACT_LIMIT,
        "additionalProperties": { "type": "string", "minLength": 1, "maxLength": 1024 },
        "x-kubernetes-validations": [{
            "rule": "self.all(name, size(name) <= 64 && name.matches('^[A-Za-z_][A-Za-z0-9_]*$'))",
            "message": "a name has at most 64 letters, digits and underscores and does not begin with a digit",
        }],
    })
}

fn prompt_template(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "maxLength": 16384 })
}

/// What a broker made of a Binding (AK-003).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BindingStatus {
    /// The metadata.generation that was judged last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The metadata.generation that is served; absent when none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served_generation: Option<i64>,
    /// Accepted, BackendReachable and Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::conditions")]
    pub conditions: Vec<Condition>,
}
