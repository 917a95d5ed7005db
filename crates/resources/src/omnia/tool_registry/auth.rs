//! Authentication to a tool's backend (OM-066 … OM-071).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{enumeration::enumeration, omnia::reference::SecretKey, schemas};

enumeration! {
    /// Mechanism of authentication.
    #[derive(Default)]
    AuthType {
        /// None.
        #[default]
        None = "none",
        /// A bearer token from a Secret.
        Bearer = "bearer",
        /// A user name and password from a Secret.
        Basic = "basic",
        /// A projected Kubernetes ServiceAccount token.
        ServiceAccount = "serviceAccount",
        /// The workload's own cloud identity.
        WorkloadIdentity = "workloadIdentity",
    }
}

/// How the runtime authenticates to the backend of a handler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!has(self.secretRef) || !has(self.connectionRef)",
     "message": "secretRef and connectionRef cannot be combined"},
    {"rule": "!(self.type in ['bearer', 'basic']) || has(self.secretRef) || has(self.connectionRef)",
     "message": "bearer and basic need secretRef or connectionRef"},
    {"rule": "self.type != 'serviceAccount' || has(self.serviceAccount)",
     "message": "serviceAccount.audience is required for type serviceAccount"},
    {"rule": "self.type != 'workloadIdentity' || has(self.workloadIdentity)",
     "message": "workloadIdentity is required for type workloadIdentity"}
]))]
pub struct Auth {
    /// none, bearer, basic, serviceAccount or workloadIdentity.
    #[serde(rename = "type", default)]
    pub kind: AuthType,
    /// Secret that holds the credential; for basic its value is "username:password".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretKey>,
    /// Key of a Connection's Secret that holds the credential instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_ref: Option<ConnectionKey>,
    /// The ServiceAccount token to send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<ServiceAccountAuth>,
    /// The cloud identity to use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_identity: Option<WorkloadIdentityAuth>,
}

/// One key of the Secret of a Connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionKey {
    /// Name of the Connection.
    #[schemars(schema_with = "schemas::non_empty")]
    pub name: String,
    /// Key inside the Connection's Secret.
    #[schemars(schema_with = "schemas::non_empty")]
    pub key: String,
}

/// A projected ServiceAccount token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceAccountAuth {
    /// Audience that the token is bound to.
    #[schemars(schema_with = "schemas::non_empty")]
    pub audience: String,
}

enumeration! {
    /// Cloud whose workload identity is used.
    Cloud {
        /// Microsoft Azure.
        Azure = "azure",
    }
}

/// The workload's own cloud identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadIdentityAuth {
    /// The cloud.
    pub cloud: Cloud,
    /// Audience that the token is requested for.
    #[schemars(schema_with = "schemas::non_empty")]
    pub audience: String,
    /// Header that carries the token.
    #[serde(default = "authorization")]
    #[schemars(length(min = 1, max = 256))]
    pub header: String,
}

fn authorization() -> String {
    "Authorization".into()
}
