#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::SocketAddr;

use axum::extract::ConnectInfo;
use http_body_util::BodyExt;
use mainstay_agent::event::Caller;
use serde_json::Value;

use super::*;

struct Directory;

impl AgentDirectory for Directory {
    fn find(&self, namespace: &str, name: &str) -> Lookup {
        match (namespace, name) {
            ("default", "helpdesk") => Lookup::Ready(Router::new().fallback(|request: Request| async move {
                let caller = request.extensions().get::<Caller>().cloned().unwrap();
                format!("{} from {}", request.uri(), caller.origin)
            })),
            ("default", "broken") => Lookup::NotReady {
                reason: "ProviderNotFound".to_owned(),
            },
            _ => Lookup::Absent,
        }
    }
}

fn door() -> Router {
    router(FrontDoor {
        agents: Arc::new(Directory),
        access: Access::of("127.0.0.1:7480".parse().unwrap(), "token".to_owned().into()),
        metrics: Metrics::new(),
        version: "1.2.3",
        routes: Router::new().route("/extra", get(|| async { "extra" })),
        open_routes: Router::new().route("/.well-known/jwks.json", get(|| async { "keys" })),
    })
}

async fn ask(path: &str, host: &str) -> (StatusCode, String) {
    let peer: SocketAddr = "127.0.0.1:5".parse().unwrap();
    let request = Request::builder()
        .uri(path)
        .header("host", host)
        .extension(ConnectInfo(peer))
        .body(Body::empty())
        .unwrap();
    let response = door().oneshot(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn om_505_an_agent_is_found_by_path_and_by_query_and_knows_its_caller() {
    for (path, expected) in [
        (
            "/agents/default/helpdesk/ws?events=1",
            "/ws?events=1 from loopback",
        ),
        ("/api/agents/default/helpdesk/ws", "/ws from loopback"),
        (
            "/ws?agent=helpdesk&resume=x",
            "/ws?agent=helpdesk&resume=x from loopback",
        ),
        (
            "/ws?namespace=default&agent=helpdesk",
            "/ws?namespace=default&agent=helpdesk from loopback",
        ),
    ] {
        assert_eq!(
            ask(path, "localhost:7480").await,
            (StatusCode::OK, expected.to_owned())
        );
    }
}

#[tokio::test]
async fn om_505_errors_are_json_that_names_the_agent_and_the_reason() {
    for (path, status, error, detail) in [
        (
            "/ws",
            StatusCode::BAD_REQUEST,
            "agent_missing",
            "the query parameter `agent` is missing",
        ),
        (
            "/agents/shop/nobody/ws",
            StatusCode::NOT_FOUND,
            "agent_not_found",
            "there is no agent `nobody` in namespace `shop`",
        ),
        (
            "/agents/default/broken/ws",
            StatusCode::SERVICE_UNAVAILABLE,
            "agent_not_ready",
            "agent `broken` in namespace `default` is not ready: ProviderNotFound",
        ),
        (
            "/nothing",
            StatusCode::NOT_FOUND,
            "not_found",
            "there is nothing here",
        ),
    ] {
        let (got, body) = ask(path, "localhost").await;
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(
            (got, &body["error"], &body["detail"]),
            (status, &error.into(), &detail.into()),
            "{path}"
        );
    }
}

#[tokio::test]
async fn om_412_public_keys_are_read_by_everybody() {
    for host in ["localhost", "evil.example"] {
        assert_eq!(
            ask("/.well-known/jwks.json", host).await,
            (StatusCode::OK, "keys".to_owned())
        );
    }
    // Nothing beside them is open.
    assert_eq!(
        ask("/.well-known/other", "evil.example").await.0,
        StatusCode::FORBIDDEN
    );
}

#[tokio::test]
async fn contract_4_every_route_is_behind_the_same_rules() {
    for path in [
        "/",
        "/healthz",
        "/metrics",
        "/extra",
        "/nothing",
        "/agents/default/helpdesk/ws",
        "/ws?agent=helpdesk",
    ] {
        let (status, body) = ask(path, "evil.example").await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{path}");
        assert!(body.contains("host_not_allowed"), "{body}");
    }
    assert_eq!(
        ask("/healthz", "[::1]:7480").await,
        (StatusCode::OK, "ok".to_owned())
    );
    assert_eq!(ask("/extra", "localhost").await.1, "extra");
    assert!(ask("/", "localhost").await.1.starts_with("Mainstay 1.2.3\n"));
    assert!(ask("/metrics", "localhost").await.1.ends_with("# EOF\n"));
}
