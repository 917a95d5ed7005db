#![allow(clippy::unwrap_used, clippy::expect_used)]

use axum::{body::Body, http::Request};
use http_body_util::BodyExt;
use jiff::Timestamp;
use mainstay_telemetry::clock::ManualClock;
use tower::ServiceExt;

use super::*;
use crate::mock::Scenario;

const SCENARIO: &str = r#"
models: [helpdesk]
turns:
- match: order (?P<id>\d+)
  steps:
  - text: Looking.
    calls:
    - tool: get_order
      arguments: {id: "{{id}}", note: "a longer text, so that it is cut"}
  - text: It is {{tool.get_order.status}}.
- match: fail
  steps:
  - fail: {status: 429, message: slow down, retryAfter: 3}
- match: break
  steps:
  - text: one two
    fail: {status: 500, message: down, afterChunks: 1}
- match: cut
  steps:
  - text: one two
    fail: {afterChunks: 1}
- default: true
  steps:
  - think: hm
    text: Hello there
    usage: {inputTokens: 7, outputTokens: 2}
"#;

fn app() -> Router {
    let model = MockModel::with_scenario("mock", Scenario::parse(SCENARIO).unwrap());
    router(
        model,
        ManualClock::at(Timestamp::from_second(1_700_000_000).unwrap()),
    )
}

async fn post_text(body: &str) -> (StatusCode, header::HeaderMap, Result<String, String>) {
    let request = Request::post("/v1/chat/completions")
        .header("content-type", "application/json")
        .body(Body::from(body.to_owned()))
        .unwrap();
    let response = app().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = body
        .collect()
        .await
        .map(|body| String::from_utf8(body.to_bytes().to_vec()).unwrap())
        .map_err(|error| error.to_string());
    (parts.status, parts.headers, body)
}

async fn ask(message: &str, more: Value) -> (StatusCode, header::HeaderMap, Result<String, String>) {
    let mut body = json!({"model": "helpdesk", "messages": [{"role": "user", "content": message}]});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    post_text(&body.to_string()).await
}

fn events(body: &str) -> Vec<String> {
    let data = body.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(str::to_owned).collect()
}

#[tokio::test]
async fn a_plain_answer_has_the_published_form() {
    let (status, _, body) = ask("hi", json!({})).await;
    assert_eq!(status, StatusCode::OK);
    let body: Value = serde_json::from_str(&body.unwrap()).unwrap();
    insta::assert_json_snapshot!("plain", body);
}

#[tokio::test]
async fn a_streamed_answer_has_the_published_form() {
    let (_, headers, body) = ask(
        "order 5",
        json!({"stream": true, "stream_options": {"include_usage": true}}),
    )
    .await;
    assert_eq!(headers["content-type"], "text/event-stream");
    let mut events = events(&body.unwrap());
    assert_eq!(events.pop().as_deref(), Some("[DONE]"));
    let chunks: Vec<Value> = events
        .iter()
        .map(|event| serde_json::from_str(event).unwrap())
        .collect();
    insta::assert_json_snapshot!("streamed", chunks);
}

#[tokio::test]
async fn without_include_usage_no_chunk_mentions_usage() {
    let (_, _, body) = ask("hi", json!({"stream": true})).await;
    assert!(!body.unwrap().contains("usage"));
}

#[tokio::test]
async fn a_tool_result_continues_the_script() {
    let body = json!({"model": "helpdesk", "messages": [
        {"role": "user", "content": [{"type": "text", "text": "order 5"}]},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "get_order", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "{\"status\":\"shipped\"}"},
    ]});
    let (_, _, body) = post_text(&body.to_string()).await;
    let body: Value = serde_json::from_str(&body.unwrap()).unwrap();
    assert_eq!(
        body.pointer("/choices/0/message/content"),
        Some(&json!("It is shipped."))
    );
}

#[tokio::test]
async fn errors_have_openais_form() {
    for (body, status, param) in [
        ("{", StatusCode::BAD_REQUEST, Value::Null),
        (
            r#"{"model":"m","messages":[]}"#,
            StatusCode::BAD_REQUEST,
            json!("messages"),
        ),
        (
            r#"{"model":"","messages":[{"role":"user","content":"x"}]}"#,
            StatusCode::BAD_REQUEST,
            json!("model"),
        ),
    ] {
        let (got, _, text) = post_text(body).await;
        let text: Value = serde_json::from_str(&text.unwrap()).unwrap();
        assert_eq!(got, status, "{body}");
        assert_eq!(text["error"]["type"], "invalid_request_error", "{body}");
        assert_eq!(text["error"]["param"], param, "{body}");
    }
    let response = app()
        .oneshot(Request::get("/v1/nothing").body(Body::empty()).unwrap())
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
    let response = app()
        .oneshot(Request::get("/v1/chat/completions").body(Body::empty()).unwrap())
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn a_scripted_failure_is_an_http_error_an_error_event_or_a_broken_connection() {
    let (status, headers, body) = ask("fail", json!({"stream": true})).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(headers["retry-after"], "3");
    assert!(body.unwrap().contains("slow down"));

    let (status, _, body) = ask("break", json!({"stream": true})).await;
    assert_eq!(status, StatusCode::OK);
    let last: Value = serde_json::from_str(events(&body.unwrap()).last().unwrap()).unwrap();
    assert_eq!(last["error"]["code"], "500");

    let (_, _, body) = ask("cut", json!({"stream": true})).await;
    assert!(body.is_err());
}

#[tokio::test]
async fn models_are_listed() {
    for (path, status) in [
        ("/v1/models", StatusCode::OK),
        ("/v1/models/helpdesk", StatusCode::OK),
        ("/v1/models/other", StatusCode::NOT_FOUND),
    ] {
        let response = app()
            .oneshot(Request::get(path).body(Body::empty()).unwrap())
            .await
            .unwrap();
        assert_eq!(response.status(), status, "{path}");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(status != StatusCode::OK || std::str::from_utf8(&body).unwrap().contains("helpdesk"));
    }
}
