//! `continue` tokens. Requirement KA-025.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

use crate::{
    status::{ApiError, ApiResult, Reason},
    strict,
};

const VERSION: &str = "meta.k8s.io/v1";

/// Where the next page begins. The form is that of the reference.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Continuation {
    v: String,
    /// The version of the snapshot; 0 for one that is gone, then the newest is used.
    pub(super) rv: u64,
    /// The last object of the page before: `NAMESPACE/NAME`, or `NAME`.
    start: String,
}

impl Continuation {
    pub(super) fn after(revision: u64, namespace: &str, name: &str) -> Self {
        Self {
            v: VERSION.to_owned(),
            rv: revision,
            start: format!("{namespace}/{name}"),
        }
    }

    pub(super) fn encode(&self) -> ApiResult<String> {
        let text = serde_json::to_vec(self).map_err(|error| {
            ApiError::new(
                Reason::InternalError,
                format!("cannot encode a continue token: {error}"),
            )
        })?;
        Ok(URL_SAFE_NO_PAD.encode(text))
    }

    pub(super) fn decode(token: &str) -> ApiResult<Self> {
        let invalid = |detail: String| {
            ApiError::new(
                Reason::BadRequest,
                format!("invalid continue token: continue key is not valid: {detail}"),
            )
        };
        let bytes = URL_SAFE_NO_PAD
            .decode(token.trim_end_matches('='))
            .map_err(|error| {
                // In the words of the reference, which counts the bytes before the first that is none.
                let at = match error {
                    base64::DecodeError::InvalidByte(at, _)
                    | base64::DecodeError::InvalidLastSymbol(at, _) => at,
                    _ => token.len(),
                };
                invalid(format!("illegal base64 data at input byte {at}"))
            })?;
        let token: Self = serde_json::from_slice(&bytes)
            .map_err(|error| invalid(strict::json_fault(&bytes).unwrap_or_else(|| error.to_string())))?;
        if token.v != VERSION {
            return Err(invalid(format!(
                "server does not recognize this encoded version {:?}",
                token.v
            )));
        }
        if !token.start.contains('/') {
            return Err(invalid("the start key is missing".to_owned()));
        }
        Ok(token)
    }

    /// Namespace and name of the last object already sent.
    pub(super) fn last(&self) -> (String, String) {
        let (namespace, name) = self.start.split_once('/').unwrap_or(("", &self.start));
        (namespace.to_owned(), name.to_owned())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_its_way_through_a_url_ka_025() {
        let token = Continuation::after(17, "shop", "orders");
        let text = token.encode().unwrap();
        assert!(
            text.chars()
                .all(|character| character.is_ascii_alphanumeric() || matches!(character, '-' | '_'))
        );
        let read = Continuation::decode(&text).unwrap();
        assert_eq!(read, token);
        assert_eq!(read.last(), ("shop".to_owned(), "orders".to_owned()));
    }

    #[test]
    fn a_made_up_token_is_a_bad_request_ka_025() {
        assert_eq!(
            Continuation::decode("????").unwrap_err().reason,
            Reason::BadRequest
        );
        assert_eq!(
            Continuation::decode("e30").unwrap_err().reason,
            Reason::BadRequest
        );
    }
}
