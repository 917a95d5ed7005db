//! Credential, parameters, prices, hosting and role settings of a Provider (OM-178 … OM-184).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{enumeration::enumeration, omnia::reference::SecretKeyOptional, schemas};

/// Where the API key is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "(has(self.secretRef) ? 1 : 0) + (has(self.envVar) ? 1 : 0) + (has(self.filePath) ? 1 : 0) <= 1",
     "message": "at most one of secretRef, envVar and filePath can be set"}
]))]
pub struct Credential {
    /// Secret in the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretKeyOptional>,
    /// Environment variable of the runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env_var: Option<String>,
    /// File in the runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_path: Option<String>,
}

enumeration! {
    /// What to do when a conversation outgrows the context window.
    TruncationStrategy {
        /// Drop the oldest messages.
        Sliding = "sliding",
        /// Replace the oldest messages by a summary.
        Summarize = "summarize",
        /// Leave it to the framework.
        Custom = "custom",
    }
}

fn temperature(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemas::decimal_or_number(2)
}

fn fraction(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemas::decimal_or_number(1)
}

/// Parameters of requests that the prompt pack does not set.
// temperature and topP are kept as written, as a number or as decimal text (OM-180); `settings::decimal` reads both.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Defaults {
    /// Randomness, 0 to 2, as a number or as decimal text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "temperature")]
    pub temperature: Option<serde_json::Value>,
    /// Probability mass of nucleus sampling, 0 to 1, as a number or as decimal text.
    #[serde(rename = "topP", default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fraction")]
    pub top_p: Option<serde_json::Value>,
    /// Upper bound of the tokens of one answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_tokens: Option<i32>,
    /// Size of the model's context in tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub context_window: Option<i32>,
    /// What to do when a conversation outgrows the context window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truncation_strategy: Option<TruncationStrategy>,
    /// Limit of one request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::duration")]
    pub request_timeout: Option<String>,
    /// Longest pause between two pieces of a streamed answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::duration")]
    pub stream_idle_timeout: Option<String>,
}

/// The number in a field that takes a number or decimal text.
#[must_use]
pub fn decimal(value: &serde_json::Value) -> Option<f64> {
    match value {
        serde_json::Value::Number(number) => number.as_f64(),
        serde_json::Value::String(text) => text.parse().ok().filter(|number: &f64| number.is_finite()),
        _ => None,
    }
}

/// Prices per thousand tokens, in the operator's currency.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pricing {
    /// Price of 1000 input tokens, decimal text.
    #[serde(rename = "inputCostPer1K", default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::decimal")]
    pub input_cost_per_1k: Option<String>,
    /// Price of 1000 output tokens, decimal text.
    #[serde(rename = "outputCostPer1K", default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::decimal")]
    pub output_cost_per_1k: Option<String>,
    /// Price of 1000 cached input tokens, decimal text.
    #[serde(rename = "cachedCostPer1K", default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::decimal")]
    pub cached_cost_per_1k: Option<String>,
}

enumeration! {
    /// Cloud that hosts a model.
    HostingPlatformType {
        /// Amazon Bedrock.
        Bedrock = "bedrock",
        /// Google Vertex AI.
        Vertex = "vertex",
        /// Microsoft Azure.
        Azure = "azure",
    }
}

/// Cloud that hosts the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self.type != 'vertex' || has(self.project)", "message": "vertex needs project"},
    {"rule": "self.type != 'azure' || has(self.endpoint)", "message": "azure needs endpoint"}
]))]
pub struct HostingPlatform {
    /// bedrock, vertex or azure.
    #[serde(rename = "type")]
    pub kind: HostingPlatformType,
    /// Region of the cloud.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Google Cloud project. Required for vertex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Endpoint of the deployment. Required for azure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
}

enumeration! {
    /// Authentication to a hosting cloud.
    HostingAuthType {
        /// The workload's own identity.
        WorkloadIdentity = "workloadIdentity",
        /// An AWS access key.
        AccessKey = "accessKey",
        /// A Google service account key.
        ServiceAccount = "serviceAccount",
        /// An Azure service principal.
        ServicePrincipal = "servicePrincipal",
    }
}

/// Authentication to the hosting cloud.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self.type == 'workloadIdentity' || has(self.credentialsSecretRef)",
     "message": "credentialsSecretRef is required unless type is workloadIdentity"}
]))]
pub struct HostingAuth {
    /// workloadIdentity, accessKey, serviceAccount or servicePrincipal.
    #[serde(rename = "type")]
    pub kind: HostingAuthType,
    /// AWS role to assume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role_arn: Option<String>,
    /// Google service account to impersonate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_email: Option<String>,
    /// Secret with the platform's credentials. Required unless type is workloadIdentity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<SecretKeyOptional>,
}

/// Settings of speech from text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpeechSettings {
    /// Voice to speak with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub voice: Option<String>,
    /// Format of the audio.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Samples per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub sample_rate: Option<i32>,
}

/// Settings of text from speech.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TranscriptionSettings {
    /// Language that is spoken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// Format of the audio.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Samples per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub sample_rate: Option<i32>,
}

/// Settings of embeddings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EmbeddingSettings {
    /// Length of the vectors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub dimensions: Option<i32>,
}
