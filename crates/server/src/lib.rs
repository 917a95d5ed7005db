//! The HTTP side: the front door of the machine and the facades of agents.
//!
//! Role: decides who may come in ([`front_door`]), hands a request to the agent it is for, and speaks the
//! WebSocket protocol of the Omnia facades ([`facade`]) on behalf of an engine of `mainstay-agent`.
//!
//! Main types: [`front_door::FrontDoor`] with its [`front_door::AgentDirectory`], [`facade::router`] with its
//! [`facade::FacadeOptions`], [`sessions::Sessions`] with what was said and done in conversations.
//!
//! Never: SQL, Kubernetes calls, model or tool calls of its own; serving a request that did not pass
//! [`front_door::access`]; letting a slow client hold up a turn.
//!
//! Start reading at [`front_door`], then `facade/connection.rs`.

pub mod facade;
pub mod front_door;
pub mod problem;
pub mod sessions;
