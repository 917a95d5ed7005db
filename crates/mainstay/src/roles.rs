//! What runs as a Pod of this binary's own image.

pub(crate) mod agent;
pub(crate) mod demo;
pub(crate) mod mock_model;
pub(crate) mod orders;
pub(crate) mod probe;
