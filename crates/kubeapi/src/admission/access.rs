//! `authorizer`: what the request's author, or a ServiceAccount, may do. Requirement KA-041.

use std::sync::Arc;

use mainstay_cel::{Access, AccessDecision, Authorize, Extension, ResourceCheck, Value as Cel};

use super::subject::Subject;
use crate::{
    api::Api,
    authorization::{Attributes, ResourceAttributes},
    identity::Identity,
};

/// Asks the API's own authoriser.
#[derive(Clone, Debug)]
struct Asked {
    api: Api,
    identity: Identity,
}

impl Asked {
    fn decide(&self, attributes: &Attributes) -> AccessDecision {
        let decision = self.api.authorize(&self.identity, attributes);
        AccessDecision {
            allowed: decision.allowed,
            reason: decision.reason,
            error: None,
        }
    }
}

impl Authorize for Asked {
    fn path(&self, path: &str, verb: &str) -> AccessDecision {
        self.decide(&Attributes::Path {
            verb: verb.to_owned(),
            path: path.to_owned(),
        })
    }

    // Selectors only narrow what a decision is about; roles know none.
    fn resource(&self, check: &ResourceCheck, verb: &str) -> AccessDecision {
        self.decide(&Attributes::Resource(ResourceAttributes {
            verb: verb.to_owned(),
            group: check.group.clone(),
            resource: check.resource.clone(),
            subresource: check.subresource.clone(),
            namespace: check.namespace.clone(),
            name: check.name.clone(),
        }))
    }

    fn service_account(&self, namespace: &str, name: &str) -> Arc<dyn Authorize> {
        Arc::new(Self {
            api: self.api.clone(),
            identity: Identity::bare_service_account(namespace, name),
        })
    }
}

/// The values of `authorizer` and `authorizer.requestResource`.
pub(super) fn authorizers(api: &Api, subject: &Subject<'_>) -> (Cel, Cel) {
    let asked: Arc<dyn Authorize> = Arc::new(Asked {
        api: api.clone(),
        identity: subject.author.clone(),
    });
    let own = ResourceCheck {
        group: subject.kind.group.clone(),
        resource: subject.kind.plural.clone(),
        subresource: subject.subresource.to_owned(),
        namespace: subject.namespace().to_owned(),
        name: subject.name.to_owned(),
        ..ResourceCheck::default()
    };
    let value = |access: Access| Cel::extension(Extension::Access(access));
    (
        value(Access::Authorizer(Arc::clone(&asked))),
        value(Access::Resource(asked, Box::new(own))),
    )
}
