//! The controllers over the embedded API: every object is written as a user would write it, every state is watched for
//! with a deadline.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod agents;
mod packs;
mod policies;
mod providers;
mod registries;
mod world;
