//! Per-session sandboxes of a registry (OM-092 … OM-105).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{enumeration::enumeration, omnia::reference::ConnectionBinding, schemas};

/// A backend that the operator starts for each session that needs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!has(self.targetPath) || self.targetPath == '' || self.maxInstances <= 1",
     "message": "maxInstances must be 1 when targetPath is set, because every instance would sync back into the same project"}
]))]
pub struct Sandbox {
    /// Name of the sandbox, unique in the registry.
    #[schemars(schema_with = "schemas::name")]
    pub name: String,
    /// Class that each sandbox is built from.
    pub class: SandboxClassRef,
    /// Instances of this sandbox that one session may hold. Must be 1 when targetPath is set.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    pub max_instances: i32,
    /// lazy claims the sandbox on the first tool call, eager when the session starts.
    #[serde(default)]
    pub allocation: Allocation,
    /// claim gives every sandbox its own scratch directory, session one that outlives it.
    #[serde(default)]
    pub workspace: SandboxWorkspace,
    /// Project that the work is synced back into, relative to the workspace's content volume. Empty means scratch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub target_path: Option<String>,
    /// The Connection for each role that the class declares, unless an agent binds another.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub connections: Vec<ConnectionBinding>,
}

fn one() -> i32 {
    1
}

/// The class of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxClassRef {
    /// Name of the class.
    #[schemars(schema_with = "schemas::non_empty")]
    pub name: String,
    /// SandboxClass, looked up in the namespace of the claim, or ClusterSandboxClass.
    #[serde(default)]
    pub kind: SandboxClassKind,
}

enumeration! {
    /// Kind of a sandbox's class.
    #[derive(Default)]
    SandboxClassKind {
        /// Namespaced class.
        #[default]
        SandboxClass = "SandboxClass",
        /// Cluster-wide class.
        ClusterSandboxClass = "ClusterSandboxClass",
    }
}

enumeration! {
    /// When a sandbox is claimed.
    #[derive(Default)]
    Allocation {
        /// On the first tool call.
        #[default]
        Lazy = "lazy",
        /// When the session starts.
        Eager = "eager",
    }
}

enumeration! {
    /// Where a sandbox's files live.
    #[derive(Default)]
    SandboxWorkspace {
        /// With the sandbox.
        #[default]
        Claim = "claim",
        /// With the session.
        Session = "session",
    }
}

/// The sandbox and port that serve a handler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HandlerSandbox {
    /// A sandbox of spec.sandboxes.
    #[schemars(schema_with = "schemas::non_empty")]
    pub name: String,
    /// A port that the sandbox's class declares.
    #[schemars(schema_with = "schemas::non_empty")]
    pub port: String,
}
