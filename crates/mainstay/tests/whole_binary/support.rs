//! What the tests share.

pub(crate) mod backend;
pub(crate) mod conversation;
pub(crate) mod desk;
pub(crate) mod objects;
pub(crate) mod program;
pub(crate) mod server;
pub(crate) mod world;

use std::time::Duration;

/// How long anything that is waited for may take on a busy machine. Nothing waits that long unless it fails.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
