//! What every other part reports through and is driven by: logs, metrics, named tasks, and the injected clock
//! and randomness that make tests exact.
//!
//! - [`clock`] and [`random`]: time and chance as values that a caller hands in. Nothing else in the workspace reads
//!   the wall clock or the operating system's randomness directly.
//! - [`task::spawn`]: the only way to start a task; every task has a name that a panic is logged under.
//! - [`logs`]: the process log, rotated by size.
//! - [`metrics`]: the registry behind `/metrics`.
//! - [`text`]: makes text from outside fit to be shown or logged.
//!
//! This crate must never depend on another crate of the workspace, and must never log a value that it did not
//! get from a caller in so many words.

pub mod clock;
pub mod logs;
pub mod metrics;
pub mod random;
pub mod task;
pub mod text;
