//! References from one object to another. All of them stay inside the namespace (OM-009).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schemas;

/// One key of a Secret in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKey {
    /// Name of the Secret.
    #[schemars(schema_with = "schemas::non_empty")]
    pub name: String,
    /// Key inside the Secret.
    #[schemars(schema_with = "schemas::non_empty")]
    pub key: String,
}

/// One key of a Secret in the same namespace; the key may be left to the reader.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyOptional {
    /// Name of the Secret.
    #[schemars(schema_with = "schemas::non_empty")]
    pub name: String,
    /// Key inside the Secret. When unset, the usual key of the provider's type is looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// An object in the same namespace, by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalName {
    /// Name of the object.
    #[schemars(schema_with = "schemas::non_empty")]
    pub name: String,
}

/// The Connection that fills one role of a sandbox class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionBinding {
    /// Role that the sandbox's class declares.
    #[schemars(schema_with = "schemas::non_empty")]
    pub role: String,
    /// Name of a Connection in the namespace.
    #[schemars(schema_with = "schemas::non_empty")]
    pub connection: String,
}
