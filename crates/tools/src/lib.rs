//! Tools: what an agent can do in the world, and what it may.
//!
//! Role: turns a rendered [`config::ToolsConfig`] into a set of tools the model can be offered,
//! asks the policy broker about each call, and executes it: argument check, request shaping,
//! credentials, attempts and retries, response shaping.
//!
//! Main types: [`config::ToolsConfig`], [`policy::Decision`].
//!
//! Never: Kubernetes types, provider JSON, SQL, an HTTP client of its own (requests leave only
//! through [`mainstay_workload::Connector`]), or a secret in a log, error, event or `Debug` output.
//!
//! Start reading at [`policy`].

pub mod policy;
