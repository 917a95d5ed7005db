#![allow(clippy::unwrap_used, clippy::expect_used)]

mod hosted;

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
    build::{BuildContext, build, single},
    config::{OpenAiApi, ProviderConfig},
    cooldown::{Cooldowns, ProviderKey},
    error::ModelErrorKind,
    event::{FinishReason, ModelEvent},
    fallback::{Candidate, Chain},
    message::{Message, SignedThought},
    mock::{MockModel, Scenario, router},
    model::{Answer, complete},
    retry::RetryPolicy,
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
        messages: vec![Message::user("hello")].into(),
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
        messages: vec![Message::user("order 12")].into(),
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

/// The scripted server with the paths a server may lack.
async fn server(replies: &'static [(&'static str, u16, &'static str)]) -> (String, Arc<Mutex<Vec<String>>>) {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let paths = Arc::clone(&seen);
    let answer = move |request: HttpRequest<Body>| {
        let path = request.uri().path().to_owned();
        paths.lock().unwrap().push(path.clone());
        let found = replies.iter().find(|(end, _, _)| path.ends_with(end));
        let (status, body) = found.map_or((404, "{}"), |(_, status, body)| (*status, *body));
        let kind = if body.starts_with("data:") { STREAM } else { JSON };
        let response = Response::builder()
            .status(status)
            .header("content-type", kind)
            .body(Body::from(body))
            .unwrap();
        async move { response }
    };
    (serve(Router::new().fallback(answer)).await, seen)
}

const CHAT_HI: &str =
    "data: {\"choices\":[{\"delta\":{\"content\":\"chat\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
const RESPONSES_HI: &str = "data: {\"type\":\"response.output_text.delta\",\"delta\":\"responses\"}\n\ndata: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\"}}\n\n";

fn auto(base_url: String) -> ProviderConfig {
    ProviderConfig {
        api: OpenAiApi::Auto,
        ..config(base_url)
    }
}

/// A model for Responses first, made by hand so that its mode can be seen.
fn auto_model(base: &str) -> OpenAi {
    let context = context(&[]);
    OpenAi::new(OpenAiOptions {
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
        endpoints: endpoints(base, "/v1").unwrap(),
        mode: ApiMode::Unknown,
        newer_limit_name: false,
    })
}

#[tokio::test]
async fn responses_is_tried_first_and_kept_or_235_or_239_or_242() {
    let (base, seen) = server(&[("/responses", 200, RESPONSES_HI)]).await;
    let model = auto_model(&base);
    for _ in 0..2 {
        assert_eq!(complete(&model, hello()).await.unwrap().text, "responses");
        assert_eq!(model.mode(), ApiMode::Responses);
    }
    assert_eq!(*seen.lock().unwrap(), ["/v1/responses", "/v1/responses"]);
}

#[tokio::test]
async fn a_server_without_responses_is_asked_for_it_once_or_236_or_239() {
    for (status, body) in [
        (404, "{}"),
        (405, ""),
        (
            400,
            "{\"error\":{\"message\":\"x\",\"code\":\"unsupported_api_for_model\"}}",
        ),
        // The status was 200; the first event says it.
        (
            200,
            "data: {\"type\":\"error\",\"code\":\"unsupported_api\",\"message\":\"x\"}\n\n",
        ),
    ] {
        let replies = vec![("/responses", status, body), ("/chat/completions", 200, CHAT_HI)];
        let (base, seen) = server(replies.leak()).await;
        let model = auto_model(&base);
        for _ in 0..2 {
            assert_eq!(complete(&model, hello()).await.unwrap().text, "chat");
        }
        assert_eq!(model.mode(), ApiMode::Chat);
        assert_eq!(
            *seen.lock().unwrap(),
            ["/v1/responses", "/v1/chat/completions", "/v1/chat/completions"],
            "{status}"
        );
    }
}

#[tokio::test]
async fn a_generic_403_is_an_error_and_decides_nothing_or_241() {
    let (base, seen) = server(&[("/responses", 403, ""), ("/chat/completions", 200, CHAT_HI)]).await;
    let model = auto_model(&base);
    let error = complete(&model, hello()).await.unwrap_err();
    assert_eq!((error.status, model.mode()), (Some(403), ApiMode::Unknown));
    assert_eq!(*seen.lock().unwrap(), ["/v1/responses"]);
}

#[tokio::test]
async fn a_403_of_a_copilot_endpoint_falls_back_for_this_call_or_for_good_or_240() {
    let (base, _) = server(&[("/responses", 403, "{}"), ("/chat/completions", 200, CHAT_HI)]).await;
    let base = base.replace("/v1", "/copilot/v1");
    let model = auto_model(&base);
    assert_eq!(complete(&model, hello()).await.unwrap().text, "chat");
    assert_eq!(model.mode(), ApiMode::Chat);

    let model = auto_model(&base);
    model.selection.responses_worked();
    assert_eq!(complete(&model, hello()).await.unwrap().text, "chat");
    assert_eq!(model.mode(), ApiMode::Responses);
}

#[tokio::test]
async fn responses_that_stops_working_degrades_to_chat_once_or_239_or_242() {
    let (base, _) = server(&[("/chat/completions", 200, CHAT_HI)]).await;
    let model = auto_model(&base);
    model.selection.responses_worked();
    assert_eq!(complete(&model, hello()).await.unwrap().text, "chat");
    assert_eq!(model.mode(), ApiMode::Chat);
}

const HELP_DESK: &str = "turns:\n- match: order (?P<id>\\d+)\n  steps:\n  - think: hm hm\n    text: Looking it up.\n    calls:\n    - tool: get_order\n      arguments: {id: '{{id}}', note: 'ä long enough to be cut into pieces'}\n    - tool: list_orders\n    usage: {inputTokens: 30, outputTokens: 4, cachedTokens: 10}\n  - text: 'It is {{tool.get_order.status}}; {{tool.list_orders}}'\n    finish: incomplete\n- match: refuse\n  steps:\n  - text: No.\n    finish: refused\n- match: flaky\n  steps:\n  - text: At last.\n    fail: {status: 503, times: 2, inStream: true}\n- match: cut\n  steps:\n  - text: one two\n    fail: {afterChunks: 1}\n- match: garbled\n  steps:\n  - text: one two\n    fail: {malformed: true, afterChunks: 1}\n- match: empty\n  steps:\n  - text: ''\n";

/// What a format's client reads from the scripted server is what the script says.
#[tokio::test]
async fn every_format_carries_the_script_unchanged() {
    let scenario = Scenario::parse(HELP_DESK).unwrap();
    let local = MockModel::with_scenario("mock", scenario.clone());
    let app = router(MockModel::with_scenario("mock", scenario), clock::system());
    let base = serve(app).await;
    let claude = ProviderConfig {
        kind: "claude".to_owned(),
        ..config(base.clone())
    };
    for config in [config(base.clone()), auto(base.clone()), claude] {
        let remote = build(&config, &context(&[("KEY", "k")])).unwrap();
        let both = async |messages: Vec<Message>| {
            let request = Request {
                messages: messages.into(),
                ..Request::default()
            };
            (
                complete(&*remote, request.clone()).await,
                complete(&local, request).await,
            )
        };
        let (first, expected) = both(vec![Message::user("order 12")]).await;
        let first = first.unwrap();
        let unsigned = Answer {
            thoughts: Vec::new(),
            ..first.clone()
        };
        assert_eq!(unsigned, expected.unwrap(), "{config:?}");
        // Only Messages signs its reasoning.
        assert_eq!(first.thoughts.len(), usize::from(config.kind == "claude"));
        assert_eq!(
            (first.finish, first.tool_calls.len()),
            (FinishReason::ToolCalls, 2)
        );
        let calls = first.tool_calls;
        let answer = |signed_by: &str| Message {
            thoughts: first.thoughts.clone(),
            author: Some(signed_by.to_owned()),
            ..Message::assistant("Looking it up.", calls.clone())
        };
        let (second, expected) = both(vec![
            Message::user("order 12"),
            answer(&config.name),
            Message::tool_result(&calls[0].id, "get_order", "{\"status\":\"shipped\"}", false),
            Message::tool_result(&calls[1].id, "list_orders", "HTTP 503", true),
        ])
        .await;
        let second = second.unwrap();
        assert_eq!(second.text, expected.unwrap().text);
        assert_eq!(second.text, "It is shipped; HTTP 503");
        assert_eq!(second.finish, FinishReason::Incomplete);

        // A mark that is another provider's is left out; one that was changed is refused by this server.
        let mut foreign = answer("another");
        if let Some(SignedThought::Thought { signature, .. }) = foreign.thoughts.first_mut() {
            signature.push('x');
        }
        let mut changed = foreign.clone();
        changed.author = Some(config.name.clone());
        for (message, refused) in [(foreign, false), (changed, config.kind == "claude")] {
            let (third, _) = both(vec![
                Message::user("order 12"),
                message,
                Message::tool_result(&calls[0].id, "get_order", "{}", false),
                Message::tool_result(&calls[1].id, "list_orders", "{}", false),
            ])
            .await;
            assert_eq!(third.err().and_then(|error| error.status), refused.then_some(400));
        }

        let (refused, _) = both(vec![Message::user("refuse")]).await;
        assert_eq!(refused.unwrap().finish, FinishReason::Refused);
        let (empty, _) = both(vec![Message::user("empty")]).await;
        let empty = empty.unwrap();
        assert_eq!((empty.text.as_str(), empty.finish), ("", FinishReason::Completed));

        let (cut, _) = both(vec![Message::user("cut")]).await;
        assert_eq!(cut.unwrap_err().kind, ModelErrorKind::Network);
        let (garbled, _) = both(vec![Message::user("garbled")]).await;
        assert_eq!(garbled.unwrap_err().kind, ModelErrorKind::Protocol);
    }
}

#[tokio::test]
async fn claude_is_sent_its_key_its_version_and_its_path_or_250() {
    let seen: Arc<Mutex<Vec<(String, http::HeaderMap)>>> = Arc::default();
    let requests = Arc::clone(&seen);
    let app = Router::new().fallback(move |request: HttpRequest<Body>| {
        let path = request.uri().path().to_owned();
        requests.lock().unwrap().push((path, request.headers().clone()));
        async { StatusCode::UNAUTHORIZED }
    });
    let base = serve(app).await;
    let claude = ProviderConfig {
        kind: "claude".to_owned(),
        base_url: None,
        ..config(String::new())
    };
    let environment = [("KEY", "sk-ant\n"), ("ANTHROPIC_BASE_URL", base.as_str())];
    let model = build(&claude, &context(&environment)).unwrap();
    let error = complete(&*model, hello()).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Unauthorized);
    let seen = seen.lock().unwrap();
    let (path, headers) = &seen[0];
    assert_eq!(path, "/v1/messages");
    assert_eq!(headers["x-api-key"], "sk-ant");
    assert_eq!(headers["anthropic-version"], "2023-06-01");
    assert!(!headers.contains_key("authorization"));
}

/// Chains over real connections, which retry without a wait worth mentioning.
fn impatient(configs: &[&ProviderConfig], cooldowns: &Cooldowns) -> Chain {
    let context = context(&[("KEY", "k")]);
    let numbered = configs.iter().enumerate();
    let candidates = numbered
        .map(|(index, config)| Candidate {
            model: single(config, &context).unwrap(),
            health: cooldowns.health(&ProviderKey::of(config)),
            limit: None,
            model_name: (index > 0).then(String::new),
        })
        .collect();
    let policy = RetryPolicy {
        base: Duration::from_millis(1),
        ..RetryPolicy::default()
    };
    Chain::new("chain", candidates, policy, SeededRandom::new(1))
}

#[tokio::test]
async fn an_error_that_opens_a_200_stream_is_retried_in_every_format_or_216() {
    for (kind, api) in [
        ("openai", OpenAiApi::Chat),
        ("openai", OpenAiApi::Auto),
        ("claude", OpenAiApi::Chat),
    ] {
        let model = MockModel::with_scenario("mock", Scenario::parse(HELP_DESK).unwrap());
        let base = serve(router(model, clock::system())).await;
        let config = ProviderConfig {
            kind: kind.to_owned(),
            api,
            ..config(base)
        };
        let chain = impatient(&[&config], &Cooldowns::in_memory(clock::system()));
        let request = Request {
            messages: vec![Message::user("flaky")].into(),
            ..Request::default()
        };
        let answer = complete(&chain, request).await.unwrap();
        assert_eq!(answer.text, "At last.", "{kind} {api:?}");
    }
}

#[tokio::test]
async fn a_chain_of_two_formats_asks_each_provider_for_its_own_model_or_221() {
    let (down, refused) = server(&[("/messages", 503, "{}")]).await;
    let (up, seen) = scripted(vec![(200, STREAM, streamed())]).await;
    let claude = ProviderConfig {
        kind: "claude".to_owned(),
        provider: "main".to_owned(),
        model: "claude-x".to_owned(),
        ..config(down)
    };
    let other = ProviderConfig {
        provider: "spare".to_owned(),
        model: "gpt-x".to_owned(),
        ..config(up)
    };
    let cooldowns = Cooldowns::in_memory(clock::system());
    // Two agents that use the same Providers share what is known of them (OR-226).
    for _ in 0..2 {
        let chain = impatient(&[&claude, &other], &cooldowns);
        let request = Request {
            model: "claude-x".to_owned(),
            ..hello()
        };
        assert_eq!(complete(&chain, request).await.unwrap().text, "hi");
    }
    assert_eq!(refused.lock().unwrap().len(), 4);
    let seen = seen.lock().unwrap();
    assert!(seen.iter().all(|(_, body)| body["model"] == "gpt-x"));
}
