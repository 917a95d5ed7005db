//! Provider: a model service and how to reach it (OM-174 … OM-186).

pub mod settings;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::settings::{
    Credential, Defaults, EmbeddingSettings, HostingAuth, HostingAuthType, HostingPlatform,
    HostingPlatformType, Pricing, SpeechSettings, TranscriptionSettings, TruncationStrategy,
};
use crate::{enumeration::enumeration, schemas};

/// Provider is a model service that agents can use.
// Rules: OM-175 (types per role), OM-183 (hosting), OM-184 (role settings). A missing model is not among them:
// the controller reports it as ModelMissing (OM-348).
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "omnia.altairalabs.ai",
    version = "v1alpha1",
    kind = "Provider",
    plural = "providers",
    namespaced,
    status = "ProviderStatus",
    derive = "PartialEq",
    shortname = "prov",
    doc = "Provider is a model service that agents can use.",
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
    printcolumn(name = "Model", type_ = "string", json_path = ".spec.model"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self.role != 'llm' || self.type in ['claude', 'openai', 'gemini', 'ollama', 'mock', 'vllm']",
     "message": "role llm is served by types claude, openai, gemini, ollama, mock and vllm"},
    {"rule": "self.role != 'embedding' || self.type in ['openai', 'voyageai', 'gemini', 'ollama']",
     "message": "role embedding is served by types openai, voyageai, gemini and ollama"},
    {"rule": "self.role != 'tts' || self.type in ['openai', 'cartesia', 'elevenlabs']",
     "message": "role tts is served by types openai, cartesia and elevenlabs"},
    {"rule": "self.role != 'stt' || self.type == 'openai'",
     "message": "role stt is served by type openai"},
    {"rule": "self.role != 'image' || self.type == 'imagen'",
     "message": "role image is served by type imagen"},
    {"rule": "self.role != 'inference' || self.type == 'huggingface'",
     "message": "role inference is served by type huggingface"},
    {"rule": "has(self.platform) == has(self.auth)",
     "message": "platform and auth are set together or not at all"},
    {"rule": "!has(self.platform) || (self.role in ['llm', 'embedding'] && self.type in ['claude', 'openai', 'gemini'])",
     "message": "platform is only for roles llm and embedding and types claude, openai and gemini"},
    {"rule": "!has(self.platform) || !has(self.auth) || self.platform.type != 'bedrock' || self.auth.type in ['workloadIdentity', 'accessKey']",
     "message": "bedrock takes auth.type workloadIdentity or accessKey"},
    {"rule": "!has(self.platform) || !has(self.auth) || self.platform.type != 'vertex' || self.auth.type in ['workloadIdentity', 'serviceAccount']",
     "message": "vertex takes auth.type workloadIdentity or serviceAccount"},
    {"rule": "!has(self.platform) || !has(self.auth) || self.platform.type != 'azure' || self.auth.type in ['workloadIdentity', 'servicePrincipal']",
     "message": "azure takes auth.type workloadIdentity or servicePrincipal"},
    {"rule": "!has(self.platform) || !(self.type == 'openai' && self.platform.type == 'vertex')",
     "message": "type openai is not hosted on vertex"},
    {"rule": "!has(self.platform) || !(self.type == 'gemini' && self.platform.type in ['bedrock', 'azure'])",
     "message": "type gemini is hosted on vertex only"},
    {"rule": "(has(self.tts) ? 1 : 0) + (has(self.stt) ? 1 : 0) + (has(self.embedding) ? 1 : 0) <= 1",
     "message": "at most one of tts, stt and embedding can be set"},
    {"rule": "!has(self.tts) || self.role == 'tts'", "message": "tts is only for role tts"},
    {"rule": "!has(self.stt) || self.role == 'stt'", "message": "stt is only for role stt"},
    {"rule": "!has(self.embedding) || self.role == 'embedding'", "message": "embedding is only for role embedding"}
]))]
pub struct ProviderSpec {
    /// The service's protocol: claude, openai, gemini, ollama, mock, vllm, voyageai, cartesia, elevenlabs, imagen or
    /// huggingface.
    #[serde(rename = "type")]
    pub kind: ProviderType,
    /// What the provider is used for.
    #[serde(default)]
    pub role: ProviderRole,
    /// Model identifier. Required except for type mock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Base URL in place of the service's public one.
    #[serde(rename = "baseURL", default, skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// Headers added to every request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Where the API key is: one of a Secret, an environment variable and a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<Credential>,
    /// Parameters of requests that the prompt pack does not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defaults: Option<Defaults>,
    /// Prices that usage is multiplied with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pricing: Option<Pricing>,
    /// What the model can do. When not empty, agents use only what is listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<Capability>,
    /// Cloud that hosts the model. Set together with auth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<HostingPlatform>,
    /// Authentication to the hosting cloud. Set together with platform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<HostingAuth>,
    /// Settings of role tts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tts: Option<SpeechSettings>,
    /// Settings of role stt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stt: Option<TranscriptionSettings>,
    /// Settings of role embedding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embedding: Option<EmbeddingSettings>,
}

enumeration! {
    /// Protocol of a model service (OM-174).
    ProviderType {
        /// Anthropic Messages.
        Claude = "claude",
        /// OpenAI Chat Completions, and whatever is compatible with it.
        OpenAi = "openai",
        /// Google Gemini.
        Gemini = "gemini",
        /// Ollama.
        Ollama = "ollama",
        /// A scripted model without a network.
        Mock = "mock",
        /// vLLM.
        Vllm = "vllm",
        /// Voyage AI embeddings.
        VoyageAi = "voyageai",
        /// Cartesia speech.
        Cartesia = "cartesia",
        /// ElevenLabs speech.
        ElevenLabs = "elevenlabs",
        /// Google Imagen.
        Imagen = "imagen",
        /// Hugging Face inference.
        HuggingFace = "huggingface",
    }
}

enumeration! {
    /// Use of a provider (OM-175).
    #[derive(Default)]
    ProviderRole {
        /// Conversation.
        #[default]
        Llm = "llm",
        /// Embeddings.
        Embedding = "embedding",
        /// Speech from text.
        Tts = "tts",
        /// Text from speech.
        Stt = "stt",
        /// Images.
        Image = "image",
        /// Other inference.
        Inference = "inference",
    }
}

impl ProviderRole {
    /// The types that can serve this role (OM-175).
    #[must_use]
    pub fn types(self) -> &'static [ProviderType] {
        use ProviderType as T;
        match self {
            ProviderRole::Llm => &[T::Claude, T::OpenAi, T::Gemini, T::Ollama, T::Mock, T::Vllm],
            ProviderRole::Embedding => &[T::OpenAi, T::VoyageAi, T::Gemini, T::Ollama],
            ProviderRole::Tts => &[T::OpenAi, T::Cartesia, T::ElevenLabs],
            ProviderRole::Stt => &[T::OpenAi],
            ProviderRole::Image => &[T::Imagen],
            ProviderRole::Inference => &[T::HuggingFace],
        }
    }
}

enumeration! {
    /// Something a model can do (OM-182).
    Capability {
        /// Text.
        Text = "text",
        /// Streaming answers.
        Streaming = "streaming",
        /// Images as input.
        Vision = "vision",
        /// Tool calls.
        Tools = "tools",
        /// Structured output.
        Json = "json",
        /// Audio.
        Audio = "audio",
        /// Video.
        Video = "video",
        /// Documents.
        Documents = "documents",
        /// Speech in both directions.
        Duplex = "duplex",
    }
}

enumeration! {
    /// Phase of a Provider (OM-185).
    Phase {
        /// Configured and reachable.
        Ready = "Ready",
        /// Credential or model is wrong.
        Error = "Error",
        /// The endpoint cannot be reached.
        Unavailable = "Unavailable",
    }
}

/// State of a Provider as last seen by its controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProviderStatus {
    /// Ready, Error or Unavailable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Aspects of the current state, by type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::conditions")]
    pub conditions: Vec<Condition>,
    /// When the provider was last found valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::time")]
    pub last_validated: Option<Time>,
    /// The metadata.generation that was last reconciled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
