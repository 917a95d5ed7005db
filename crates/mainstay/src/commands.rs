//! One file per verb. Each parses nothing and decides little: it calls what does the work and prints what came of it.

pub(crate) mod apply;
pub(crate) mod chat;
pub(crate) mod crds;
pub(crate) mod demo;
pub(crate) mod down;
pub(crate) mod mock_model;
pub(crate) mod status;
pub(crate) mod up;
pub(crate) mod version;
