//! From a bearer token to an identity. Requirements KA-040, KA-042.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Request, State},
    middleware::{self, Next},
    response::Response,
};
use http::header;
use secrecy::{ExposeSecret as _, SecretString};
use subtle::ConstantTimeEq as _;

use crate::{
    answer::Answer,
    identity::Identity,
    status::{ApiError, Reason},
};

/// Puts the identity of each request into its extensions, whatever was there before.
pub(super) fn layer(router: Router, token: SecretString) -> Router {
    router.layer(middleware::from_fn_with_state(Arc::new(token), authenticate))
}

async fn authenticate(State(token): State<Arc<SecretString>>, mut request: Request, next: Next) -> Response {
    let identity = match presented(&request) {
        Presented::Nothing => Identity::anonymous(),
        Presented::Bearer(presented) if is_same(presented, token.expose_secret()) => Identity::admin(),
        // A wrong credential is refused, not taken for none.
        Presented::Bearer(_) | Presented::Other => {
            return Answer::refusal(&ApiError::new(Reason::Unauthorized, "Unauthorized")).into_response();
        }
    };
    request.extensions_mut().insert(identity);
    // Nothing behind this needs the credential, and what is not there is not logged.
    request.headers_mut().remove(header::AUTHORIZATION);
    next.run(request).await
}

enum Presented<'a> {
    Nothing,
    Bearer(&'a str),
    Other,
}

fn presented(request: &Request) -> Presented<'_> {
    let Some(value) = request.headers().get(header::AUTHORIZATION) else {
        return Presented::Nothing;
    };
    match value.to_str().ok().and_then(|text| text.split_once(' ')) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Presented::Bearer(token.trim()),
        _ => Presented::Other,
    }
}

/// Takes the same time whatever the token differs in.
fn is_same(presented: &str, token: &str) -> bool {
    presented.as_bytes().ct_eq(token.as_bytes()).into()
}
