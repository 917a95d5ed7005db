//! Kubernetes' authorisation library: an expression asks whether a user may do something. Who answers is handed in.

use std::fmt::Debug;
use std::sync::Arc;

use super::Type;

/// Answers for one user.
pub trait Authorize: Debug + Send + Sync {
    /// Whether the user may send a request with that verb to a path that is no resource's.
    fn path(&self, path: &str, verb: &str) -> AccessDecision;
    /// Whether the user may do that to a resource.
    fn resource(&self, check: &ResourceCheck, verb: &str) -> AccessDecision;
    /// What answers for a ServiceAccount in the user's place.
    fn service_account(&self, namespace: &str, name: &str) -> Arc<dyn Authorize>;
}

/// A resource that is asked about. Empty texts stand for what was not said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // each field is set by the function of that name
pub struct ResourceCheck {
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    pub field_selector: String,
    pub label_selector: String,
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessDecision {
    /// Whether the user may.
    pub allowed: bool,
    /// Why; may be empty.
    pub reason: String,
    /// What kept the question from being answered.
    pub error: Option<String>,
}

/// A value of the library.
#[derive(Clone, Debug)]
pub enum Access {
    /// `kubernetes.authorization.Authorizer`
    Authorizer(Arc<dyn Authorize>),
    /// `kubernetes.authorization.PathCheck`
    Path(Arc<dyn Authorize>, Arc<str>),
    /// `kubernetes.authorization.GroupCheck`
    Group(Arc<dyn Authorize>, Arc<str>),
    /// `kubernetes.authorization.ResourceCheck`
    Resource(Arc<dyn Authorize>, Box<ResourceCheck>),
    /// `kubernetes.authorization.Decision`
    Decision(AccessDecision),
}

impl Access {
    pub(crate) fn type_of(&self) -> Type {
        match self {
            Access::Authorizer(_) => Type::Authorizer,
            Access::Path(..) => Type::PathCheck,
            Access::Group(..) => Type::GroupCheck,
            Access::Resource(..) => Type::ResourceCheck,
            Access::Decision(_) => Type::Decision,
        }
    }
}

impl PartialEq for Access {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Access::Authorizer(left), Access::Authorizer(right)) => Arc::ptr_eq(left, right),
            (Access::Path(left, path), Access::Path(right, other))
            | (Access::Group(left, path), Access::Group(right, other)) => {
                Arc::ptr_eq(left, right) && path == other
            }
            (Access::Resource(left, check), Access::Resource(right, other)) => {
                Arc::ptr_eq(left, right) && check == other
            }
            (Access::Decision(left), Access::Decision(right)) => left == right,
            _ => false,
        }
    }
}
