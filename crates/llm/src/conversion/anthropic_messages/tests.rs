#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;
use crate::request::ResponseFormat;

fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
    ToolCall::new(id, name, arguments)
}

fn conversation() -> Request {
    Request {
        model: "claude-sonnet-4-5".to_owned(),
        system: "You are a help desk.".into(),
        messages: vec![
            Message::user("Where is order 1017?"),
            Message::assistant(
                "Let me look.",
                vec![
                    call("toolu_1", "get_order", "{\"id\":\"1017\"}"),
                    call("toolu_2", "list_orders", ""),
                    call("toolu_3", "note", "{\"half"),
                ],
            ),
            Message::tool_result("toolu_1", "get_order", "{\"status\":\"shipped\"}", false),
            Message::tool_result("toolu_2", "list_orders", "HTTP 503: busy", true),
            Message::tool_result("toolu_3", "note", "", false),
            Message::system("Be brief."),
            Message::assistant("It is shipped.", Vec::new()),
            Message::assistant("Anything else?", Vec::new()),
            Message::user("Thanks"),
        ]
        .into(),
        tools: vec![ToolDescriptor {
            name: "get_order".to_owned(),
            description: "Look up an order".to_owned(),
            parameters: json!({
                "$schema": "http://json-schema.org/draft-07/schema#",
                "type": ["object", "null"],
                "title": "Order",
                "additionalProperties": false,
                "properties": {"id": {"$ref": "#/$defs/id"}},
                "required": ["id"],
                "$defs": {"id": {"type": "string"}},
            }),
        }]
        .into(),
        tool_choice: ToolChoice::Required,
        response_format: ResponseFormat::Text,
        parameters: Parameters {
            temperature: Some(0.5),
            stop: vec!["END".to_owned()],
            ..Parameters::default()
        },
    }
}

#[test]
fn a_conversation_becomes_a_messages_request_or_251_to_254() {
    insta::assert_json_snapshot!("request", request_to_wire(&conversation()));
}

#[test]
fn the_limit_is_4096_where_none_is_given_or_253() {
    let mut request = conversation();
    assert_eq!(request_to_wire(&request).max_tokens, Some(4096));
    request.parameters.max_tokens = Some(9);
    assert_eq!(request_to_wire(&request).max_tokens, Some(9));
    request.parameters.temperature = None;
    assert_eq!(request_to_wire(&request).temperature, None);
}

#[test]
fn input_that_is_not_an_object_is_sent_as_an_empty_one_or_252_d11() {
    for arguments in ["", "null", "{", "[1]", "\"text\"", "7"] {
        let request = Request {
            messages: vec![Message::assistant("", vec![call("t", "f", arguments)])].into(),
            ..Request::default()
        };
        let body = serde_json::to_value(request_to_wire(&request)).unwrap();
        assert_eq!(
            body.pointer("/messages/0/content/0/input"),
            Some(&json!({})),
            "{arguments}"
        );
    }
}

#[test]
fn results_come_first_and_roles_alternate_or_254() {
    let request = Request {
        messages: vec![
            Message::assistant("", vec![call("a", "f", "{}"), call("b", "f", "{}")]),
            Message::tool_result("a", "f", "1", false),
            Message::user("meanwhile"),
            Message::tool_result("b", "f", "2", false),
            Message::user(""),
        ]
        .into(),
        ..Request::default()
    };
    let body = serde_json::to_value(request_to_wire(&request)).unwrap();
    let roles: Vec<&Value> = body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| &message["role"])
        .collect();
    assert_eq!(roles, ["assistant", "user"]);
    let kinds: Vec<&Value> = body["messages"][1]["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|block| &block["type"])
        .collect();
    assert_eq!(kinds, ["tool_result", "tool_result", "text"]);
}

#[test]
fn a_request_of_another_program_is_understood() {
    let body = json!({
        "model": "m",
        "max_tokens": 10,
        "system": [{"type": "text", "text": "s"}],
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "x"}, {"type": "text", "text": "a"}, {"type": "tool_use", "id": "t1", "name": "f", "input": {"x": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "no"}], "is_error": true}, {"type": "text", "text": "and?"}]},
        ],
        "tools": [{"name": "f", "input_schema": {"type": "object"}}, {"type": "bash_20250124", "name": "bash"}],
        "tool_choice": {"type": "any"},
        "stop_sequences": ["END"],
    });
    let request = request_from_wire(serde_json::from_value(body).unwrap());
    assert_eq!(&*request.system, "s");
    assert_eq!(
        *request.messages,
        [
            Message::user("hi"),
            Message {
                thoughts: vec![SignedThought::Thought {
                    text: "t".to_owned(),
                    signature: "x".to_owned(),
                }],
                ..Message::assistant("a", vec![call("t1", "f", "{\"x\":1}")])
            },
            Message::tool_result("t1", "f", "no", true),
            Message::user("and?"),
        ]
    );
    assert_eq!(request.tools.len(), 1);
    assert_eq!(request.tool_choice, ToolChoice::Required);
    assert_eq!(request.parameters.stop, ["END"]);
}

#[test]
fn what_is_written_is_read_back() {
    let request = Request {
        messages: vec![
            Message::user("Where?"),
            Message::assistant("Look.", vec![call("t1", "f", "{\"x\":1}")]),
            Message::tool_result("t1", "f", "no", true),
            Message::assistant("Sorry.", Vec::new()),
        ]
        .into(),
        parameters: Parameters {
            max_tokens: Some(5),
            ..Parameters::default()
        },
        ..conversation()
    };
    let back = request_from_wire(request_to_wire(&request));
    assert_eq!(back.messages, request.messages);
    assert_eq!(back.system, request.system);
    assert_eq!(back.parameters.max_tokens, Some(5));
}

#[test]
fn cached_tokens_are_counted_among_those_of_the_request() {
    let wire: wire::Usage = serde_json::from_value(json!({
        "input_tokens": 10, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 85, "output_tokens": 3
    }))
    .unwrap();
    let usage = usage_from_wire(&wire);
    assert_eq!(
        (usage.input_tokens, usage.cached_tokens, usage.output_tokens),
        (100, 85, 3)
    );
    assert_eq!(usage_from_wire(&usage_to_wire(usage)), usage);
}

#[test]
fn reasoning_goes_back_in_front_of_the_calls_it_led_to() {
    let message = Message {
        thoughts: vec![
            SignedThought::Thought {
                text: "first".to_owned(),
                signature: "s1".to_owned(),
            },
            SignedThought::Redacted {
                data: "sealed".to_owned(),
            },
        ],
        ..Message::assistant("Look.", vec![call("t1", "f", "{}")])
    };
    let request = Request {
        messages: [Message::user("hi"), message].into(),
        ..Request::default()
    };
    let body = serde_json::to_value(request_to_wire(&request)).unwrap();
    assert_eq!(
        body["messages"][1]["content"],
        json!([
            {"type": "thinking", "thinking": "first", "signature": "s1"},
            {"type": "redacted_thinking", "data": "sealed"},
            {"type": "text", "text": "Look."},
            {"type": "tool_use", "id": "t1", "name": "f", "input": {}},
        ])
    );
    assert_eq!(
        request_from_wire(request_to_wire(&request)).messages,
        request.messages
    );
}

#[test]
fn or_453_tools_that_may_not_be_called_stay_described() {
    let request = Request {
        tool_choice: ToolChoice::None,
        ..conversation()
    };
    let body = serde_json::to_value(request_to_wire(&request)).unwrap();
    assert_eq!(body["tool_choice"]["type"], "none");
    assert_eq!(body["tools"].as_array().map(Vec::len), Some(1));
}
