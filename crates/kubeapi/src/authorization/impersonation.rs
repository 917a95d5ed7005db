//! Speaking as somebody else: the `Impersonate-…` headers. Requirement KA-041.
//!
//! The headers are a request to be taken for another user, and are granted like any other request: by the verb
//! `impersonate` on users, groups, service accounts, uids and extra attributes.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderValue};

use super::{Attributes, ResourceAttributes};
use crate::{
    api::Api,
    identity::{self, Identity},
    status::{ApiError, ApiResult, Reason},
};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
/// The group of the resources that stand for uids and extra attributes.
const AUTHENTICATION: &str = "authentication.k8s.io";

/// What the headers ask for.
#[derive(Debug, Default)]
struct Wanted {
    user: String,
    groups: Vec<String>,
    uid: String,
    extra: BTreeMap<String, Vec<String>>,
}

impl Wanted {
    /// `None` when no header asks for anything.
    fn read(headers: &HeaderMap) -> ApiResult<Option<Self>> {
        let mut wanted = Self::default();
        for (name, value) in headers {
            let name = name.as_str();
            if !name.starts_with("impersonate-") {
                continue;
            }
            let value = text(value)?;
            match name {
                USER if wanted.user.is_empty() => wanted.user = value,
                GROUP => wanted.groups.push(value),
                UID if wanted.uid.is_empty() => wanted.uid = value,
                _ => {
                    if let Some(key) = name.strip_prefix(EXTRA) {
                        wanted.extra.entry(unescaped(key)).or_default().push(value);
                    }
                }
            }
        }
        if wanted.user.is_empty() {
            if wanted.groups.is_empty() && wanted.uid.is_empty() && wanted.extra.is_empty() {
                return Ok(None);
            }
            return Err(ApiError::new(
                Reason::BadRequest,
                format!("requested {} without impersonating a user name", wanted.shown()),
            ));
        }
        Ok(Some(wanted))
    }

    /// The user that is asked for, as Go prints such a structure.
    fn shown(&self) -> String {
        let list = |values: &[String]| {
            let values: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
            format!("[]string{{{}}}", values.join(", "))
        };
        let groups = match self.groups.as_slice() {
            [] => "[]string(nil)".to_owned(),
            groups => list(groups),
        };
        let extra = if self.extra.is_empty() {
            "map[string][]string(nil)".to_owned()
        } else {
            let entries: Vec<String> = self
                .extra
                .iter()
                .map(|(key, values)| format!("{key:?}:{}", list(values)))
                .collect();
            format!("map[string][]string{{{}}}", entries.join(", "))
        };
        format!(
            "&user.DefaultInfo{{Name:\"\", UID:{:?}, Groups:{groups}, Extra:{extra}}}",
            self.uid
        )
    }

    /// Each thing that has to be allowed.
    fn demands(&self) -> Vec<ResourceAttributes> {
        let ask = |group: &str, resource: &str, name: &str| ResourceAttributes {
            verb: "impersonate".to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
            ..ResourceAttributes::default()
        };
        let user = match identity::service_account_name(&self.user) {
            Some((namespace, name)) => ResourceAttributes {
                namespace: namespace.to_owned(),
                ..ask("", "serviceaccounts", name)
            },
            None => ask("", "users", &self.user),
        };
        let mut demands = vec![user];
        demands.extend(self.groups.iter().map(|group| ask("", "groups", group)));
        for (key, values) in &self.extra {
            demands.extend(values.iter().map(|value| ResourceAttributes {
                subresource: key.clone(),
                ..ask(AUTHENTICATION, "userextras", value)
            }));
        }
        if !self.uid.is_empty() {
            demands.push(ask(AUTHENTICATION, "uids", &self.uid));
        }
        demands
    }

    fn identity(self) -> Identity {
        let mut groups = self.groups;
        if groups.is_empty()
            && let Some((namespace, _)) = identity::service_account_name(&self.user)
        {
            groups.extend(identity::service_account_groups(namespace));
        }
        let anonymous = self.user == identity::ANONYMOUS;
        let has = |wanted: &str| groups.iter().any(|group| group == wanted);
        if anonymous {
            if !has(identity::UNAUTHENTICATED) {
                groups.push(identity::UNAUTHENTICATED.to_owned());
            }
        } else if !has(identity::AUTHENTICATED) && !has(identity::UNAUTHENTICATED) {
            groups.push(identity::AUTHENTICATED.to_owned());
        }
        Identity {
            username: self.user,
            uid: self.uid,
            groups,
            extra: self.extra,
        }
    }
}

fn text(value: &HeaderValue) -> ApiResult<String> {
    value.to_str().map(str::to_owned).map_err(|_not_text| {
        ApiError::new(
            Reason::BadRequest,
            "an impersonation header holds characters that are not visible ASCII",
        )
    })
}

/// An attribute's name as it was before it was escaped for a header name; left as it is when it is not an escape.
fn unescaped(key: &str) -> String {
    crate::request::percent_decoded(key).unwrap_or_else(|| key.to_owned())
}

impl Api {
    /// The identity that a request is to be worked on as: its own, or the one its headers ask for.
    ///
    /// # Errors
    /// 403 if `identity` may not speak as the other; 400 if the headers name no user.
    pub(crate) fn impersonated(&self, identity: Identity, headers: &HeaderMap) -> ApiResult<Identity> {
        let Some(wanted) = Wanted::read(headers)? else {
            return Ok(identity);
        };
        for demand in wanted.demands() {
            self.demand(&identity, &Attributes::Resource(demand))?;
        }
        let other = wanted.identity();
        tracing::info!(user = ?identity.username, as_user = ?other.username, "a request is made as another user");
        Ok(other)
    }
}
