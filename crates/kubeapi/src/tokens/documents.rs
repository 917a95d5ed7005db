//! What others need to check tokens: OpenID discovery and the public key. Requirement KA-040.

use serde_json::{Value, json};

use super::ISSUER;
use crate::api::Api;

/// The path of the public keys.
const KEYS: &str = "/openid/v1/jwks";

impl Api {
    /// `/.well-known/openid-configuration`
    pub(crate) fn openid_configuration(&self) -> Value {
        let base = self
            .address()
            .map_or_else(|| ISSUER.to_owned(), |address| format!("https://{address}"));
        json!({
            "issuer": ISSUER,
            "jwks_uri": format!("{base}{KEYS}"),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        })
    }

    /// `/openid/v1/jwks`
    pub(crate) fn openid_keys(&self) -> Value {
        json!({"keys": [self.signing_key().web_key()]})
    }
}
