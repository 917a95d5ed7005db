//! `pods/proxy` and `services/proxy`: HTTP requests that a workload answers. Requirement KA-052.

use std::{sync::Arc, time::Duration};

use axum::{body::Body, extract::Request};
use futures::StreamExt as _;
use http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use mainstay_telemetry::task;
use serde_json::Value;

use super::super::dispatch::Call;
use crate::{
    answer::Answer,
    api::Api,
    commit,
    dialing::{Connection, DialTarget},
    object,
    status::{ApiError, ApiResult, Reason},
};

/// How long connecting may take.
const DIAL: Duration = Duration::from_secs(10);
/// Headers of one connection and not of the request; RFC 9110, 7.6.1.
const OF_CONNECTION: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Where a request is to go: `NAME`, `NAME:PORT` or `SCHEME:NAME:PORT` in the path.
#[derive(Debug, PartialEq, Eq)]
struct Place<'path> {
    name: &'path str,
    /// Empty for the first port there is.
    port: &'path str,
}

impl<'path> Place<'path> {
    fn parse(text: &'path str, resource: &str) -> ApiResult<Self> {
        let parts: Vec<&str> = text.split(':').collect();
        let (scheme, name, port) = match parts.as_slice() {
            [name] => ("", *name, ""),
            [name, port] => ("", *name, *port),
            [scheme, name, port] => (*scheme, *name, *port),
            _ => ("", "", ""),
        };
        match scheme {
            "" | "http" if !name.is_empty() => Ok(Self { name, port }),
            "https" => Err(ApiError::new(
                Reason::BadRequest,
                format!(
                    "{text:?} cannot be proxied to: TLS to a workload is not spoken; use `kubectl port-forward`"
                ),
            )),
            _ => Err(ApiError::new(
                Reason::BadRequest,
                format!("invalid {resource} request {text:?}"),
            )),
        }
    }
}

impl Api {
    /// Hands a request on to a port of a Pod.
    pub(super) async fn pod_proxy(&self, call: &Call, request: Request) -> ApiResult<Answer> {
        let place = Place::parse(call.name(), "pod")?;
        let pod = self.proxied(call, place.name)?;
        let port = match place.port {
            "" => declared_ports(&pod).next(),
            text => text.parse().ok().filter(|port| *port > 0),
        };
        let Some(port) = port else {
            let message = if place.port.is_empty() {
                format!("pod {:?} declares no port to proxy to", place.name)
            } else {
                format!("{:?} is no port of pod {:?}", place.port, place.name)
            };
            return Err(ApiError::new(Reason::BadRequest, message));
        };
        let target = DialTarget::Pod {
            namespace: call.namespace().to_owned(),
            name: place.name.to_owned(),
            uid: object::uid(&pod).to_owned(),
            port,
        };
        self.proxy(call, target, &format!("localhost:{port}"), request)
            .await
    }

    /// Hands a request on to a Pod behind a port of a Service.
    pub(super) async fn service_proxy(&self, call: &Call, request: Request) -> ApiResult<Answer> {
        let place = Place::parse(call.name(), "service")?;
        let service = self.proxied(call, place.name)?;
        let Some(port) = service_port(&service, place.port) else {
            let message = format!(
                "no service port {:?} found for service {:?}",
                place.port, place.name
            );
            return Err(ApiError::new(Reason::ServiceUnavailable, message));
        };
        let target = DialTarget::Service {
            namespace: call.namespace().to_owned(),
            name: place.name.to_owned(),
            port,
        };
        let host = format!("{}.{}.svc:{port}", place.name, call.namespace());
        self.proxy(call, target, &host, request).await
    }

    /// The object that is proxied to. The name in the path holds more than its name.
    fn proxied(&self, call: &Call, name: &str) -> ApiResult<Value> {
        let key = commit::key(&call.kind.storage_resource, call.namespace(), name);
        let stored = self
            .store()
            .get(&key)
            .ok_or_else(|| ApiError::not_found(&call.kind.group, &call.kind.plural, name))?;
        call.view().value(&stored.value, stored.revision)
    }

    async fn proxy(
        &self,
        call: &Call,
        target: DialTarget,
        host: &str,
        request: Request,
    ) -> ApiResult<Answer> {
        let Some(dialer) = self.dialer() else {
            return Err(ApiError::new(Reason::NotFound, "the server runs no pods"));
        };
        if request.headers().contains_key(header::UPGRADE) {
            return Err(ApiError::new(
                Reason::BadRequest,
                "connections are not upgraded through a proxy; use `kubectl port-forward`",
            ));
        }
        let Ok(permit) = Arc::clone(self.forwards()).try_acquire_owned() else {
            let mut error = ApiError::new(
                Reason::TooManyRequests,
                "too many connections to workloads are open, please try again later",
            );
            error.retry_after_seconds = Some(1);
            return Err(error);
        };
        let request = forwarded(call, host, request)?;
        let connection = match tokio::time::timeout(DIAL, dialer.dial(target)).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => return Err(unreachable(&error)),
            Err(_elapsed) => return Err(unreachable(&"connecting takes too long")),
        };
        let response = exchange(connection, request)
            .await
            .map_err(|error| unreachable(&error))?;
        let (parts, body) = response.into_parts();
        // Held until the last of the body is sent; a body without an end ends with the server.
        let body = Body::new(body).into_data_stream().map(move |piece| {
            let _held_while_open = &permit;
            piece
        });
        let body = body.take_until(self.closing().clone().cancelled_owned());
        let mut answer = Answer::bare(parts.status, kept(parts.headers));
        answer.body = Body::from_stream(body);
        Ok(answer)
    }
}

fn unreachable(error: &dyn std::fmt::Display) -> Box<ApiError> {
    ApiError::new(
        Reason::ServiceUnavailable,
        format!("error trying to reach service: {error}"),
    )
}

/// Sends a request over a connection of its own, which lives as long as the answer's body.
async fn exchange(
    connection: Box<dyn Connection>,
    request: http::Request<Body>,
) -> hyper::Result<http::Response<hyper::body::Incoming>> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(connection)).await?;
    task::spawn("proxied-connection", async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a proxied connection broke");
        }
    });
    sender.send_request(request).await
}

/// The request as the workload gets it: what follows `proxy` in the path, and no header that is meant for this server.
fn forwarded(call: &Call, host: &str, request: Request) -> ApiResult<http::Request<Body>> {
    let (parts, body) = request.into_parts();
    let invalid = |error: http::Error| {
        ApiError::new(
            Reason::BadRequest,
            format!("the request cannot be handed on: {error}"),
        )
    };
    let target = target(&parts.uri, &call.path.resource);
    let mut headers = kept(parts.headers);
    headers.remove(header::AUTHORIZATION);
    let impersonation: Vec<HeaderName> = headers
        .keys()
        .filter(|name| name.as_str().starts_with("impersonate-"))
        .cloned()
        .collect();
    for name in impersonation {
        headers.remove(name);
    }
    let mut set = |name: &'static str, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    };
    set("x-forwarded-uri", parts.uri.path());
    set("x-forwarded-proto", "https");
    set("host", host);
    let mut request = http::Request::builder()
        .method(parts.method)
        .uri(target)
        .body(body)
        .map_err(invalid)?;
    *request.headers_mut() = headers;
    Ok(request)
}

/// What follows `…/RESOURCE/NAME/proxy`, as the client wrote it.
pub(super) fn target(uri: &Uri, resource: &str) -> String {
    let mut rest = uri.path();
    // The resource stands once before its name; a namespace of the same name comes earlier.
    let before = format!("/{resource}/");
    let namespace_end = rest.find("/namespaces/").map_or(0, |at| {
        let name = at + "/namespaces/".len();
        rest.get(name..)
            .and_then(|text| text.find('/'))
            .map_or(name, |length| name + length)
    });
    rest = rest.get(namespace_end..).unwrap_or(rest);
    let path = rest
        .strip_prefix(before.as_str())
        .and_then(|named| named.split_once('/'))
        .map_or("", |(_name, rest)| rest.strip_prefix("proxy").unwrap_or_default());
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    if path.starts_with('/') {
        format!("{path}{query}")
    } else {
        format!("/{path}{query}")
    }
}

/// Headers without those of the one connection.
fn kept(mut headers: HeaderMap) -> HeaderMap {
    // Those that the sender names are of its connection too.
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in OF_CONNECTION.iter().chain(&named) {
        headers.remove(name);
    }
    headers
}

/// The container ports that a Pod declares, in its order.
fn declared_ports(pod: &Value) -> impl Iterator<Item = u16> {
    let containers = pod.pointer("/spec/containers").and_then(Value::as_array);
    containers
        .into_iter()
        .flatten()
        .filter_map(|container| container.get("ports").and_then(Value::as_array))
        .flatten()
        .filter_map(|port| port.get("containerPort").and_then(Value::as_u64))
        .filter_map(|port| u16::try_from(port).ok())
}

/// The port of a Service that is meant by a name, a number, or nothing for the first one.
fn service_port(service: &Value, wanted: &str) -> Option<u16> {
    let number = |port: &Value| {
        port.get("port")
            .and_then(Value::as_u64)
            .and_then(|port| u16::try_from(port).ok())
    };
    let ports = service.pointer("/spec/ports").and_then(Value::as_array)?;
    let found = ports.iter().find(|port| {
        let name = port.get("name").and_then(Value::as_str).unwrap_or("");
        wanted.is_empty() || name == wanted || number(port).is_some_and(|port| port.to_string() == wanted)
    })?;
    number(found)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_place_is_a_name_a_port_and_a_scheme_ka_052() {
        let place = |text| Place::parse(text, "service").map(|place| (place.name, place.port));
        assert_eq!(place("orders").unwrap(), ("orders", ""));
        assert_eq!(place("orders:http").unwrap(), ("orders", "http"));
        assert_eq!(place("http:orders:80").unwrap(), ("orders", "80"));
        assert_eq!(place("http:orders:").unwrap(), ("orders", ""));
        let message = |text| place(text).unwrap_err().message;
        assert!(message("https:orders:80").contains("TLS"));
        for text in [":", "ftp:orders:80", "a:b:c:d", ""] {
            assert_eq!(message(text), format!("invalid service request {text:?}"));
        }
    }

    #[test]
    fn the_rest_of_the_path_is_kept_as_it_was_written_ka_052() {
        for (uri, expected) in [
            (
                "/api/v1/namespaces/default/services/orders:http/proxy/orders/1017",
                "/orders/1017",
            ),
            ("/api/v1/namespaces/default/services/orders/proxy", "/"),
            ("/api/v1/namespaces/default/services/orders/proxy/", "/"),
            (
                "/api/v1/namespaces/default/services/orders/proxy/a%2Fb/?x=%20&y",
                "/a%2Fb/?x=%20&y",
            ),
            (
                "/api/v1/namespaces/services/services/proxy/proxy/services/x/proxy/y",
                "/services/x/proxy/y",
            ),
        ] {
            assert_eq!(target(&uri.parse().unwrap(), "services"), expected, "{uri}");
        }
    }

    #[test]
    fn what_is_of_one_connection_is_not_handed_on_ka_052() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("te", "trailers"),
            ("accept", "*/*"),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let kept = kept(headers);
        assert_eq!(
            kept.keys().map(HeaderName::as_str).collect::<Vec<_>>(),
            ["accept"]
        );
    }

    #[test]
    fn ports_are_found_by_name_number_or_order_ka_052() {
        let service =
            json!({"spec": {"ports": [{"name": "http", "port": 80}, {"name": "admin", "port": 81}]}});
        assert_eq!(service_port(&service, ""), Some(80));
        assert_eq!(service_port(&service, "admin"), Some(81));
        assert_eq!(service_port(&service, "81"), Some(81));
        assert_eq!(service_port(&service, "82"), None);
        let pod = json!({"spec": {"containers": [{}, {"ports": [{"containerPort": 8080}]}]}});
        assert_eq!(declared_ports(&pod).collect::<Vec<_>>(), [8080]);
    }
}
