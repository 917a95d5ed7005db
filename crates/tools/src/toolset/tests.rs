#![allow(clippy::unwrap_used, clippy::expect_used)]

use mainstay_telemetry::{clock, random::SeededRandom, task};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use std::collections::BTreeMap;

use super::*;
use crate::{
    config::{
        AuthConfig, AuthType, ClientConfig, HandlerConfig, HandlerType, HttpConfig, SandboxReference,
        ToolDefinition,
    },
    http::tests::{Backend, Reply},
    policy::{Deny, Identity, PolicySet, PolicySpec, Rule},
};

fn handler(name: &str, tool: &str, change: impl FnOnce(&mut HandlerConfig)) -> HandlerConfig {
    let mut handler = HandlerConfig::new(name, HandlerType::Http);
    handler.tool = Some(ToolDefinition {
        name: tool.to_owned(),
        description: format!("does {tool}"),
        input_schema: json!({"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}),
        output_schema: None,
    });
    handler.http = Some(HttpConfig::new("http://backend/"));
    change(&mut handler);
    handler
}

fn config(handlers: Vec<HandlerConfig>) -> ToolsConfig {
    ToolsConfig {
        registry: "helpdesk".to_owned(),
        namespace: "default".to_owned(),
        handlers,
    }
}

fn policy(tools: &[&str], deny: Option<&str>) -> PolicySpec {
    PolicySpec {
        name: "orders".to_owned(),
        registry: "helpdesk".to_owned(),
        tools: tools.iter().map(|tool| (*tool).to_owned()).collect(),
        rules: vec![Rule {
            name: "no-delete".to_owned(),
            deny: Some(Deny {
                cel: deny.unwrap_or("false").to_owned(),
                message: "deletions need a person".to_owned(),
            }),
            ..Rule::default()
        }],
        ..PolicySpec::default()
    }
}

fn options(policies: Option<Vec<PolicySpec>>, files: FileRoot) -> ToolsetOptions {
    ToolsetOptions {
        connector: Connector::direct().unwrap(),
        files,
        environment: BTreeMap::new(),
        delegation: None,
        clock: clock::system(),
        random: SeededRandom::new(1),
        policy: match policies {
            Some(policies) => PolicyEngine::new(PolicySet::compile(policies)),
            None => PolicyEngine::disabled(),
        },
        agent: AgentIdentity {
            name: "helpdesk".to_owned(),
            namespace: "default".to_owned(),
            workspace: String::new(),
        },
    }
}

fn toolset(handlers: Vec<HandlerConfig>, policies: Option<Vec<PolicySpec>>, backend: &Backend) -> Toolset {
    let options = options(policies, FileRoot::at("/nowhere"));
    Toolset::over(&config(handlers), options, Arc::new(backend.clone()))
}

fn invocation(tool: &str, arguments: Value) -> ToolInvocation {
    ToolInvocation {
        call_id: "call_1".to_owned(),
        tool: tool.to_owned(),
        arguments,
        session: "s".to_owned(),
        turn: "t".to_owned(),
        identity: Identity::default(),
        headers: BTreeMap::new(),
        cancel: CancellationToken::new(),
    }
}

async fn call(toolset: &Toolset, tool: &str, arguments: Value) -> (Decision, ToolOutcome) {
    let invocation = invocation(tool, arguments);
    let decision = toolset.decide(&invocation);
    let outcome = toolset.execute(&invocation, &decision).await;
    (decision, outcome)
}

fn ok() -> Backend {
    Backend::new([Reply::Answer(200, r#"{"status":"shipped"}"#)])
}

#[tokio::test]
async fn a_permitted_call_reaches_the_backend() {
    let backend = ok();
    let set = toolset(
        vec![handler("a", "get_order", |_| {})],
        Some(vec![policy(&[], None)]),
        &backend,
    );
    let (decision, outcome) = call(&set, "get_order", json!({"id": "7"})).await;
    assert!(decision.allow);
    assert_eq!(outcome.content, json!({"status": "shipped"}));
    assert_eq!(
        (outcome.is_error, outcome.attempts, outcome.status),
        (false, 1, Some(200))
    );
    let headers = &backend.requests()[0].headers;
    assert_eq!(headers["x-omnia-agent-name"], "helpdesk");
    assert_eq!(headers["x-omnia-param-id"], "7");
}

#[tokio::test]
async fn without_a_matching_policy_the_backend_sees_no_request_v_70_v_71() {
    for policies in [vec![], vec![policy(&["other"], None)]] {
        let backend = ok();
        let set = toolset(vec![handler("a", "get_order", |_| {})], Some(policies), &backend);
        let (decision, outcome) = call(&set, "get_order", json!({"id": "7"})).await;
        assert_eq!(decision.denied_by.as_deref(), Some("no-matching-permit"));
        assert_eq!(outcome.reason, Some(FailureReason::PolicyDenied));
        assert!(backend.requests().is_empty());
    }
}

#[tokio::test]
async fn a_denial_reaches_the_model_with_message_and_rule_v_72_om_490() {
    let backend = ok();
    let set = toolset(
        vec![handler("a", "delete_order", |_| {})],
        Some(vec![policy(&[], Some("body.id == '7'"))]),
        &backend,
    );
    let (_, outcome) = call(&set, "delete_order", json!({"id": "7"})).await;
    assert!(outcome.is_error);
    assert!(
        outcome
            .text()
            .starts_with("tool call denied by policy: deletions need a person"),
        "{}",
        outcome.text()
    );
    assert!(outcome.text().contains("no-delete"));
    assert!(backend.requests().is_empty());
    assert!(!call(&set, "delete_order", json!({"id": "8"})).await.1.is_error);
}

/// A rule that reads the trace context permits only the one that is sent.
#[tokio::test]
async fn a_policy_sees_the_trace_context_that_is_sent_om_374() {
    let backend = ok();
    let set = toolset(
        vec![handler("a", "get_order", |_| {})],
        Some(vec![policy(&[], None)]),
        &backend,
    );
    call(&set, "get_order", json!({"id": "7"})).await;
    let sent = backend.requests()[0].headers["traceparent"]
        .to_str()
        .unwrap()
        .to_owned();
    let deny_others = format!("headers['Traceparent'] != '{sent}'");
    let judged = toolset(
        vec![handler("a", "get_order", |_| {})],
        Some(vec![policy(&[], Some(&deny_others))]),
        &backend,
    );
    assert!(call(&judged, "get_order", json!({"id": "7"})).await.0.allow);
}

/// The turn asks for a refusal before it stores its intent; the same arguments are not checked again.
#[tokio::test]
async fn a_checked_call_is_not_checked_again_and_still_obeys_its_decision_om_364() {
    let backend = ok();
    let set = toolset(vec![handler("a", "get_order", |_| {})], None, &backend);
    let invocation = invocation("get_order", json!({"id": 7}));
    let decision = set.decide(&invocation);
    assert!(set.refusal(&invocation, &decision).is_some());
    assert!(!set.execute_checked(&invocation, &decision).await.is_error);
    assert_eq!(backend.requests().len(), 1);
    let denied = Decision::default();
    let outcome = set.execute_checked(&invocation, &denied).await;
    assert_eq!(outcome.reason, Some(FailureReason::PolicyDenied));
    assert_eq!(backend.requests().len(), 1);
}

#[tokio::test]
async fn without_a_policy_engine_calls_are_not_evaluated_om_483() {
    let backend = ok();
    let set = toolset(vec![handler("a", "get_order", |_| {})], None, &backend);
    assert!(!call(&set, "get_order", json!({"id": "7"})).await.1.is_error);
}

#[tokio::test]
async fn an_unknown_name_is_an_error_result_and_never_executed_om_363() {
    let backend = ok();
    let set = toolset(vec![handler("a", "get_order", |_| {})], None, &backend);
    let (decision, outcome) = call(&set, "drop_table", json!({})).await;
    assert!(!decision.allow);
    assert_eq!(outcome.reason, Some(FailureReason::ToolNotOffered));
    assert_eq!(outcome.text(), "there is no tool `drop_table`");
    assert!(backend.requests().is_empty());
}

#[tokio::test]
async fn arguments_that_do_not_match_are_named_and_not_sent_om_364() {
    let backend = ok();
    let set = toolset(vec![handler("a", "get_order", |_| {})], None, &backend);
    for (arguments, part) in [
        (json!({}), "\"id\" is a required property"),
        (json!({"id": 7}), "/id: 7 is not of type \"string\""),
        (json!("{\"id\": "), "the arguments are not a JSON object"),
    ] {
        let (_, outcome) = call(&set, "get_order", arguments).await;
        assert_eq!(outcome.reason, Some(FailureReason::ArgumentsInvalid));
        assert!(outcome.text().contains(part), "{}", outcome.text());
    }
    assert!(backend.requests().is_empty());
}

#[tokio::test]
async fn the_later_handler_serves_a_name_that_two_have_om_035() {
    let backend = ok();
    let later = |url: &str| {
        let url = url.to_owned();
        handler("b", "get_order", move |handler| {
            handler.http = Some(HttpConfig::new(url))
        })
    };
    let set = toolset(
        vec![handler("a", "get_order", |_| {}), later("http://later/")],
        None,
        &backend,
    );
    assert_eq!(set.descriptors().len(), 1);
    assert_eq!(set.tool("get_order").unwrap().handler, "b");
    call(&set, "get_order", json!({"id": "7"})).await;
    assert_eq!(backend.requests()[0].url.host_str(), Some("later"));
}

#[test]
fn an_unavailable_handler_does_not_hand_its_tool_to_another_one_om_035() {
    let later = handler("b", "get_order", |handler| handler.kind = HandlerType::Platform);
    let set = toolset(vec![handler("a", "get_order", |_| {}), later], None, &ok());
    assert_eq!(set.tool("get_order"), None);
}

#[test]
fn one_bad_handler_leaves_the_others_d4() {
    let set = toolset(
        vec![
            handler("good", "get_order", |_| {}),
            handler("odd", "odd", |handler| {
                handler.tool.as_mut().unwrap().input_schema = json!({"type": "objekt"});
            }),
            handler("platform", "user", |handler| handler.kind = HandlerType::Platform),
            handler("grpc", "rpc", |handler| handler.kind = HandlerType::Grpc),
            handler("boxed", "boxed", |handler| {
                handler.sandbox = Some(SandboxReference::default())
            }),
            handler("mapped", "mapped", |handler| {
                handler.http.as_mut().unwrap().response_mapping = Some("size(a)".to_owned());
            }),
            handler("empty", "empty", |handler| handler.http = None),
            HandlerConfig::new("bare", HandlerType::Http),
        ],
        None,
        &ok(),
    );
    let names: Vec<String> = set.descriptors().into_iter().map(|tool| tool.name).collect();
    assert_eq!(names, ["get_order"]);
    let unavailable = set.unavailable();
    let reasons: Vec<(&str, &str)> = unavailable
        .iter()
        .map(|refused| (refused.handler.as_str(), refused.reason))
        .collect();
    assert_eq!(
        reasons,
        [
            ("odd", "InputSchemaInvalid"),
            ("platform", "HandlerTypeNotSupported"),
            ("grpc", "HandlerInvalid"),
            ("boxed", "SandboxNotSupported"),
            ("mapped", "MappingInvalid"),
            ("empty", "HandlerInvalid"),
            ("bare", "HandlerInvalid"),
        ]
    );
    assert!(
        set.unavailable()[5]
            .message
            .contains("`httpConfig` is required for type `http`")
    );
}

#[test]
fn the_turn_ceiling_is_two_minutes_and_the_longest_timeout_v_76() {
    let with = |timeouts: &[u64]| {
        let handlers = timeouts.iter().zip(0..).map(|(seconds, index): (&u64, usize)| {
            handler(&format!("h{index}"), &format!("t{index}"), |handler| {
                handler.timeout = Duration::from_secs(*seconds);
            })
        });
        toolset(handlers.collect(), None, &ok()).ceiling()
    };
    assert_eq!(with(&[30, 300]), Duration::from_secs(420));
    assert_eq!(with(&[5]), Duration::from_secs(150));
    assert_eq!(with(&[]), Duration::from_secs(120));
}

#[tokio::test]
async fn a_client_tool_is_described_decided_and_never_executed_here_om_432_om_493() {
    let client = handler("c", "get_location", |handler| {
        handler.kind = HandlerType::Client;
        handler.http = None;
        handler.client = Some(ClientConfig {
            consent_message: Some("Share?".to_owned()),
            categories: None,
        });
    });
    let set = toolset(vec![client], Some(vec![policy(&[], None)]), &ok());
    assert_eq!(
        set.tool("get_location").unwrap().kind,
        ToolKind::Client {
            consent_message: Some("Share?".to_owned()),
            categories: None
        }
    );
    let (decision, outcome) = call(&set, "get_location", json!({"id": "1"})).await;
    assert!(decision.allow);
    assert_eq!(outcome.reason, Some(FailureReason::ClientRequired));
    let invalid = set
        .refusal(&invocation("get_location", json!({})), &decision)
        .unwrap();
    assert_eq!(invalid.reason, Some(FailureReason::ArgumentsInvalid));
}

#[test]
fn only_calls_that_change_nothing_may_be_repeated() {
    for (method, safe) in [("GET", true), ("head", true), ("POST", false), ("DELETE", false)] {
        let set = toolset(
            vec![handler("a", "a", |handler| {
                handler.http.as_mut().unwrap().method = method.to_owned()
            })],
            None,
            &ok(),
        );
        assert_eq!(set.tool("a").unwrap().repeat_safe, safe, "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_keeps_failing_rests_and_refusals_do_not_count_om_373() {
    let backend = Backend::new([Reply::Answer(404, "no")]);
    let set = toolset(vec![handler("a", "a", |_| {})], None, &backend);
    for _ in 0..10 {
        assert_eq!(
            call(&set, "a", json!({"id": "1"})).await.1.reason,
            Some(FailureReason::HttpStatus)
        );
    }
    let backend = Backend::new([Reply::Answer(500, "no")]);
    let set = toolset(vec![handler("a", "a", |_| {})], None, &backend);
    for _ in 0..5 {
        call(&set, "a", json!({"id": "1"})).await;
    }
    let (_, outcome) = call(&set, "a", json!({"id": "1"})).await;
    assert_eq!(outcome.reason, Some(FailureReason::CircuitOpen));
    assert_eq!(backend.requests().len(), 5);
    tokio::time::advance(Duration::from_secs(30)).await;
    call(&set, "a", json!({"id": "1"})).await;
    assert_eq!(backend.requests().len(), 6);
}

#[tokio::test]
async fn a_real_backend_gets_the_request_and_the_credential_which_never_come_back_om_400_om_590() {
    let app = axum::Router::new().route(
        "/orders/{id}",
        axum::routing::get(
            |axum::extract::Path(id): axum::extract::Path<String>, headers: axum::http::HeaderMap| async move {
                let seen = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
                axum::Json(json!({"id": id, "auth": seen("authorization"), "key": seen("x-key"), "ssn": "123", "type": seen("content-type")}))
            },
        ),
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    task::spawn("test backend", async move { axum::serve(listener, app).await });

    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("token"), "token-one\n").unwrap();
    std::fs::write(directory.path().join("key"), "key-value").unwrap();
    let handler = handler("a", "get_order", |handler| {
        let mut http = HttpConfig::new("http://unused/");
        http.method = "GET".to_owned();
        http.url_template = Some(format!("http://{address}/orders/{{id}}"));
        http.redact = vec!["ssn".to_owned()];
        handler.http = Some(http);
        handler.auth = Some(AuthConfig {
            kind: AuthType::Bearer,
            credential_file: Some("/token".to_owned()),
            ..AuthConfig::default()
        });
        handler
            .secret_headers
            .insert("X-Key".to_owned(), "/key".to_owned());
    });
    let set = Toolset::load(
        &config(vec![handler]),
        options(None, FileRoot::at(directory.path())),
    );
    let (_, outcome) = call(&set, "get_order", json!({"id": "a b"})).await;
    assert_eq!(
        outcome.content,
        json!({"id": "a b", "auth": "Bearer [REDACTED]", "key": "[REDACTED]", "ssn": "[REDACTED]", "type": null})
    );
    let record = format!("{outcome:?}");
    for secret in ["token-one", "key-value", "123"] {
        assert!(
            !record.contains(secret) && !format!("{set:?}").contains(secret),
            "{secret}"
        );
    }

    // A rotated credential is used by the next call, a deleted one refuses it (OM-401, OM-403).
    std::fs::remove_file(directory.path().join("token")).unwrap();
    let (_, outcome) = call(&set, "get_order", json!({"id": "1"})).await;
    assert_eq!(outcome.reason, Some(FailureReason::CredentialUnavailable));
    assert_eq!(outcome.attempts, 0);
}

#[tokio::test]
async fn metadata_addresses_are_refused_for_every_tool() {
    let handler = handler("a", "a", |handler| {
        handler.http = Some(HttpConfig::new("http://169.254.169.254/latest/meta-data"));
    });
    let set = Toolset::load(&config(vec![handler]), options(None, FileRoot::at("/nowhere")));
    let (_, outcome) = call(&set, "a", json!({"id": "1"})).await;
    assert_eq!(outcome.reason, Some(FailureReason::AddressRefused));
}

#[tokio::test]
async fn a_listing_names_handler_type_and_the_policies_that_select_each_tool() {
    let backend = ok();
    let client = handler("browser", "pick", |handler| {
        handler.kind = HandlerType::Client;
        handler.http = None;
        handler.client = Some(ClientConfig::default());
    });
    let handlers = vec![handler("orders", "get_order", |_| {}), client];
    let tools = toolset(
        handlers.clone(),
        Some(vec![policy(&["get_order"], None)]),
        &backend,
    );
    let listed: Vec<_> = tools
        .listing()
        .tools
        .into_iter()
        .map(|listed| {
            (
                listed.tool.name,
                listed.tool.handler,
                listed.handler_type,
                listed.policies,
            )
        })
        .collect();
    assert_eq!(
        listed,
        [
            (
                "get_order".to_owned(),
                "orders".to_owned(),
                Some(HandlerType::Http),
                Some(vec!["orders".to_owned()])
            ),
            (
                "pick".to_owned(),
                "browser".to_owned(),
                Some(HandlerType::Client),
                Some(vec![])
            ),
        ]
    );
    let unjudged = toolset(handlers, None, &backend).listing();
    assert!(unjudged.tools.iter().all(|listed| listed.policies.is_none()));
}

#[tokio::test]
async fn a_preview_is_the_request_of_the_call_and_nothing_is_sent() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("token"), "sesame-sesame").unwrap();
    let backend = ok();
    let orders = handler("orders", "get_order", |handler| {
        let mut http = HttpConfig::new("http://backend/orders");
        http.method = "POST".to_owned();
        handler.http = Some(http);
        handler.auth = Some(AuthConfig {
            kind: AuthType::Bearer,
            credential_file: Some("/token".to_owned()),
            ..AuthConfig::default()
        });
    });
    let mut tagged = policy(&[], None);
    tagged.header_injection = vec![crate::policy::HeaderInjection {
        header: "X-Zone".to_owned(),
        source: crate::policy::HeaderSource::Value("eu".to_owned()),
    }];
    let options = options(Some(vec![tagged]), FileRoot::at(directory.path()));
    let tools = Toolset::over(&config(vec![orders]), options, Arc::new(backend.clone()));
    let call = invocation("get_order", json!({"id": "7"}));
    let explained = tools.explain(&call, &BTreeMap::new());
    let preview = tools.preview(&call, &explained).await.unwrap().unwrap();
    assert_eq!(
        (preview.method.as_str(), preview.url.as_str()),
        ("POST", "http://backend/orders")
    );
    assert_eq!(preview.body, Some(json!({"id": "7"})));
    assert_eq!(preview.headers["authorization"], "Bearer [redacted]");
    assert_eq!(preview.headers["x-zone"], "eu");
    assert_eq!(preview.headers["x-omnia-tool-name"], "get_order");
    // OM-364: what would be refused has no request.
    let wrong = invocation("get_order", json!({"id": 7}));
    let refused = tools.preview(&wrong, &explained).await.unwrap_err();
    assert_eq!(refused.reason, Some(FailureReason::ArgumentsInvalid));
    assert!(backend.requests().is_empty());
}

#[tokio::test]
async fn a_change_of_the_policies_takes_effect_on_the_next_call_om_482() {
    let backend = ok();
    let engine = PolicyEngine::new(PolicySet::compile(vec![policy(&[], None)]));
    let mut options = options(None, FileRoot::at("/nowhere"));
    options.policy = engine.clone();
    let handlers = vec![handler("orders", "get_order", |_| {})];
    let tools = Toolset::over(&config(handlers), options, Arc::new(backend.clone()));
    let call = invocation("get_order", json!({"id": "7"}));
    assert!(!tools.execute(&call, &tools.decide(&call)).await.is_error);
    engine.set(PolicySet::compile(vec![policy(&[], Some("body.id == '7'"))]));
    let refused = tools.execute(&call, &tools.decide(&call)).await;
    assert_eq!(refused.reason, Some(FailureReason::PolicyDenied));
    engine.set(PolicySet::compile(vec![policy(&[], Some("body.id == '8'"))]));
    assert!(!tools.execute(&call, &tools.decide(&call)).await.is_error);
    assert_eq!(backend.requests().len(), 2);
}
