//! Who may do what: role-based access control as the reference has it. Requirement KA-041.
//!
//! Every request that reaches the router, from a socket or from this process, is described by [`Attributes`] and asked
//! of [`Api::authorize`] before anything else looks at it. The answer comes from [`policy`], which is read from the stored
//! roles and bindings and read again after one of them was written. [`escalation`] keeps a user from granting what the
//! user does not have; [`aggregation`] fills the ClusterRoles that are made of others; [`bootstrap`] makes the roles of
//! every cluster; [`impersonation`] lets those who may speak as somebody else.

mod aggregation;
mod attributes;
mod bootstrap;
mod escalation;
mod impersonation;
mod policy;
mod rules;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use arc_swap::ArcSwap;

use crate::{
    api::Api,
    identity::Identity,
    status::{ApiError, ApiResult, Reason},
};

pub(crate) use aggregation::CLUSTER_ROLES;
pub(crate) use attributes::{Attributes, ResourceAttributes};
use policy::Policy;
pub(crate) use rules::Rule;

/// The API group of roles and bindings.
pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";

/// An answer of the authoriser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) allowed: bool,
    /// The binding that allows it, or what kept roles from being looked at; may be empty.
    pub(crate) reason: String,
}

/// Roles and bindings as they were at the last look, and whether they have changed since.
pub(crate) struct Authorizer {
    current: ArcSwap<Policy>,
    /// Counts writes of roles and bindings.
    written: AtomicU64,
}

impl Authorizer {
    pub(crate) fn new() -> Self {
        Self {
            current: ArcSwap::from_pointee(Policy::default()),
            written: AtomicU64::new(1),
        }
    }

    /// Notes that a role or binding was stored or removed. Called before the write is answered, so that whoever was
    /// answered finds the new policy.
    pub(crate) fn changed(&self) {
        self.written.fetch_add(1, Ordering::SeqCst);
    }
}

impl Api {
    /// The roles and bindings at this moment.
    pub(crate) fn policy(&self) -> Arc<Policy> {
        let authorizer = self.authorizer();
        let current = authorizer.current.load_full();
        // Read before the store is: a write that comes between the two makes the next caller look again.
        let written = authorizer.written.load(Ordering::SeqCst);
        if current.made_at() == written {
            return current;
        }
        let fresh = Arc::new(Policy::read(self.store(), written));
        // Two callers may have made one each; the one from the later state stays.
        authorizer.current.rcu(|present| {
            if present.made_at() > fresh.made_at() {
                Arc::clone(present)
            } else {
                Arc::clone(&fresh)
            }
        });
        fresh
    }

    /// Whether `identity` may do what `attributes` say.
    pub(crate) fn authorize(&self, identity: &Identity, attributes: &Attributes) -> Decision {
        if identity.is_master() {
            return Decision {
                allowed: true,
                reason: String::new(),
            };
        }
        self.policy().decide(identity, attributes)
    }

    /// 403 with the text of the reference, unless `identity` may do what `attributes` say.
    pub(crate) fn demand(&self, identity: &Identity, attributes: &Attributes) -> ApiResult<()> {
        let decision = self.authorize(identity, attributes);
        if decision.allowed {
            Ok(())
        } else {
            Err(refusal(identity, attributes, &decision.reason))
        }
    }
}

/// `pods is forbidden: User "x" cannot list resource "pods" in API group "" in the namespace "default"`.
fn refusal(identity: &Identity, attributes: &Attributes, reason: &str) -> Box<ApiError> {
    let mut detail = sanitized(&attributes.denial(&identity.username));
    if !reason.is_empty() {
        detail.push_str(": ");
        detail.push_str(reason);
    }
    match attributes {
        Attributes::Path { .. } => ApiError::bare(Reason::Forbidden, format!("forbidden: {detail}")),
        Attributes::Resource(resource) => {
            ApiError::forbidden(&resource.group, &resource.resource, &resource.name, &detail)
        }
    }
}

/// What a browser could take for markup is written as entities: a path is the client's own text.
fn sanitized(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests;
