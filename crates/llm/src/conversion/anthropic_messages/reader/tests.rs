#![allow(clippy::unwrap_used, clippy::expect_used)]

use mainstay_telemetry::random::SeededRandom;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{event::Usage, sse};

/// The events of a recorded stream.
fn read(stream: &str) -> Vec<ModelEvent> {
    let mut decoder = sse::Decoder::new(sse::DEFAULT_LIMIT);
    let mut decoded = Vec::new();
    decoder.push(stream.as_bytes(), &mut decoded).unwrap();
    decoded.extend(decoder.finish().unwrap());
    let mut reader = Box::new(AnswerReader::default());
    let mut events = Vec::new();
    for event in decoded {
        let data = serde_json::from_str(&event.data).unwrap();
        let progress = reader.event(&event.name, data).unwrap();
        events.extend(progress.events);
        if progress.done {
            break;
        }
    }
    assert_eq!(reader.ending(false), Ending::Complete);
    events.extend(reader.finish(&*SeededRandom::new(1)));
    events
}

/// The events of a stream of these event objects.
fn read_values(values: &[Value]) -> Vec<ModelEvent> {
    let stream: String = values.iter().map(|value| format!("data: {value}\n\n")).collect();
    read(&stream)
}

fn calls(events: &[ModelEvent]) -> Vec<(String, String, String)> {
    events
        .iter()
        .filter_map(|event| match event {
            ModelEvent::ToolCall(call) => Some((call.id.clone(), call.name.clone(), call.arguments.clone())),
            _ => None,
        })
        .collect()
}

fn tool(index: u64, id: &str, input: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": {"type": "tool_use", "id": id, "name": "f", "input": input}})
}

fn piece(index: u64, text: &str) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": {"type": "input_json_delta", "partial_json": text}})
}

fn ended(reason: &str) -> Value {
    json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 1}})
}

#[test]
fn a_recorded_stream_with_thinking_text_and_a_call_or_253() {
    insta::assert_debug_snapshot!(
        "stream",
        read(include_str!("../../../../fixtures/messages-tool-use.sse"))
    );
}

#[test]
fn a_plain_answer_is_read_like_a_streamed_one() {
    let mut reader = Box::new(AnswerReader::default());
    let mut events = reader
        .plain(json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
            "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "hi"}, {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}],
            "stop_reason": "tool_use", "stop_sequence": null, "usage": {"input_tokens": 3, "output_tokens": 4},
        }))
        .unwrap();
    events.extend(reader.finish(&*SeededRandom::new(1)));
    assert_eq!(
        events,
        [
            ModelEvent::Started,
            ModelEvent::Thinking("hm".to_owned()),
            ModelEvent::Thought(SignedThought::Thought {
                text: "hm".to_owned(),
                signature: "s".to_owned(),
            }),
            ModelEvent::Text("hi".to_owned()),
            ModelEvent::ToolCall(ToolCall::new("t", "f", "{\"a\":1}")),
            ModelEvent::Usage(Usage {
                input_tokens: 3,
                output_tokens: 4,
                cached_tokens: 0,
            }),
            ModelEvent::Finished(FinishReason::ToolCalls),
        ]
    );
}

#[test]
fn a_tool_without_arguments_gets_an_empty_object_d11() {
    for events in [
        vec![tool(0, "a", json!({}))],
        vec![tool(0, "a", json!({})), piece(0, "")],
        vec![tool(0, "a", Value::Null), piece(0, "null")],
        vec![tool(0, "a", json!("")), piece(0, " ")],
    ] {
        let mut events = events;
        events.push(json!({"type": "content_block_stop", "index": 0}));
        events.push(ended("tool_use"));
        assert_eq!(
            calls(&read_values(&events)),
            [("a".to_owned(), "f".to_owned(), "{}".to_owned())]
        );
    }
}

#[test]
fn input_that_stands_in_the_first_event_counts_where_no_piece_follows() {
    let whole = [tool(0, "a", json!({"x": 1})), ended("tool_use")];
    assert_eq!(calls(&read_values(&whole))[0].2, "{\"x\":1}");
    let both = [
        tool(0, "a", json!({"x": 1})),
        piece(0, "{\"y\":2}"),
        ended("tool_use"),
    ];
    assert_eq!(calls(&read_values(&both))[0].2, "{\"y\":2}");
}

#[test]
fn blocks_that_interleave_or_share_an_index_stay_apart_d9() {
    let events = [
        tool(0, "a", json!({})),
        tool(1, "b", json!({})),
        piece(1, "{\"b\""),
        piece(0, "{\"a\":1}"),
        piece(1, ":2}"),
        json!({"type": "content_block_stop", "index": 1}),
        tool(0, "c", json!({})),
        piece(0, "{\"c\":3}"),
        ended("tool_use"),
    ];
    let calls = calls(&read_values(&events));
    let by_id = |id: &str| &calls.iter().find(|call| call.0 == id).unwrap().2;
    assert_eq!(by_id("a"), "{\"a\":1}");
    assert_eq!(by_id("b"), "{\"b\":2}");
    assert_eq!(by_id("c"), "{\"c\":3}");
}

#[test]
fn how_an_answer_ended_is_normalised_or_202() {
    let text =
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x"}});
    for (word, expected) in [
        ("end_turn", FinishReason::Completed),
        ("stop_sequence", FinishReason::Completed),
        ("max_tokens", FinishReason::Incomplete),
        ("pause_turn", FinishReason::Incomplete),
        ("refusal", FinishReason::Refused),
        ("tool_use", FinishReason::Unknown),
        ("surprise", FinishReason::Unknown),
    ] {
        let events = read_values(&[text.clone(), ended(word)]);
        assert_eq!(events.last(), Some(&ModelEvent::Finished(expected)), "{word}");
    }
}

#[test]
fn an_answer_that_was_cut_is_not_complete() {
    let mut reader = AnswerReader::default();
    assert_eq!(reader.ending(true), Ending::Nothing);
    reader.event("", tool(0, "a", json!({}))).unwrap();
    assert_eq!(reader.ending(true), Ending::Cut);
    reader.event("", ended("tool_use")).unwrap();
    assert!(reader.is_complete());
}

#[test]
fn nothing_is_shown_before_content_so_that_a_failure_can_be_retried_or_216() {
    let mut reader = AnswerReader::default();
    let start = json!({"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 5}}});
    assert!(reader.event("", start).unwrap().events.is_empty());
    let ping = reader.event("ping", json!({"type": "ping"})).unwrap();
    assert!(ping.events.is_empty() && !ping.token);
}

#[test]
fn an_answer_cannot_hold_calls_or_input_without_end() {
    let mut reader = AnswerReader::default();
    for index in 0..MAX_CALLS as u64 {
        reader.event("", tool(index, "a", json!({}))).unwrap();
    }
    let error = reader.event("", tool(1_000, "a", json!({}))).unwrap_err();
    assert_eq!(error, ReadError::TooMuch(TooMuch::Calls));

    let mut reader = AnswerReader::default();
    reader.event("", tool(0, "a", json!({}))).unwrap();
    let error = reader
        .event("", piece(0, &"x".repeat(MAX_ARGUMENT_BYTES + 1)))
        .unwrap_err();
    assert!(matches!(error, ReadError::TooMuch(TooMuch::Arguments { .. })));
}

proptest! {
    #[test]
    fn however_input_is_cut_it_is_joined_again(text in "[a-zö\"\\\\]{0,30}", cut in 1_usize..9) {
        let input = json!({"text": text}).to_string();
        let letters: Vec<char> = input.chars().collect();
        let mut events = vec![tool(0, "a", json!({}))];
        events.extend(letters.chunks(cut).map(|letters| piece(0, &letters.iter().collect::<String>())));
        events.push(ended("tool_use"));
        prop_assert_eq!(&calls(&read_values(&events))[0].2, &input);
    }

    #[test]
    fn any_order_of_events_is_read_without_a_panic_and_ends_once(order in proptest::collection::vec(0_usize..9, 0..24)) {
        let events = [
            tool(0, "a", json!({})),
            tool(1, "", json!({"x": 1})),
            piece(0, "{"),
            json!({"type": "content_block_delta", "delta": {"partial_json": "}"}}),
            json!({"type": "content_block_stop"}),
            json!({"type": "content_block_stop", "index": 1}),
            json!({"type": "content_block_delta", "index": 7, "delta": {"type": "thinking_delta", "thinking": "t"}}),
            ended("end_turn"),
            json!({"type": "news", "index": "x", "delta": []}),
        ];
        let mut reader = Box::new(AnswerReader::default());
        let mut seen = Vec::new();
        for index in order {
            seen.extend(reader.event("", events[index].clone()).unwrap().events);
        }
        seen.extend(reader.finish(&*SeededRandom::new(1)));
        prop_assert_eq!(seen.iter().filter(|event| **event == ModelEvent::Started).count(), 1);
        prop_assert_eq!(&seen[0], &ModelEvent::Started);
        prop_assert!(matches!(seen.last(), Some(ModelEvent::Finished(_))));
        prop_assert!(calls(&seen).iter().all(|call| !call.0.is_empty()));
    }
}

#[test]
fn signed_reasoning_is_handed_out_whole_and_unsigned_reasoning_only_shown() {
    let block = |index: u64, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let delta =
        |index: u64, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let stop = |index: u64| json!({"type": "content_block_stop", "index": index});
    let events = read_values(&[
        block(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        delta(0, json!({"type": "thinking_delta", "thinking": "one "})),
        delta(0, json!({"type": "thinking_delta", "thinking": "two"})),
        delta(0, json!({"type": "signature_delta", "signature": "si"})),
        delta(0, json!({"type": "signature_delta", "signature": "gn"})),
        stop(0),
        block(1, json!({"type": "redacted_thinking", "data": "sealed"})),
        stop(1),
        block(2, json!({"type": "thinking", "thinking": "loose"})),
        stop(2),
        tool(3, "t", json!({})),
        stop(3),
        ended("tool_use"),
    ]);
    let thoughts: Vec<&SignedThought> = events
        .iter()
        .filter_map(|event| match event {
            ModelEvent::Thought(thought) => Some(thought),
            _ => None,
        })
        .collect();
    assert_eq!(
        thoughts,
        [
            &SignedThought::Thought {
                text: "one two".to_owned(),
                signature: "sign".to_owned(),
            },
            &SignedThought::Redacted {
                data: "sealed".to_owned(),
            },
        ]
    );
    assert!(events.contains(&ModelEvent::Thinking("loose".to_owned())));
}
