//! Neither kill -9 nor a power cut at any moment loses an acknowledged write or leaves a half write, the counters go on,
//! and a watcher resumes without gap or repeat. Requirements KA-030, KA-026, OR-271, contracts 1 and 7.
//!
//! Each test runs itself again as a child process with 16 writers, which says on its standard output what was acknowledged
//! and what a watcher saw, and ends it: by a kill after a number of acknowledgements, or instead of its Nth operation on
//! its files. Then it looks at what is there, in the second case also at what a power cut may have left
//! (`mainstay-power-cut` says what that is). Rounds go on over the same files; from time to time there are none at first.
//!
//! `MAINSTAY_KILL_POINTS` asks for more rounds, as the nightly run does.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "crash/child.rs"]
mod child;
#[path = "crash/events.rs"]
mod events;
#[path = "crash/objects.rs"]
mod objects;
