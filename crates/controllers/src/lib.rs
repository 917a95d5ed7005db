//! Controllers of the Omnia kinds: they watch, decide, write children and status.
//!
//! Role: for each AgentRuntime, PromptPack, ToolRegistry, Provider and ToolPolicy, read what the object depends on,
//! decide what state it is in, apply the objects it needs, and write its status (OM-240 … OM-351).
//!
//! Main types: [`Controllers`] (runs all of them), [`ControllersOptions`] (what they are told). One module per kind; in each,
//! `decision.rs` is pure and holds the rules, and the module itself reads and writes.
//!
//! Never: a timer that stands in for a watch (the permitted ones are OM-242's), a requeue on success, a Deployment
//! from half of its inputs (OM-260), a credential in a ConfigMap, status, Event or log.
//!
//! Start reading at [`agent_runtime`], then [`work`](mod@work) for how triggers reach a reconcile.

mod backoff;
mod difference;
mod error;
mod events;
mod options;
mod presence;
mod run;
mod status;
mod work;

pub mod agent_runtime;
pub mod prompt_pack;
pub mod provider;
pub mod tool_policy;
pub mod tool_registry;

pub use error::ReconcileError;
pub use options::ControllersOptions;
pub use run::Controllers;
