//! The router: one service for the socket and for the process. Requirements KA-001, KA-002, KA-008.

mod dispatch;
mod documents;
mod reviews;
mod subresources;
mod writes;

pub(crate) use subresources::scale_of;

use std::{any::Any, time::Duration};

use axum::{
    Router,
    extract::{Request, State},
    response::Response,
};
use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use kube::Client;
use mainstay_telemetry::task::panic_message;
use tower::ServiceExt as _;
use tower_http::{
    CompressionLevel, catch_panic::CatchPanicLayer, compression::CompressionLayer,
    compression::predicate::Predicate,
};

use crate::{
    answer::Answer,
    api::Api,
    authorization::Attributes,
    identity::Identity,
    negotiation::renderings,
    request::{Location, QueryOptions, locate},
    status::{ApiError, ApiResult, Reason},
};

/// Answers below this size are sent as they are.
const COMPRESSED_FROM: u64 = 128 * 1024;

impl Api {
    /// The API as a service. A request's user is the [`Identity`] in its extensions; without one it is anonymous.
    pub fn router(&self) -> Router {
        Router::new()
            .fallback(answer)
            .with_state(self.clone())
            .layer(
                CompressionLayer::new()
                    .gzip(true)
                    .quality(CompressionLevel::Fastest)
                    .compress_when(LargeAndComplete),
            )
            .layer(CatchPanicLayer::custom(panicked))
    }

    /// A client in this process that speaks as `identity`: no socket, no TLS, no token. Must be called inside a Tokio
    /// runtime. Requirement KA-002.
    pub fn client(&self, identity: Identity) -> Client {
        let service = self
            .router()
            .map_request(move |mut request: http::Request<kube::client::Body>| {
                // Set here and never taken from the request: whoever holds the client is this identity.
                request.extensions_mut().insert(identity.clone());
                request.map(axum::body::Body::new)
            });
        Client::new(service, "default")
    }
}

/// Compresses answers whose length is known and large: never a watch, which would be held back by the compressor.
#[derive(Clone, Copy)]
struct LargeAndComplete;

impl Predicate for LargeAndComplete {
    fn should_compress<B: http_body::Body>(&self, response: &http::Response<B>) -> bool {
        response
            .body()
            .size_hint()
            .exact()
            .is_some_and(|size| size >= COMPRESSED_FROM)
    }
}

fn panicked(panic: Box<dyn Any + Send + 'static>) -> Response {
    tracing::error!(panic = panic_message(&*panic), "a request of the API panicked");
    let error = ApiError::new(
        Reason::InternalError,
        "This request caused apiserver to panic. Look in the logs for details.",
    );
    Answer::refusal(&error).into_response()
}

async fn answer(State(api): State<Api>, request: Request) -> Response {
    let _in_flight = api.measures().begin();
    let head = request.method() == http::Method::HEAD;
    let location = locate(request.uri().path());
    let renderings = renderings(request.headers());
    let renders = !matches!(&location, Location::Document(document) if !document.is_discovery());
    // Boxed: what the verbs keep across their waits is large, and every connection holds one of these.
    let (verb, resource, answer) = Box::pin(api.handle(location, request)).await;
    let mut answer = answer.unwrap_or_else(|error| Answer::refusal(&error));
    if renders {
        answer = answer.rendered(renderings).await;
    }
    // Only now: what cannot be written so has become an error.
    api.measures().answered(verb, &resource, answer.status.as_u16());
    if head {
        answer.body = axum::body::Body::empty();
    }
    answer.into_response()
}

impl Api {
    /// Handles a request; with the verb and the resource it was counted as.
    async fn handle(
        &self,
        location: Location,
        request: Request,
    ) -> (&'static str, String, ApiResult<Answer>) {
        let identity = request
            .extensions()
            .get::<Identity>()
            .cloned()
            .unwrap_or_else(Identity::anonymous);
        // Nobody has looked at this credential: it is neither believed nor taken for none.
        if identity.is_anonymous() && request.headers().contains_key(http::header::AUTHORIZATION) {
            let refused = ApiError::new(Reason::Unauthorized, "Unauthorized");
            return ("", String::new(), Err(refused));
        }
        let admitted = self
            .impersonated(identity, request.headers())
            .and_then(|identity| {
                self.demand(&identity, &attributes(&location, &request))?;
                Ok(identity)
            });
        let identity = match admitted {
            Ok(identity) => identity,
            Err(error) => return ("", String::new(), Err(error)),
        };
        match location {
            Location::Nowhere => ("", String::new(), Ok(Answer::page_not_found())),
            Location::Document(document) => {
                // None of them takes long: a timeout is only checked.
                let answer = QueryOptions::check_timeout(request.uri())
                    .and_then(|()| self.document(&document, &request));
                ("get", String::new(), answer)
            }
            Location::Resource(path) => self.resource(path, identity, request).await,
        }
    }
}

/// What the request asks to be allowed. Requirement KA-041.
fn attributes(location: &Location, request: &Request) -> Attributes {
    match location {
        Location::Resource(path) => {
            // Options that do not parse are refused later; until then they choose nothing.
            let options = options(request).unwrap_or_default();
            Attributes::of_resource(request.method(), path, &options)
        }
        _ => Attributes::of_path(request.method(), request.uri().path()),
    }
}

/// The options in a request's query.
fn options(request: &Request) -> ApiResult<QueryOptions> {
    QueryOptions::parse(request.uri())
}

/// Reads a body, which may be neither too large nor too slow. Requirement KA-008.
async fn read_body(api: &Api, request: Request) -> ApiResult<Bytes> {
    let limit = api.limits().body_bytes;
    let wait: Duration = api.limits().body;
    let body = Limited::new(request.into_body(), limit).collect();
    match tokio::time::timeout(wait, body).await {
        Err(_elapsed) => {
            let mut error = ApiError::new(
                Reason::Timeout,
                format!(
                    "the body of the request did not arrive within {} s",
                    wait.as_secs()
                ),
            );
            error.retry_after_seconds = None;
            Err(error)
        }
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(ApiError::new(
            Reason::RequestEntityTooLarge,
            format!("Request entity too large: limit is {limit}"),
        )),
        Ok(Err(error)) => Err(ApiError::new(
            Reason::BadRequest,
            format!("the body of the request is cut: {error}"),
        )),
        Ok(Ok(body)) => Ok(body.to_bytes()),
    }
}

/// 200 with nothing but a `Status` of success.
fn success() -> Answer {
    Answer::json(
        StatusCode::CREATED,
        &serde_json::json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
    )
}
