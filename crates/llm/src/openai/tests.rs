#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::State,
    http::{Request as HttpRequest, Response, StatusCode},
    routing::{any, post},
};
use bytes::Bytes;
use futures::StreamExt;
use http::HeaderMap;
use mainstay_telemetry::{clock, random::SeededRandom, task};
use mainstay_workload::{Connector, FileRoot};
use serde_json::{Value, json};

use super::*;
use crate::{
    build::{BuildContext, build},
    config::ProviderConfig,
    error::ModelErrorKind,
    event::{FinishReason, ModelEvent},
    message::Message,
    mock::{MockModel, Scenario, router},
    model::complete,
    transport::KeyHeader,
};

async fn serve(app: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    task::spawn("test server", async move { axum::serve(listener, app).await });
    format!("http://{address}/v1")
}

fn context(environment: &[(&str, &str)]) -> BuildContext {
    BuildContext {
        connector: Connector::direct().unwrap(),
        files: FileRoot::at("/nowhere"),
        environment: environment
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        clock: clock::system(),
        random: SeededRandom::new(1),
    }
}

fn config(base_url: String) -> ProviderConfig {
    ProviderConfig {
        name: "main".to_owned(),
        kind: "openai".to_owned(),
        role: "llm".to_owned(),
        model: "m".to_owned(),
        base_url: Some(base_url),
        credential_env: Some("KEY".to_owned()),
        headers: BTreeMap::from([("X-Team".to_owned(), "support".to_owned())]),
        ..ProviderConfig::default()
    }
}

fn hello() -> Request {
    Request {
        messages: vec![Message::user("hello")],
        ..Request::default()
    }
}

type Replies = Arc<Mutex<Vec<(u16, &'static str, String)>>>;
type Seen = Arc<Mutex<Vec<(http::HeaderMap, Value)>>>;

/// A server that answers with `replies` in turn (the last one again and again) and records what it saw.
async fn scripted(replies: Vec<(u16, &'static str, String)>) -> (String, Seen) {
    async fn answer(
        State((replies, seen)): State<(Replies, Seen)>,
        request: HttpRequest<Body>,
    ) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
        seen.lock()
            .unwrap()
            .push((parts.headers, serde_json::from_slice(&body).unwrap()));
        let mut replies = replies.lock().unwrap();
        let (status, kind, body) = if replies.len() > 1 {
            replies.remove(0)
        } else {
            replies[0].clone()
        };
        Response::builder()
            .status(StatusCode::from_u16(status).unwrap())
            .header("content-type", kind)
            .body(Body::from(body))
            .unwrap()
    }
    let seen: Seen = Arc::default();
    let app = Router::new()
        .route("/v1/chat/completions", any(answer))
        .with_state((Arc::new(Mutex::new(replies)), Arc::clone(&seen)));
    (serve(app).await, seen)
}

const STREAM: &str = "text/event-stream";
const JSON: &str = "application/json";

fn streamed() -> String {
    let text = json!({"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop"}]});
    format!("data: {text}\r\n\r\ndata: [DONE]\r\n\r\n")
}

#[tokio::test]
async fn the_key_and_headers_are_sent_and_the_answer_is_read() {
    let (base, seen) = scripted(vec![(200, STREAM, streamed())]).await;
    let model = build(&config(base), &context(&[("KEY", "sk-1\n")])).unwrap();
    let answer = complete(&*model, hello()).await.unwrap();
    assert_eq!(answer.text, "hi");
    let seen = seen.lock().unwrap();
    let (headers, body) = &seen[0];
    assert_eq!(headers["authorization"], "Bearer sk-1");
    assert_eq!(headers["x-team"], "support");
    assert_eq!(body["model"], "m");
    assert_eq!(body["stream"], true);
    assert_eq!(body["stream_options"]["include_usage"], true);
}

#[tokio::test]
async fn without_its_key_nothing_is_sent() {
    let (base, seen) = scripted(vec![(200, STREAM, streamed())]).await;
    let model = build(&config(base), &context(&[])).unwrap();
    let error = complete(&*model, hello()).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::CredentialUnavailable);
    assert!(seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_server_that_refuses_stream_options_is_asked_without_them_once_and_for_all() {
    let refusal = json!({"error": {"message": "Unrecognized request argument supplied: stream_options"}});
    let (base, seen) = scripted(vec![(400, JSON, refusal.to_string()), (200, STREAM, streamed())]).await;
    let model = build(&config(base), &context(&[("KEY", "k")])).unwrap();
    for _ in 0..2 {
        assert_eq!(complete(&*model, hello()).await.unwrap().text, "hi");
    }
    let asked: Vec<bool> = seen
        .lock()
        .unwrap()
        .iter()
        .map(|(_, body)| body.get("stream_options").is_some())
        .collect();
    assert_eq!(asked, [true, false, false]);
}

#[tokio::test]
async fn another_400_is_returned_at_once_or_215() {
    let (base, seen) = scripted(vec![(400, JSON, json!({"error": {"message": "no"}}).to_string())]).await;
    let model = build(&config(base), &context(&[("KEY", "k")])).unwrap();
    assert_eq!(complete(&*model, hello()).await.unwrap_err().status, Some(400));
    assert_eq!(seen.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn an_error_never_quotes_the_key() {
    let refusal = json!({"error": {"message": "Incorrect API key provided: sk-very-secret."}});
    let (base, _) = scripted(vec![(401, JSON, refusal.to_string())]).await;
    let model = build(&config(base), &context(&[("KEY", "sk-very-secret")])).unwrap();
    let error = complete(&*model, hello()).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Unauthorized);
    assert_eq!(error.message, "Incorrect API key provided: [REDACTED].");
    assert!(!format!("{error:?}{model:?}").contains("very-secret"));
}

#[tokio::test]
async fn retry_after_is_kept_in_the_error_d12() {
    async fn busy() -> Response<Body> {
        Response::builder()
            .status(429)
            .header("retry-after", "119.2")
            .body(Body::empty())
            .unwrap()
    }
    let base = serve(Router::new().route("/v1/chat/completions", post(busy))).await;
    let model = build(&config(base), &context(&[("KEY", "k")])).unwrap();
    let error = complete(&*model, hello()).await.unwrap_err();
    assert_eq!(error.retry_after, Some(Duration::from_secs(120)));
    assert_eq!(error.attempts, 1);
}

#[tokio::test]
async fn a_server_that_does_not_stream_is_understood() {
    let answer = json!({"choices": [{"index": 0, "message": {"role": "assistant", "content": "plain"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1, "completion_tokens": 2}});
    let (base, _) = scripted(vec![(200, "application/json; charset=utf-8", answer.to_string())]).await;
    let model = build(&config(base), &context(&[("KEY", "k")])).unwrap();
    let answer = complete(&*model, hello()).await.unwrap();
    assert_eq!(answer.text, "plain");
    assert_eq!(answer.usage.unwrap().output_tokens, 2);
}

#[tokio::test]
async fn the_scripted_server_and_this_client_understand_each_other() {
    let scenario = Scenario::parse(
        "turns:\n- match: order (?P<id>\\d+)\n  steps:\n  - think: hm\n    text: Looking it up.\n    calls:\n    - tool: get_order\n      arguments: {id: '{{id}}', note: 'ä long enough to be cut into pieces'}\n    usage: {inputTokens: 3, outputTokens: 4, cachedTokens: 1}\n",
    )
    .unwrap();
    let base = serve(router(
        MockModel::with_scenario("mock", scenario.clone()),
        clock::system(),
    ))
    .await;
    let remote = build(&config(base), &context(&[("KEY", "k")])).unwrap();
    let local = MockModel::with_scenario("mock", scenario);
    let request = Request {
        messages: vec![Message::user("order 12")],
        ..Request::default()
    };
    let over_http = complete(&*remote, request.clone()).await.unwrap();
    assert_eq!(over_http, complete(&local, request).await.unwrap());
    assert_eq!(over_http.finish, FinishReason::ToolCalls);
}

#[tokio::test]
async fn dropping_the_stream_ends_the_request_or_200() {
    // Dropped with the response's body, which the server does once the client is gone.
    struct Gone(Option<tokio::sync::oneshot::Sender<()>>);
    impl Drop for Gone {
        fn drop(&mut self) {
            let _ = self.0.take().map(|gone| gone.send(()));
        }
    }
    let (gone, client_gone) = tokio::sync::oneshot::channel();
    let gone = Arc::new(Mutex::new(Some(Gone(Some(gone)))));
    let app = Router::new().route(
        "/v1/chat/completions",
        post(move || {
            let guard = gone.lock().unwrap().take();
            let body = async_stream::stream! {
                let _guard = guard;
                let first = streamed().replace("\"stop\"", "null").replace("data: [DONE]\r\n\r\n", "");
                yield Ok::<_, std::io::Error>(Bytes::from(first));
                std::future::pending::<()>().await;
            };
            let response = Response::builder()
                .header("content-type", STREAM)
                .body(Body::from_stream(body))
                .unwrap();
            async move { response }
        }),
    );
    let base = serve(app).await;
    let model = build(&config(base), &context(&[("KEY", "k")])).unwrap();
    let mut stream = model.stream(hello()).await.unwrap();
    assert_eq!(stream.next().await, Some(Ok(ModelEvent::Started)));
    drop(stream);
    tokio::time::timeout(Duration::from_secs(10), client_gone)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn a_refused_connection_is_a_network_error() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let context = context(&[("KEY", "k")]);
    let model = OpenAi::new(OpenAiOptions {
        transport: Transport {
            name: "main".to_owned(),
            headers: HeaderMap::new(),
            credential: None,
            key_header: KeyHeader::Bearer,
            request_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(5),
            connector: context.connector,
            clock: context.clock,
            random: context.random,
        },
        endpoints: endpoints(&format!("http://{address}"), "/v1").unwrap(),
        mode: ApiMode::Chat,
        newer_limit_name: false,
    });
    let error = complete(&model, hello()).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Network);
    assert!(error.is_retryable());
}

#[tokio::test]
async fn a_refused_address_is_not_retried() {
    let model = build(
        &config("http://169.254.169.254/v1".to_owned()),
        &context(&[("KEY", "k")]),
    )
    .unwrap();
    let error = complete(&*model, hello()).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Unreachable);
    assert!(!error.is_retryable());
}
