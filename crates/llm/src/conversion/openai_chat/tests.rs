#![allow(clippy::unwrap_used, clippy::expect_used)]

use mainstay_telemetry::random::SeededRandom;

use super::*;
use crate::request::ResponseFormat;

fn conversation() -> Request {
    Request {
        model: "gpt-4o-mini".to_owned(),
        system: "You are a help desk.".into(),
        messages: vec![
            Message::user("Where is order 1017?"),
            Message::assistant(
                "",
                vec![
                    ToolCall::new("call_1", "get_order", "{\"id\":\"1017\"}"),
                    ToolCall::new("call_2", "list_orders", String::new()),
                ],
            ),
            Message::tool_result("call_1", "get_order", "{\"status\":\"shipped\"}", false),
            Message::tool_result("call_2", "list_orders", "HTTP 503: busy", true),
            Message::system("Be brief."),
            Message::assistant("It is shipped.", Vec::new()),
            Message::user("Thanks"),
        ].into(),
        tools: vec![ToolDescriptor {
            name: "get_order".to_owned(),
            description: "Look up an order".to_owned(),
            parameters: json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": ["object", "null"], "properties": {"id": {"type": "string"}}}),
        }].into(),
        tool_choice: ToolChoice::Auto,
        response_format: ResponseFormat::Text,
        parameters: Parameters {
            temperature: Some(0.5),
            max_tokens: Some(256),
            ..Parameters::default()
        },
    }
}

const COMPATIBLE: Dialect = Dialect {
    newer_limit_name: false,
    include_usage: true,
};

#[test]
fn a_conversation_becomes_a_chat_request_om_495() {
    insta::assert_json_snapshot!("request", request_to_wire(&conversation(), COMPATIBLE));
}

#[test]
fn the_limit_is_named_as_the_server_knows_it() {
    let newer = Dialect {
        newer_limit_name: true,
        include_usage: false,
    };
    let body = serde_json::to_value(request_to_wire(&conversation(), newer)).unwrap();
    assert_eq!(body.get("max_completion_tokens"), Some(&json!(256)));
    assert_eq!(body.get("max_tokens"), None);
    assert_eq!(body.get("stream_options"), None);
}

#[test]
fn tools_and_choice_are_left_out_when_there_are_no_tools() {
    let request = Request {
        tools: [].into(),
        tool_choice: ToolChoice::Required,
        ..conversation()
    };
    let body = request_to_wire(&request, COMPATIBLE);
    assert_eq!((body.tools, body.tool_choice), (None, None));
}

#[test]
fn arguments_that_are_not_json_are_not_sent_again_d11() {
    let request = Request {
        messages: vec![Message::assistant("", vec![ToolCall::new("c", "f", "{\"id\": ")])].into(),
        ..Request::default()
    };
    let body = serde_json::to_value(request_to_wire(&request, COMPATIBLE)).unwrap();
    assert_eq!(
        body.pointer("/messages/0/tool_calls/0/function/arguments"),
        Some(&json!("{}"))
    );
}

#[test]
fn what_is_written_is_read_back() {
    let mut expected = conversation();
    let mut messages = expected.messages.to_vec();
    messages[1].tool_calls[1].arguments = "{}".to_owned();
    expected.messages = messages.into();
    let mut tools = expected.tools.to_vec();
    tools[0].parameters = parameters::acceptable(&tools[0].parameters);
    expected.tools = tools.into();
    assert_eq!(
        request_from_wire(request_to_wire(&conversation(), COMPATIBLE)),
        expected
    );
}

fn read(chunks: Value) -> Vec<ModelEvent> {
    let chunks: Vec<wire::ChatChunk> = serde_json::from_value(chunks).unwrap();
    let mut reader = AnswerReader::default();
    let mut events = Vec::new();
    for chunk in chunks {
        events.extend(reader.push(chunk).unwrap());
    }
    events.extend(reader.finish(&*SeededRandom::new(1)));
    events
}

fn call(id: &str, name: &str, arguments: &str) -> ModelEvent {
    ModelEvent::ToolCall(ToolCall::new(id, name, arguments))
}

#[test]
fn a_streamed_answer_becomes_events() {
    assert_eq!(
        read(json!([
            {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]},
            {"choices": [{"index": 0, "delta": {"reasoning_content": "hm"}}]},
            {"choices": [{"index": 0, "delta": {"content": "Hel"}}]},
            {"choices": [{"index": 0, "delta": {"content": "lo"}, "finish_reason": "stop"}]},
            {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11, "prompt_tokens_details": {"cached_tokens": 4}}},
        ])),
        [
            ModelEvent::Started,
            ModelEvent::Thinking("hm".to_owned()),
            ModelEvent::Text("Hel".to_owned()),
            ModelEvent::Text("lo".to_owned()),
            ModelEvent::Usage(Usage {
                input_tokens: 9,
                output_tokens: 2,
                cached_tokens: 4
            }),
            ModelEvent::Finished(FinishReason::Completed),
        ]
    );
}

#[test]
fn calls_are_run_whatever_the_finish_reason_says_d10() {
    for finish in [json!("stop"), json!(""), json!(null), json!("tool_calls")] {
        assert_eq!(
            read(json!([
                {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}]}}]},
                {"choices": [{"delta": {}, "finish_reason": finish}]},
                {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}},
            ])),
            [
                ModelEvent::Started,
                call("a", "f", "{}"),
                ModelEvent::Usage(Usage {
                    input_tokens: 1,
                    output_tokens: 1,
                    cached_tokens: 0
                }),
                ModelEvent::Finished(FinishReason::ToolCalls),
            ],
            "{finish}"
        );
    }
}

#[test]
fn an_answer_that_says_nothing_is_an_empty_success_or_217() {
    assert_eq!(
        read(json!([{"choices": [{"delta": {"role": "assistant"}, "finish_reason": "stop"}]}])),
        [ModelEvent::Started, ModelEvent::Finished(FinishReason::Completed)]
    );
}

#[test]
fn what_ends_an_answer_and_what_does_not_d10() {
    let said = json!({"choices": [{"delta": {"content": "x"}}]});
    let counts = json!({"choices": [], "usage": {"prompt_tokens": 1}});
    let running = json!({"choices": [{"delta": {"content": "y"}}], "usage": {"prompt_tokens": 1}});
    let unsaid = json!({"choices": [{"delta": {}, "finish_reason": ""}]});
    let stop = json!({"choices": [{"delta": {}, "finish_reason": "stop"}]});
    for (chunks, clean, marked) in [
        (vec![], Ending::Nothing, Ending::Nothing),
        (vec![json!({"hello": 1})], Ending::Nothing, Ending::Nothing),
        (vec![json!({"choices": []})], Ending::Nothing, Ending::Nothing),
        (vec![counts.clone()], Ending::Nothing, Ending::Nothing),
        (vec![said.clone()], Ending::Cut, Ending::Complete),
        (vec![said.clone(), running.clone()], Ending::Cut, Ending::Complete),
        (vec![said.clone(), unsaid], Ending::Cut, Ending::Complete),
        (
            vec![said.clone(), counts.clone()],
            Ending::Complete,
            Ending::Complete,
        ),
        (
            vec![said.clone(), counts.clone(), running],
            Ending::Cut,
            Ending::Complete,
        ),
        (vec![said, stop, counts], Ending::Complete, Ending::Complete),
    ] {
        let mut reader = AnswerReader::default();
        for chunk in &chunks {
            reader.event("", chunk.clone()).unwrap();
        }
        assert_eq!(
            (reader.ending(false), reader.ending(true)),
            (clean, marked),
            "{chunks:?}"
        );
    }
}

#[test]
fn nothing_is_shown_before_content_so_that_a_failure_can_be_retried_or_216() {
    let mut reader = AnswerReader::default();
    for chunk in [
        json!({"choices": [], "prompt_filter_results": []}),
        json!({"choices": [{"delta": {"role": "assistant", "content": ""}}]}),
    ] {
        assert_eq!(reader.event("", chunk).unwrap(), Progress::default());
    }
}

#[test]
fn a_refusal_is_text_and_ends_as_refused_or_202() {
    assert_eq!(
        read(json!([{"choices": [{"delta": {"refusal": "No."}, "finish_reason": "stop"}]}])),
        [
            ModelEvent::Started,
            ModelEvent::Text("No.".to_owned()),
            ModelEvent::Finished(FinishReason::Refused),
        ]
    );
}

#[test]
fn a_plain_answer_reads_like_a_streamed_one() {
    let response: wire::ChatResponse = serde_json::from_value(json!({
        "id": "x", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "content": null, "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"x\":1}"}},
            {"id": "b", "type": "function", "function": {"name": "f", "arguments": "{\"x\":2}"}},
        ]}}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
    }))
    .unwrap();
    let events = read(json!([response_as_chunk(response)]));
    assert_eq!(
        events[1..3],
        [call("a", "f", "{\"x\":1}"), call("b", "f", "{\"x\":2}")]
    );
    assert_eq!(
        events.last(),
        Some(&ModelEvent::Finished(FinishReason::ToolCalls))
    );
}

#[test]
fn chunks_without_content_do_not_count_as_tokens_om_371() {
    for (chunk, counts) in [
        (
            json!({"choices": [{"delta": {"role": "assistant", "content": ""}}]}),
            false,
        ),
        (json!({"choices": [{"delta": {}}]}), false),
        (json!({"choices": []}), false),
        (json!({"choices": [{"delta": {"content": "a"}}]}), true),
        (
            json!({"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}}]}),
            true,
        ),
        (json!({"choices": [], "usage": {"prompt_tokens": 1}}), true),
    ] {
        let chunk: wire::ChatChunk = serde_json::from_value(chunk).unwrap();
        assert_eq!(carries_token(&chunk), counts, "{chunk:?}");
    }
}

#[test]
fn the_older_form_of_a_call_is_understood_or_243() {
    let mut reader = AnswerReader::default();
    let mut events = Vec::new();
    for chunk in [
        json!({"choices": [{"delta": {"function_call": {"name": "f", "arguments": ""}}}]}),
        json!({"choices": [{"delta": {"function_call": {"arguments": "{\"x\":"}}}]}),
        json!({"choices": [{"delta": {"function_call": {"arguments": "1}"}}}]}),
        json!({"choices": [{"delta": {}, "finish_reason": "function_call"}]}),
    ] {
        events.extend(reader.push(serde_json::from_value(chunk).unwrap()).unwrap());
    }
    events.extend(reader.finish(&*SeededRandom::new(1)));
    let ModelEvent::ToolCall(call) = &events[1] else {
        panic!("{events:?}");
    };
    assert_eq!((call.name.as_str(), call.arguments.as_str()), ("f", "{\"x\":1}"));
    assert_eq!(events[2], ModelEvent::Finished(FinishReason::ToolCalls));
}

#[test]
fn a_recorded_stream_with_parallel_calls_d10() {
    let mut decoder = crate::sse::Decoder::new(crate::sse::DEFAULT_LIMIT);
    let mut decoded = Vec::new();
    let stream = include_str!("../../../fixtures/chat-tool-use.sse");
    decoder.push(stream.as_bytes(), &mut decoded).unwrap();
    let mut reader = Box::new(AnswerReader::default());
    let mut events = Vec::new();
    for event in decoded.iter().filter(|event| event.data != "[DONE]") {
        let data = serde_json::from_str(&event.data).unwrap();
        events.extend(reader.event(&event.name, data).unwrap().events);
    }
    events.extend(Reader::finish(reader, &*SeededRandom::new(1)));
    insta::assert_debug_snapshot!("stream", events);
}

#[test]
fn a_mark_on_a_call_is_read_kept_and_sent_back() {
    let events = read(json!([
        {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "a", "type": "function",
            "function": {"name": "f", "arguments": "{}"}, "extra_content": {"google": {"thought_signature": "c2ln"}}}]}}]},
        {"choices": [{"delta": {"tool_calls": [{"index": 1, "id": "b", "function": {"name": "g", "arguments": "{}"}}]}}]},
        {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]},
    ]));
    let calls: Vec<ToolCall> = events
        .into_iter()
        .filter_map(|event| match event {
            ModelEvent::ToolCall(call) => Some(call),
            _ => None,
        })
        .collect();
    assert_eq!(calls[0].signature.as_deref(), Some("c2ln"));
    assert_eq!(calls[1].signature, None);
    let request = Request {
        messages: [Message::assistant("", calls)].into(),
        ..Request::default()
    };
    let body = serde_json::to_value(request_to_wire(&request, COMPATIBLE)).unwrap();
    let sent = &body["messages"][0]["tool_calls"];
    assert_eq!(sent[0]["extra_content"]["google"]["thought_signature"], "c2ln");
    assert_eq!(sent[1].get("extra_content"), None);
    assert_eq!(
        request_from_wire(request_to_wire(&request, COMPATIBLE)).messages,
        request.messages
    );
}

#[test]
fn or_453_tools_that_may_not_be_called_stay_described() {
    let request = Request {
        tool_choice: ToolChoice::None,
        ..conversation()
    };
    let body = serde_json::to_value(request_to_wire(&request, COMPATIBLE)).unwrap();
    assert_eq!(body["tool_choice"], "none");
    assert_eq!(body["tools"].as_array().map(Vec::len), Some(1));
}
