//! The compact form of a JSON Web Token (RFC 7515), with the one algorithm that this server signs with.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::SigningKey;

/// A token larger than this is not looked at.
const MAXIMUM_BYTES: usize = 16 * 1024;

/// Signs `claims`; `None` if the system gives no random bytes.
pub(super) fn sign(key: &SigningKey, claims: &impl Serialize) -> Option<String> {
    let header = json!({"alg": "ES256", "kid": key.id()});
    let payload = serde_json::to_vec(claims).ok()?;
    let message = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(header.to_string()),
        URL_SAFE_NO_PAD.encode(payload)
    );
    let signature = key.sign(message.as_bytes())?;
    Some(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

/// The claims of a token that `key` signed.
///
/// # Errors
/// What is wrong with it.
pub(super) fn verify<T: DeserializeOwned>(key: &SigningKey, token: &str) -> Result<T, String> {
    let (message, signature) = token.rsplit_once('.').ok_or("the token has no signature")?;
    let signature = URL_SAFE_NO_PAD
        .decode(signature)
        .map_err(|_malformed| "the signature of the token is malformed")?;
    // What the header says is not asked: there is one algorithm, and one key.
    if !key.verifies(message.as_bytes(), &signature) {
        return Err("the token is not signed by this server".to_owned());
    }
    let (_header, payload) = message.split_once('.').ok_or("the token has no payload")?;
    let payload = URL_SAFE_NO_PAD
        .decode(payload)
        .map_err(|_malformed| "the payload of the token is malformed")?;
    serde_json::from_slice(&payload).map_err(|_malformed| "the claims of the token are malformed".to_owned())
}

/// Whether a token says of itself that `issuer` made it. Nothing is verified.
pub(super) fn claims_issuer(token: &str, issuer: &str) -> bool {
    if token.len() > MAXIMUM_BYTES {
        return false;
    }
    let mut parts = token.split('.');
    let (Some(_), Some(payload), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    URL_SAFE_NO_PAD
        .decode(payload)
        .ok()
        .and_then(|payload| serde_json::from_slice::<Value>(&payload).ok())
        .is_some_and(|claims| claims.get("iss").and_then(Value::as_str) == Some(issuer))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_token_of_another_key_or_without_a_signature_is_refused_ka_040() {
        let key = SigningKey::ephemeral().unwrap();
        let token = sign(&key, &json!({"iss": "here"})).unwrap();
        assert!(claims_issuer(&token, "here") && !claims_issuer(&token, "there"));
        assert_eq!(verify::<Value>(&key, &token).unwrap(), json!({"iss": "here"}));
        let other = SigningKey::ephemeral().unwrap();
        assert!(verify::<Value>(&other, &token).is_err());
        let (_, rest) = token.split_once('.').unwrap();
        let (payload, _) = rest.split_once('.').unwrap();
        let none = URL_SAFE_NO_PAD.encode(json!({"alg": "none"}).to_string());
        assert!(verify::<Value>(&key, &format!("{none}.{payload}.")).is_err());
        assert!(verify::<Value>(&key, &format!("{none}.{rest}")).is_err());
    }

    proptest! {
        /// KA-040: no change of a single character of a token goes unnoticed.
        #[test]
        fn a_changed_token_is_refused(at in 0_usize..150, with in "[A-Za-z0-9_.-]") {
            let key = SigningKey::ephemeral().unwrap();
            let token = sign(&key, &json!({"iss": "here", "sub": "somebody"})).unwrap();
            let at = at % token.len();
            let mut changed = token.clone();
            changed.replace_range(at..=at, &with);
            // The last character of a signature has bits that mean nothing, and base64 refuses them when they are set.
            prop_assert!(changed == token || verify::<Value>(&key, &changed).is_err(), "{changed}");
        }
    }
}
