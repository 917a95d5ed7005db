#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod protocol;
mod reconnecting;
mod support;
mod transport;
