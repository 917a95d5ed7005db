//! The conversation of an agent: packs, sessions, turns and their events.
//!
//! Role: takes a user's message into a session, runs the turn that answers it (model, policy, tools, in
//! rounds), and tells whoever listens what happened, in events that are stored before they are shown.
//!
//! Main types: [`Engine`] (one per agent), [`SessionHandle`] (what a facade holds), [`event::Event`] (the
//! one envelope), [`pack::Pack`] (the prompt), and the two traits through which the world is reached:
//! [`journal::Journal`] and [`tool::ToolRunner`]. [`StoredCooldowns`] is here because this crate knows both the models
//! and the store.
//!
//! Never: Kubernetes types, HTTP server types, SQL, provider JSON, a socket or a file of its own; showing an
//! event that is not stored (other than a piece of a running attempt); sending a tool call whose intent is not
//! stored; sending a finished call again.
//!
//! Start reading at `turn/machine.rs`, which fits on a page; then
//! `turn/driver.rs`, and `hub/subscription.rs` for what a reader sees.

pub mod budget;
pub mod builtin;
pub mod claims;
mod cooldowns;
pub mod engine;
pub mod event;
mod history;
mod hub;
pub mod journal;
pub mod limits;
pub mod metrics;
pub mod model_entry;
pub mod pack;
pub mod pack_source;
pub mod remote;
pub mod session;
pub mod tool;
mod turn;

pub use budget::{Budget, Budgets, StoredBudgets};
pub use cooldowns::StoredCooldowns;
pub use engine::{Engine, EngineOptions, StartError};
pub use event::{Event, Payload};
pub use hub::{ClientAttachment, ClientReply, FirstCopy, Hubs, SubscriptionError};
pub use limits::Limits;
pub use metrics::EngineMetrics;
pub use model_entry::{ModelEntry, Prices};
pub use pack_source::{FixedPack, LoadedPack, PackError, PackFile, PackSource};
pub use session::{IncomingMessage, SendError, SessionError, SessionHandle, Ticket};

#[cfg(test)]
pub(crate) mod tests;
