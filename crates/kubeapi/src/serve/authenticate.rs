//! From a bearer token to an identity. Requirements KA-040, KA-042.

use axum::{
    Router,
    extract::{Request, State},
    middleware::{self, Next},
    response::Response,
};
use http::header;

use crate::{
    answer::Answer,
    api::Api,
    identity::Identity,
    status::{ApiError, Reason},
    tokens::ISSUER,
};

/// Puts the identity of each request into its extensions, whatever was there before.
pub(super) fn layer(router: Router, api: Api) -> Router {
    router.layer(middleware::from_fn_with_state(api, authenticate))
}

async fn authenticate(State(api): State<Api>, mut request: Request, next: Next) -> Response {
    let identity = match presented(&request) {
        Presented::Nothing => Some(Identity::anonymous()),
        Presented::Bearer(token) => match api.authenticate(token, &[ISSUER.to_owned()]) {
            Ok(authenticated) => Some(authenticated.identity),
            Err(error) => {
                tracing::debug!(%error, "a request was not authenticated");
                None
            }
        },
        Presented::Other => None,
    };
    // A wrong credential is refused, not taken for none.
    let Some(identity) = identity else {
        return Answer::refusal(&ApiError::new(Reason::Unauthorized, "Unauthorized")).into_response();
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
