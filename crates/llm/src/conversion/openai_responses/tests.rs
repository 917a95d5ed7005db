#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;
use crate::request::ResponseFormat;

fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
    ToolCall::new(id, name, arguments)
}

fn conversation() -> Request {
    Request {
        model: "gpt-5".to_owned(),
        system: "You are a help desk.".into(),
        messages: vec![
            Message::user("Where is order 1017?"),
            Message::assistant(
                "Let me look.",
                vec![
                    call("call_1", "get_order", "{\"id\":\"1017\"}"),
                    call("call_2", "list_orders", ""),
                ],
            ),
            Message::tool_result("call_1", "get_order", "{\"status\":\"shipped\"}", false),
            Message::tool_result("call_2", "list_orders", "HTTP 503: busy", true),
            Message::system("Be brief."),
            Message::assistant("", vec![call("call_3", "note", "{\"half")]),
            Message::tool_result("call_3", "note", "ok", false),
        ]
        .into(),
        tools: vec![ToolDescriptor {
            name: "get_order".to_owned(),
            description: "Look up an order".to_owned(),
            parameters: json!({"type": ["object", "null"], "properties": {"id": {"type": "string"}}}),
        }]
        .into(),
        tool_choice: ToolChoice::Auto,
        response_format: ResponseFormat::Text,
        parameters: Parameters {
            temperature: Some(0.5),
            max_tokens: Some(256),
            ..Parameters::default()
        },
    }
}

#[test]
fn a_conversation_becomes_a_responses_request_or_243() {
    insta::assert_json_snapshot!("request", request_to_wire(&conversation()));
}

#[test]
fn what_is_written_is_read_back() {
    let request = Request {
        messages: vec![
            Message::user("Where?"),
            Message::assistant("Look.", vec![call("c1", "f", "{\"x\":1}"), call("c2", "g", "{}")]),
            Message::tool_result("c1", "f", "no", true),
            Message::tool_result("c2", "g", "yes", false),
            Message::system("Be brief."),
            Message::assistant("", vec![call("c3", "f", "{}")]),
        ]
        .into(),
        ..conversation()
    };
    let back = request_from_wire(request_to_wire(&request));
    assert_eq!(back.messages, request.messages);
    assert_eq!(back.system, request.system);
    assert_eq!(back.parameters, request.parameters);
}

#[test]
fn a_text_is_the_users_message_and_items_of_the_provider_are_left_out() {
    let read = |body: Value| request_from_wire(serde_json::from_value(body).unwrap());
    let request = read(json!({"model": "m", "input": "hi", "instructions": "s"}));
    assert_eq!(*request.messages, [Message::user("hi")]);
    assert_eq!(&*request.system, "s");
    let request = read(json!({
        "model": "m",
        "input": [
            {"role": "developer", "content": "d"},
            {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "u"}]},
            {"type": "reasoning", "id": "r", "summary": []},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": ""},
            {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "1"}]},
        ],
        "tools": [{"type": "web_search"}, {"type": "function", "name": "f"}],
        "tool_choice": {"type": "function", "name": "f"},
    }));
    assert_eq!(&*request.system, "d");
    assert_eq!(
        *request.messages,
        [
            Message::user("a"),
            Message::assistant("", vec![call("c", "f", "{}")]),
            Message::tool_result("c", "f", "1", false),
        ]
    );
    assert_eq!(request.tools.len(), 1);
    assert_eq!(request.tool_choice, ToolChoice::Required);
}

#[test]
fn or_453_tools_that_may_not_be_called_stay_described() {
    let request = Request {
        tool_choice: ToolChoice::None,
        ..conversation()
    };
    let body = serde_json::to_value(request_to_wire(&request)).unwrap();
    assert_eq!(body["tool_choice"], "none");
    assert_eq!(body["tools"].as_array().map(Vec::len), Some(1));
}
