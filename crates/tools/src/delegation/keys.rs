//! The keys that statements are signed with, and their change (OM-412).
//!
//! A new key is published before it signs, so that a backend that remembers the set for a while knows it then; a former key
//! is published until long after its last signature has ended.

use std::fmt;

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use jiff::{SignedDuration, Timestamp};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// How long a key signs before the next is made.
const SERVICE: SignedDuration = SignedDuration::from_hours(30 * 24);
/// How long a key is published before it signs, where another one can sign meanwhile.
const NOTICE: SignedDuration = SignedDuration::from_hours(1);
/// How long a key is published after the next began to sign.
const OVERLAP: SignedDuration = SignedDuration::from_hours(24);

/// The length of one coordinate of a point, in bytes.
const COORDINATE: usize = 32;

/// Why there are no keys.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyRingError {
    /// The stored text holds no keys.
    #[error("it holds no signing keys")]
    Malformed,
    /// No key can be made.
    #[error("the system gave no random bytes")]
    Random,
}

/// The keys, oldest first. Its debug output names them and shows none.
#[derive(Default)]
pub struct KeyRing {
    keys: Vec<Key>,
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_list()
            .entries(self.keys.iter().map(Key::id))
            .finish()
    }
}

/// One key of the curve P-256.
pub(super) struct Key {
    made_at: Timestamp,
    document: Vec<u8>,
    pair: EcdsaKeyPair,
    id: String,
}

/// A key as it is kept.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Kept {
    made_at: Timestamp,
    pkcs8: String,
}

impl Key {
    fn make(now: Timestamp) -> Result<Self, KeyRingError> {
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
            .map_err(|_unspecified| KeyRingError::Random)?;
        Self::read(now, document.as_ref().to_vec())
    }

    fn read(made_at: Timestamp, document: Vec<u8>) -> Result<Self, KeyRingError> {
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &document, &SystemRandom::new())
                .map_err(|_rejected| KeyRingError::Malformed)?;
        let (x, y) = point(&pair);
        // The thumbprint of RFC 7638: these members, in this order.
        let members = format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#);
        let id = URL_SAFE_NO_PAD.encode(Sha256::digest(members));
        Ok(Self {
            made_at,
            document,
            pair,
            id,
        })
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        let signature = self.pair.sign(&SystemRandom::new(), message).ok()?;
        Some(signature.as_ref().to_vec())
    }

    fn web_key(&self) -> Value {
        let (x, y) = point(&self.pair);
        json!({"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": self.id, "x": x, "y": y})
    }

    fn age(&self, now: Timestamp) -> SignedDuration {
        now.duration_since(self.made_at)
    }
}

/// The coordinates of the public point: behind a byte that says that both follow.
fn point(pair: &EcdsaKeyPair) -> (String, String) {
    let bytes = pair.public_key().as_ref();
    let coordinate =
        |from: usize| URL_SAFE_NO_PAD.encode(bytes.get(from..from + COORDINATE).unwrap_or_default());
    (coordinate(1), coordinate(1 + COORDINATE))
}

impl KeyRing {
    /// The keys that [`KeyRing::render`] wrote.
    ///
    /// # Errors
    /// `Malformed`; the text is not quoted.
    pub fn parse(text: &str) -> Result<Self, KeyRingError> {
        let kept: Vec<Kept> = serde_json::from_str(text).map_err(|_| KeyRingError::Malformed)?;
        let keys = kept.into_iter().map(|kept| {
            let document = STANDARD.decode(kept.pkcs8).map_err(|_| KeyRingError::Malformed)?;
            Key::read(kept.made_at, document)
        });
        let mut keys: Vec<Key> = keys.collect::<Result<_, _>>()?;
        keys.sort_by_key(|key| key.made_at);
        Ok(Self { keys })
    }

    /// The private keys as text, to be kept where nobody else reads.
    pub fn render(&self) -> SecretString {
        let kept: Vec<Value> = self
            .keys
            .iter()
            .map(|key| {
                json!(Kept {
                    made_at: key.made_at,
                    pkcs8: STANDARD.encode(&key.document)
                })
            })
            .collect();
        SecretString::from(Value::Array(kept).to_string())
    }

    /// The keys that should be there at `now`, where those are not the present ones.
    ///
    /// # Errors
    /// `Random`.
    pub fn tended(&self, now: Timestamp) -> Result<Option<Self>, KeyRingError> {
        // A clock that was set back must neither leave a key of the future in service for ever nor add a key each time. Clocks that
        // differ by less than the notice are no such thing.
        let newest = self.keys.iter().rev().find(|key| key.age(now) >= -NOTICE);
        let due = newest.is_none_or(|key| key.age(now) >= SERVICE);
        let kept: Vec<&Key> = self
            .keys
            .iter()
            .enumerate()
            .filter(|(index, _)| match self.keys.get(index + 1) {
                Some(next) => next.age(now) < NOTICE + OVERLAP,
                None => true,
            })
            .map(|(_, key)| key)
            .collect();
        if !due && kept.len() == self.keys.len() {
            return Ok(None);
        }
        let mut keys = kept
            .into_iter()
            .map(|key| Key::read(key.made_at, key.document.clone()))
            .collect::<Result<Vec<_>, _>>()?;
        if due {
            keys.push(Key::make(now)?);
            keys.sort_by_key(|key| key.made_at);
        }
        Ok(Some(Self { keys }))
    }

    /// The newest key that was published for a while, else the oldest.
    pub(super) fn signing(&self, now: Timestamp) -> Option<&Key> {
        let known = self.keys.iter().rev().find(|key| key.age(now) >= NOTICE);
        known.or_else(|| self.keys.first())
    }

    pub(super) fn web_keys(&self) -> Value {
        json!({"keys": self.keys.iter().map(Key::web_key).collect::<Vec<_>>()})
    }
}
