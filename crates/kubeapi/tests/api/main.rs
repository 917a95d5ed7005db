//! The API as its clients see it: through `kube::Client` in process, by single requests, and over TLS.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod access;
mod custom;
mod deletion;
mod forwarding;
mod harness;
mod listing;
mod objects;
mod pods;
mod policies;
mod serving;
mod tokens;
mod watching;
