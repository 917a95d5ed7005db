//! What a success may hold, over real connections and in every format.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use axum::{Router, body::Body, http::Response};
use mainstay_telemetry::{clock, random::SeededRandom, task};
use mainstay_workload::FileRoot;
use serde_json::{Value, json};

use super::*;
use crate::{
    build::{BuildContext, single},
    config::{OpenAiApi, ProviderConfig},
    cooldown::{Cooldowns, ProviderKey},
    event::{FinishReason, ModelEvent},
    fallback::{Candidate, Chain},
    message::Message,
    model::Model,
    request::Request,
    retry::RetryPolicy,
};

const EVENTS: &str = "text/event-stream";

/// A content type, if there is one, and a body.
type Reply = (Option<&'static str>, String);

/// One wire format: how it is configured, and what its servers send.
struct Format {
    name: &'static str,
    kind: &'static str,
    api: OpenAiApi,
    // Setting one up is slow: it reads the machine's TLS roots.
    connector: Connector,
    /// Before any content.
    opening: Value,
    /// The text `half`.
    text: Value,
    /// A tool call whose arguments are the text `{"a`.
    call: Vec<Value>,
    /// Every way to say that the answer is whole.
    ends: Vec<String>,
    /// A whole answer without a stream, with the given text.
    plain: fn(&str) -> Value,
}

fn formats() -> [Format; 3] {
    let connector = Connector::direct().unwrap();
    let done = "data: [DONE]\n\n".to_owned();
    let finish = |word: Value| json!({"choices": [{"index": 0, "delta": {}, "finish_reason": word}]});
    let counts = json!({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}});
    let chat = Format {
        name: "chat",
        kind: "openai",
        api: OpenAiApi::Chat,
        connector: connector.clone(),
        opening: json!({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}),
        text: json!({"choices": [{"index": 0, "delta": {"content": "half"}, "finish_reason": null}]}),
        call: vec![json!({"choices": [{"index": 0, "delta": {"tool_calls": [
            {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"a"}},
        ]}, "finish_reason": null}]})],
        ends: vec![
            done.clone(),
            stream(&[finish(json!("stop"))]),
            stream([&counts]),
            stream(&[finish(json!("")), counts.clone()]),
            stream(&[finish(Value::Null)]) + &done,
            stream(&[finish(json!("stop")), counts]) + &done,
        ],
        plain: |text| {
            json!({"object": "chat.completion", "choices": [
                {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"},
            ]})
        },
    };
    let ended = |word: &str| json!({"type": format!("response.{word}"), "response": {"status": word}});
    let responses = Format {
        name: "responses",
        kind: "openai",
        api: OpenAiApi::Auto,
        connector: connector.clone(),
        opening: json!({"type": "response.created", "response": {"id": "r", "status": "in_progress"}}),
        text: json!({"type": "response.output_text.delta", "output_index": 0, "delta": "half"}),
        call: vec![
            json!({"type": "response.output_item.added", "output_index": 1, "item": {"type": "function_call", "call_id": "c", "name": "f", "arguments": ""}}),
            json!({"type": "response.function_call_arguments.delta", "output_index": 1, "delta": "{\"a"}),
        ],
        ends: vec![
            stream(&[ended("completed")]),
            stream(&[ended("completed")]) + &done,
            stream(&[json!({"type": "response.completed"})]),
        ],
        plain: |text| {
            json!({"object": "response", "status": "completed", "output": [
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]},
            ]})
        },
    };
    let delta = json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}});
    let stop = json!({"type": "message_stop"});
    let messages = Format {
        name: "messages",
        kind: "claude",
        api: OpenAiApi::Chat,
        connector: connector.clone(),
        opening: json!({"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 5}}}),
        text: json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "half"}}),
        call: vec![
            json!({"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "c", "name": "f", "input": {}}}),
            json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{\"a"}}),
        ],
        ends: vec![
            stream(&[delta.clone(), stop.clone()]),
            stream(&[delta]),
            stream(&[stop]),
        ],
        plain: |text| json!({"type": "message", "role": "assistant", "content": [{"type": "text", "text": text}], "stop_reason": "end_turn"}),
    };
    [chat, responses, messages]
}

fn stream<'a>(events: impl IntoIterator<Item = &'a Value>) -> String {
    events
        .into_iter()
        .map(|event| format!("data: {event}\n\n"))
        .collect()
}

/// What a call came to.
struct Outcome {
    result: Result<Vec<Result<ModelEvent, ModelError>>, ModelError>,
    requests: usize,
}

impl Format {
    /// Calls a server of this format that answers with `replies` in turn, the last again and again,
    /// as a chain does it: with retries before the first event.
    async fn call(&self, replies: impl IntoIterator<Item = Reply>) -> Outcome {
        let replies: Arc<Mutex<VecDeque<Reply>>> = Arc::new(Mutex::new(replies.into_iter().collect()));
        let requests = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&requests);
        let app = Router::new().fallback(move || {
            *counted.lock().unwrap() += 1;
            let mut replies = replies.lock().unwrap();
            let (kind, body) = match replies.len() {
                1 => replies[0].clone(),
                _ => replies.pop_front().unwrap(),
            };
            let mut response = Response::new(Body::from(body));
            if let Some(kind) = kind {
                let headers = response.headers_mut();
                headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
            }
            async move { response }
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        task::spawn("test server", async move { axum::serve(listener, app).await });

        let config = ProviderConfig {
            name: "main".to_owned(),
            kind: self.kind.to_owned(),
            role: "llm".to_owned(),
            model: "m".to_owned(),
            base_url: Some(format!("http://{address}/v1")),
            credential_env: Some("KEY".to_owned()),
            api: self.api,
            ..ProviderConfig::default()
        };
        let context = BuildContext {
            connector: self.connector.clone(),
            files: FileRoot::at("/nowhere"),
            environment: [("KEY".to_owned(), "sk-Secret".to_owned())].into_iter().collect(),
            clock: clock::system(),
            random: SeededRandom::new(1),
        };
        let candidate = Candidate {
            model: single(&config, &context).unwrap(),
            health: Cooldowns::in_memory(clock::system()).health(&ProviderKey::of(&config)),
            limit: None,
            model_name: None,
        };
        let policy = RetryPolicy {
            base: Duration::from_millis(1),
            ..RetryPolicy::default()
        };
        let chain = Chain::new("main", vec![candidate], policy, SeededRandom::new(1));
        let request = Request {
            messages: vec![Message::user("hello")].into(),
            ..Request::default()
        };
        let result = match chain.stream(request).await {
            Ok(events) => Ok(events.collect().await),
            Err(error) => Err(error),
        };
        let requests = *requests.lock().unwrap();
        Outcome { result, requests }
    }
}

/// The events without the token counts, which are not what these tests are about.
fn shown(events: Vec<Result<ModelEvent, ModelError>>) -> Vec<ModelEvent> {
    let events = events.into_iter().map(Result::unwrap);
    events
        .filter(|event| !matches!(event, ModelEvent::Usage(_)))
        .collect()
}

fn half() -> ModelEvent {
    ModelEvent::Text("half".to_owned())
}

const WHOLE: ModelEvent = ModelEvent::Finished(FinishReason::Completed);

#[tokio::test]
async fn a_success_without_an_answer_is_a_protocol_error_and_is_retried_om_495() {
    let formats = formats();
    for (kind, body) in [
        (Some(EVENTS), "garbage"),
        (Some(EVENTS), ""),
        (Some(EVENTS), "data: [DONE]\n\n"),
        (Some(EVENTS), "data: {not json\n\n"),
        (Some(EVENTS), "data: {\"hello\":1}\n\n"),
        (Some(EVENTS), "<html><body>It works!</body></html>"),
        (
            Some("text/html; charset=utf-8"),
            "<html><body>It works!</body></html>",
        ),
        (Some("text/plain"), "data: {}\n\n"),
        (Some("application/json"), ""),
        (Some("application/json"), "{}"),
        (Some("application/json"), "[]"),
        (Some("application/json"), "{\"status\":"),
        (Some("application/json"), "{\"detail\":\"Not Found\"}"),
        (None, "It works!"),
        (None, ""),
    ] {
        for format in &formats {
            let Outcome { result, requests } = format.call([(kind, body.to_owned())]).await;
            let error = result.unwrap_err();
            let said = format!("{} {kind:?} {body:?}: {error}", format.name);
            assert_eq!(error.kind, ModelErrorKind::Protocol, "{said}");
            assert_eq!(error.reason(), "ModelProtocolError");
            assert_eq!((error.attempts, requests), (4, 4), "{said}");
            assert!(error.hint().unwrap().contains("spec.baseURL"), "{said}");
        }
    }
}

#[tokio::test]
async fn the_answer_of_another_format_is_no_answer_om_495() {
    let [chat, responses, messages] = formats();
    for (format, foreign) in [(&chat, &messages), (&responses, &chat), (&messages, &responses)] {
        let foreign = stream([&foreign.opening, &foreign.text]) + &foreign.ends[0];
        let error = format.call([(Some(EVENTS), foreign)]).await.result.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Protocol, "{}: {error}", format.name);
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_before_its_first_piece_is_retried_om_495_or_216() {
    for format in formats() {
        let opening = stream([&format.opening]);
        let whole = stream([&format.opening, &format.text]) + &format.ends[0];
        let replies = [
            (Some("text/html"), "<html>".to_owned()),
            (Some(EVENTS), opening.clone()),
            (Some(EVENTS), whole),
        ];
        let Outcome { result, requests } = format.call(replies).await;
        let events = shown(result.unwrap());
        assert_eq!(events, [ModelEvent::Started, half(), WHOLE], "{}", format.name);
        assert_eq!(requests, 3, "{}", format.name);

        let error = format.call([(Some(EVENTS), opening)]).await.result.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Network, "{}: {error}", format.name);
        assert_eq!(error.attempts, 4);
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_later_is_an_error_and_is_not_asked_for_again_om_495_d10() {
    for format in formats() {
        let cut = stream([&format.opening, &format.text]);
        let Outcome { result, requests } = format.call([(Some(EVENTS), cut)]).await;
        let mut events = result.unwrap();
        let error = events.pop().unwrap().unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Network, "{}: {error}", format.name);
        assert_eq!(shown(events), [ModelEvent::Started, half()], "{}", format.name);
        assert_eq!(requests, 1, "{}", format.name);
    }
}

#[tokio::test]
async fn no_call_of_an_answer_that_was_cut_is_handed_out_om_495_d10() {
    for format in formats() {
        let cut = stream(&format.call);
        let Outcome { result, requests } = format.call([(Some(EVENTS), cut)]).await;
        let mut events = result.unwrap();
        let error = events.pop().unwrap().unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Network, "{}: {error}", format.name);
        assert_eq!(shown(events), [ModelEvent::Started], "{}", format.name);
        assert_eq!(requests, 1, "{}", format.name);
    }
}

#[tokio::test]
async fn calls_of_a_whole_answer_are_handed_out_as_they_are_and_once_om_495_d10() {
    for format in formats() {
        for end in &format.ends {
            let whole = stream(&format.call) + end;
            let events = shown(format.call([(Some(EVENTS), whole)]).await.result.unwrap());
            let [
                ModelEvent::Started,
                ModelEvent::ToolCall(call),
                ModelEvent::Finished(finish),
            ] = events.as_slice()
            else {
                panic!("{} {end}: {events:?}", format.name);
            };
            assert_eq!((call.id.as_str(), call.arguments.as_str()), ("c", "{\"a"));
            assert_eq!(*finish, FinishReason::ToolCalls, "{} {end}", format.name);
        }
    }
}

#[tokio::test]
async fn every_proper_end_ends_an_answer_once_also_an_empty_one_om_495_d10() {
    for format in formats() {
        for end in &format.ends {
            let opening = stream([&format.opening]);
            let text = stream([&format.text]);
            for (kind, body, expected) in [
                (Some(EVENTS), opening.clone() + &text + end, vec![half()]),
                (
                    Some("Text/Event-Stream;charset=utf-8"),
                    text.clone() + end,
                    vec![half()],
                ),
                (None, text + end, vec![half()]),
                (Some(EVENTS), opening + end, vec![]),
            ] {
                let Outcome { result, requests } = format.call([(kind, body.clone())]).await;
                let mut expected = expected;
                expected.insert(0, ModelEvent::Started);
                expected.push(WHOLE);
                assert_eq!(shown(result.unwrap()), expected, "{} {body}", format.name);
                assert_eq!(requests, 1, "{} {body}", format.name);
            }
        }
    }
}

#[tokio::test]
async fn a_server_that_ignores_that_it_was_asked_to_stream_is_understood_om_495() {
    for format in formats() {
        for kind in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/vnd.x+json",
        ] {
            for (text, expected) in [
                ("half", vec![ModelEvent::Started, half(), WHOLE]),
                ("", vec![ModelEvent::Started, WHOLE]),
            ] {
                let reply = (Some(kind), (format.plain)(text).to_string());
                let Outcome { result, requests } = format.call([reply]).await;
                assert_eq!(shown(result.unwrap()), expected, "{} {kind}", format.name);
                assert_eq!(requests, 1);
            }
        }
    }
}

#[tokio::test]
async fn a_response_that_is_still_being_made_is_no_answer_om_495() {
    let [_, responses, _] = formats();
    for status in ["queued", "in_progress"] {
        let body = json!({"object": "response", "status": status, "output": []});
        let reply = (Some("application/json"), body.to_string());
        let error = responses.call([reply]).await.result.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Protocol);
        assert!(error.message.contains(status), "{error}");
    }
}

#[tokio::test]
async fn the_error_names_what_the_server_sent_without_the_key_om_495() {
    let [chat, ..] = formats();
    let reply = (Some("text/x-sk-Secret; q=1"), String::new());
    let error = chat.call([reply]).await.result.unwrap_err();
    assert_eq!(
        error.message,
        "the server answered with `text/x-[REDACTED]` instead of an event stream or JSON"
    );
}
