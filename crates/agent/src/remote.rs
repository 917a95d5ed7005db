//! An agent in a process of its own: what it shares with others stays in the server, and is asked for.
//!
//! [`RemoteJournal`], [`RemoteClaims`] and [`RemoteSigner`] are the process's side, [`AgentServer`] is the server's. By whom a call comes the
//! server knows from the Pod it started, and everything that is about another agent is refused. A process writes only to
//! sessions that it has claimed: an old Pod that is late cannot disturb the new one.

mod claims;
mod delegation;
mod journal;
mod protocol;
mod register;
mod server;

pub use claims::{RemoteClaims, follow_ends};
pub use delegation::RemoteSigner;
pub use journal::RemoteJournal;
pub use server::{AgentServer, AgentServerOptions};

#[cfg(test)]
mod tests;
