//! Between a [`Request`] and OpenAI Responses (OR-243); [`reader`] reads the answers.
//!
//! The format has no stop sequences, so a request's are not sent, and no mark for a tool result that
//! is an error: see [`super::openai_chat::ERROR_PREFIX`].

pub(crate) mod reader;

use serde_json::{Map, Value, json};

use super::{
    openai_chat::{choice_from_wire, marked_result, name_of_call, read_mark, sendable_arguments},
    parameters, response_format,
    tool_calls::normalise_arguments,
};
use crate::{
    event::Usage,
    message::{Message, Role, ToolCall, ToolDescriptor},
    request::{Parameters, Request, ToolChoice},
    types::openai_responses as wire,
};

/// The body of a streamed call. The provider is asked not to keep the answer: the conversation is
/// sent whole every time.
pub(crate) fn request_to_wire(request: &Request) -> wire::ResponsesRequest {
    let tools: Vec<wire::Tool> = request.tools.iter().map(tool_to_wire).collect();
    let tool_choice = match request.tool_choice {
        _ if tools.is_empty() => None,
        ToolChoice::Auto => None,
        ToolChoice::Required => Some(json!("required")),
        ToolChoice::None => Some(json!("none")),
    };
    wire::ResponsesRequest {
        model: request.model.clone(),
        instructions: Some(request.system.to_string()).filter(|text| !text.is_empty()),
        input: wire::Input::Items(request.messages.iter().flat_map(items_of).collect()),
        tools: (!tools.is_empty()).then_some(tools),
        tool_choice,
        text: response_format::to_responses(&request.response_format),
        temperature: request.parameters.temperature,
        top_p: request.parameters.top_p,
        max_output_tokens: request.parameters.max_tokens,
        stream: Some(true),
        store: Some(false),
        previous_response_id: None,
        extra: Map::new(),
    }
}

fn items_of(message: &Message) -> Vec<wire::Item> {
    match message.role {
        Role::System => vec![text_item("developer", &message.content)],
        Role::User => vec![text_item("user", &message.content)],
        Role::Assistant => {
            let text = (!message.content.is_empty() || message.tool_calls.is_empty())
                .then(|| text_item("assistant", &message.content));
            let calls = message.tool_calls.iter().map(|call| {
                wire::Item::FunctionCall(wire::FunctionCallItem {
                    kind: "function_call".to_owned(),
                    call_id: call.id.clone(),
                    name: call.name.clone(),
                    arguments: sendable_arguments(&call.arguments),
                    ..wire::FunctionCallItem::default()
                })
            });
            text.into_iter().chain(calls).collect()
        }
        Role::Tool => vec![wire::Item::FunctionCallOutput(wire::FunctionCallOutputItem {
            kind: "function_call_output".to_owned(),
            call_id: message.tool_call_id.clone().unwrap_or_default(),
            output: wire::Content::Text(marked_result(message)),
            extra: Map::new(),
        })],
    }
}

fn text_item(role: &str, text: &str) -> wire::Item {
    wire::Item::Message(wire::MessageItem {
        kind: Some("message".to_owned()),
        role: role.to_owned(),
        content: wire::Content::Text(text.to_owned()),
        ..wire::MessageItem::default()
    })
}

fn tool_to_wire(tool: &ToolDescriptor) -> wire::Tool {
    wire::Tool {
        kind: "function".to_owned(),
        name: Some(tool.name.clone()),
        description: Some(tool.description.clone()).filter(|text| !text.is_empty()),
        parameters: Some(parameters::acceptable(&tool.parameters)),
        strict: Some(false),
        extra: Map::new(),
    }
}

/// The request that a body of another program's client is; what [`request_to_wire`] writes comes
/// back, apart from rewritten schemas and repaired arguments. Items that only the provider itself
/// can make sense of are left out.
pub(crate) fn request_from_wire(body: wire::ResponsesRequest) -> Request {
    let mut system: Vec<String> = body.instructions.into_iter().collect();
    let mut messages: Vec<Message> = Vec::new();
    let items = match body.input {
        wire::Input::Text(text) => vec![text_item("user", &text)],
        wire::Input::Items(items) => items,
    };
    // Calls belong to the assistant message they directly follow.
    let mut open = false;
    for item in items {
        match item {
            wire::Item::Message(message) => {
                let text = message.content.into_text();
                open = message.role == "assistant";
                match message.role.as_str() {
                    "system" | "developer" if messages.is_empty() => system.push(text),
                    "system" | "developer" => messages.push(Message::system(text)),
                    "assistant" => messages.push(Message::assistant(text, Vec::new())),
                    _ => messages.push(Message::user(text)),
                }
            }
            wire::Item::FunctionCall(call) => {
                let call = ToolCall::new(call.call_id, call.name, normalise_arguments(call.arguments));
                match messages.last_mut() {
                    Some(message) if open => message.tool_calls.push(call),
                    _ => messages.push(Message::assistant("", vec![call])),
                }
                open = true;
            }
            wire::Item::FunctionCallOutput(result) => {
                open = false;
                let name = name_of_call(&messages, &result.call_id).unwrap_or_default();
                let (text, is_error) = read_mark(result.output.into_text());
                messages.push(Message::tool_result(result.call_id, name, text, is_error));
            }
            wire::Item::Reasoning(_) | wire::Item::Other(_) => {}
        }
    }
    Request {
        model: body.model,
        system: system.join("\n\n").into(),
        messages: messages.into(),
        tools: body
            .tools
            .unwrap_or_default()
            .into_iter()
            .filter(|tool| tool.kind == "function")
            .map(|tool| ToolDescriptor {
                name: tool.name.unwrap_or_default(),
                description: tool.description.unwrap_or_default(),
                parameters: tool.parameters.unwrap_or_else(|| json!({"type": "object"})),
            })
            .collect(),
        tool_choice: choice_from_wire(body.tool_choice.as_ref()),
        response_format: response_format::from_responses(body.text.as_ref()),
        parameters: Parameters {
            temperature: body.temperature,
            top_p: body.top_p,
            max_tokens: body.max_output_tokens,
            stop: Vec::new(),
        },
    }
}

/// Token counts in the neutral form.
pub(crate) fn usage_from_wire(usage: &wire::Usage) -> Usage {
    Usage {
        input_tokens: usage.input_tokens,
        output_tokens: usage.output_tokens,
        cached_tokens: usage
            .input_tokens_details
            .as_ref()
            .map_or(0, |details| details.cached_tokens),
    }
}

/// Token counts on the wire.
pub(crate) fn usage_to_wire(usage: Usage) -> wire::Usage {
    wire::Usage {
        input_tokens: usage.input_tokens,
        input_tokens_details: Some(wire::InputTokensDetails {
            cached_tokens: usage.cached_tokens,
            extra: Map::new(),
        }),
        output_tokens: usage.output_tokens,
        output_tokens_details: Some(wire::OutputTokensDetails {
            reasoning_tokens: 0,
            // Published as required; a client that checks its types wants it.
            extra: Map::new(),
        }),
        total_tokens: usage.input_tokens.saturating_add(usage.output_tokens),
        extra: Map::new(),
    }
}

/// A text as `output_text` or another kind of part.
pub(crate) fn part(kind: &str, text: &str) -> wire::Part {
    let mut extra = Map::new();
    if kind == "output_text" {
        extra.insert("annotations".to_owned(), Value::Array(Vec::new()));
    }
    wire::Part {
        kind: kind.to_owned(),
        text: Some(text.to_owned()),
        refusal: None,
        extra,
    }
}

#[cfg(test)]
mod tests;
