//! What a role sees when it runs as a Pod: its [`WorkloadContext`] and nothing else.
//!
//! A role is a part of the program that Kubernetes runs: an agent, the demo services, the mock model. On a laptop it is
//! a task in the server's process or a process that the server starts, in a cluster a container; the same context is filled
//! from each. So a role must never read the process's environment or an absolute path, open a socket of its
//! own or build its own HTTP client.
//!
//! - [`WorkloadContext`], [`Role`], [`Ports`]: the contract between a role and whatever runs it.
//! - [`Connector`]: the one way out. It maps Service names to live local endpoints, refuses addresses that no tool or
//!   model may reach, follows no redirect and carries a deadline. [`Connector::dial`] is the way for protocols that keep a
//!   connection of their own.
//! - [`address`]: the rules about addresses, as pure functions.
//! - [`retry_after`]: what a server that is busy asks for, as a pure function.
//! - [`process`]: the same context in a process of its own, which the server has started.
//! - [`sse`]: the decoder of event streams, for models and tools.
//!
//! Start reading at [`context`], then [`connector`].

pub mod address;
pub mod connector;
pub mod context;
pub mod files;
pub mod process;
pub mod retry_after;
pub mod service_name;
pub mod sse;

pub use connector::{
    ConnectError, Connector, ConnectorOptions, Dialled, OutboundRequest, OutboundResponse, Resolution,
    ServiceResolver, TlsClient, TlsError, TlsOptions,
};
pub use context::{
    Identity, LogSink, Ports, Readiness, ReadinessState, Role, RoleError, Roles, ServeError, WorkloadContext,
    WorkloadLog,
};
pub use files::FileRoot;
