//! Tokens of ServiceAccounts: signed here, checked here, and by others with the published key. Requirement KA-040.
//!
//! A token is a JSON Web Token in one fixed form: signed with ES256 by a key of this server ([`keys`], [`jwt`]). What it
//! says about an account, and the object it is bound to, is compared with what is stored each time it is presented
//! ([`claims`]), so a token ends with its account or its Pod. There is one algorithm and one key, and the header of a
//! token chooses neither.

mod claims;
mod documents;
mod jwt;
mod keys;
mod request;
mod review;

use secrecy::{ExposeSecret as _, SecretString};
use subtle::ConstantTimeEq as _;

use crate::{api::Api, identity::Identity};

pub use keys::KeyError;
pub(crate) use keys::SigningKey;

/// The issuer in every token, and the audience of those for this server.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// Who a token stands for, and those of the audiences asked for that it is meant for.
#[derive(Debug)]
pub(crate) struct Authenticated {
    pub(crate) identity: Identity,
    pub(crate) audiences: Vec<String>,
}

/// Why a token counts for nothing.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenError {
    /// It is neither the admin token nor one of this issuer.
    #[error("invalid bearer token")]
    Unknown,
    /// It claims to be of this issuer; the text says what is wrong with it and holds no part of it that is secret.
    #[error("[invalid bearer token, {0}]")]
    Refused(String),
}

impl Api {
    /// Who `token` stands for, for one of `audiences`.
    ///
    /// # Errors
    /// [`TokenError`], whose text is that of the reference.
    pub(crate) fn authenticate(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<Authenticated, TokenError> {
        if self.admin_token().is_some_and(|admin| is_same(token, admin)) {
            let audiences: Vec<String> = audiences
                .iter()
                .filter(|audience| *audience == ISSUER)
                .cloned()
                .collect();
            return if audiences.is_empty() {
                Err(TokenError::Unknown)
            } else {
                Ok(Authenticated {
                    identity: Identity::admin(),
                    audiences,
                })
            };
        }
        if !jwt::claims_issuer(token, ISSUER) {
            return Err(TokenError::Unknown);
        }
        self.authenticate_account(token, audiences)
            .map_err(TokenError::Refused)
    }
}

/// Takes the same time whatever the token differs in.
fn is_same(presented: &str, token: &SecretString) -> bool {
    presented
        .as_bytes()
        .ct_eq(token.expose_secret().as_bytes())
        .into()
}
