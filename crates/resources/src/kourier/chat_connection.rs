//! ChatConnection: a chat service and the app that is known there (AK-060, AK-061).

use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::{
    reference::{AppTokenSecret, BotTokenSecret, SigningSecret},
    schemas,
};
use crate::enumeration::enumeration;

/// ChatConnection is a chat service that Bindings belong to.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "agentkourier.dev",
    version = "v1alpha1",
    kind = "ChatConnection",
    plural = "chatconnections",
    namespaced,
    derive = "PartialEq",
    shortname = "akconnection",
    shortname = "akconnections",
    category = "agentkourier",
    doc = "ChatConnection is a chat service that Bindings belong to.",
    printcolumn(name = "Provider", type_ = "string", json_path = ".spec.provider"),
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.slack.mode"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ChatConnectionSpec {
    /// The chat service.
    #[serde(default)]
    pub provider: ChatProvider,
    /// The app of a Slack workspace.
    pub slack: Slack,
    /// Namespaces whose Bindings may use this connection, or *; only its own when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::allowed_namespaces")]
    pub allowed_namespaces: Vec<String>,
}

enumeration! {
    /// A chat service.
    #[derive(Default)]
    ChatProvider {
        /// Slack.
        #[default]
        Slack = "slack",
    }
}

enumeration! {
    /// How messages arrive.
    #[derive(Default)]
    SlackMode {
        /// Over a socket that the broker opens.
        #[default]
        Socket = "socket",
        /// As signed requests to the broker.
        Events = "events",
    }
}

/// The app of a Slack workspace. The Secrets are in the namespace of the connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self.mode != 'socket' || has(self.appTokenSecretRef)",
     "message": "appTokenSecretRef is required for mode socket"},
    {"rule": "self.mode != 'events' || has(self.signingSecretRef)",
     "message": "signingSecretRef is required for mode events"}
]))]
pub struct Slack {
    /// socket or events.
    #[serde(default)]
    pub mode: SlackMode,
    /// The bot's token.
    pub bot_token_secret_ref: BotTokenSecret,
    /// The app-level token; needed for mode socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_token_secret_ref: Option<AppTokenSecret>,
    /// What requests are signed with; needed for mode events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signing_secret_ref: Option<SigningSecret>,
    /// Where Slack's Web API is; http only on a loopback host.
    #[serde(default = "api_url")]
    #[schemars(schema_with = "api_url_schema")]
    pub api_url: String,
    /// Id of the workspace (T…) or organisation (E…) that the tokens must belong to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "team_id")]
    pub team_id: Option<String>,
}

fn api_url() -> String {
    "https://slack.com/api/".to_owned()
}

fn api_url_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "pattern": r"^https?://[^\s/?#]+",
        "maxLength": 2048,
        "x-kubernetes-validations": [{
            "rule": r"!self.startsWith('http://') || self.matches('^http://(localhost|127\\.[0-9]+\\.[0-9]+\\.[0-9]+|\\[::1\\])(:[0-9]+)?(/|$)')",
            "message": "must be https, or http for a loopback host",
        }],
    })
}

fn team_id(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": "^[TE][A-Z0-9]+$", "maxLength": 64 })
}
