//! The ServiceAccount tokens in a Pod's volumes: asked for by TokenRequest, bound to the Pod, and replaced when four fifths
//! of their life are over, as a kubelet does it (OM-400, OM-405, KA-040).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount, ServiceAccountTokenProjection};
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt};
use tokio::time::Instant;

/// How long a token lasts that names no time.
const USUAL_SECONDS: i64 = 3600;
/// A token is replaced after a day at the latest.
const LONGEST_USE: Duration = Duration::from_secs(24 * 60 * 60);
/// When a token that could not be replaced is tried again. The present one is valid for a while yet.
const AGAIN: Duration = Duration::from_secs(10);

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenError {
    /// The API refused, or was not reached.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// The API answered without one.
    #[error("the API gave no token")]
    Absent,
}

/// What distinguishes tokens of one Pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TokenKey {
    audience: Option<String>,
    seconds: i64,
}

impl TokenKey {
    /// The token by which a Pod speaks to this API.
    pub(crate) fn of_the_api() -> Self {
        Self {
            audience: None,
            seconds: USUAL_SECONDS,
        }
    }

    pub(crate) fn of(source: &ServiceAccountTokenProjection) -> Self {
        Self {
            audience: source.audience.clone().filter(|audience| !audience.is_empty()),
            seconds: source.expiration_seconds.unwrap_or(USUAL_SECONDS),
        }
    }
}

/// A token as a file of a volume.
#[derive(Clone)]
pub(crate) struct Token {
    pub(crate) text: Arc<str>,
    /// Rises with each replacement.
    pub(crate) serial: u64,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "token {}", self.serial)
    }
}

struct Issued {
    token: Token,
    replace_at: Instant,
}

/// The tokens of one Pod.
pub(crate) struct Tokens {
    wanted: BTreeSet<TokenKey>,
    issued: BTreeMap<TokenKey, Issued>,
    serial: u64,
}

impl Tokens {
    /// Those that the Pod's volumes name. None is asked for yet.
    pub(crate) fn of(pod: &Pod) -> Self {
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let projections = volumes
            .filter_map(|volume| volume.projected.as_ref())
            .flat_map(|projected| projected.sources.iter().flatten());
        Self {
            wanted: projections
                .filter_map(|projection| projection.service_account_token.as_ref())
                .map(TokenKey::of)
                .collect(),
            issued: BTreeMap::new(),
            serial: 0,
        }
    }

    /// With a further one.
    pub(crate) fn and(mut self, key: TokenKey) -> Self {
        self.wanted.insert(key);
        self
    }

    /// When the next token is to be replaced.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        self.issued.values().map(|issued| issued.replace_at).min()
    }

    /// The tokens there are.
    pub(crate) fn present(&self) -> BTreeMap<TokenKey, Token> {
        let present = self.issued.iter();
        present
            .map(|(key, issued)| (key.clone(), issued.token.clone()))
            .collect()
    }

    /// Asks for what is missing or due.
    ///
    /// # Errors
    /// Why a token that is missing cannot be had.
    pub(crate) async fn renew(
        &mut self,
        client: &Client,
        pod: &Pod,
        account: &str,
        now: Timestamp,
    ) -> Result<(), TokenError> {
        for key in &self.wanted {
            let present = self.issued.get_mut(key);
            if present
                .as_ref()
                .is_some_and(|issued| issued.replace_at > Instant::now())
            {
                continue;
            }
            match request(client, pod, account, key).await {
                Ok((text, ends_at)) => {
                    self.serial += 1;
                    let issued = Issued {
                        token: Token {
                            text: text.into(),
                            serial: self.serial,
                        },
                        replace_at: Instant::now() + usable(now, ends_at),
                    };
                    self.issued.insert(key.clone(), issued);
                }
                Err(error) => match present {
                    Some(issued) => {
                        tracing::warn!(pod = %pod.name_any(), %error, "a ServiceAccount token was not replaced yet");
                        issued.replace_at = Instant::now() + AGAIN;
                    }
                    None => return Err(error),
                },
            }
        }
        Ok(())
    }
}

/// How long a token that ends at `ends_at` is used.
fn usable(now: Timestamp, ends_at: Timestamp) -> Duration {
    let life = Duration::try_from(ends_at.duration_since(now)).unwrap_or_default();
    life.mul_f64(0.8).clamp(AGAIN, LONGEST_USE)
}

async fn request(
    client: &Client,
    pod: &Pod,
    account: &str,
    key: &TokenKey,
) -> Result<(String, Timestamp), TokenError> {
    let namespace = pod.namespace().unwrap_or_default();
    let request = TokenRequest {
        spec: TokenRequestSpec {
            audiences: key.audience.iter().cloned().collect(),
            expiration_seconds: Some(key.seconds),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(pod.name_any()),
                uid: pod.uid(),
            }),
        },
        ..TokenRequest::default()
    };
    let answered: TokenRequest = Api::<ServiceAccount>::namespaced(client.clone(), &namespace)
        .create_subresource("token", account, &PostParams::default(), &request)
        .await?;
    let status = answered.status.ok_or(TokenError::Absent)?;
    Ok((status.token, status.expiration_timestamp.0))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn the_tokens_that_volumes_name_are_wanted_once() {
        let token = |audience: &str, path: &str| json!({ "serviceAccountToken": { "audience": audience, "path": path } });
        let pod = json!({ "spec": { "containers": [], "volumes": [
            { "name": "a", "projected": { "sources": [token("crm", "one"), token("crm", "two"), token("erp", "x")] } },
            { "name": "b", "configMap": { "name": "c" } },
        ] } });
        let tokens = Tokens::of(&serde_json::from_value(pod).unwrap());
        let audiences: Vec<_> = tokens.wanted.iter().map(|key| key.audience.as_deref()).collect();
        assert_eq!(audiences, [Some("crm"), Some("erp")]);
        assert_eq!(tokens.due_at(), None);
    }

    #[test]
    fn a_token_is_replaced_after_four_fifths_of_its_life_and_a_day_at_most() {
        let now: Timestamp = "2026-11-30T12:00:00Z".parse().unwrap();
        let after = |text: &str| usable(now, text.parse().unwrap()).as_secs();
        assert_eq!(after("2026-11-30T13:00:00Z"), 48 * 60);
        assert_eq!(after("2026-12-30T12:00:00Z"), 24 * 60 * 60);
        // A clock that jumped does not make it a loop.
        assert_eq!(after("2026-11-29T12:00:00Z"), 10);
    }

    #[test]
    fn a_tokens_text_is_not_in_its_debug_form() {
        let token = Token {
            text: "secret".into(),
            serial: 1,
        };
        assert_eq!(format!("{token:?}"), "token 1");
    }
}
