//! Delegation: a signed statement of who is behind a call, for a backend that does not take the agent's word (C.6).
//!
//! The operator signs, per call; the agent asks it through [`DelegationSigner`] and holds no key (OM-414). [`Issuer`] is the
//! operator's side, [`KeyRing`] its keys.

mod keys;

#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::HeaderValue;
use mainstay_telemetry::{clock::SharedClock, random::SharedRandom};
use secrecy::SecretString;
use serde_json::{Value, json};

pub use self::keys::{KeyRing, KeyRingError};

/// The header that carries the statement; over gRPC the metadata of that name in lower case (OM-410).
pub(crate) const HEADER: &str = "x-omnia-delegation";

/// How long a statement is true, in seconds: at most five minutes (OM-411).
const LIFE: i64 = 300;

/// What a statement is to say (OM-411).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DelegationRequest {
    /// The person behind the call, as the facade verified it; empty when there is none.
    pub end_user: String,
    /// The agent.
    pub agent: String,
    /// The agent's namespace.
    pub namespace: String,
    /// The conversation.
    pub session: String,
    /// The ToolRegistry, as `NAMESPACE/NAME`.
    pub registry: String,
    /// The handler that is called.
    pub handler: String,
}

/// Why there is no statement. The call is then not made (OM-414).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the call's delegation token cannot be had: {message}; the call is refused")]
pub struct DelegationError {
    /// Why, for people.
    pub message: String,
}

/// Signs statements.
#[async_trait]
pub trait DelegationSigner: fmt::Debug + Send + Sync {
    /// A token that says what `request` holds.
    ///
    /// # Errors
    /// [`DelegationError`].
    async fn sign(&self, request: &DelegationRequest) -> Result<SecretString, DelegationError>;
}

/// The statement that a call can carry.
#[derive(Debug)]
pub(crate) struct Delegation<'a> {
    pub(crate) signer: Option<&'a dyn DelegationSigner>,
    pub(crate) request: DelegationRequest,
}

impl Delegation<'_> {
    /// The header's value, signed for this attempt alone, and the text that must not come back.
    pub(crate) async fn header(&self) -> Result<(HeaderValue, SecretString), DelegationError> {
        use secrecy::ExposeSecret as _;

        let unusable = |message: &str| DelegationError {
            message: message.to_owned(),
        };
        let signer = self
            .signer
            .ok_or_else(|| unusable("nobody signs tokens for this agent"))?;
        let token = signer.sign(&self.request).await?;
        let mut value = HeaderValue::from_str(token.expose_secret())
            .map_err(|_| unusable("the signer gave something that is no token"))?;
        value.set_sensitive(true);
        Ok((value, token))
    }
}

/// The operator's side: signs with ES256, and publishes what signatures are verified with.
#[derive(Debug)]
pub struct Issuer {
    url: String,
    keys: ArcSwap<KeyRing>,
    clock: SharedClock,
    random: SharedRandom,
}

impl Issuer {
    /// Signs as `url`, which is the tokens' `iss`; the keys are published below it (OM-412).
    pub fn new(url: impl Into<String>, keys: KeyRing, clock: SharedClock, random: SharedRandom) -> Self {
        Self {
            url: url.into(),
            keys: ArcSwap::from_pointee(keys),
            clock,
            random,
        }
    }

    /// The keys as they are now.
    pub fn keys(&self) -> Arc<KeyRing> {
        self.keys.load_full()
    }

    /// Signs with other keys from now on.
    pub fn set_keys(&self, keys: KeyRing) {
        self.keys.store(Arc::new(keys));
    }

    /// The public keys as a JSON Web Key Set.
    pub fn web_keys(&self) -> Value {
        self.keys.load().web_keys()
    }

    fn claims(&self, request: &DelegationRequest) -> Value {
        let now = self.clock.now().as_second();
        let subject = if request.end_user.is_empty() {
            format!("agent:{}/{}", request.namespace, request.agent)
        } else {
            request.end_user.clone()
        };
        json!({
            "iss": self.url,
            "sub": subject,
            "aud": format!("{}/{}", request.registry, request.handler),
            "omnia.agent": request.agent,
            "omnia.namespace": request.namespace,
            "omnia.session": request.session,
            "iat": now,
            "nbf": now,
            "exp": now.saturating_add(LIFE),
            "jti": self.random.uuid().to_string(),
        })
    }
}

#[async_trait]
impl DelegationSigner for Issuer {
    async fn sign(&self, request: &DelegationRequest) -> Result<SecretString, DelegationError> {
        let keys = self.keys.load();
        let key = keys.signing(self.clock.now()).ok_or_else(|| DelegationError {
            message: "the operator has no key".to_owned(),
        })?;
        let header = json!({"alg": "ES256", "typ": "JWT", "kid": key.id()});
        let encoded = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", encoded(&header), encoded(&self.claims(request)));
        let signature = key.sign(message.as_bytes()).ok_or_else(|| DelegationError {
            message: "the system gave no random bytes".to_owned(),
        })?;
        let token = format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature));
        Ok(SecretString::from(token))
    }
}
