//! Optional blocks of an agent (OM-137 … OM-143).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{enumeration::enumeration, omnia::reference::LocalName, schemas};

enumeration! {
    /// Engine that runs packs.
    #[derive(Default)]
    FrameworkType {
        /// The built-in engine.
        #[default]
        PromptKit = "promptkit",
        /// LangChain.
        LangChain = "langchain",
        /// An image of the user's.
        Custom = "custom",
    }
}

/// Engine that runs the pack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self.type != 'custom' || has(self.image)", "message": "image is required for type custom"}
]))]
pub struct Framework {
    /// promptkit, langchain or custom.
    #[serde(rename = "type", default)]
    pub kind: FrameworkType,
    /// Version of the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Image of the engine. Required for type custom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

/// Media files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Media {
    /// Folder that media paths start from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_path: Option<String>,
    /// Where media is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<MediaStorage>,
}

enumeration! {
    /// Store of media.
    #[derive(Default)]
    MediaStorageType {
        /// None.
        #[default]
        None = "none",
        /// A folder.
        Local = "local",
        /// Amazon S3 and compatible stores.
        S3 = "s3",
        /// Google Cloud Storage.
        Gcs = "gcs",
        /// Azure Blob Storage.
        Azure = "azure",
    }
}

/// Where media is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self.type != 'local' || has(self.local)", "message": "local is required for type local"},
    {"rule": "self.type != 's3' || has(self.s3)", "message": "s3 is required for type s3"},
    {"rule": "self.type != 'gcs' || has(self.gcs)", "message": "gcs is required for type gcs"},
    {"rule": "self.type != 'azure' || has(self.azure)", "message": "azure is required for type azure"}
]))]
pub struct MediaStorage {
    /// none, local, s3, gcs or azure.
    #[serde(rename = "type", default)]
    pub kind: MediaStorageType,
    /// A folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<LocalMedia>,
    /// A bucket of S3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3Media>,
    /// A bucket of Google Cloud Storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gcs: Option<GcsMedia>,
    /// A container of Azure Blob Storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub azure: Option<AzureMedia>,
}

/// A folder of media.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalMedia {
    /// The folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_path: Option<String>,
}

/// A bucket of S3.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct S3Media {
    /// Name of the bucket.
    #[schemars(schema_with = "schemas::non_empty")]
    pub bucket: String,
    /// Region of the bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Prefix of the keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Endpoint of a compatible store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Secret with the credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalName>,
}

/// A bucket of Google Cloud Storage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GcsMedia {
    /// Name of the bucket.
    #[schemars(schema_with = "schemas::non_empty")]
    pub bucket: String,
    /// Prefix of the keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Secret with the credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalName>,
}

/// A container of Azure Blob Storage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AzureMedia {
    /// Storage account.
    #[schemars(schema_with = "schemas::non_empty")]
    pub account: String,
    /// Name of the container.
    #[schemars(schema_with = "schemas::non_empty")]
    pub container: String,
    /// Prefix of the keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Secret with the credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalName>,
}

/// Evaluation of sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Evals {
    /// Turns evaluation on.
    #[serde(default)]
    pub enabled: bool,
    /// Evaluations during a turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline: Option<InlineEvals>,
    /// Evaluations after a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerEvals>,
    /// Share of turns that is evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<EvalSampling>,
    /// Limits of evaluation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<EvalRateLimit>,
    /// When a session counts as complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_completion: Option<SessionCompletion>,
}

/// Evaluations during a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InlineEvals {
    /// Groups that run.
    #[serde(default = "inline_groups")]
    pub groups: Vec<String>,
}

fn inline_groups() -> Vec<String> {
    vec!["fast-running".into()]
}

/// Evaluations after a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerEvals {
    /// Groups that run.
    #[serde(default = "worker_groups")]
    pub groups: Vec<String>,
}

fn worker_groups() -> Vec<String> {
    vec!["long-running".into(), "external".into()]
}

/// Share of turns that is evaluated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvalSampling {
    /// Percent for ordinary evaluations.
    #[serde(default = "default_rate")]
    #[schemars(range(min = 0, max = 100))]
    pub default_rate: i32,
    /// Percent for evaluations that call a model.
    #[serde(default = "extended_rate")]
    #[schemars(range(min = 0, max = 100))]
    pub extended_rate: i32,
}

fn default_rate() -> i32 {
    100
}

fn extended_rate() -> i32 {
    10
}

/// Limits of evaluation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvalRateLimit {
    /// Evaluations per second.
    #[serde(default = "max_evals_per_second")]
    #[schemars(range(min = 1))]
    pub max_evals_per_second: i32,
    /// Calls of a judging model at the same time.
    #[serde(default = "max_concurrent_judge_calls")]
    #[schemars(range(min = 1))]
    pub max_concurrent_judge_calls: i32,
}

fn max_evals_per_second() -> i32 {
    50
}

fn max_concurrent_judge_calls() -> i32 {
    5
}

/// When a session counts as complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionCompletion {
    /// Time since the last message.
    #[serde(default = "inactivity_timeout")]
    #[schemars(schema_with = "schemas::duration")]
    pub inactivity_timeout: String,
}

fn inactivity_timeout() -> String {
    "5m".into()
}

/// Settings of the dashboard's console.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Console {
    /// Media types that can be attached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_attachment_types: Vec<String>,
    /// File extensions that can be attached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_extensions: Vec<String>,
    /// Largest attachment, in bytes.
    #[serde(default = "max_file_size")]
    #[schemars(range(min = 1))]
    pub max_file_size: i64,
    /// Most attachments of one message.
    #[serde(default = "max_files")]
    #[schemars(range(min = 1, max = 20))]
    pub max_files: i32,
}

fn max_file_size() -> i64 {
    10_485_760
}

fn max_files() -> i32 {
    5
}

enumeration! {
    /// Kind of duplex session.
    #[derive(Default)]
    DuplexMode {
        /// Speech.
        #[default]
        Audio = "audio",
        /// Speech and the client's camera.
        AudioVideo = "audiovideo",
    }
}

/// Speech in both directions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Duplex {
    /// Turns duplex sessions on.
    #[serde(default)]
    pub enabled: bool,
    /// audio or audiovideo.
    #[serde(default)]
    pub mode: DuplexMode,
    /// Format of the audio.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audio: Option<DuplexAudio>,
}

/// Format of duplex audio.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DuplexAudio {
    /// Longest audio, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_duration_seconds: Option<i32>,
    /// Samples per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub recommended_sample_rate: Option<i32>,
    /// Number of channels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub channels: Option<i32>,
    /// Sample format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
}

/// Authentication of clients outside the cluster. Without it only the management plane is admitted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExternalAuth {
    /// Keys of single callers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_keys: Option<ClientKeys>,
    /// Tokens of an OpenID Connect issuer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oidc: Option<Oidc>,
    /// Headers of an upstream proxy that has checked the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge_trust: Option<EdgeTrust>,
}

enumeration! {
    /// Role of a caller.
    #[derive(Default)]
    CallerRole {
        /// Reads.
        #[default]
        Viewer = "viewer",
        /// Edits.
        Editor = "editor",
        /// Administers.
        Admin = "admin",
    }
}

/// Keys of single callers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClientKeys {
    /// Role of a key that names none.
    #[serde(default)]
    pub default_role: CallerRole,
    /// Believes the end user that a caller names in X-End-User-Id.
    #[serde(default)]
    pub trust_end_user_header: bool,
}

/// Tokens of an OpenID Connect issuer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Oidc {
    /// URL of the issuer.
    #[schemars(schema_with = "schemas::non_empty")]
    pub issuer: String,
    /// Audience that tokens must name.
    #[schemars(schema_with = "schemas::non_empty")]
    pub audience: String,
    /// Claims that name the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_mapping: Option<ClaimMapping>,
}

/// Claims that name the caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimMapping {
    /// Claim of the caller.
    #[serde(default = "sub")]
    pub subject: String,
    /// Claim of the end user.
    #[serde(default = "sub")]
    pub end_user: String,
}

fn sub() -> String {
    "sub".into()
}

/// Headers of an upstream proxy that has checked the caller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EdgeTrust {
    /// Headers that name the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header_mapping: Option<HeaderMapping>,
    /// Further claims: header name to claim name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub claims_from_headers: BTreeMap<String, String>,
}

/// Headers that name the caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeaderMapping {
    /// Header of the caller.
    #[serde(default = "user_id_header")]
    pub subject: String,
    /// Header of the end user.
    #[serde(default = "user_id_header")]
    pub end_user: String,
    /// Header of the e-mail address.
    #[serde(default = "user_email_header")]
    pub email: String,
}

fn user_id_header() -> String {
    "x-user-id".into()
}

fn user_email_header() -> String {
    "x-user-email".into()
}

/// Memory across sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// Turns memory on.
    #[serde(default)]
    pub enabled: bool,
    /// Memories put before the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retrieval: Option<MemoryRetrieval>,
    /// Tools that read and write memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<MemoryTools>,
}

enumeration! {
    /// How memories are found.
    RetrievalStrategy {
        /// By words.
        Keyword = "keyword",
        /// By meaning.
        Semantic = "semantic",
        /// By both.
        Composite = "composite",
    }
}

/// Memories put before the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemoryRetrieval {
    /// Turns retrieval on.
    #[serde(default = "enabled")]
    pub enabled: bool,
    /// keyword, semantic or composite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<RetrievalStrategy>,
    /// Most memories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 50))]
    pub limit: Option<i32>,
    /// Memories that are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_filter: Option<MemoryAccessFilter>,
}

/// Memories that are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemoryAccessFilter {
    /// CEL expression that is true for a memory to leave out.
    #[serde(rename = "denyCEL", default, skip_serializing_if = "Option::is_none")]
    pub deny_cel: Option<String>,
}

/// Tools that read and write memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemoryTools {
    /// Offers the tools.
    #[serde(default = "enabled")]
    pub enabled: bool,
}

fn enabled() -> bool {
    true
}
