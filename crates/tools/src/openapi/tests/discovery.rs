//! Handlers in a toolset: the document is fetched in the background, its tools come and are called.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU16, Ordering},
    },
    time::Duration,
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri},
    response::IntoResponse,
};
use mainstay_telemetry::{clock, random::SeededRandom, task};
use mainstay_workload::{Connector, FileRoot};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    AgentIdentity, FailureReason, ToolInvocation, ToolOutcome, Toolset, ToolsetOptions,
    config::{
        AuthConfig, AuthType, HandlerConfig, HandlerType, HttpConfig, OpenapiConfig, RetryPolicy,
        ToolDefinition, ToolsConfig,
    },
    http::tests::{Backend, Reply},
    policy::{Identity, PolicyEngine},
};

const LONG: Duration = Duration::from_secs(20);

fn handler(name: &str, change: impl FnOnce(&mut OpenapiConfig)) -> HandlerConfig {
    let mut handler = HandlerConfig::new(name, HandlerType::Openapi);
    let mut config = OpenapiConfig::new("http://shop/openapi.json");
    change(&mut config);
    handler.openapi = Some(config);
    handler
}

fn explicit(name: &str, tool: &str) -> HandlerConfig {
    let mut handler = HandlerConfig::new(name, HandlerType::Http);
    handler.http = Some(HttpConfig::new("http://explicit/"));
    handler.tool = Some(ToolDefinition {
        name: tool.to_owned(),
        ..ToolDefinition::default()
    });
    handler
}

fn config(handlers: Vec<HandlerConfig>) -> ToolsConfig {
    ToolsConfig {
        registry: "shop".to_owned(),
        namespace: "default".to_owned(),
        handlers,
    }
}

fn options(files: FileRoot) -> ToolsetOptions {
    ToolsetOptions {
        connector: Connector::direct().unwrap(),
        files,
        environment: BTreeMap::new(),
        delegation: None,
        clock: clock::system(),
        random: SeededRandom::new(1),
        policy: PolicyEngine::disabled(),
        agent: AgentIdentity::default(),
    }
}

fn over(handlers: Vec<HandlerConfig>, backend: &Backend) -> Toolset {
    let options = options(FileRoot::at("/nowhere"));
    Toolset::over(&config(handlers), options, Arc::new(backend.clone()))
}

async fn call(toolset: &Toolset, tool: &str, arguments: Value) -> ToolOutcome {
    let invocation = ToolInvocation {
        call_id: "call_1".to_owned(),
        tool: tool.to_owned(),
        arguments,
        session: "s".to_owned(),
        turn: "t".to_owned(),
        identity: Identity::default(),
        headers: BTreeMap::new(),
        cancel: CancellationToken::new(),
    };
    let decision = toolset.decide(&invocation);
    toolset.execute(&invocation, &decision).await
}

fn names(toolset: &Toolset) -> Vec<String> {
    toolset.descriptors().into_iter().map(|tool| tool.name).collect()
}

fn reasons(toolset: &Toolset) -> Vec<(&'static str, String)> {
    toolset
        .unavailable()
        .into_iter()
        .map(|unavailable| (unavailable.reason, unavailable.message))
        .collect()
}

async fn until(toolset: &Toolset, holds: impl Fn(&Toolset) -> bool) {
    let mut changes = toolset.changes();
    tokio::time::timeout(Duration::from_secs(600), changes.wait_for(|_| holds(toolset)))
        .await
        .expect("the toolset did not get there")
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_document_that_comes_later_brings_its_tools_and_the_agent_runs_meanwhile_om_431() {
    let backend = Backend::new([
        Reply::Refuse,
        Reply::Answer(503, "secret-body"),
        Reply::Answer(200, "openapi: 3.0.0"),
        Reply::Answer(200, SHOP_31),
    ]);
    let toolset = over(
        vec![explicit("a", "get_order"), handler("shop", |_| {})],
        &backend,
    );
    assert_eq!(reasons(&toolset)[0].0, "DiscoveryPending");
    assert_eq!(names(&toolset), ["get_order"]);
    toolset.settled(LONG).await;
    let (reason, message) = reasons(&toolset).remove(0);
    assert_eq!(reason, "DocumentUnavailable");
    assert!(
        message.starts_with("handler `shop`: ") && message.contains("connection refused"),
        "{message}"
    );
    assert_eq!(names(&toolset), ["get_order"]);

    until(&toolset, |toolset| {
        reasons(toolset)
            .iter()
            .any(|(_, message)| message == "handler `shop`: `specURL` answers with HTTP 503")
    })
    .await;
    until(&toolset, |toolset| {
        reasons(toolset)
            .iter()
            .any(|(reason, message)| *reason == "DocumentInvalid" && message.contains("YAML is not read"))
    })
    .await;
    until(&toolset, |toolset| toolset.unavailable().is_empty()).await;
    assert_eq!(names(&toolset), ["createOrder", "get_order"]);
    let tool = toolset.tool("createOrder").unwrap();
    assert_eq!((tool.handler.as_str(), tool.repeat_safe), ("shop", false));

    let requests = backend.requests();
    assert_eq!(requests.len(), 4);
    assert!(
        requests
            .iter()
            .all(|request| request.url.as_str() == "http://shop/openapi.json"
                && request.headers["accept"] == "application/json")
    );
}

#[tokio::test(start_paused = true)]
async fn waits_between_attempts_double_up_to_half_a_minute_om_431() {
    let backend = Backend::new([Reply::Refuse]);
    let toolset = over(vec![handler("shop", |_| {})], &backend);
    until(&toolset, |_| backend.requests().len() >= 8).await;
    let waits: Vec<f64> = backend.waits().iter().map(Duration::as_secs_f64).collect();
    for (wait, expected) in waits.iter().zip([1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]) {
        assert!(
            (expected * 0.9..=(expected * 1.1_f64).min(30.0) + 0.01).contains(wait),
            "{waits:?}"
        );
    }
    // Nobody asks once the agent is gone.
    drop(toolset);
    let asked = backend.requests().len();
    tokio::time::advance(Duration::from_secs(120)).await;
    assert_eq!(backend.requests().len(), asked);
}

#[tokio::test(start_paused = true)]
async fn operations_that_are_not_offered_are_told_of_d6() {
    const DOCUMENT: &str = r#"{"openapi": "3.0.0", "servers": [{"url": "http://shop/"}], "paths": {
        "/a": {"get": {"operationId": "a"}},
        "/b": {"get": {"operationId": "b", "servers": [{"url": "ftp://x/"}]}},
        "/c/{id}": {"get": {"operationId": "c", "parameters": 7}}}}"#;
    let filter = |ids: &[&str]| -> Vec<String> { ids.iter().map(|id| (*id).to_owned()).collect() };
    for (ids, offered, told) in [
        (filter(&["a"]), vec!["a"], None),
        (
            filter(&["a", "d"]),
            vec!["a"],
            Some("handler `shop`: the document does not have `d` that `operationFilter` names"),
        ),
        (
            filter(&["a", "b"]),
            vec!["a"],
            Some("handler `shop`: operations of the document cannot be offered: `b`"),
        ),
    ] {
        let handlers = vec![
            explicit("orders", "get_order"),
            handler("shop", |config| config.operation_filter = ids),
        ];
        let toolset = over(handlers, &Backend::new([Reply::Answer(200, DOCUMENT)]));
        toolset.settled(LONG).await;
        let mut names = names(&toolset);
        names.retain(|name| name != "get_order");
        assert_eq!(names, offered);
        let missed = toolset.undiscovered();
        assert_eq!(missed.first().map(|problem| problem.message.as_str()), told);
        assert!(missed.iter().all(|problem| problem.reason == "ListingIncomplete"));
    }
}

#[tokio::test(start_paused = true)]
async fn redirects_large_documents_and_missing_credentials_are_named_om_403_om_431() {
    for (reply, reason, part) in [
        (
            Reply::Answer(302, ""),
            "DocumentUnavailable",
            "redirects are not followed",
        ),
        (Reply::BrokenBody(200), "DocumentUnavailable", "ended early"),
        (
            Reply::Answer(200, "{}"),
            "DocumentInvalid",
            "neither `openapi` nor `swagger`",
        ),
        (
            Reply::Answer(200, r#"{"swagger": "2.0", "paths": {"/": {"get": {}}}}"#),
            "BaseURLInvalid",
            "set `baseURL`",
        ),
    ] {
        let toolset = over(vec![handler("shop", |_| {})], &Backend::new([reply]));
        toolset.settled(LONG).await;
        let (named, message) = reasons(&toolset).remove(0);
        assert_eq!(named, reason, "{message}");
        assert!(message.contains(part), "{message}");
    }
    let mut without = handler("shop", |_| {});
    without.auth = Some(AuthConfig {
        kind: AuthType::Bearer,
        credential_file: Some("/absent".to_owned()),
        ..AuthConfig::default()
    });
    let backend = Backend::new([Reply::Answer(200, SHOP_30)]);
    let toolset = over(vec![without], &backend);
    toolset.settled(LONG).await;
    assert_eq!(reasons(&toolset)[0].0, "CredentialUnavailable");
    assert!(backend.requests().is_empty());
    let toolset = over(vec![HandlerConfig::new("bare", HandlerType::Openapi)], &backend);
    assert_eq!(reasons(&toolset)[0].0, "HandlerInvalid");
}

#[tokio::test(start_paused = true)]
async fn the_later_handler_serves_a_discovered_name_that_two_have_om_035() {
    let backend = Backend::new([Reply::Answer(200, SHOP_31)]);
    for (handlers, owner) in [
        (
            vec![explicit("a", "createOrder"), handler("shop", |_| {})],
            "shop",
        ),
        (vec![handler("shop", |_| {}), explicit("a", "createOrder")], "a"),
    ] {
        let toolset = over(handlers, &backend);
        assert_eq!(toolset.tool("createOrder").unwrap().handler, "a");
        toolset.settled(LONG).await;
        assert_eq!(names(&toolset), ["createOrder"]);
        assert_eq!(toolset.tool("createOrder").unwrap().handler, owner);
    }
}

#[tokio::test(start_paused = true)]
async fn only_listed_operations_are_tools_and_only_reads_may_be_repeated_om_085() {
    let backend = Backend::new([Reply::Answer(200, SHOP_30)]);
    let listed = handler("shop", |config| {
        config.operation_filter = vec![
            "listOrders".to_owned(),
            "get_tenant_orders_id".to_owned(),
            "note".to_owned(),
        ];
    });
    let toolset = over(vec![listed], &backend);
    toolset.settled(LONG).await;
    assert_eq!(names(&toolset), ["get_tenant_orders_id", "listOrders", "note"]);
    let safe = |name: &str| toolset.tool(name).unwrap().repeat_safe;
    assert!(safe("listOrders") && safe("get_tenant_orders_id") && !safe("note"));
}

#[tokio::test(start_paused = true)]
async fn a_call_is_retried_and_fails_as_over_http_om_087_om_430() {
    let backend = Backend::new([
        Reply::Answer(200, SHOP_30),
        Reply::Answer(503, "busy"),
        Reply::Answer(200, "hello"),
        Reply::Answer(404, "gone"),
    ]);
    let retrying = handler("shop", |config| config.retry_policy = Some(RetryPolicy::new(2)));
    let toolset = over(vec![retrying], &backend);
    toolset.settled(LONG).await;
    let outcome = call(&toolset, "note", json!({"body": "x"})).await;
    assert_eq!(
        (outcome.content, outcome.attempts),
        (json!({"result": "hello"}), 2)
    );
    let outcome = call(&toolset, "note", json!({"body": "x"})).await;
    assert_eq!(outcome.text(), "HTTP 404: gone");
    let requests = backend.requests();
    assert_eq!(requests[1].body, requests[2].body);
    // Relative to where the document was read.
    assert_eq!(requests[1].url.as_str(), "http://shop/v1/notes");

    for (arguments, part) in [
        (json!({}), "\"body\" is a required property"),
        (json!({"body": 5}), "/body: 5 is not of type \"string\""),
    ] {
        let outcome = call(&toolset, "note", arguments).await;
        assert_eq!(outcome.reason, Some(FailureReason::ArgumentsInvalid));
        assert!(outcome.text().contains(part), "{}", outcome.text());
    }
    assert_eq!(backend.requests().len(), 4);
}

/// Serves the document and answers every other request with what it got.
#[derive(Clone)]
struct Shop {
    document_status: Arc<AtomicU16>,
    authorizations: Arc<Mutex<Vec<Option<String>>>>,
}

async fn shop(
    State(shop): State<Shop>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> impl IntoResponse {
    let seen = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    if uri.path() == "/docs/openapi.json" {
        shop.authorizations.lock().unwrap().push(seen("authorization"));
        let status = StatusCode::from_u16(shop.document_status.load(Ordering::Relaxed)).unwrap();
        return (status, SHOP_30).into_response();
    }
    Json(json!({
        "method": method.as_str(), "uri": uri.to_string(), "body": String::from_utf8_lossy(&body), "auth": seen("authorization"),
        "accept": seen("accept"), "key": seen("x-key"), "trace": seen("x-trace"), "type": seen("content-type"), "agent": seen("x-omnia-tool-name"),
    }))
    .into_response()
}

#[tokio::test]
async fn a_real_service_is_read_and_called_with_the_handlers_credential_om_400_om_426_om_430() {
    let state = Shop {
        document_status: Arc::new(AtomicU16::new(401)),
        authorizations: Arc::default(),
    };
    let app = Router::new().fallback(shop).with_state(state.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    task::spawn("test shop", async move { axum::serve(listener, app).await });

    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("token"), "token-123\n").unwrap();
    let mut handler = handler("shop", |config| {
        config.spec_url = format!("http://{address}/docs/openapi.json?key=url-secret");
        config.headers = BTreeMap::from([("X-Key".to_owned(), "key-value".to_owned())]);
    });
    handler.auth = Some(AuthConfig {
        kind: AuthType::Bearer,
        credential_file: Some("/token".to_owned()),
        ..AuthConfig::default()
    });
    let toolset = Toolset::load(&config(vec![handler]), options(FileRoot::at(directory.path())));
    toolset.settled(LONG).await;
    let (reason, message) = reasons(&toolset).remove(0);
    assert_eq!(reason, "DocumentUnavailable");
    assert_eq!(message, "handler `shop`: `specURL` answers with HTTP 401");
    state.document_status.store(200, Ordering::Relaxed);
    until(&toolset, |toolset| toolset.unavailable().is_empty()).await;
    assert_eq!(
        state.authorizations.lock().unwrap().last().unwrap().as_deref(),
        Some("Bearer token-123")
    );

    let outcome = call(
        &toolset,
        "listOrders",
        json!({"tenant": "a b", "x-trace": "t", "state": ["open"]}),
    )
    .await;
    assert_eq!(
        outcome.content,
        json!({
            "method": "GET", "uri": "/v1/a%20b/orders?state=open", "body": "", "auth": "Bearer [REDACTED]", "accept": "application/json",
            "key": "key-value", "trace": "t", "type": null, "agent": "listOrders",
        })
    );
    let outcome = call(
        &toolset,
        "createOrder",
        json!({"tenant": "t", "customer": "c", "item": "i"}),
    )
    .await;
    assert_eq!(outcome.content["body"], r#"{"customer":"c","item":"i"}"#);
    assert_eq!(outcome.content["type"], "application/json");
    let debug = format!("{toolset:?}");
    for secret in ["token-123", "key-value", "url-secret"] {
        assert!(!debug.contains(secret), "{secret} in {debug}");
    }
}
