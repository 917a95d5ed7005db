//! The broker: decides whether a tool call may be made (OM-482…OM-494).

pub mod decision;

pub use decision::{
    BROKER_UNREACHABLE, Decision, DecisionRequest, Identity, Mode, NO_MATCHING_PERMIT, StepResult,
    TraceStep,
};
