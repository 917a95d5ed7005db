//! `mcp` handlers: the tools of a Model Context Protocol server (C.8, OM-419…OM-424).
//!
//! [`Server`] is one handler's server and knows what each request to it carries. [`Connection`] keeps
//! the one session that all calls share, dials it anew when it is lost, and tells the [`McpSource`] when
//! the tools may have changed. [`McpTool`] makes one call.
//!
//! The protocol itself, in both of its eras, is the library's: the `initialize` handshake of 2024-11-05 to
//! 2025-11-25 with its sessions, and `server/discover` with self-contained requests since 2026-07-28. All
//! it sends goes through `client`, the library's client trait over the workload's connector, so that the
//! address rules, Service names and deadlines hold. The transport of 2024-11-05 is ours (`event_stream`).
//!
//! Start reading at `connection`, then `tool`.

mod answer;
mod call;
mod client;
mod connection;
mod event_stream;
mod events;
mod failure;
mod listing;
mod result;
mod server;
mod session;
mod source;
mod tool;
mod watch;

#[cfg(test)]
mod tests;

pub(crate) use self::source::McpSource;
use self::{
    call::CallState, client::SessionClient, connection::Connection, failure::McpFailure, server::Server,
    session::Session, tool::McpTool,
};

/// Most bytes of one message from a server. As for HTTP (OM-386).
const MESSAGE_LIMIT: usize = crate::http::BODY_LIMIT;

/// How long a request other than a tool's call may take.
const REQUEST_DEADLINE: std::time::Duration = std::time::Duration::from_secs(10);
