//! How an agent is deployed (OM-134, OM-135, OM-582).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{enumeration::enumeration, schemas};

/// How the agent is deployed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Runtime {
    /// Number of pods, unless autoscaling is on.
    #[serde(default = "one")]
    #[schemars(range(min = 0))]
    pub replicas: i32,
    /// Automatic scaling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscaling: Option<Autoscaling>,
    /// Resources of the container, as in core/v1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::open_object")]
    pub resources: Option<serde_json::Value>,
    /// Labels of the nodes that pods may run on.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations of the pods, as in core/v1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::open_objects")]
    pub tolerations: Vec<serde_json::Value>,
    /// Affinity of the pods, as in core/v1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::open_object")]
    pub affinity: Option<serde_json::Value>,
    /// Further volumes, as in core/v1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::open_objects")]
    pub volumes: Vec<serde_json::Value>,
    /// Further mounts, as in core/v1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::open_objects")]
    pub volume_mounts: Vec<serde_json::Value>,
    /// Further environment variables, as in core/v1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::open_objects")]
    pub extra_env: Vec<serde_json::Value>,
}

fn one() -> i32 {
    1
}

enumeration! {
    /// Autoscaler (OM-582).
    #[derive(Default)]
    AutoscalerType {
        /// HorizontalPodAutoscaler.
        #[default]
        Hpa = "hpa",
        /// KEDA.
        Keda = "keda",
    }
}

/// Automatic scaling.
// The documented default of maxReplicas is 10, the published schema says 100; the schema is what is stored (DD-10).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Autoscaling {
    /// Turns scaling on.
    #[serde(default)]
    pub enabled: bool,
    /// hpa or keda.
    #[serde(rename = "type", default)]
    pub kind: AutoscalerType,
    /// Fewest pods.
    #[serde(default = "one")]
    #[schemars(range(min = 0))]
    pub min_replicas: i32,
    /// Most pods.
    #[serde(default = "max_replicas")]
    #[schemars(range(min = 1))]
    pub max_replicas: i32,
    /// Memory use, in percent of the request, that is aimed at.
    #[serde(default = "target_memory")]
    #[schemars(range(min = 1, max = 100))]
    pub target_memory_utilization_percentage: i32,
    /// CPU use, in percent of the request, that is aimed at.
    #[serde(rename = "targetCPUUtilizationPercentage", default = "target_cpu")]
    #[schemars(range(min = 1, max = 100))]
    pub target_cpu_utilization_percentage: i32,
    /// Seconds to wait before scaling down.
    #[serde(default = "stabilization")]
    #[schemars(range(min = 0, max = 3600))]
    pub scale_down_stabilization_seconds: i32,
    /// Settings of KEDA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keda: Option<Keda>,
}

fn max_replicas() -> i32 {
    100
}

fn target_memory() -> i32 {
    70
}

fn target_cpu() -> i32 {
    90
}

fn stabilization() -> i32 {
    300
}

/// Settings of KEDA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Keda {
    /// Seconds between two looks at the triggers.
    #[serde(default = "polling_interval")]
    #[schemars(range(min = 1))]
    pub polling_interval: i32,
    /// Seconds after the last trigger before scaling down.
    #[serde(default = "stabilization")]
    #[schemars(range(min = 0))]
    pub cooldown_period: i32,
    /// Connections per pod that are aimed at when there are no triggers.
    #[serde(default = "connection_threshold")]
    #[schemars(range(min = 1))]
    pub connection_threshold: i32,
    /// Triggers of scaling.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub triggers: Vec<KedaTrigger>,
}

fn polling_interval() -> i32 {
    30
}

fn connection_threshold() -> i32 {
    200
}

/// A trigger of KEDA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KedaTrigger {
    /// Type of the trigger.
    #[serde(rename = "type")]
    #[schemars(schema_with = "schemas::non_empty")]
    pub kind: String,
    /// Settings of the trigger.
    pub metadata: BTreeMap<String, String>,
}
