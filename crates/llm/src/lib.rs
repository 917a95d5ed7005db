//! Model providers behind one streaming interface.
//!
//! Role: turns a provider-neutral [`request::Request`] into one provider's wire format, sends it
//! through the workload's connector, and turns the answer into [`event::ModelEvent`]s; retries what
//! may be retried, goes on with another provider, and leaves failing ones alone for a while; and offers
//! a scripted model ([`mock`]) that needs no network and no key, also as an HTTP server.
//!
//! Main types: [`model::Model`] (what a turn calls), [`request::Request`], [`event::ModelEvent`],
//! [`error::ModelError`], [`config::ProviderConfig`] (what the controllers render), [`build::build`]
//! and [`build::build_chain`], [`cooldown::Cooldowns`] (one for the process).
//!
//! Never: provider JSON outside [`types`] and [`conversion`], Kubernetes types, a credential in a
//! log, an error, an event or `Debug` output, or a connection made other than by
//! [`mainstay_workload::Connector`].
//!
//! Start reading at [`model`], then [`fallback`] for a call's way through its providers, [`openai`] or
//! [`anthropic`] for one over HTTP, [`cooldown`] for what is known of failures, or [`mock`] for the script.

mod anthropic;
pub mod build;
pub mod config;
mod conversion;
pub mod cooldown;
mod credential;
pub mod error;
pub mod event;
pub mod fallback;
pub mod idle;
pub mod message;
pub mod mock;
pub mod model;
pub mod observer;
mod openai;
pub mod rate_limit;
pub mod request;
pub mod retry;
mod transport;
mod types;

pub use mainstay_workload::sse;

pub use build::{BuildContext, BuildError, build, build_chain};
pub use cooldown::{Cooldown, CooldownStore, CooldownStoreError, Cooldowns, ProviderKey};
pub use error::{ModelError, ModelErrorKind};
pub use event::{FinishReason, ModelEvent, ModelStream, Usage};
pub use message::{Message, Role, SignedThought, ToolCall, ToolDescriptor};
pub use model::Model;
pub use observer::{CallEvent, CallObserver};
pub use request::{Parameters, Request, ResponseFormat, ToolChoice};
