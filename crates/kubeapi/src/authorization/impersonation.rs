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
            let others = wanted.others();
            if others.is_empty() {
                return Ok(None);
            }
            return Err(ApiError::new(
                Reason::BadRequest,
                format!("requested [{}] without impersonating a user", others.join(" ")),
            ));
        }
        Ok(Some(wanted))
    }

    /// What is asked for beside a user, as the reference prints it.
    fn others(&self) -> Vec<String> {
        let groups = self.groups.iter().map(|group| format!("{{Group  {group}    }}"));
        let extra = self.extra.iter().flat_map(|(key, values)| {
            values
                .iter()
                .map(move |value| format!("{{UserExtra  {value}  {AUTHENTICATION}/v1  {key}}}"))
        });
        let uid = (!self.uid.is_empty()).then(|| format!("{{UID  {}  {AUTHENTICATION}/v1  }}", self.uid));
        groups.chain(extra).chain(uid).collect()
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
