//! A scripted model: deterministic, without network or key (OM-495).
//!
//! A [`Scenario`] says what the model answers to which message, which tools it calls, and how it
//! goes on after their results. What to answer is a pure function of the scenario and the
//! conversation ([`script`]), so the same script serves as a [`MockModel`] inside an agent and,
//! through [`router`], as a server that speaks the formats of OpenAI and Anthropic. The format is described in
//! `docs/reference/scenario.md`.

mod model;
mod scenario;
pub mod script;
mod server;
mod template;

pub use model::MockModel;
pub use scenario::{Call, Chunks, Failure, Scenario, ScenarioError, Step, Turn};
pub use server::router;
pub use template::{Scene, Template, TemplateError};
