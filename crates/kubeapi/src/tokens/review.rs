//! TokenReview: who a token stands for, told to somebody who was shown it. Requirement KA-040.

use serde_json::{Value, json};

use super::{Authenticated, ISSUER};
use crate::{
    api::Api,
    object,
    status::{ApiError, ApiResult, Reason},
};

impl Api {
    /// The status of a TokenReview.
    ///
    /// # Errors
    /// 400 for one without a token.
    pub(crate) fn review_token(&self, review: &Value) -> ApiResult<Value> {
        let token = review
            .pointer("/spec/token")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if token.is_empty() {
            return Err(ApiError::new(
                Reason::BadRequest,
                "token is required for TokenReview in authentication",
            ));
        }
        let mut audiences = object::text_list(review.pointer("/spec/audiences"));
        if audiences.is_empty() {
            audiences.push(ISSUER.to_owned());
        }
        Ok(match self.authenticate(token, &audiences) {
            Ok(Authenticated { identity, audiences }) => {
                json!({"authenticated": true, "user": identity.to_user_info(), "audiences": audiences})
            }
            Err(error) => json!({"user": {}, "error": error.to_string()}),
        })
    }
}
