//! Port-forwards and proxies over a socket, and what is refused before there is a connection. Requirement KA-052.

use std::sync::Arc;

use axum::{body::Body, extract::Request as AxumRequest, response::IntoResponse as _};
use futures::future::BoxFuture;
use http::{Request, StatusCode, header};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use mainstay_kubeapi::{Connection, DialError, DialTarget, Dialer};
use mainstay_telemetry::task;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_util::sync::CancellationToken;

use super::{
    access::user,
    harness::{DEADLINE, Server},
    serving::{client, serve},
};

const PODS: &str = "/api/v1/namespaces/default/pods";
const SERVICES: &str = "/api/v1/namespaces/default/services";

/// Leads port 8080 of each Pod, and port 80 of the Service `orders`, to an HTTP server that says what it was asked.
struct Workload {
    address: std::net::SocketAddr,
}

impl Dialer for Workload {
    fn dial(&self, target: DialTarget) -> BoxFuture<'_, Result<Box<dyn Connection>, DialError>> {
        Box::pin(async move {
            match target {
                DialTarget::Pod { port: 8080, uid, .. } if !uid.is_empty() => {}
                DialTarget::Service { port: 80, .. } => {}
                DialTarget::Pod { name: pod, port, .. } => {
                    let hint = "it listens on 8080 (http)".to_owned();
                    return Err(DialError::NotListening { pod, port, hint });
                }
                DialTarget::Service { name, .. } => return Err(DialError::NoEndpoint { service: name }),
            }
            let connect = |source| DialError::Connect { source };
            let socket = TcpStream::connect(self.address).await.map_err(connect)?;
            Ok(Box::new(socket) as Box<dyn Connection>)
        })
    }
}

async fn said(request: AxumRequest) -> axum::response::Response {
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let headers: Vec<String> = request.headers().keys().map(ToString::to_string).collect();
    let host = request.headers().get("host").cloned();
    let body = axum::body::to_bytes(request.into_body(), 1024).await.unwrap();
    let answer = json!({
        "asked": format!("{method} {uri}"), "headers": headers, "host": host.unwrap().to_str().unwrap(),
        "body": String::from_utf8_lossy(&body),
    });
    (StatusCode::IM_A_TEAPOT, [("x-workload", "1")], answer.to_string()).into_response()
}

/// A server, its Pod `p` that runs and its Service `orders`.
async fn with_workload() -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = axum::Router::new().fallback(said);
    task::spawn("workload", async move { axum::serve(listener, router).await });
    let server = Server::with(|options| options.dialer = Some(Arc::new(Workload { address }))).await;
    for (name, node) in [
        ("p", Some("mainstay")),
        ("waiting", Some("mainstay")),
        ("nowhere", None),
    ] {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"containers": [{"name": "main", "image": "mainstay", "ports": [{"containerPort": 8080}]}]},
        });
        if let Some(node) = node {
            pod["spec"]["nodeName"] = json!(node);
        }
        assert_eq!(server.post(PODS, &pod).await.status, StatusCode::CREATED);
    }
    let running = json!({"status": {"phase": "Running"}});
    let answer = server.merge(&format!("{PODS}/p/status"), &running).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.message());
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "orders"},
        "spec": {"selector": {"app": "orders"}, "ports": [{"name": "http", "port": 80}, {"name": "other", "port": 81}]},
    });
    assert_eq!(server.post(SERVICES, &service).await.status, StatusCode::CREATED);
    server
}

#[tokio::test]
async fn kube_rs_forwards_ports_over_tls_ka_052() {
    let directory = tempfile::tempdir().unwrap();
    let server = with_workload().await;
    let cancellation = CancellationToken::new();
    let serving = serve(&server, directory.path(), &cancellation).await;
    let pods: Api<Pod> = Api::default_namespaced(client(&serving.kubeconfig).await);
    let talk = async {
        let mut forward = pods.portforward("p", &[8080, 4000]).await.unwrap();
        let mut stream = forward.take_stream(8080).unwrap();
        stream
            .write_all(b"GET /orders HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .await
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 418"), "{answer}");
        assert!(answer.contains("GET /orders"), "{answer}");
        let failure = forward.take_error(4000).unwrap().await.unwrap();
        assert!(failure.contains("it listens on 8080 (http)"), "{failure}");
    };
    tokio::time::timeout(DEADLINE, talk).await.unwrap();
    let refused = pods
        .portforward("missing", &[8080])
        .await
        .map(|_| ())
        .unwrap_err();
    assert!(format!("{refused:?}").contains("404"), "{refused:?}");
    cancellation.cancel();
}

/// The Pod, the headers, and the code and message of the answer.
type Refusal<'case> = (&'case str, &'case [(&'case str, &'case str)], u16, &'case str);

fn upgrade(path: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let mut request = Request::post(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::empty()).unwrap()
}

#[tokio::test]
async fn what_cannot_be_forwarded_is_refused_with_a_reason_ka_052() {
    let server = with_workload().await;
    let spdy = [("connection", "Upgrade"), ("upgrade", "SPDY/3.1")];
    let other = [spdy[0], spdy[1], ("x-stream-protocol-version", "v9.k8s.io")];
    let right = [
        spdy[0],
        spdy[1],
        ("x-stream-protocol-version", "portforward.k8s.io"),
    ];
    let plain: [(&str, &str); 0] = [];
    let cases: [Refusal<'_>; 7] = [
        ("missing", &right, 404, "pods \"missing\" not found"),
        (
            "nowhere",
            &right,
            400,
            "pod nowhere does not have a host assigned",
        ),
        (
            "waiting",
            &right,
            400,
            "pod waiting is not running: its phase is Pending, and `kubectl describe pod waiting` says why",
        ),
        ("p", &plain, 400, "Upgrade request required"),
        (
            "p",
            &spdy,
            400,
            "unable to upgrade: the request names no protocol in X-Stream-Protocol-Version; the server accepts portforward.k8s.io",
        ),
        (
            "p",
            &other,
            403,
            "unable to upgrade: unable to negotiate protocol: client supports [\"v9.k8s.io\"], server accepts [\"portforward.k8s.io\"]",
        ),
        // A request in this process has no connection that could be taken over.
        (
            "p",
            &right,
            400,
            "unable to upgrade: this connection cannot be taken over; use HTTP/1.1",
        ),
    ];
    for (pod, headers, code, message) in cases {
        let answer = server
            .send(upgrade(&format!("{PODS}/{pod}/portforward"), headers))
            .await;
        assert_eq!(
            (answer.status.as_u16(), answer.message().as_str()),
            (code, message)
        );
    }
    let answer = server
        .delete(&format!("{PODS}/p/portforward"), &Value::Null)
        .await;
    assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn a_websocket_that_offers_nothing_known_or_names_no_port_is_refused_ka_052() {
    let directory = tempfile::tempdir().unwrap();
    let server = with_workload().await;
    let cancellation = CancellationToken::new();
    let serving = serve(&server, directory.path(), &cancellation).await;
    let client = client(&serving.kubeconfig).await;
    for (query, protocol, message) in [
        (
            "",
            "v4.channel.k8s.io",
            "query parameter \\\"ports\\\" is required",
        ),
        ("?ports=0", "v4.channel.k8s.io", "must be > 0"),
        (
            "?ports=80,x",
            "v4.channel.k8s.io",
            "unable to parse \\\"x\\\" as a port",
        ),
        (
            "?ports=80",
            "v9.k8s.io",
            "none of the client's sub-protocols is served",
        ),
    ] {
        let request = Request::get(format!("{PODS}/p/portforward{query}"))
            .header(header::CONNECTION, "Upgrade")
            .header(header::UPGRADE, "websocket")
            .header(header::SEC_WEBSOCKET_VERSION, "13")
            .header(header::SEC_WEBSOCKET_KEY, "dGhlIHNhbXBsZSBub25jZQ==")
            .header(header::SEC_WEBSOCKET_PROTOCOL, protocol)
            .body(kube::client::Body::empty())
            .unwrap();
        let response = client.send(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::BAD_REQUEST);
        let body = http_body_util::BodyExt::collect(response.into_body())
            .await
            .unwrap();
        let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
        assert!(text.contains(message), "{text}");
    }
    cancellation.cancel();
}

#[tokio::test]
async fn exec_and_attach_say_why_not_and_what_instead_ka_052() {
    let server = with_workload().await;
    for (subresource, reason) in [("exec", "ExecNotServed"), ("attach", "AttachNotServed")] {
        let path = format!("{PODS}/p/{subresource}?container=main&command=sh&stdin=true&tty=true");
        for answer in [server.get(&path).await, server.post(&path, &json!({})).await] {
            let status = answer.json();
            assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED);
            assert_eq!(status["reason"], "MethodNotAllowed");
            assert_eq!(status["details"]["causes"][0]["reason"], reason);
            let message = answer.message();
            assert!(message.contains("kubectl port-forward pod/p"), "{message}");
            assert!(message.contains("kubectl logs p"), "{message}");
        }
        let missing = server.get(&format!("{PODS}/missing/{subresource}")).await;
        assert_eq!(missing.status, StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn who_may_only_read_gets_into_no_pod_ka_041() {
    let server = with_workload().await;
    let ann = user("ann");
    let rules = json!([
        {"apiGroups": [""], "resources": ["pods/portforward", "pods/exec"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["services/proxy"], "resourceNames": ["orders:http"], "verbs": ["get"]},
    ]);
    let subject = json!({"kind": "User", "name": "ann"});
    server.grant("default", "reader", rules, subject).await;
    for subresource in ["portforward", "exec", "attach"] {
        let verb = if subresource == "attach" { "get" } else { "create" };
        let answer = server.get_by(&ann, &format!("{PODS}/p/{subresource}")).await;
        assert_eq!(
            answer.message(),
            format!(
                "pods \"p\" is forbidden: User \"ann\" cannot {verb} resource \"pods/{subresource}\" in API group \"\" in the namespace \"default\""
            )
        );
    }
    let answer = server
        .get_by(&ann, &format!("{SERVICES}/orders:http/proxy/x"))
        .await;
    assert_eq!(answer.status, StatusCode::IM_A_TEAPOT);
    for path in [
        format!("{SERVICES}/orders:other/proxy/x"),
        format!("{PODS}/p/proxy/x"),
    ] {
        let answer = server.get_by(&ann, &path).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
    }
}

#[tokio::test]
async fn a_proxy_hands_requests_on_and_keeps_credentials_to_itself_ka_052() {
    let server = with_workload().await;
    let mut request = Request::put(format!(
        "{SERVICES}/orders:http/proxy/orders/a%2Fb?limit=many&watch=true"
    ))
    .header(header::AUTHORIZATION, "Bearer secret")
    .header(header::CONNECTION, "x-hop")
    .header("x-hop", "1")
    .header("x-kept", "1")
    .body(Body::from("{\"id\": 1}"))
    .unwrap();
    // As the layer before the router leaves it: looked at, and still there.
    request
        .extensions_mut()
        .insert(mainstay_kubeapi::Identity::admin());
    let answer = server.send_anonymously(request).await;
    assert_eq!(answer.status, StatusCode::IM_A_TEAPOT);
    assert_eq!(answer.headers["x-workload"], "1");
    let heard = answer.json();
    assert_eq!(heard["asked"], "PUT /orders/a%2Fb?limit=many&watch=true");
    assert_eq!(heard["host"], "orders.default.svc:80");
    assert_eq!(heard["body"], "{\"id\": 1}");
    let names: Vec<&str> = heard["headers"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert!(names.contains(&"x-kept"), "{names:?}");
    for gone in ["authorization", "x-hop", "connection"] {
        assert!(!names.contains(&gone), "{names:?}");
    }
    for (path, asked) in [
        (format!("{PODS}/p/proxy/x"), "GET /x"),
        (format!("{PODS}/p:8080/proxy"), "GET /"),
        (format!("{SERVICES}/orders/proxy/"), "GET /"),
    ] {
        assert_eq!(server.get(&path).await.json()["asked"], asked, "{path}");
    }
    for (path, code, message) in [
        (
            format!("{SERVICES}/missing/proxy/x"),
            404,
            "services \"missing\" not found",
        ),
        (
            format!("{SERVICES}/orders:9/proxy/x"),
            503,
            "no service port \"9\" found for service \"orders\"",
        ),
        (
            format!("{SERVICES}/orders:81/proxy/x"),
            503,
            "error trying to reach service: no endpoints available for service \"orders\"",
        ),
        (
            format!("{PODS}/p:9/proxy/x"),
            503,
            "error trying to reach service: failed to connect to localhost:9 inside pod \"p\": connection refused: it listens on 8080 (http)",
        ),
        (
            format!("{PODS}/p:x/proxy/x"),
            400,
            "\"x\" is no port of pod \"p\"",
        ),
    ] {
        let answer = server.get(&path).await;
        assert_eq!(
            (answer.status.as_u16(), answer.message().as_str()),
            (code, message)
        );
    }
}

#[tokio::test]
async fn discovery_names_what_reaches_into_pods_as_the_reference_does_ka_005() {
    let server = Server::start().await;
    let document = server.get("/api/v1").await.json();
    let found = |name: &str| {
        let resources = document["resources"].as_array().unwrap();
        let entry = resources.iter().find(|entry| entry["name"] == name).unwrap();
        (entry["kind"].clone(), entry["verbs"].clone())
    };
    let upgraded = json!(["create", "get"]);
    let proxied = json!(["create", "delete", "get", "patch", "update"]);
    for (name, kind, verbs) in [
        ("pods/attach", "PodAttachOptions", &upgraded),
        ("pods/exec", "PodExecOptions", &upgraded),
        ("pods/portforward", "PodPortForwardOptions", &upgraded),
        ("pods/proxy", "PodProxyOptions", &proxied),
        ("services/proxy", "ServiceProxyOptions", &proxied),
    ] {
        assert_eq!(found(name), (json!(kind), verbs.clone()), "{name}");
    }
}

#[tokio::test]
async fn policies_are_asked_about_connections_before_anything_is_looked_for_ka_010_ka_052() {
    let server = with_workload().await;
    let policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let policy = json!({"metadata": {"name": "closed"}, "spec": {
    "matchConstraints": {"resourceRules": [{
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CONNECT"],
        "resources": ["pods/portforward", "pods/exec", "pods/attach", "pods/proxy", "services/proxy"]}]},
    "validations": [{
        "expression": "has(object.path) && object.path.startsWith('/open')",
        "messageExpression": "request.operation + ' ' + request.kind.kind + ' ' + request.subResource + ' ' + request.name \
                              + (has(object.ports) ? string(object.ports[0]) : '') \
                              + (has(object.path) ? object.path : '') \
                              + (request.options == null ? '' : ' with options')",
    }]}});
    let answer = server.post(policies, &policy).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.message());
    let bindings = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
    let binding = json!({"metadata": {"name": "closed"}, "spec": {
        "policyName": "closed", "validationActions": ["Deny"]}});
    let answer = server.post(bindings, &binding).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.message());
    for (path, resource, message) in [
        (
            format!("{PODS}/missing/portforward?ports=8080,4000"),
            "pods \"missing\"",
            "CONNECT PodPortForwardOptions portforward missing8080",
        ),
        (
            format!("{PODS}/p/exec?command=ls"),
            "pods \"p\"",
            "CONNECT PodExecOptions exec p",
        ),
        (
            format!("{PODS}/p/attach"),
            "pods \"p\"",
            "CONNECT PodAttachOptions attach p",
        ),
        (
            format!("{PODS}/p:8080/proxy"),
            "pods \"p:8080\"",
            "CONNECT PodProxyOptions proxy p:8080",
        ),
        (
            format!("{SERVICES}/orders/proxy/a%20b?x=1"),
            "services \"orders\"",
            "CONNECT ServiceProxyOptions proxy orders/a b",
        ),
    ] {
        let answer = server.post(&path, &Value::Null).await;
        assert_eq!(
            (answer.status, answer.message()),
            (
                StatusCode::UNPROCESSABLE_ENTITY,
                format!(
                    "{resource} is forbidden: ValidatingAdmissionPolicy 'closed' with binding 'closed' denied request: {message}"
                )
            ),
            "{path}"
        );
    }
    let answer = server.get(&format!("{SERVICES}/orders/proxy/open/1")).await;
    assert_eq!(answer.status, StatusCode::IM_A_TEAPOT, "{}", answer.message());
    // A policy that only warns is heard with the answer.
    let warning = json!({"spec": {"validationActions": ["Warn"]}});
    let answer = server.merge(&format!("{bindings}/closed"), &warning).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.message());
    for path in [
        format!("{SERVICES}/orders/proxy/closed"),
        format!("{PODS}/missing/portforward"),
    ] {
        let answer = server.get(&path).await;
        assert!(
            answer
                .headers
                .get("warning")
                .unwrap()
                .to_str()
                .unwrap()
                .contains("CONNECT"),
            "{path}"
        );
    }
}
