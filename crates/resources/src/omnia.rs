//! The Omnia kinds, group `omnia.altairalabs.ai`, version `v1alpha1` (OM-001, OM-011).
//!
//! One module per kind. A type is the manifest as it is written: optional things are `Option`s that are absent
//! when they were absent, declared defaults are serde defaults (so an object that bypassed admission behaves the
//! same, OM-004), and places that the schema leaves open (OM-003) are [`serde_json::Value`]s, because one odd
//! value must not make a whole object unreadable.
//!
//! Doc comments of fields are the descriptions of the schema: `kubectl explain` shows them.

pub mod agent_runtime;
pub mod prompt_pack;
pub mod provider;
pub mod reference;
pub mod tool_policy;
pub mod tool_registry;

pub use agent_runtime::{AgentRuntime, AgentRuntimeSpec, AgentRuntimeStatus};
pub use prompt_pack::{PromptPack, PromptPackSpec, PromptPackStatus};
pub use provider::{Provider, ProviderSpec, ProviderStatus};
pub use tool_policy::{ToolPolicy, ToolPolicySpec, ToolPolicyStatus};
pub use tool_registry::{ToolRegistry, ToolRegistrySpec, ToolRegistryStatus};

/// The API group of every kind here.
pub const GROUP: &str = "omnia.altairalabs.ai";

/// The only version served.
pub const VERSION: &str = "v1alpha1";
