//! Tools: what an agent can do in the world, and what it may.
//!
//! Role: turns a rendered [`config::ToolsConfig`] into a set of tools the model can be offered,
//! asks the policy broker about each call, and executes it: argument check, request shaping,
//! credentials, attempts and retries, response shaping.
//!
//! Main types: [`Toolset`] (decide, then execute), [`ToolInvocation`], [`ToolOutcome`],
//! [`config::ToolsConfig`], [`policy::PolicyEngine`], [`supported`] (also asked by the controllers),
//! [`openapi::parse`] (a service's description to its operations).
//!
//! Never: Kubernetes types, provider JSON, SQL, an HTTP client of its own (requests leave only
//! through [`mainstay_workload::Connector`]), or a secret in a log, error, event or `Debug` output.
//!
//! Start reading at [`toolset`], then `http`, [`grpc`] or `mcp` for a call, [`policy`] for a decision and [`openapi`] for
//! tools that are found out at run time.

pub mod arguments;
mod breaker;
pub mod config;
pub mod delegation;
mod executor;
pub mod grpc;
mod http;
pub mod invocation;
mod mcp;
pub mod openapi;
pub mod policy;
pub mod preview;
pub mod propagation;
mod retry;
pub mod support;
mod token;
pub mod toolset;
mod transport;

pub use invocation::{FailureReason, ToolInvocation, ToolOutcome};
pub use preview::Preview;
pub use propagation::{AgentIdentity, decision_request};
pub use support::{Unsupported, supported};
pub use toolset::{ListedTool, OfferedTool, ToolKind, ToolListing, Toolset, ToolsetOptions, Unavailable};
