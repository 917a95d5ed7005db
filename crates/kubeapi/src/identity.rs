//! Who sends a request. Requirement KA-040, KA-042.
//!
//! An identity reaches the router as a request extension that our own layers set, never as a header: a client on a
//! socket cannot claim one.

use std::collections::BTreeMap;

/// The group every authenticated identity is in.
const AUTHENTICATED: &str = "system:authenticated";
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
        Self::of(
            &format!("system:serviceaccount:{namespace}:{name}"),
            &[
                "system:serviceaccounts",
                &format!("system:serviceaccounts:{namespace}"),
                AUTHENTICATED,
            ],
        )
    }

    /// Nobody in particular; may ask only for health and version.
    pub fn anonymous() -> Self {
        Self::of("system:anonymous", &["system:unauthenticated"])
    }

    /// Whether the request carried no credential.
    pub fn is_anonymous(&self) -> bool {
        self.username == "system:anonymous"
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
