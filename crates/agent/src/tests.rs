#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod budgets;
mod by_hand;
mod client_tools;
mod cooldowns;
mod crash;
mod kills;
mod sessions;
mod skills;
mod subscription;
pub(crate) mod support;
mod tool_calls;
mod turns;
