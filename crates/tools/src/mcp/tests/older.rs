//! Streamable HTTP with servers of the older era.

use axum::http::StatusCode;
use futures::future::join_all;
use secrecy::SecretString;
use tokio::time::Instant;

use super::{
    fake::{Config, Does, Fake, Form, tool},
    *,
};
use crate::{
    FailureReason,
    config::{AuthConfig, AuthType, RetryPolicy},
    delegation::{DelegationError, DelegationRequest, DelegationSigner},
};

fn fake(config: Config) -> (Fake, Routed) {
    let fake = Fake::new(&["echo", "sum"], config);
    let way = Routed::to(fake.router());
    (fake, way)
}

async fn connected(config: Config) -> (Fake, Routed, Toolset) {
    let (fake, way) = fake(config);
    let set = ready(McpTransport::StreamableHttp, &way, |_| {}).await;
    assert_eq!(names(&set), ["echo", "sum"], "{:?}", set.unavailable());
    (fake, way, set)
}

#[tokio::test(start_paused = true)]
async fn tools_are_listed_and_called_in_one_session_om_419_om_421() {
    let (fake, _way, set) = connected(Config::default()).await;
    for number in 0..3 {
        let outcome = call(&set, "echo", json!({"n": number})).await;
        assert_eq!(outcome.content, json!(format!("{{\"n\":{number}}}")));
        assert_eq!(
            (outcome.is_error, outcome.attempts, outcome.status),
            (false, 1, Some(200))
        );
    }
    let began = fake.requests("initialize");
    assert_eq!(began.len(), 1);
    assert_eq!(began[0].1["params"]["clientInfo"]["name"], "omnia-runtime");
    assert_eq!(began[0].1["params"]["protocolVersion"], "2025-11-25");
    for (headers, _) in fake.requests("tools/call") {
        assert_eq!(headers["mcp-session-id"], "session-1");
        assert_eq!(headers["mcp-protocol-version"], "2025-06-18");
    }
    drop(set);
}

#[tokio::test(start_paused = true)]
async fn names_that_the_server_does_not_have_are_told_of_d6() {
    let (_fake, way) = fake(Config::default());
    let set = ready(McpTransport::StreamableHttp, &way, |handler| {
        handler.mcp.as_mut().unwrap().allowlist = ["echo", "absent"].map(str::to_owned).to_vec();
    })
    .await;
    assert_eq!(names(&set), ["echo"]);
    let missed = set.undiscovered();
    assert_eq!(missed[0].reason, "ToolUnknown");
    assert!(
        missed[0].message.contains("`absent`") && missed[0].message.contains("`toolFilter.allowlist`"),
        "{:?}",
        missed[0].message
    );
}

#[tokio::test(start_paused = true)]
async fn every_revision_of_the_older_era_is_spoken_om_420() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let (fake, _way, set) = connected(Config {
            version,
            ..Config::default()
        })
        .await;
        assert!(!call(&set, "echo", json!({})).await.is_error, "{version}");
        assert_eq!(fake.requests("tools/call")[0].0["mcp-protocol-version"], version);
    }
    let (_fake, way) = self::fake(Config {
        version: "1999-12-31",
        ..Config::default()
    });
    let set = ready(McpTransport::StreamableHttp, &way, |_| {}).await;
    let refused = &set.unavailable()[0];
    assert_eq!(refused.reason, "ProtocolError");
    assert!(refused.message.contains("1999-12-31"), "{}", refused.message);
}

#[tokio::test(start_paused = true)]
async fn however_a_server_refuses_the_newer_era_it_is_spoken_to_in_the_older_one() {
    for discover in [
        Does::Errs(-32601, "Method not found"),
        Does::Answers(json!({})),
        Does::Errs(-32000, "Bad Request: Server not initialized"),
        Does::Refuses(400, ""),
        Does::Refuses(404, "<html>"),
        Does::Refuses(500, "oops"),
        Does::Refuses(503, "unknown session"),
        Does::Hangs,
        Does::Opens,
    ] {
        let shown = format!("{discover:?}");
        let (fake, _way, set) = connected(Config {
            discover,
            ..Config::default()
        })
        .await;
        assert!(!call(&set, "echo", json!({})).await.is_error, "{shown}");
        assert_eq!(fake.count("initialize"), 1, "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_form_of_an_answer_is_read_d7() {
    for form in [Form::Json, Form::Events, Form::Batch] {
        for has_sessions in [true, false] {
            let (_fake, _way, set) = connected(Config {
                form,
                has_sessions,
                ..Config::default()
            })
            .await;
            let outcome = call(&set, "echo", json!({"a": 1})).await;
            assert_eq!(outcome.content, json!("{\"a\":1}"), "{form:?} {has_sessions}");
        }
    }
}

/// D5: calls that wait share one handshake, and each is made once more.
#[tokio::test(start_paused = true)]
async fn a_restarted_server_costs_one_handshake_for_all_calls_d5_om_422_v_68() {
    for status in [404, 400, 503] {
        let (fake, _way, set) = connected(Config {
            unknown: StatusCode::from_u16(status).unwrap(),
            ..Config::default()
        })
        .await;
        fake.restart();
        let outcomes = join_all((0..10).map(|n| call(&set, "echo", json!({"n": n})))).await;
        for outcome in &outcomes {
            assert!(!outcome.is_error, "{status}: {outcome:?}");
            assert_eq!(outcome.attempts, 2);
        }
        assert_eq!(fake.count("initialize"), 2, "{status}");
        assert_eq!(fake.count("tools/list"), 2, "{status}");
        assert_eq!(fake.count("tools/call"), 20);
        assert!(set.unavailable().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_loss_is_an_error_the_model_can_read_and_never_a_loop_d5_v_68() {
    let (fake, _way, set) = connected(Config::default()).await;
    fake.script([Does::Refuses(404, "gone"), Does::Refuses(404, "gone again")]);
    let outcome = call(&set, "echo", json!({})).await;
    assert_eq!(outcome.reason, Some(FailureReason::HttpStatus));
    assert_eq!(outcome.text(), "HTTP 404: gone again");
    assert_eq!((outcome.attempts, fake.count("tools/call")), (2, 2));
    fake.script([Does::Breaks, Does::Breaks]);
    let outcome = call(&set, "echo", json!({})).await;
    assert_eq!(outcome.reason, Some(FailureReason::NetworkError));
    assert_eq!((outcome.attempts, fake.count("tools/call")), (2, 4));
    // The tools are still there, and so is the server.
    assert_eq!(names(&set), ["echo", "sum"]);
    assert!(!call(&set, "echo", json!({})).await.is_error);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_drops_in_the_middle_of_a_call_is_dialled_anew_om_422_v_68() {
    let (fake, _way, set) = connected(Config::default()).await;
    fake.script([Does::Breaks]);
    let outcome = call(&set, "echo", json!({"a": 1})).await;
    assert_eq!(outcome.content, json!("{\"a\":1}"));
    assert_eq!((fake.count("initialize"), fake.count("tools/list")), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_a_restarted_server_lacks_is_an_error_om_423() {
    let (fake, _way, set) = connected(Config::default()).await;
    fake.set_tools(vec![tool("echo")]);
    fake.restart();
    let outcome = call(&set, "sum", json!({})).await;
    assert_eq!(outcome.reason, Some(FailureReason::ToolNotOffered));
    assert_eq!(outcome.text(), "the server has no tool `sum` any more");
    until(&set, |set| names(set) == ["echo"]).await;
    assert_eq!(
        fake.count("tools/list"),
        2,
        "the list that came with the session is published"
    );
}

#[tokio::test(start_paused = true)]
async fn a_change_that_the_server_tells_is_listed_om_423() {
    let (fake, _way, set) = connected(Config {
        has_stream: true,
        ..Config::default()
    })
    .await;
    // The stream of notices is opened behind the handshake.
    while fake.count("GET") == 0 {
        tokio::task::yield_now().await;
    }
    fake.set_tools(vec![tool("echo"), tool("new")]);
    fake.notify("notifications/tools/list_changed");
    until(&set, |set| names(set) == ["echo", "new"]).await;
    assert_eq!(fake.count("initialize"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_at_the_start_is_found_later_om_424() {
    let (fake, _) = fake(Config::default());
    let way = Routed::away();
    let set = ready(McpTransport::StreamableHttp, &way, |_| {}).await;
    assert!(names(&set).is_empty());
    let away = &set.unavailable()[0];
    assert_eq!(away.reason, "ServerUnavailable");
    assert!(away.message.contains("connection refused"), "{}", away.message);
    let began = Instant::now();
    // Paused time: what the background waits for meanwhile happens, and nothing takes long.
    tokio::time::sleep(Duration::from_secs(20)).await;
    way.set(Some(fake.router()));
    until(&set, |set| names(set) == ["echo", "sum"]).await;
    assert!(
        began.elapsed() <= Duration::from_secs(60),
        "within the longest wait"
    );
    assert!(set.unavailable().is_empty());
}

/// The stream ends with the server, and the last known tools stay (OM-422).
#[tokio::test(start_paused = true)]
async fn a_session_that_is_lost_while_idle_is_replaced_in_the_background_om_422() {
    for has_stream in [true, false] {
        let (fake, way, set) = connected(Config {
            has_stream,
            ..Config::default()
        })
        .await;
        while has_stream && fake.count("GET") == 0 {
            tokio::task::yield_now().await;
        }
        way.set(None);
        fake.restart();
        until(&set, |set| !set.unavailable().is_empty()).await;
        assert_eq!(names(&set), ["echo", "sum"], "the last known tools stay");
        let failed = call(&set, "echo", json!({})).await;
        assert_eq!(failed.reason, Some(FailureReason::NetworkError));
        fake.set_tools(vec![tool("echo"), tool("later")]);
        way.set(Some(fake.router()));
        until(&set, |set| names(set) == ["echo", "later"]).await;
        assert!(!call(&set, "later", json!({})).await.is_error);
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_never_answers_costs_its_timeout_and_is_told_om_368() {
    let (fake, way) = fake(Config::default());
    let set = ready(McpTransport::StreamableHttp, &way, |handler| {
        handler.timeout = Duration::from_secs(3);
    })
    .await;
    fake.script([Does::Hangs]);
    let began = Instant::now();
    let outcome = call(&set, "echo", json!({})).await;
    assert_eq!(outcome.reason, Some(FailureReason::TimedOut));
    assert_eq!(outcome.text(), "no answer within 3s");
    assert_eq!((began.elapsed(), outcome.attempts), (Duration::from_secs(3), 1));
    while fake.count("notifications/cancelled") == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(fake.count("initialize"), 1, "the session is not to blame");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_ends_at_once_and_the_server_is_told_om_392() {
    let (fake, _way, set) = connected(Config::default()).await;
    fake.script([Does::Hangs]);
    let invocation = invocation("echo", json!({}));
    let cancel = invocation.cancel.clone();
    let decision = permit();
    let called = set.execute(&invocation, &decision);
    let cancelled = async {
        while fake.count("tools/call") == 0 {
            tokio::task::yield_now().await;
        }
        cancel.cancel();
    };
    let (outcome, ()) = tokio::join!(called, cancelled);
    assert_eq!(
        (outcome.reason, outcome.attempts),
        (Some(FailureReason::Cancelled), 1)
    );
    while fake.count("notifications/cancelled") == 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_call_is_retried_and_a_tools_own_error_is_not_om_396() {
    let (fake, way) = fake(Config::default());
    let set = ready(McpTransport::StreamableHttp, &way, |handler| {
        handler.mcp.as_mut().unwrap().retry_policy = Some(RetryPolicy::new(3));
    })
    .await;
    fake.script([Does::Errs(-32603, "busy"), Does::Refuses(500, "oops")]);
    let outcome = call(&set, "echo", json!({})).await;
    assert!(!outcome.is_error && outcome.attempts == 3, "{outcome:?}");

    fake.script(vec![Does::Errs(-32603, "busy"); 3]);
    let outcome = call(&set, "echo", json!({})).await;
    assert_eq!(outcome.reason, Some(FailureReason::ProtocolError));
    assert_eq!(
        outcome.text(),
        "failed after 3 attempts: the server answers with error -32603: busy"
    );

    let own = json!({"isError": true, "content": [{"type": "text", "text": "no such file"}]});
    fake.script([Does::Answers(own)]);
    let outcome = call(&set, "echo", json!({})).await;
    assert_eq!(
        (outcome.reason, outcome.attempts),
        (Some(FailureReason::ToolError), 1)
    );
    assert_eq!(outcome.text(), "no such file");
}

#[tokio::test(start_paused = true)]
async fn without_a_policy_an_error_of_the_protocol_is_final_om_398() {
    let (fake, _way, set) = connected(Config::default()).await;
    fake.script([Does::Errs(-32602, "no")]);
    let outcome = call(&set, "echo", json!({})).await;
    assert_eq!(
        (outcome.reason, outcome.attempts),
        (Some(FailureReason::ProtocolError), 1)
    );
}

#[tokio::test(start_paused = true)]
async fn names_are_fit_for_models_and_mapped_back_exactly_d3() {
    let long = "x".repeat(90);
    let fake = Fake::new(&["files.read", "files:read", "plain", &long], Config::default());
    let way = Routed::to(fake.router());
    let set = ready(McpTransport::StreamableHttp, &way, |_| {}).await;
    let offered = names(&set);
    assert_eq!(offered.len(), 4);
    for name in &offered {
        assert!(
            name.len() <= 64
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
        );
        assert!(!call(&set, name, json!({})).await.is_error);
    }
    let mut called: Vec<Value> = fake
        .requests("tools/call")
        .into_iter()
        .map(|(_, body)| body["params"]["name"].clone())
        .collect();
    called.sort_by_key(Value::to_string);
    assert_eq!(
        called,
        [
            json!("files.read"),
            json!("files:read"),
            json!("plain"),
            json!(long)
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn filters_and_hints_of_the_server_count_om_081() {
    let fake = Fake::new(&[], Config::default());
    let mut safe = tool("read");
    safe["annotations"] = json!({"readOnlyHint": true});
    fake.set_tools(vec![safe, tool("write"), tool("remove")]);
    let way = Routed::to(fake.router());
    let set = ready(McpTransport::StreamableHttp, &way, |handler| {
        handler.mcp.as_mut().unwrap().blocklist = vec!["remove".to_owned()];
    })
    .await;
    let seen: Vec<(String, bool)> = set
        .descriptors()
        .into_iter()
        .map(|tool| (tool.name, tool.repeat_safe))
        .collect();
    assert_eq!(seen, [("read".to_owned(), true), ("write".to_owned(), false)]);
    assert_eq!(
        call(&set, "remove", json!({})).await.reason,
        Some(FailureReason::ToolNotOffered)
    );
    assert_eq!(fake.count("tools/call"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_list_of_null_is_an_empty_one_d8() {
    let fake = Fake::new(&[], Config::default());
    fake.set_tools(Value::Null);
    let way = Routed::to(fake.router());
    let set = ready(McpTransport::StreamableHttp, &way, |_| {}).await;
    assert!(names(&set).is_empty() && set.unavailable().is_empty());
}

#[tokio::test(start_paused = true)]
async fn arguments_are_checked_before_anything_is_sent_om_364() {
    let fake = Fake::new(&[], Config::default());
    fake.set_tools(vec![json!({"name": "sum", "inputSchema": {
        "type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
    }})]);
    let way = Routed::to(fake.router());
    let set = ready(McpTransport::StreamableHttp, &way, |_| {}).await;
    let outcome = call(&set, "sum", json!({"a": "1"})).await;
    assert_eq!(outcome.reason, Some(FailureReason::ArgumentsInvalid));
    assert_eq!(fake.count("tools/call"), 0);
    assert!(!call(&set, "sum", json!({"a": 1})).await.is_error);
}

fn with_credential(handler: &mut HandlerConfig) {
    handler.auth = Some(AuthConfig {
        kind: AuthType::Bearer,
        credential_file: Some("/token".to_owned()),
        audience: None,
        header: None,
    });
    handler
        .secret_headers
        .insert("X-Key".to_owned(), "/key".to_owned());
}

#[tokio::test(start_paused = true)]
async fn the_credential_is_on_every_request_and_in_no_answer_om_400_om_404_om_420_om_590() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("token"), "token-one\n").unwrap();
    std::fs::write(directory.path().join("key"), "key-value").unwrap();
    let (fake, way) = fake(Config {
        has_stream: true,
        ..Config::default()
    });
    let files = FileRoot::at(directory.path());
    let set = load(
        handler(McpTransport::StreamableHttp, with_credential),
        files,
        &way,
    );
    set.settled(Duration::from_secs(60)).await;
    fake.script([
        Does::Answers(text("you sent token-one and key-value")),
        Does::Errs(-1, "token-one is wrong"),
    ]);
    let outcome = call(&set, "echo", json!({"id": 7})).await;
    assert_eq!(outcome.text(), "you sent [REDACTED] and [REDACTED]");
    assert!(
        call(&set, "echo", json!({}))
            .await
            .text()
            .ends_with("[REDACTED] is wrong")
    );
    for method in [
        "server/discover",
        "initialize",
        "notifications/initialized",
        "tools/list",
        "tools/call",
        "GET",
    ] {
        for (headers, _) in fake.requests(method) {
            assert_eq!(headers["authorization"], "Bearer token-one", "{method}");
            assert_eq!(headers["x-key"], "key-value", "{method}");
        }
    }
    // What is the caller's and the policy's is on calls only.
    let called = &fake.requests("tools/call")[0].0;
    assert_eq!(called["x-omnia-agent-name"], "helpdesk");
    assert_eq!(called["x-omnia-param-id"], "7");
    assert_eq!(called["x-injected"], "by a policy");
    assert_eq!(called["content-type"], "application/json");
    assert!(!fake.requests("tools/list")[0].0.contains_key("x-injected"));

    // Read anew for each request: a rotated one is used, a missing one refuses the call (OM-401, OM-403).
    std::fs::write(directory.path().join("token"), "token-two").unwrap();
    call(&set, "echo", json!({})).await;
    assert_eq!(
        fake.requests("tools/call")[2].0["authorization"],
        "Bearer token-two"
    );
    std::fs::remove_file(directory.path().join("token")).unwrap();
    let refused = call(&set, "echo", json!({})).await;
    assert_eq!(refused.reason, Some(FailureReason::CredentialUnavailable));
    assert_eq!((refused.attempts, fake.count("tools/call")), (0, 3));
    let shown = format!("{set:?}");
    assert!(!shown.contains("token-one") && !shown.contains("by a policy"));
}

#[derive(Debug)]
struct Signer;

#[async_trait]
impl DelegationSigner for Signer {
    async fn sign(&self, request: &DelegationRequest) -> Result<SecretString, DelegationError> {
        Ok(SecretString::from(format!("signed-for-{}", request.handler)))
    }
}

#[tokio::test(start_paused = true)]
async fn each_call_carries_the_statement_of_who_is_behind_it_and_nothing_else_does_om_410_om_414() {
    let (fake, way) = fake(Config::default());
    let delegating = || handler(McpTransport::StreamableHttp, |handler| handler.delegation = true);
    let set = load_signed(
        delegating(),
        FileRoot::at("/nowhere"),
        &way,
        Some(Arc::new(Signer)),
    );
    set.settled(Duration::from_secs(60)).await;
    fake.script([Does::Answers(text("you sent signed-for-code"))]);
    assert_eq!(call(&set, "echo", json!({})).await.text(), "you sent [REDACTED]");
    assert_eq!(
        fake.requests("tools/call")[0].0["x-omnia-delegation"],
        "signed-for-code"
    );
    assert!(
        !fake.requests("tools/list")[0]
            .0
            .contains_key("x-omnia-delegation")
    );
    let asked = invocation("echo", json!({"text": "hello"}));
    let explained = set.explain(&asked, &BTreeMap::new());
    let preview = set.preview(&asked, &explained).await.unwrap().unwrap();
    assert_eq!(preview.method, "tools/call");
    assert_eq!(preview.headers["x-omnia-delegation"], "[redacted]");
    let body = preview.body.unwrap();
    assert_eq!(
        body["params"],
        json!({"name": "echo", "arguments": {"text": "hello"}})
    );
    assert_eq!(fake.count("tools/call"), 1, "a preview sends nothing");

    let unsigned = load(delegating(), FileRoot::at("/nowhere"), &way);
    unsigned.settled(Duration::from_secs(60)).await;
    let refused = call(&unsigned, "echo", json!({})).await;
    assert_eq!(refused.reason, Some(FailureReason::CredentialUnavailable));
    assert_eq!(fake.count("tools/call"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_without_its_credential_is_not_asked_at_all_om_403() {
    let (fake, way) = fake(Config::default());
    let set = load(
        handler(McpTransport::StreamableHttp, with_credential),
        FileRoot::at("/nowhere"),
        &way,
    );
    set.settled(Duration::from_secs(60)).await;
    assert_eq!(set.unavailable()[0].reason, "CredentialUnavailable");
    assert_eq!(fake.count("server/discover") + fake.count("initialize"), 0);
}

#[tokio::test(start_paused = true)]
async fn an_answer_beyond_the_limit_is_an_error_and_is_not_asked_for_again_om_386() {
    let huge = "x".repeat(11 * 1024 * 1024);
    for form in [Form::Json, Form::Events] {
        let (fake, _way, set) = connected(Config {
            form,
            ..Config::default()
        })
        .await;
        fake.script([Does::Answers(text(&huge))]);
        let outcome = call(&set, "echo", json!({})).await;
        assert_eq!(outcome.reason, Some(FailureReason::ResponseInvalid), "{form:?}");
        assert!(
            outcome.text().contains("larger than 10485760 bytes"),
            "{}",
            outcome.text()
        );
        assert_eq!(fake.count("tools/call"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_keeps_failing_rests_and_one_that_refuses_does_not_om_373() {
    let (fake, way, set) = connected(Config::default()).await;
    fake.script(vec![Does::Errs(-32602, "no"); 10]);
    for _ in 0..10 {
        let outcome = call(&set, "echo", json!({})).await;
        assert_eq!(outcome.reason, Some(FailureReason::ProtocolError));
    }
    way.set(None);
    fake.restart();
    for _ in 0..5 {
        assert!(call(&set, "echo", json!({})).await.is_error);
    }
    let outcome = call(&set, "echo", json!({})).await;
    assert_eq!(outcome.reason, Some(FailureReason::CircuitOpen));
}

/// A server that answers and gives no session is no backend that works.
#[tokio::test(start_paused = true)]
async fn a_server_that_gives_no_session_rests_too_om_373() {
    for (initialize, status) in [
        (Does::Refuses(503, "starting"), Some(503)),
        (Does::Refuses(401, "no"), Some(401)),
        (Does::Errs(-32000, "no session for you"), None),
    ] {
        let (fake, _) = fake(Config {
            initialize: Some(initialize.clone()),
            ..Config::default()
        });
        let (_working, way, set) = connected(Config::default()).await;
        way.set(Some(fake.router()));
        for _ in 0..5 {
            let outcome = call(&set, "echo", json!({})).await;
            assert!(outcome.is_error, "{initialize:?}: {outcome:?}");
            assert_eq!(outcome.status, status, "{initialize:?}: {outcome:?}");
        }
        let outcome = call(&set, "echo", json!({})).await;
        assert_eq!(outcome.reason, Some(FailureReason::CircuitOpen), "{initialize:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_handshake_says_why_and_holds_no_credential_om_590() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("token"), "tok-123456").unwrap();
    for transport in [McpTransport::StreamableHttp, McpTransport::Sse] {
        let (_fake, way) = fake(Config {
            initialize: Some(Does::Errs(-32000, "bad token tok-123456")),
            ..Config::default()
        });
        let handler = handler(transport, |handler| {
            handler.auth = Some(AuthConfig {
                kind: AuthType::Bearer,
                credential_file: Some("/token".to_owned()),
                ..AuthConfig::default()
            });
        });
        let set = load(handler, FileRoot::at(directory.path()), &way);
        set.settled(Duration::from_secs(60)).await;
        let told = &set.unavailable()[0].message;
        assert!(told.contains("bad token [REDACTED]"), "{transport:?}: {told}");
    }
}

/// A server of the older era was replaced by one of the newer, which does not answer what it does not know.
#[tokio::test(start_paused = true)]
async fn after_a_handshake_without_an_answer_the_newer_era_is_asked_for_again() {
    let (older, way, set) = connected(Config::default()).await;
    assert_eq!(older.count("server/discover"), 1);
    let (newer, _) = fake(Config {
        initialize: Some(Does::Opens),
        ..Config::default()
    });
    way.set(Some(newer.router()));
    older.restart();
    while newer.count("server/discover") == 0 {
        call(&set, "echo", json!({})).await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(
            newer.count("initialize") < 10,
            "it is asked in the older era only"
        );
    }
}

#[tokio::test]
async fn metadata_addresses_are_refused_om_325() {
    let handler = handler(McpTransport::StreamableHttp, |handler| {
        handler.mcp.as_mut().unwrap().endpoint = "http://169.254.169.254/mcp".to_owned();
    });
    let config = ToolsConfig {
        registry: "r".to_owned(),
        namespace: "default".to_owned(),
        handlers: vec![handler],
    };
    let options = ToolsetOptions {
        connector: Connector::direct().unwrap(),
        files: FileRoot::at("/nowhere"),
        environment: std::collections::BTreeMap::new(),
        delegation: None,
        clock: clock::system(),
        random: SeededRandom::new(1),
        policy: PolicyEngine::disabled(),
        agent: AgentIdentity::default(),
    };
    let set = Toolset::load(&config, options);
    set.settled(Duration::from_secs(60)).await;
    assert_eq!(
        set.unavailable()[0].reason,
        "AddressRefused",
        "{:?}",
        set.unavailable()
    );
}
