#![allow(clippy::unwrap_used, clippy::expect_used)]

use mainstay_telemetry::random::SeededRandom;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::sse;

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

fn read_values(values: &[Value]) -> Vec<ModelEvent> {
    let stream: String = values.iter().map(|value| format!("data: {value}\n\n")).collect();
    read(&stream)
}

fn text(text: &str) -> ModelEvent {
    ModelEvent::Text(text.to_owned())
}

fn completed() -> Value {
    json!({"type": "response.completed", "response": {"status": "completed"}})
}

fn call_added(index: u64, item: Value) -> Value {
    json!({"type": "response.output_item.added", "output_index": index, "item": item})
}

fn arguments(events: &[ModelEvent]) -> Vec<(String, String)> {
    events
        .iter()
        .filter_map(|event| match event {
            ModelEvent::ToolCall(call) => Some((call.id.clone(), call.arguments.clone())),
            _ => None,
        })
        .collect()
}

#[test]
fn a_recorded_stream_with_thinking_text_and_a_call_or_243() {
    insta::assert_debug_snapshot!(
        "stream",
        read(include_str!("../../../../fixtures/responses-tool-use.sse"))
    );
}

#[test]
fn text_is_shown_once_in_whichever_form_it_comes() {
    let delta =
        json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "hi"});
    let done =
        json!({"type": "response.output_text.done", "output_index": 0, "content_index": 0, "text": "hi"});
    let item = json!({"type": "response.output_item.done", "output_index": 0, "item": {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]}});
    for events in [
        vec![delta.clone(), done.clone(), item.clone()],
        vec![delta.clone()],
        vec![done.clone(), item.clone()],
        vec![item.clone()],
    ] {
        let mut events = events;
        events.push(completed());
        assert_eq!(
            read_values(&events),
            [
                ModelEvent::Started,
                text("hi"),
                ModelEvent::Finished(FinishReason::Completed)
            ]
        );
    }
}

#[test]
fn arguments_are_joined_or_taken_whole_and_nothing_means_an_empty_object_d11() {
    let item = |arguments: Value| json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments});
    let delta = |text: &str| json!({"type": "response.function_call_arguments.delta", "output_index": 0, "delta": text});
    let done = |text: &str| json!({"type": "response.function_call_arguments.done", "output_index": 0, "arguments": text});
    for (events, expected) in [
        (
            vec![call_added(0, item(json!(""))), delta("{\"x\""), delta(":1}")],
            "{\"x\":1}",
        ),
        (
            vec![
                call_added(0, item(json!(""))),
                delta("{\"x\":1}"),
                done("{\"x\":1}"),
            ],
            "{\"x\":1}",
        ),
        (vec![call_added(0, item(json!("{\"x\":1}")))], "{\"x\":1}"),
        (vec![call_added(0, item(json!({"x": 1})))], "{\"x\":1}"),
        (
            vec![call_added(0, item(json!(""))), delta("{\"x\":1}"), done("")],
            "{\"x\":1}",
        ),
        (vec![call_added(0, item(Value::Null)), done("")], "{}"),
        (vec![call_added(0, item(json!("null")))], "{}"),
    ] {
        let mut events = events;
        events.push(completed());
        let read = read_values(&events);
        assert_eq!(
            arguments(&read),
            [("c".to_owned(), expected.to_owned())],
            "{events:?}"
        );
        assert_eq!(read.last(), Some(&ModelEvent::Finished(FinishReason::ToolCalls)));
    }
}

#[test]
fn how_an_answer_ended_is_normalised_or_202() {
    let words = json!({"type": "response.output_text.delta", "delta": "x"});
    let refusal = json!({"type": "response.refusal.delta", "delta": "No."});
    for (said, end, expected) in [
        (&words, completed(), FinishReason::Completed),
        (
            &words,
            json!({"type": "response.completed"}),
            FinishReason::Completed,
        ),
        (
            &words,
            json!({"type": "response.incomplete", "response": {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}}),
            FinishReason::Incomplete,
        ),
        (
            &words,
            json!({"type": "response.incomplete", "response": {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}}),
            FinishReason::Refused,
        ),
        (&refusal, completed(), FinishReason::Refused),
        (
            &words,
            json!({"type": "response.failed", "response": {"status": "failed", "error": null}}),
            FinishReason::Failed,
        ),
        (
            &words,
            json!({"type": "response.cancelled"}),
            FinishReason::Failed,
        ),
    ] {
        let events = read_values(&[said.clone(), end.clone()]);
        assert_eq!(events.last(), Some(&ModelEvent::Finished(expected)), "{end}");
    }
}

#[test]
fn nothing_is_shown_before_content_and_a_cut_answer_is_not_complete_or_216() {
    let mut reader = AnswerReader::default();
    assert_eq!(reader.ending(true), Ending::Nothing);
    let created = reader
        .event("", json!({"type": "response.created", "response": {"id": "r"}}))
        .unwrap();
    assert!(created.events.is_empty() && created.token);
    assert_eq!(reader.ending(true), Ending::Cut);
}

#[test]
fn a_plain_answer_is_read_like_a_streamed_one() {
    let mut reader = Box::new(AnswerReader::default());
    let mut events = reader
        .plain(json!({
            "id": "r", "object": "response", "status": "completed", "error": null,
            "output": [
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi", "annotations": []}]},
                {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "function_call", "id": "fc2", "name": "g", "arguments": ""},
            ],
            "usage": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
        }))
        .unwrap();
    events.extend(reader.finish(&*SeededRandom::new(1)));
    assert_eq!(
        events[..3],
        [
            ModelEvent::Started,
            ModelEvent::Thinking("hm".to_owned()),
            text("hi")
        ]
    );
    let calls = arguments(&events);
    assert_eq!((calls[0].0.as_str(), calls[1].0.as_str()), ("c", "fc2"));
    assert_eq!(
        events[5..],
        [
            ModelEvent::Usage(Usage {
                input_tokens: 1,
                output_tokens: 2,
                cached_tokens: 0,
            }),
            ModelEvent::Finished(FinishReason::ToolCalls),
        ]
    );
}

proptest! {
    #[test]
    fn any_order_of_events_is_read_without_a_panic_and_ends_once(order in proptest::collection::vec(0_usize..9, 0..24)) {
        let events = [
            call_added(0, json!({"type": "function_call", "name": "f"})),
            json!({"type": "response.function_call_arguments.delta", "output_index": 0, "delta": "{}"}),
            json!({"type": "response.function_call_arguments.done", "output_index": 3, "arguments": "{}"}),
            json!({"type": "response.output_text.delta", "delta": "x"}),
            json!({"type": "response.output_item.done", "item": {"type": "message", "content": "y"}}),
            json!({"type": "response.reasoning_text.delta", "delta": "t"}),
            json!({"type": "response.output_item.done", "output_index": 1, "item": {"type": "news"}}),
            json!({"type": "response.image_generation_call.partial_image", "delta": {"x": 1}, "text": 7, "item": []}),
            completed(),
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
        prop_assert!(arguments(&seen).iter().all(|call| !call.0.is_empty()));
    }
}
