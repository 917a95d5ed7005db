//! ValidatingAdmissionPolicy: rules in CEL that users give for writes of any kind. Requirement KA-010.
//!
//! [`Api::admit`] is asked by the write pipeline, by deletions, by subresources that create and by connections to
//! workloads, with the [`Subject`] of the request. Policies and bindings are read from the store, compiled once, and read
//! again after one of them was written; while there is none, a write pays for one look at a counter. `matching` says which
//! policies a request concerns, `parameters` finds their parameters, `evaluate` runs the expressions, `dispatch` turns the
//! outcomes into a refusal or warnings. `validate` and `rights` judge policies and bindings when they are written,
//! `typecheck` warns in their status of expressions that do not fit the kinds they are meant for.
//!
//! The server's own work (garbage collection, the removal of namespaces) passes no policy.

mod access;
mod compile;
mod dispatch;
mod evaluate;
mod matching;
mod model;
mod parameters;
mod policies;
mod requests;
mod rights;
mod shapes;
mod subject;
mod typecheck;
mod validate;

pub(crate) use policies::Policies;
pub(crate) use requests::Creation;
pub(crate) use subject::Target;
pub(crate) use typecheck::unobserved;
pub(crate) use validate::{default_policy, validate_binding, validate_policy};

/// The API group.
pub(crate) const GROUP: &str = "admissionregistration.k8s.io";
/// Where policies are stored.
pub(crate) const POLICIES: &str = "admissionregistration.k8s.io/validatingadmissionpolicies";
/// Where bindings are stored.
pub(crate) const BINDINGS: &str = "admissionregistration.k8s.io/validatingadmissionpolicybindings";
