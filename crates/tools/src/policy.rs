//! The broker: decides whether a tool call may be made (OM-482…OM-494).
//!
//! [`PolicySpec`] is a ToolPolicy without Kubernetes; [`check`] judges one, [`PolicySet::compile`] makes a
//! namespace's policies ready, [`PolicyEngine`] holds the set in force and answers
//! [`DecisionRequest`]s with [`Decision`]s, or with an [`Explanation`] for somebody who asks why. Without a matching permit
//! the answer is no.
//!
//! Start reading at [`engine`] (the order in which things are judged), then [`compiled`].

pub mod compiled;
pub mod decision;
pub mod engine;
mod evaluation;
pub mod explanation;
pub mod header;
pub mod spec;
#[cfg(test)]
mod tests;
mod trace;

pub use compiled::{Checked, NonCanonicalHeader, PolicyError, check};
pub use decision::{
    BROKER_UNREACHABLE, Decision, DecisionRequest, Identity, Mode, NO_MATCHING_PERMIT, StepResult, TraceStep,
};
pub use engine::{OnUnreachable, PolicyEngine, PolicySet};
pub use explanation::{Considered, Explanation, Finding};
pub use header::canonical_name;
pub(crate) use header::{is_framing, is_secret, is_secret_field};
pub use spec::{Deny, HeaderInjection, HeaderSource, OnFailure, PolicySpec, RequiredClaim, Rule};
