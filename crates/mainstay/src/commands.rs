//! One file per verb. Each parses nothing and decides little: it calls what does the work and prints what came of it.

pub(crate) mod apply;
pub(crate) mod chat;
pub(crate) mod crds;
mod decision;
pub(crate) mod delete;
pub(crate) mod demo;
pub(crate) mod describe;
pub(crate) mod down;
pub(crate) mod events;
pub(crate) mod get;
pub(crate) mod logs;
pub(crate) mod mock_model;
pub(crate) mod policy;
pub(crate) mod probe;
pub(crate) mod session;
pub(crate) mod status;
pub(crate) mod tool;
pub(crate) mod up;
pub(crate) mod version;
pub(crate) mod wait;
pub(crate) mod workload;
