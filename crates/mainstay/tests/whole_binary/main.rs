//! The built binary in a temporary world: what a person types, what the terminal says, and what is there afterwards.
//!
//! Every test has a directory of its own with `.mainstay` in it, ports are chosen by the system, and nothing waits but
//! for a state: a line of the program, a change of an object, a frame of a conversation; each with a deadline.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod access;
mod any_kind;
mod bad_objects;
mod bad_surroundings;
mod changes;
mod chat;
#[cfg(target_os = "linux")]
mod clock_set_back;
mod command_line;
mod crash;
mod data_directory;
mod examples;
mod failing_parts;
mod families;
mod isolation;
mod kills;
mod newer_data;
mod parked;
#[cfg(target_os = "linux")]
mod power_cuts;
mod sessions;
mod support;
mod tools_by_hand;
