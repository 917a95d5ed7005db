//! Who sends a request. Requirement KA-040, KA-042.
//!
//! An identity reaches the router as a request extension that our own layers set, never as a header: a client on a
//! socket cannot claim one.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::names;

/// The group every authenticated identity is in.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
/// The group of those without a credential.
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The name of those without a credential.
pub(crate) const ANONYMOUS: &str = "system:anonymous";
/// How the user name of a ServiceAccount begins.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
/// The group that may do everything.
const MASTERS: &str = "system:masters";

/// The user behind a request, in the terms of `authentication.k8s.io/v1.UserInfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The user's name, for example `kubernetes-admin` or `system:serviceaccount:default:orders`.
    pub username: String,
    /// An identifier that outlives a reuse of the name; may be empty.
    pub uid: String,
    /// The groups the user is in.
    pub groups: Vec<String>,
    /// Further attributes.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl Identity {
    /// The owner of the data directory, whom the admin token names.
    pub fn admin() -> Self {
        Self::of("kubernetes-admin", &[MASTERS, AUTHENTICATED])
    }

    /// A part of this program, for example `controllers`.
    pub fn component(name: &str) -> Self {
        Self::of(&format!("system:mainstay:{name}"), &[MASTERS, AUTHENTICATED])
    }

    /// A ServiceAccount.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        let mut identity = Self::of(&format!("{SERVICE_ACCOUNT}{namespace}:{name}"), &[]);
        identity.groups.extend(service_account_groups(namespace));
        identity.groups.push(AUTHENTICATED.to_owned());
        identity
    }

    /// A ServiceAccount as it is known without a credential of its own: it is in no group of those who have one.
    pub(crate) fn bare_service_account(namespace: &str, name: &str) -> Self {
        let mut identity = Self::of(&format!("{SERVICE_ACCOUNT}{namespace}:{name}"), &[]);
        identity.groups.extend(service_account_groups(namespace));
        identity
    }

    /// Nobody in particular; may ask only for health and version.
    pub fn anonymous() -> Self {
        Self::of(ANONYMOUS, &[UNAUTHENTICATED])
    }

    /// Whether the request carried no credential.
    pub fn is_anonymous(&self) -> bool {
        self.username == ANONYMOUS
    }

    /// Whether it may do everything, whatever roles there are.
    pub(crate) fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == MASTERS)
    }

    /// As `authentication.k8s.io/v1.UserInfo`.
    pub(crate) fn to_user_info(&self) -> Value {
        let mut info = json!({"username": self.username});
        if let Some(fields) = info.as_object_mut() {
            if !self.uid.is_empty() {
                fields.insert("uid".to_owned(), json!(self.uid));
            }
            if !self.groups.is_empty() {
                fields.insert("groups".to_owned(), json!(self.groups));
            }
            if !self.extra.is_empty() {
                fields.insert("extra".to_owned(), json!(self.extra));
            }
        }
        info
    }

    fn of(username: &str, groups: &[&str]) -> Self {
        Self {
            username: username.to_owned(),
            uid: String::new(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            extra: BTreeMap::new(),
        }
    }
}

/// The groups of every ServiceAccount of a namespace.
pub(crate) fn service_account_groups(namespace: &str) -> [String; 2] {
    [
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
    ]
}

/// The namespace and name of the ServiceAccount that a user name stands for.
pub(crate) fn service_account_name(username: &str) -> Option<(&str, &str)> {
    let (namespace, name) = username.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
    let is_valid =
        !name.contains(':') && names::label(namespace).is_empty() && names::subdomain(name).is_empty();
    is_valid.then_some((namespace, name))
}
