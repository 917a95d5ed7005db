#![allow(clippy::unwrap_used)]

use axum::{Router, http::HeaderMap as AxumHeaders, response::Redirect, routing::get};
use tokio::net::TcpListener;

use super::*;

/// A Service `orders` in namespace `shop` that leads to `endpoint`.
#[derive(Debug)]
struct OneService {
    endpoint: Option<SocketAddr>,
}

impl ServiceResolver for OneService {
    fn resolve(&self, host: &str, port: u16, from_namespace: &str) -> Resolution {
        match (host, from_namespace) {
            ("orders", "shop") | ("orders.shop.svc.cluster.local", _) if port == 8080 => {
                match self.endpoint {
                    Some(endpoint) => Resolution::Endpoint(endpoint),
                    None => Resolution::NoEndpoint {
                        service: "shop/orders".to_owned(),
                    },
                }
            }
            ("alias", _) => Resolution::External {
                host: "localhost".to_owned(),
            },
            _ => Resolution::NotAService,
        }
    }
}

async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    mainstay_telemetry::task::spawn("test server", async move { axum::serve(listener, router).await });
    address
}

fn connector(endpoint: Option<SocketAddr>, namespace: &str, allow_private: bool) -> Connector {
    Connector::new(ConnectorOptions {
        resolver: Arc::new(OneService { endpoint }),
        namespace: namespace.to_owned(),
        allow_private,
    })
    .unwrap()
}

fn request(url: &str) -> OutboundRequest {
    OutboundRequest {
        method: Method::GET,
        url: Url::parse(url).unwrap(),
        headers: HeaderMap::new(),
        body: None,
        deadline: Duration::from_secs(20),
    }
}

fn echo_host() -> Router {
    Router::new().route(
        "/",
        get(|headers: AxumHeaders| async move { headers.get("host").unwrap().to_str().unwrap().to_owned() }),
    )
}

#[tokio::test]
async fn ka_053_a_service_name_leads_to_its_live_endpoint_and_keeps_its_host_header() {
    let address = serve(echo_host()).await;
    let connector = connector(Some(address), "shop", true);
    for (url, host) in [
        ("http://orders:8080/", "orders:8080"),
        (
            "http://orders.shop.svc.cluster.local:8080/",
            "orders.shop.svc.cluster.local:8080",
        ),
    ] {
        let response = connector.send(request(url)).await.unwrap();
        assert_eq!(response.status, StatusCode::OK);
        assert_eq!(
            response.bytes_capped(100).await.unwrap(),
            (Bytes::from(host), false)
        );
    }
}

#[tokio::test]
async fn ka_053_an_external_name_is_looked_up_under_the_other_name() {
    let address = serve(echo_host()).await;
    let response = connector(None, "shop", true)
        .send(request(&format!("http://alias:{}/", address.port())))
        .await;
    assert_eq!(response.unwrap().status, StatusCode::OK);
}

#[tokio::test]
async fn a_service_without_endpoints_is_named() {
    let error = connector(None, "shop", true)
        .send(request("http://orders:8080/"))
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "Service shop/orders has no ready endpoint");
    assert!(error.is_network());
}

#[tokio::test]
async fn refused_addresses_are_not_dialled_whatever_leads_to_them() {
    let connector = connector(None, "shop", true);
    for url in [
        "http://169.254.169.254/x",
        "http://0xA9FEA9FE/",
        "http://[::ffff:a9fe:a9fe]/",
        "http://metadata.google.internal./",
    ] {
        let error = connector.send(request(url)).await.unwrap_err();
        assert!(
            matches!(error, ConnectError::AddressRefused { .. }),
            "{url}: {error}"
        );
        assert!(!error.is_network(), "{url}");
    }
    for endpoint in [
        "169.254.169.254:80",
        "168.63.129.16:80",
        "[fe80::1]:80",
        "[::ffff:a9fe:a9fe]:80",
        "224.0.0.1:80",
    ] {
        for allow_private in [true, false] {
            let connector = self::connector(Some(endpoint.parse().unwrap()), "shop", allow_private);
            let error = connector.send(request("http://orders:8080/")).await.unwrap_err();
            let ConnectError::AddressRefused(refusal) = error else {
                panic!("{endpoint}: {error}");
            };
            assert_eq!(refusal.host, "orders");
            assert!(connector.shared.pinned.target("orders").is_none(), "{endpoint}");
        }
    }
}

#[tokio::test]
async fn a_refused_address_is_not_dialled_though_a_route_led_to_it() {
    let pinned = Pinned::default();
    pinned.remember("orders", Target::Address("169.254.169.254".parse().unwrap()));
    let resolver = CheckedResolver {
        pinned,
        allow_private: true,
    };
    let resolved = reqwest::dns::Resolve::resolve(&resolver, "orders".parse().unwrap()).await;
    let error = resolved.err().unwrap();
    assert_eq!(
        error.downcast_ref::<Refusal>().unwrap().rule,
        address::Rule::LinkLocal
    );
}

#[tokio::test]
async fn a_service_on_a_private_address_is_dialled_where_others_are_not() {
    let address = serve(echo_host()).await;
    let response = connector(Some(address), "shop", false)
        .send(request("http://orders:8080/"))
        .await;
    assert_eq!(response.unwrap().status, StatusCode::OK);
}

#[tokio::test]
async fn a_request_has_one_host_header_whatever_the_caller_sets() {
    let router = Router::new().route(
        "/",
        get(|headers: AxumHeaders| async move {
            let hosts: Vec<&[u8]> = headers
                .get_all("host")
                .iter()
                .map(HeaderValue::as_bytes)
                .collect();
            hosts.join(&b","[..])
        }),
    );
    let address = serve(router).await;
    let mut request = request("http://orders:8080/");
    request
        .headers
        .insert(header::HOST, HeaderValue::from_static("elsewhere"));
    let response = connector(Some(address), "shop", true)
        .send(request)
        .await
        .unwrap();
    assert_eq!(response.status, StatusCode::OK);
    let (body, _) = response.bytes_capped(100).await.unwrap();
    assert_eq!(body, Bytes::from("orders:8080"));
}

#[tokio::test]
async fn the_rules_apply_to_the_address_that_a_name_leads_to() {
    let address = serve(echo_host()).await;
    let url = format!("http://localhost:{}/", address.port());
    let error = connector(None, "shop", false)
        .send(request(&url))
        .await
        .unwrap_err();
    assert!(matches!(error, ConnectError::AddressRefused { .. }), "{error}");
}

#[tokio::test]
async fn a_redirect_is_returned_and_not_followed() {
    let router = Router::new().route(
        "/",
        get(|| async { Redirect::temporary("http://169.254.169.254/") }),
    );
    let address = serve(router).await;
    let response = connector(None, "shop", true)
        .send(request(&format!("http://{address}/")))
        .await
        .unwrap();
    assert_eq!(response.status, StatusCode::TEMPORARY_REDIRECT);
}

#[tokio::test]
async fn a_large_body_costs_the_cap_and_no_more() {
    let router = Router::new().route("/", get(|| async { "x".repeat(100_000) }));
    let address = serve(router).await;
    let response = connector(None, "shop", true)
        .send(request(&format!("http://{address}/")))
        .await
        .unwrap();
    let (body, cut) = response.bytes_capped(1_000).await.unwrap();
    assert_eq!((body.len(), cut), (1_000, true));
}

#[tokio::test]
async fn a_server_that_never_answers_costs_the_deadline() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let silent = OutboundRequest {
        deadline: Duration::from_millis(50),
        ..request(&format!("http://{address}/"))
    };
    let error = connector(None, "shop", true).send(silent).await.unwrap_err();
    assert!(matches!(error, ConnectError::TimedOut { .. }), "{error}");
    assert!(error.is_network());
}

#[tokio::test]
async fn a_refused_connection_is_a_network_failure_whose_text_hides_the_query() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = connector(None, "shop", true)
        .send(request(&format!("http://{address}/?key=secret")))
        .await
        .unwrap_err();
    assert!(
        matches!(error, ConnectError::Network { .. }) && error.is_network(),
        "{error}"
    );
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[tokio::test]
async fn other_schemes_are_refused() {
    let error = connector(None, "shop", true)
        .send(request("file:///etc/passwd"))
        .await
        .unwrap_err();
    assert!(matches!(error, ConnectError::InvalidUrl { .. }), "{error}");
}
