//! The conversation: packs, sessions, turns and their events.
pub mod pack;
