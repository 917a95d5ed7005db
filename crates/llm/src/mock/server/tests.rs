#![allow(clippy::unwrap_used, clippy::expect_used)]

use axum::http::Request;
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
- match: garbled
  steps:
  - text: one two
    fail: {malformed: true, afterChunks: 1}
- match: refuse
  steps:
  - text: No.
    finish: refused
- match: late
  steps:
  - fail: {status: 529, message: busy, inStream: true}
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
    post_to("/v1/chat/completions", body).await
}

async fn post_to(path: &str, body: &str) -> (StatusCode, header::HeaderMap, Result<String, String>) {
    let request = Request::post(path)
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

/// The three formats with a request that asks for a streamed answer to `message`.
fn requests(message: &str) -> [(&'static str, Value); 3] {
    let messages = json!([{"role": "user", "content": message}]);
    [
        (
            "/v1/chat/completions",
            json!({"model": "m", "stream": true, "messages": messages}),
        ),
        (
            "/v1/responses",
            json!({"model": "m", "stream": true, "input": messages}),
        ),
        (
            "/v1/messages",
            json!({"model": "m", "stream": true, "max_tokens": 10, "messages": messages}),
        ),
    ]
}

async fn plain(path: &str, body: Value) -> Value {
    let (status, _, text) = post_to(path, &body.to_string()).await;
    assert_eq!(status, StatusCode::OK);
    serde_json::from_str(&text.unwrap()).unwrap()
}

async fn streamed(path: &str, body: Value) -> Vec<Value> {
    let (_, headers, text) = post_to(path, &body.to_string()).await;
    assert_eq!(headers["content-type"], "text/event-stream");
    let text = text.unwrap();
    // Each event names itself twice, and clients go by either.
    for block in text.trim_end().split("\n\n") {
        let (name, data) = block.split_once('\n').unwrap();
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(name.strip_prefix("event: "), data["type"].as_str());
    }
    events(&text)
        .iter()
        .map(|event| serde_json::from_str(event).unwrap())
        .collect()
}

#[tokio::test]
async fn responses_have_the_published_form() {
    let answer = plain("/v1/responses", json!({"model": "helpdesk", "input": "hi"})).await;
    insta::assert_json_snapshot!("responses_plain", answer);
    let tools =
        json!([{"type": "function", "name": "get_order", "parameters": {"type": "object"}, "strict": false}]);
    let answer = streamed(
        "/v1/responses",
        json!({"model": "helpdesk", "input": "order 5", "stream": true, "tools": tools}),
    )
    .await;
    let numbers: Vec<u64> = answer
        .iter()
        .map(|event| event["sequence_number"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, (0..answer.len() as u64).collect::<Vec<_>>());
    insta::assert_json_snapshot!("responses_streamed", answer);
}

#[tokio::test]
async fn messages_have_the_published_form() {
    let messages = json!([{"role": "user", "content": "hi"}]);
    let answer = plain(
        "/v1/messages",
        json!({"model": "helpdesk", "max_tokens": 10, "messages": messages}),
    )
    .await;
    insta::assert_json_snapshot!("messages_plain", answer);
    let messages = json!([{"role": "user", "content": [{"type": "text", "text": "order 5"}]}]);
    let answer = streamed(
        "/v1/messages",
        json!({"model": "helpdesk", "max_tokens": 10, "messages": messages, "stream": true}),
    )
    .await;
    insta::assert_json_snapshot!("messages_streamed", answer);
}

#[tokio::test]
async fn tokens_are_counted_without_playing_the_script() {
    let body = json!({"model": "m", "system": "abcd", "messages": [{"role": "user", "content": "abcde"}]});
    let count = plain("/v1/messages/count_tokens", body).await;
    assert_eq!(count, json!({"input_tokens": 3}));
}

#[tokio::test]
async fn a_tool_result_continues_the_script_in_every_format() {
    let answer = plain(
        "/v1/responses",
        json!({"model": "m", "input": [
            {"role": "user", "content": "order 5"},
            {"type": "function_call", "call_id": "c", "name": "get_order", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "{\"status\":\"shipped\"}"},
        ]}),
    )
    .await;
    assert_eq!(
        answer.pointer("/output/0/content/0/text"),
        Some(&json!("It is shipped."))
    );
    let answer = plain(
        "/v1/messages",
        json!({"model": "m", "max_tokens": 5, "messages": [
            {"role": "user", "content": "order 5"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "get_order", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "{\"status\":\"shipped\"}"}]},
        ]}),
    )
    .await;
    assert_eq!(answer.pointer("/content/0/text"), Some(&json!("It is shipped.")));
    assert_eq!(answer["stop_reason"], "end_turn");
}

#[tokio::test]
async fn failures_have_the_form_of_each_format() {
    for (path, body) in requests("fail") {
        let (status, headers, text) = post_to(path, &body.to_string()).await;
        assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{path}");
        assert_eq!(headers["retry-after"], "3");
        let text: Value = serde_json::from_str(&text.unwrap()).unwrap();
        assert_eq!(text["error"]["type"], "rate_limit_error", "{path}");
        assert_eq!(text["error"]["message"], "slow down");
        assert_eq!(
            text["type"],
            if path == "/v1/messages" {
                json!("error")
            } else {
                Value::Null
            }
        );
    }
    for (path, body) in requests("late") {
        let (status, _, text) = post_to(path, &body.to_string()).await;
        assert_eq!(status, StatusCode::OK, "{path}");
        let events = events(&text.unwrap());
        assert!(events.last().unwrap().contains("busy"), "{path}");
    }
    for (path, body) in requests("cut") {
        assert!(post_to(path, &body.to_string()).await.2.is_err(), "{path}");
    }
    for (path, body) in requests("garbled") {
        let text = post_to(path, &body.to_string()).await.2.unwrap();
        let last = events(&text).pop().unwrap();
        assert!(serde_json::from_str::<Value>(&last).is_err(), "{path} {last}");
    }
}

#[tokio::test]
async fn what_is_missing_is_named_in_the_form_of_each_format() {
    for (path, body, name) in [
        ("/v1/responses", json!({"model": "", "input": "x"}), "model"),
        ("/v1/responses", json!({"model": "m", "input": []}), "input"),
        (
            "/v1/responses",
            json!({"model": "m", "input": "x", "previous_response_id": "r"}),
            "previous_response_id",
        ),
        (
            "/v1/messages",
            json!({"model": "m", "messages": [{"role": "user", "content": "x"}]}),
            "max_tokens",
        ),
        (
            "/v1/messages",
            json!({"model": "m", "max_tokens": 1, "messages": []}),
            "messages",
        ),
    ] {
        let (status, _, text) = post_to(path, &body.to_string()).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}");
        assert!(text.unwrap().contains(name), "{path} {name}");
    }
}

#[tokio::test]
async fn models_are_listed_in_the_clients_form() {
    let request = Request::get("/v1/models")
        .header("anthropic-version", "2023-06-01")
        .body(Body::empty())
        .unwrap();
    let response = app().oneshot(request).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["data"][0]["display_name"], "helpdesk");
    assert_eq!(body["has_more"], false);
}
