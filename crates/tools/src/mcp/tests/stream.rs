//! The transport of 2024-11-05.

use axum::http::StatusCode;

use super::{
    fake::{Config, Does, Fake, tool},
    *,
};
use crate::FailureReason;

async fn connected(config: Config) -> (Fake, Routed, Toolset) {
    let fake = Fake::new(&["echo"], config);
    let way = Routed::to(fake.router());
    let set = ready(McpTransport::Sse, &way, |_| {}).await;
    assert_eq!(names(&set), ["echo"], "{:?}", set.unavailable());
    (fake, way, set)
}

#[tokio::test(start_paused = true)]
async fn messages_go_where_the_stream_says_and_answers_come_by_it_om_420() {
    let (fake, _way, set) = connected(Config {
        version: "2024-11-05",
        ..Config::default()
    })
    .await;
    let outcome = call(&set, "echo", json!({"a": 1})).await;
    assert_eq!((outcome.content, outcome.attempts), (json!("{\"a\":1}"), 1));
    assert_eq!(fake.count("server/discover"), 0, "there is no newer era here");
    assert_eq!(fake.requests("tools/call")[0].0["x-injected"], "by a policy");
    fake.script([Does::Errs(-32602, "no")]);
    let outcome = call(&set, "echo", json!({})).await;
    assert_eq!(outcome.reason, Some(FailureReason::ProtocolError));
}

#[tokio::test(start_paused = true)]
async fn a_change_that_the_server_tells_is_listed_om_423() {
    let (fake, _way, set) = connected(Config::default()).await;
    fake.set_tools(vec![tool("other")]);
    fake.notify("notifications/tools/list_changed");
    until(&set, |set| names(set) == ["other"]).await;
    assert_eq!(fake.count("initialize"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_restarted_server_costs_one_handshake_and_one_repeat_d5_om_422() {
    for status in [404, 400, 503] {
        let (fake, _way, set) = connected(Config {
            unknown: StatusCode::from_u16(status).unwrap(),
            ..Config::default()
        })
        .await;
        fake.restart();
        let outcome = call(&set, "echo", json!({"n": status})).await;
        assert_eq!(outcome.content, json!(format!("{{\"n\":{status}}}")));
        assert_eq!(fake.count("initialize"), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_in_the_middle_of_a_call_is_dialled_anew_once_om_422_v_68() {
    let (fake, _way, set) = connected(Config::default()).await;
    fake.script([Does::Breaks]);
    assert!(!call(&set, "echo", json!({})).await.is_error);
    fake.script([Does::Breaks, Does::Breaks]);
    let outcome = call(&set, "echo", json!({})).await;
    assert_eq!(outcome.reason, Some(FailureReason::NetworkError));
    assert_eq!(fake.count("tools/call"), 4);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_while_idle_is_opened_anew_in_the_background_om_422() {
    let (fake, way, set) = connected(Config::default()).await;
    way.set(None);
    fake.restart();
    until(&set, |set| !set.unavailable().is_empty()).await;
    assert_eq!(names(&set), ["echo"]);
    way.set(Some(fake.router()));
    until(&set, |set| set.unavailable().is_empty()).await;
    assert!(!call(&set, "echo", json!({})).await.is_error);
}

#[tokio::test(start_paused = true)]
async fn a_server_of_the_other_transport_is_said_to_be_one() {
    let fake = Fake::new(&["echo"], Config::default());
    let way = Routed::to(fake.router());
    let set = ready(McpTransport::Sse, &way, |handler| {
        handler.mcp.as_mut().unwrap().endpoint = "http://localhost/mcp".to_owned();
    })
    .await;
    assert!(
        set.unavailable()[0].message.contains("HTTP 405"),
        "{:?}",
        set.unavailable()
    );
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_never_answers_costs_its_timeout_om_368() {
    let (fake, _way, set) = connected(Config::default()).await;
    fake.script([Does::Hangs]);
    let outcome = call(&set, "echo", json!({})).await;
    assert_eq!(outcome.text(), "no answer within 30s");
    while fake.count("notifications/cancelled") == 0 {
        tokio::task::yield_now().await;
    }
}
