//! PromptPack: one immutable version of a pack's content (OM-162 … OM-173).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::reference::LocalName;
use crate::{enumeration::enumeration, schemas};

/// Key of a published pack's ConfigMap that holds the content (OM-165).
pub const CONTENT_KEY: &str = "pack.json";

/// PromptPack is one version of a pack: the prompts that agents speak with.
// Publishing means creating another object, so the spec never changes (OM-162, V-20).
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "omnia.altairalabs.ai",
    version = "v1alpha1",
    kind = "PromptPack",
    plural = "promptpacks",
    namespaced,
    status = "PromptPackStatus",
    derive = "PartialEq",
    shortname = "pp",
    doc = "PromptPack is one version of a pack: the prompts that agents speak with.",
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.version"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self == oldSelf",
     "message": "spec is immutable; publish another version as another PromptPack"}
]))]
pub struct PromptPackSpec {
    /// Name shared by all versions of the pack in the namespace.
    #[schemars(schema_with = "schemas::non_empty")]
    pub pack_name: String,
    /// Semantic version of this content; a leading v is allowed.
    #[schemars(regex(
        pattern = r"^v?(\d+)\.(\d+)\.(\d+)(-[a-zA-Z0-9]+(\.[a-zA-Z0-9]+)*)?(\+[a-zA-Z0-9]+(\.[a-zA-Z0-9]+)*)?$"
    ))]
    pub version: String,
    /// Where the content is.
    pub source: Source,
    /// Skills that the pack's prompts can activate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<SkillRef>,
    /// How skills are selected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skills_config: Option<SkillsConfig>,
}

enumeration! {
    /// Kind of source.
    SourceType {
        /// A published, versioned document in a ConfigMap.
        ConfigMap = "configmap",
        /// Content that follows its edits and has no channel (DD-3).
        Live = "live",
    }
}

/// Where a pack's content is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// configmap for a published version, live for content that is still edited.
    #[serde(rename = "type")]
    pub kind: SourceType,
    /// ConfigMap whose key pack.json holds the published content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<LocalName>,
    /// The live content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<LiveSource>,
}

/// Content that is read when a session starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LiveSource {
    /// ConfigMap whose key pack.json holds the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<LocalName>,
    /// Path below the workspace's content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// Skills of one SkillSource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkillRef {
    /// Name of a SkillSource in the namespace.
    #[schemars(schema_with = "schemas::non_empty")]
    pub source: String,
    /// Names of the skills to take; empty means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<String>,
    /// Group that the skills appear under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount_as: Option<String>,
}

enumeration! {
    /// How skills are chosen (OM-168).
    SkillSelector {
        /// The model asks for them.
        ModelDriven = "model-driven",
        /// By tag.
        Tag = "tag",
        /// By similarity.
        Embedding = "embedding",
    }
}

/// How skills are selected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkillsConfig {
    /// Skills that can be active at the same time.
    #[serde(default = "max_active")]
    #[schemars(range(min = 1))]
    pub max_active: i32,
    /// model-driven, tag or embedding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<SkillSelector>,
}

fn max_active() -> i32 {
    5
}

enumeration! {
    /// Phase of a PromptPack (OM-169).
    Phase {
        /// Not judged yet.
        Pending = "Pending",
        /// Valid, and the version its pack serves on a channel; or a valid live source.
        Active = "Active",
        /// Valid, but another version serves its channels.
        Superseded = "Superseded",
        /// Source or content is invalid.
        Failed = "Failed",
    }
}

/// State of a PromptPack as last seen by its controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromptPackStatus {
    /// Pending, Active, Superseded or Failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Version that is served while the phase is Active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_version: Option<String>,
    /// sha256 of the validated content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_digest: Option<String>,
    /// When the status last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::time")]
    pub last_updated: Option<Time>,
    /// The metadata.generation that was last reconciled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Aspects of the current state, by type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::conditions")]
    pub conditions: Vec<Condition>,
}
