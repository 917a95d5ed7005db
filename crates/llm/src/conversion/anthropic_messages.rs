//! Between a [`Request`] and Anthropic Messages (OR-251…OR-254); [`reader`] reads the answers.

pub(crate) mod reader;

use serde_json::{Map, Value, json};

use super::{openai_chat::name_of_call, parameters, response_format};
use crate::{
    event::{FinishReason, Usage},
    message::{Message, Role, SignedThought, ToolCall, ToolDescriptor},
    request::{Parameters, Request, ToolChoice},
    types::anthropic_messages as wire,
};

/// Limit of the answer's tokens where none is given; the format requires one (OR-253).
pub(crate) const DEFAULT_MAX_TOKENS: u64 = 4096;

/// The body of a streamed call.
pub(crate) fn request_to_wire(request: &Request) -> wire::MessagesRequest {
    let tools: Vec<wire::Tool> = request.tools.iter().map(tool_to_wire).collect();
    let choice = match request.tool_choice {
        _ if tools.is_empty() => None,
        ToolChoice::Auto => None,
        ToolChoice::Required => Some("any"),
        ToolChoice::None => Some("none"),
    };
    let Parameters {
        temperature,
        top_p,
        max_tokens,
        stop,
    } = request.parameters.clone();
    let format = response_format::to_messages(&request.response_format);
    let system: Vec<wire::Block> = Some(request.system.as_ref())
        .filter(|text| !text.is_empty())
        .into_iter()
        .chain(format.instruction.as_deref())
        .map(wire::Block::text)
        .collect();
    wire::MessagesRequest {
        model: request.model.clone(),
        max_tokens: Some(max_tokens.unwrap_or(DEFAULT_MAX_TOKENS)),
        system: (!system.is_empty()).then_some(wire::Content::Blocks(system)),
        messages: messages_to_wire(&request.messages),
        tools: (!tools.is_empty()).then_some(tools),
        tool_choice: choice.map(|kind| wire::ToolChoice {
            kind: kind.to_owned(),
            extra: Map::new(),
        }),
        output_config: format.config,
        temperature,
        top_p,
        stop_sequences: (!stop.is_empty()).then_some(stop),
        stream: Some(true),
        extra: Map::new(),
    }
}

/// One turn of the conversation on the wire: what consecutive messages of one side become.
#[derive(Default)]
struct Side {
    is_user: bool,
    results: Vec<wire::Block>,
    others: Vec<wire::Block>,
}

impl Side {
    fn into_message(self) -> Option<wire::InputMessage> {
        // The provider wants results before anything else (OR-254).
        let mut blocks = self.results;
        blocks.extend(self.others);
        let role = if self.is_user { "user" } else { "assistant" };
        (!blocks.is_empty()).then(|| wire::InputMessage {
            role: role.to_owned(),
            content: wire::Content::Blocks(blocks),
            extra: Map::new(),
        })
    }
}

/// Roles alternate on the wire, so consecutive messages of one side become one message with several
/// blocks (OR-254). Instructions inside the conversation are sent as the user's text (OR-251). The
/// provider refuses empty texts, so they are left out.
fn messages_to_wire(messages: &[Message]) -> Vec<wire::InputMessage> {
    let mut out = Vec::new();
    let mut side = Side::default();
    for message in messages {
        let is_user = message.role != Role::Assistant;
        if is_user != side.is_user {
            let full = std::mem::replace(
                &mut side,
                Side {
                    is_user,
                    ..Side::default()
                },
            );
            out.extend(full.into_message());
        }
        match message.role {
            Role::Tool => side.results.push(result_to_wire(message)),
            Role::System | Role::User | Role::Assistant => {
                // The provider takes its reasoning back in front of what it led to, and nowhere else.
                side.others.extend(message.thoughts.iter().map(thought_to_wire));
                if !message.content.trim().is_empty() {
                    side.others.push(wire::Block::text(&message.content));
                }
                side.others.extend(message.tool_calls.iter().map(call_to_wire));
            }
        }
    }
    out.extend(side.into_message());
    out
}

fn result_to_wire(message: &Message) -> wire::Block {
    wire::Block::ToolResult(wire::ToolResultBlock {
        kind: "tool_result".to_owned(),
        tool_use_id: message.tool_call_id.clone().unwrap_or_default(),
        content: (!message.content.is_empty()).then(|| wire::Content::Text(message.content.clone())),
        is_error: message.is_error.then_some(true),
        extra: Map::new(),
    })
}

fn thought_to_wire(thought: &SignedThought) -> wire::Block {
    match thought {
        SignedThought::Thought { text, signature } => wire::Block::Thinking(wire::ThinkingBlock {
            kind: "thinking".to_owned(),
            thinking: text.clone(),
            signature: Some(signature.clone()),
            extra: Map::new(),
        }),
        SignedThought::Redacted { data } => wire::Block::Redacted(wire::RedactedThinkingBlock {
            kind: "redacted_thinking".to_owned(),
            data: data.clone(),
            extra: Map::new(),
        }),
    }
}

/// What a block of reasoning is that has to come back; `None` for reasoning that nobody signed.
pub(super) fn thought_from_wire(block: wire::ThinkingBlock) -> Option<SignedThought> {
    let signature = block.signature.filter(|signature| !signature.is_empty())?;
    Some(SignedThought::Thought {
        text: block.thinking,
        signature,
    })
}

fn call_to_wire(call: &ToolCall) -> wire::Block {
    wire::Block::ToolUse(wire::ToolUseBlock {
        kind: "tool_use".to_owned(),
        id: call.id.clone(),
        name: call.name.clone(),
        // Text that is not a JSON object is not worth failing the call for; the provider refuses
        // anything but an object (OR-252).
        input: serde_json::from_str::<Map<String, Value>>(&call.arguments)
            .unwrap_or_default()
            .into(),
        extra: Map::new(),
    })
}

fn tool_to_wire(tool: &ToolDescriptor) -> wire::Tool {
    let mut schema = json!({"type": "object"});
    // Definitions go along, since a reference into nothing fails the whole request (OR-253).
    if let Value::Object(parts) = parameters::acceptable(&tool.parameters) {
        for (name, part) in parts {
            if matches!(name.as_str(), "properties" | "required" | "$defs" | "definitions") {
                schema[name] = part;
            }
        }
    }
    wire::Tool {
        name: tool.name.clone(),
        description: Some(tool.description.clone()).filter(|text| !text.is_empty()),
        input_schema: Some(schema),
        extra: Map::new(),
    }
}

/// The request that a body of another program's client is. Blocks that are neither text nor calls
/// nor results are left out.
pub(crate) fn request_from_wire(body: wire::MessagesRequest) -> Request {
    let mut messages: Vec<Message> = Vec::new();
    for message in body.messages {
        let is_assistant = message.role == "assistant";
        let mut text = String::new();
        let mut calls = Vec::new();
        let mut thoughts = Vec::new();
        for block in message.content.into_blocks() {
            match block {
                wire::Block::Text(block) => text.push_str(&block.text),
                wire::Block::ToolUse(block) => calls.push(ToolCall {
                    id: block.id,
                    name: block.name,
                    arguments: arguments_from_wire(&block.input),
                    signature: None,
                }),
                wire::Block::ToolResult(block) => {
                    let name = name_of_call(&messages, &block.tool_use_id).unwrap_or_default();
                    let content = block.content.map(wire::Content::into_text).unwrap_or_default();
                    let is_error = block.is_error.unwrap_or(false);
                    messages.push(Message::tool_result(block.tool_use_id, name, content, is_error));
                }
                wire::Block::Thinking(block) => thoughts.extend(thought_from_wire(block)),
                wire::Block::Redacted(block) => thoughts.push(SignedThought::Redacted { data: block.data }),
                wire::Block::Other(_) => {}
            }
        }
        if is_assistant {
            messages.push(Message {
                thoughts,
                ..Message::assistant(text, calls)
            });
        } else if !text.is_empty() {
            messages.push(Message::user(text));
        }
    }
    let choice = body
        .tool_choice
        .as_ref()
        .map_or("auto", |choice| choice.kind.as_str());
    Request {
        model: body.model,
        system: body
            .system
            .map(wire::Content::into_text)
            .unwrap_or_default()
            .into(),
        messages: messages.into(),
        tools: body
            .tools
            .unwrap_or_default()
            .into_iter()
            .filter_map(|tool| {
                Some(ToolDescriptor {
                    name: tool.name,
                    description: tool.description.unwrap_or_default(),
                    parameters: tool.input_schema?,
                })
            })
            .collect(),
        tool_choice: match choice {
            "any" | "tool" => ToolChoice::Required,
            "none" => ToolChoice::None,
            _ => ToolChoice::Auto,
        },
        response_format: response_format::from_messages(body.output_config.as_ref()),
        parameters: Parameters {
            temperature: body.temperature,
            top_p: body.top_p,
            max_tokens: body.max_tokens,
            stop: body.stop_sequences.unwrap_or_default(),
        },
    }
}

/// The JSON text of a call's input; nothing, `null` and whatever is no object become `{}` (D11).
pub(crate) fn arguments_from_wire(input: &Value) -> String {
    match input {
        Value::Object(_) => input.to_string(),
        _ => "{}".to_owned(),
    }
}

/// Token counts in the neutral form, which counts cached tokens among those of the request.
pub(crate) fn usage_from_wire(usage: &wire::Usage) -> Usage {
    let cached = usage.cache_read_input_tokens.unwrap_or(0);
    Usage {
        input_tokens: usage
            .input_tokens
            .unwrap_or(0)
            .saturating_add(usage.cache_creation_input_tokens.unwrap_or(0))
            .saturating_add(cached),
        output_tokens: usage.output_tokens.unwrap_or(0),
        cached_tokens: cached,
    }
}

/// Token counts on the wire.
pub(crate) fn usage_to_wire(usage: Usage) -> wire::Usage {
    wire::Usage {
        input_tokens: Some(usage.input_tokens.saturating_sub(usage.cached_tokens)),
        cache_creation_input_tokens: Some(0),
        cache_read_input_tokens: Some(usage.cached_tokens),
        output_tokens: Some(usage.output_tokens),
        extra: Map::new(),
    }
}

/// The word for `stop_reason` on the wire.
pub(crate) fn finish_to_wire(finish: FinishReason) -> &'static str {
    match finish {
        FinishReason::ToolCalls => "tool_use",
        FinishReason::Incomplete => "max_tokens",
        FinishReason::Refused => "refusal",
        FinishReason::Completed | FinishReason::Failed | FinishReason::Unknown => "end_turn",
    }
}

#[cfg(test)]
mod tests;
