//! What a token says, and whether it still holds.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Authenticated, ISSUER, jwt};
use crate::{api::Api, commit, identity::Identity, object};

/// How far clocks may differ.
const LEEWAY: SignedDuration = SignedDuration::from_secs(60);

/// The claims of a ServiceAccount's token.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Claims {
    pub(super) aud: Vec<String>,
    pub(super) exp: i64,
    pub(super) iat: i64,
    pub(super) iss: String,
    #[serde(default)]
    pub(super) jti: String,
    #[serde(rename = "kubernetes.io")]
    pub(super) kubernetes: Kubernetes,
    pub(super) nbf: i64,
    pub(super) sub: String,
}

/// The account, and what the token is bound to.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Kubernetes {
    pub(super) namespace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<Reference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pod: Option<Reference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) secret: Option<Reference>,
    pub(super) serviceaccount: Reference,
}

/// An object by name and uid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reference {
    pub(super) name: String,
    pub(super) uid: String,
}

impl Reference {
    /// The reference to a stored object.
    pub(super) fn to(object: &Value) -> Self {
        Self {
            name: object::name(object).to_owned(),
            uid: object::uid(object).to_owned(),
        }
    }
}

impl Claims {
    fn check_times(&self, now: Timestamp) -> Result<(), String> {
        let seconds = now.as_second();
        let leeway = LEEWAY.as_secs();
        let problem = if seconds.saturating_sub(leeway) > self.exp {
            "service account token has expired"
        } else if seconds.saturating_add(leeway) < self.nbf {
            "service account token is not valid yet"
        } else if seconds.saturating_add(leeway) < self.iat {
            "service account token is issued in the future"
        } else {
            return Ok(());
        };
        Err(problem.to_owned())
    }

    fn identity(self) -> Identity {
        let Kubernetes {
            namespace,
            node,
            pod,
            serviceaccount,
            ..
        } = self.kubernetes;
        let mut identity = Identity::service_account(&namespace, &serviceaccount.name);
        identity.uid = serviceaccount.uid;
        let mut extra = BTreeMap::new();
        let mut add = |name: &str, value: String| {
            if !value.is_empty() {
                extra.insert(format!("authentication.kubernetes.io/{name}"), vec![value]);
            }
        };
        if !self.jti.is_empty() {
            add("credential-id", format!("JTI={}", self.jti));
        }
        for (kind, reference) in [("node", node), ("pod", pod)] {
            if let Some(Reference { name, uid }) = reference {
                add(&format!("{kind}-name"), name);
                add(&format!("{kind}-uid"), uid);
            }
        }
        identity.extra = extra;
        identity
    }
}

impl Api {
    /// Who a token of this issuer stands for.
    pub(super) fn authenticate_account(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<Authenticated, String> {
        let claims: Claims = jwt::verify(self.signing_key(), token)?;
        if claims.iss != ISSUER {
            return Err(format!("token issuer {:?} is invalid", claims.iss));
        }
        let meant: Vec<String> = claims
            .aud
            .iter()
            .filter(|audience| audiences.contains(audience))
            .cloned()
            .collect();
        if meant.is_empty() {
            return Err(format!(
                "token audiences {} is invalid for the target audiences {}",
                listed(&claims.aud),
                listed(audiences)
            ));
        }
        claims.check_times(self.clock().now())?;
        self.check_bound(&claims.kubernetes)?;
        Ok(Authenticated {
            identity: claims.identity(),
            audiences: meant,
        })
    }

    /// Whether the account and what the token is bound to are still there, and are the same.
    fn check_bound(&self, claims: &Kubernetes) -> Result<(), String> {
        let namespace = claims.namespace.as_str();
        let account = &claims.serviceaccount;
        let stored = self
            .read_object("/serviceaccounts", namespace, &account.name)
            .ok_or_else(|| format!("serviceaccounts {:?} not found", account.name))?;
        if object::uid(&stored) != account.uid {
            return Err(format!(
                "service account UID ({}) does not match claim ({})",
                object::uid(&stored),
                account.uid
            ));
        }
        if self.is_long_deleted(&stored) {
            return Err(format!(
                "service account {namespace}/{} has been deleted",
                account.name
            ));
        }
        let node = claims.node.as_ref().filter(|_| claims.pod.is_none());
        for (label, resource, scope, reference) in [
            ("secret", "/secrets", namespace, claims.secret.as_ref()),
            ("pod", "/pods", namespace, claims.pod.as_ref()),
            // The Node of a Pod is told and not looked at.
            ("node", "/nodes", "", node),
        ] {
            let Some(reference) = reference else { continue };
            let bound = self
                .read_object(resource, scope, &reference.name)
                .filter(|bound| !self.is_long_deleted(bound))
                .ok_or("service account token has been invalidated")?;
            if object::uid(&bound) != reference.uid {
                return Err(format!(
                    "{label} UID ({}) does not match service account {label} ref claim ({})",
                    object::uid(&bound),
                    reference.uid
                ));
            }
        }
        Ok(())
    }

    pub(super) fn read_object(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let stored = self.store().get(&commit::key(resource, namespace, name))?;
        serde_json::from_slice(&stored.value).ok()
    }

    /// Whether the time set for an object's deletion is past by more than clocks may differ.
    fn is_long_deleted(&self, object: &Value) -> bool {
        object::meta_text(object, "deletionTimestamp")
            .parse::<Timestamp>()
            .is_ok_and(|time| time.saturating_add(LEEWAY).unwrap_or(time) < self.clock().now())
    }
}

/// `["a" "b"]`
fn listed(texts: &[String]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
    format!("[{}]", quoted.join(" "))
}
