//! The Agent Kourier kinds, group `agentkourier.dev`, version `v1alpha1` (AK-001, AK-002).
//!
//! A Binding ties one chat channel to one AgentBackend; a ChatConnection is the chat service that the channel belongs to.
//! The schemas carry most of what a broker checks, so that `kubectl apply` names a wrong field (AK-005, AK-009); what only a
//! broker can tell, such as whether an expression compiles, is reported in a Binding's status (AK-012).
//!
//! Nothing in these schemas is open: every list, map and text has a limit, so that unknown fields are pruned and the cost of
//! the rules can be estimated (AK-008).

pub mod agent_backend;
pub mod binding;
pub mod chat_connection;
pub mod reference;
mod schemas;

pub use agent_backend::{AgentBackend, AgentBackendSpec};
pub use binding::{Binding, BindingSpec, BindingStatus};
pub use chat_connection::{ChatConnection, ChatConnectionSpec};

/// The API group of every kind here.
pub const GROUP: &str = "agentkourier.dev";

/// The only version served.
pub const VERSION: &str = "v1alpha1";

/// Annotation of each CRD with the hash of its schemas: it tells a broker whether the definitions are those that it was built
/// with (AK-007).
pub const SCHEMA_HASH_ANNOTATION: &str = "agentkourier.dev/schema-sha256";
