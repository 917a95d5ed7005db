//! Between a [`Request`], the [`ModelEvent`]s of an answer, and OpenAI Chat Completions.
//!
//! Chat Completions has no mark for a tool result that is an error. It is written as the prefix
//! `Error: ` of the result's text, which models understand, and read back as the mark.

use mainstay_telemetry::random::Random;
use serde_json::{Map, Value, json};

use super::{
    parameters,
    reader::{Ending, Progress, ReadError, Reader},
    response_format,
    tool_calls::{TooMuch, ToolCallAccumulator, normalise_arguments},
};
use crate::{
    event::{FinishReason, ModelEvent, Usage},
    message::{Message, Role, ToolCall, ToolDescriptor},
    request::{Parameters, Request, ToolChoice},
    types::openai_chat as wire,
};

/// Prefix of a tool result that is an error.
pub(crate) const ERROR_PREFIX: &str = "Error: ";

/// Differences between servers that speak this format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dialect {
    /// OpenAI's own models take the limit of the answer as `max_completion_tokens`; compatible
    /// servers know `max_tokens`.
    pub(crate) newer_limit_name: bool,
    /// Ask for token counts at the end of the stream.
    pub(crate) include_usage: bool,
}

/// The body of a streamed call.
pub(crate) fn request_to_wire(request: &Request, dialect: Dialect) -> wire::ChatRequest {
    let mut messages = Vec::with_capacity(request.messages.len() + 1);
    if !request.system.is_empty() {
        messages.push(text_message("system", &request.system));
    }
    messages.extend(request.messages.iter().map(message_to_wire));

    let tools: Vec<wire::Tool> = request.tools.iter().map(tool_to_wire).collect();
    let tool_choice = match request.tool_choice {
        _ if tools.is_empty() => None,
        ToolChoice::Auto => None,
        ToolChoice::Required => Some(json!("required")),
        ToolChoice::None => Some(json!("none")),
    };
    let Parameters {
        temperature,
        top_p,
        max_tokens,
        stop,
    } = request.parameters.clone();
    wire::ChatRequest {
        model: request.model.clone(),
        messages,
        tools: (!tools.is_empty()).then_some(tools),
        tool_choice,
        response_format: response_format::to_chat(&request.response_format),
        temperature,
        top_p,
        max_tokens: max_tokens.filter(|_| !dialect.newer_limit_name),
        max_completion_tokens: max_tokens.filter(|_| dialect.newer_limit_name),
        stop: (!stop.is_empty()).then(|| json!(stop)),
        stream: Some(true),
        stream_options: dialect.include_usage.then(|| wire::StreamOptions {
            include_usage: true,
            ..wire::StreamOptions::default()
        }),
        extra: Map::new(),
    }
}

fn text_message(role: &str, text: &str) -> wire::ChatMessage {
    wire::ChatMessage {
        role: role.to_owned(),
        content: Some(wire::Content::Text(text.to_owned())),
        ..wire::ChatMessage::default()
    }
}

fn message_to_wire(message: &Message) -> wire::ChatMessage {
    match message.role {
        Role::System => text_message("system", &message.content),
        Role::User => text_message("user", &message.content),
        Role::Assistant => {
            let calls: Vec<wire::ToolCall> = message.tool_calls.iter().map(call_to_wire).collect();
            wire::ChatMessage {
                role: "assistant".to_owned(),
                // An assistant message has text or calls; an empty text is only sent without calls.
                content: (!message.content.is_empty() || calls.is_empty())
                    .then(|| wire::Content::Text(message.content.clone())),
                tool_calls: (!calls.is_empty()).then_some(calls),
                ..wire::ChatMessage::default()
            }
        }
        Role::Tool => wire::ChatMessage {
            tool_call_id: message.tool_call_id.clone(),
            ..text_message("tool", &marked_result(message))
        },
    }
}

/// The text of a result for a format without a mark for errors.
pub(super) fn marked_result(message: &Message) -> String {
    if message.is_error && !message.content.starts_with(ERROR_PREFIX) {
        format!("{ERROR_PREFIX}{}", message.content)
    } else {
        message.content.clone()
    }
}

/// What [`marked_result`] wrote.
pub(super) fn read_mark(text: String) -> (String, bool) {
    match text.strip_prefix(ERROR_PREFIX) {
        Some(rest) => (rest.to_owned(), true),
        None => (text, false),
    }
}

/// The arguments of an earlier call as they are sent. Servers parse them; text that is not JSON
/// would fail every later request of the conversation. The model has been told of its mistake by
/// the result.
pub(super) fn sendable_arguments(arguments: &str) -> String {
    if serde_json::from_str::<serde::de::IgnoredAny>(arguments).is_ok() {
        normalise_arguments(arguments.to_owned())
    } else {
        "{}".to_owned()
    }
}

fn call_to_wire(call: &ToolCall) -> wire::ToolCall {
    wire::ToolCall {
        id: Some(call.id.clone()),
        kind: Some("function".to_owned()),
        function: Some(wire::FunctionCall {
            name: Some(call.name.clone()),
            arguments: Some(sendable_arguments(&call.arguments)),
            ..wire::FunctionCall::default()
        }),
        extra: signature_to_wire(call.signature.as_deref()),
        ..wire::ToolCall::default()
    }
}

// Gemini marks a call here and refuses the conversation when the mark does not come back.
fn signature_to_wire(signature: Option<&str>) -> Map<String, Value> {
    let field = signature.map(|signature| {
        let content = json!({"google": {"thought_signature": signature}});
        ("extra_content".to_owned(), content)
    });
    field.into_iter().collect()
}

/// The mark that [`signature_to_wire`] sends back.
pub(super) fn signature_from_wire(extra: &Map<String, Value>) -> Option<String> {
    let signature = extra.get("extra_content")?.pointer("/google/thought_signature")?;
    signature.as_str().map(str::to_owned)
}

fn tool_to_wire(tool: &ToolDescriptor) -> wire::Tool {
    wire::Tool {
        kind: "function".to_owned(),
        function: wire::FunctionDefinition {
            name: tool.name.clone(),
            description: Some(tool.description.clone()).filter(|text| !text.is_empty()),
            parameters: Some(parameters::acceptable(&tool.parameters)),
            extra: Map::new(),
        },
        extra: Map::new(),
    }
}

/// The request that a body of another program's client is; what [`request_to_wire`] writes comes
/// back, apart from rewritten schemas and repaired arguments.
pub(crate) fn request_from_wire(body: wire::ChatRequest) -> Request {
    let mut system: Vec<String> = Vec::new();
    let mut messages: Vec<Message> = Vec::new();
    for message in body.messages {
        let text = message.content.map(wire::Content::into_text).unwrap_or_default();
        match message.role.as_str() {
            "system" | "developer" if messages.is_empty() => system.push(text),
            "system" | "developer" => messages.push(Message::system(text)),
            "assistant" => {
                let calls = message.tool_calls.unwrap_or_default();
                messages.push(Message::assistant(
                    text,
                    calls.into_iter().map(call_from_wire).collect(),
                ));
            }
            "tool" | "function" => {
                let id = message.tool_call_id.unwrap_or_default();
                let name = message
                    .name
                    .or_else(|| name_of_call(&messages, &id))
                    .unwrap_or_default();
                let (text, is_error) = read_mark(text);
                messages.push(Message::tool_result(id, name, text, is_error));
            }
            _ => messages.push(Message::user(text)),
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
            .map(|tool| ToolDescriptor {
                name: tool.function.name,
                description: tool.function.description.unwrap_or_default(),
                parameters: tool
                    .function
                    .parameters
                    .unwrap_or_else(|| json!({"type": "object"})),
            })
            .collect(),
        tool_choice: choice_from_wire(body.tool_choice.as_ref()),
        response_format: response_format::from_chat(body.response_format.as_ref()),
        parameters: Parameters {
            temperature: body.temperature,
            top_p: body.top_p,
            max_tokens: body.max_completion_tokens.or(body.max_tokens),
            stop: match body.stop {
                Some(Value::String(text)) => vec![text],
                Some(Value::Array(texts)) => texts
                    .iter()
                    .filter_map(Value::as_str)
                    .map(str::to_owned)
                    .collect(),
                _ => Vec::new(),
            },
        },
    }
}

/// What a `tool_choice` of OpenAI's formats says.
pub(super) fn choice_from_wire(choice: Option<&Value>) -> ToolChoice {
    match choice {
        Some(Value::String(word)) if word == "none" => ToolChoice::None,
        Some(Value::String(word)) if word == "auto" => ToolChoice::Auto,
        Some(_) => ToolChoice::Required,
        None => ToolChoice::Auto,
    }
}

fn call_from_wire(call: wire::ToolCall) -> ToolCall {
    let function = call.function.unwrap_or_default();
    ToolCall {
        signature: signature_from_wire(&call.extra),
        id: call.id.unwrap_or_default(),
        name: function.name.unwrap_or_default(),
        arguments: normalise_arguments(function.arguments.unwrap_or_default()),
    }
}

/// The tool that the call `id` of an earlier message called.
pub(super) fn name_of_call(messages: &[Message], id: &str) -> Option<String> {
    let calls = messages.iter().rev().flat_map(|message| &message.tool_calls);
    calls
        .into_iter()
        .find(|call| call.id == id)
        .map(|call| call.name.clone())
}

/// Token counts in the neutral form.
pub(crate) fn usage_from_wire(usage: &wire::Usage) -> Usage {
    Usage {
        input_tokens: usage.prompt_tokens,
        output_tokens: usage.completion_tokens,
        cached_tokens: usage
            .prompt_tokens_details
            .as_ref()
            .map_or(0, |details| details.cached_tokens),
    }
}

/// Token counts on the wire.
pub(crate) fn usage_to_wire(usage: Usage) -> wire::Usage {
    wire::Usage {
        prompt_tokens: usage.input_tokens,
        completion_tokens: usage.output_tokens,
        total_tokens: usage.input_tokens.saturating_add(usage.output_tokens),
        prompt_tokens_details: Some(wire::PromptTokensDetails {
            cached_tokens: usage.cached_tokens,
            ..wire::PromptTokensDetails::default()
        }),
        extra: Map::new(),
    }
}

/// The word for `finish_reason` on the wire.
pub(crate) fn finish_to_wire(finish: FinishReason) -> &'static str {
    match finish {
        FinishReason::ToolCalls => "tool_calls",
        FinishReason::Incomplete => "length",
        FinishReason::Refused => "content_filter",
        FinishReason::Completed | FinishReason::Failed | FinishReason::Unknown => "stop",
    }
}

/// Turns the chunks of one streamed answer into events. A plain answer is read as one chunk.
///
/// Chunks before the first piece of content (the role, a filter's verdict on the prompt) show
/// nothing, so that an answer that fails right after them can still be asked for again (OR-216).
#[derive(Debug, Default)]
pub(crate) struct AnswerReader {
    started: bool,
    // A choice was there, if only an empty one.
    any_choice: bool,
    // The newest chunk has token counts and no choice, which only comes behind an answer.
    counted: bool,
    calls: ToolCallAccumulator,
    finish_word: Option<String>,
    refused: bool,
    usage: Option<Usage>,
}

impl AnswerReader {
    /// The events of the next chunk.
    ///
    /// # Errors
    /// [`TooMuch`] when the answer's tool calls exceed what is kept of one answer.
    pub(crate) fn push(&mut self, chunk: wire::ChatChunk) -> Result<Vec<ModelEvent>, TooMuch> {
        let mut events = Vec::new();
        if !self.started && carries_token(&chunk) {
            self.started = true;
            events.push(ModelEvent::Started);
        }
        self.counted = chunk.choices.is_empty() && chunk.usage.is_some();
        if let Some(usage) = &chunk.usage {
            // Some servers send running counts with each chunk; the last ones count.
            self.usage = Some(usage_from_wire(usage));
        }
        for choice in chunk.choices.into_iter().filter(|choice| choice.index == 0) {
            self.any_choice = true;
            let delta = choice.delta;
            let thinking = delta.reasoning_content.or(match delta.reasoning {
                Some(Value::String(text)) => Some(text),
                _ => None,
            });
            if let Some(text) = thinking.filter(|text| !text.is_empty()) {
                events.push(ModelEvent::Thinking(text));
            }
            let text = delta.content.map(wire::Content::into_text).unwrap_or_default();
            if !text.is_empty() {
                events.push(ModelEvent::Text(text));
            }
            if let Some(text) = delta.refusal.filter(|text| !text.is_empty()) {
                self.refused = true;
                events.push(ModelEvent::Text(text));
            }
            for fragment in delta.tool_calls.into_iter().flatten() {
                self.calls.push(fragment)?;
            }
            if let Some(function) = delta.function_call {
                self.calls.push(wire::ToolCall {
                    index: Some(0),
                    function: Some(function),
                    ..wire::ToolCall::default()
                })?;
            }
            if let Some(word) = choice.finish_reason.filter(|word| !word.is_empty()) {
                self.finish_word = Some(word);
            }
        }
        Ok(events)
    }

    /// Whether the provider said why the answer ended; what may still come is token counts.
    pub(crate) fn has_finish_reason(&self) -> bool {
        self.finish_word.is_some()
    }

    /// The last events. Called once, at the end of the stream, so that the turn ends once whatever
    /// the server left out (D10).
    pub(crate) fn finish(self, random: &dyn Random) -> Vec<ModelEvent> {
        let mut events = Vec::new();
        if !self.started {
            events.push(ModelEvent::Started);
        }
        let calls = self.calls.finish(random);
        let mut finish = FinishReason::normalise(self.finish_word.as_deref(), !calls.is_empty());
        if self.refused && finish == FinishReason::Completed {
            finish = FinishReason::Refused;
        }
        events.extend(calls.into_iter().map(ModelEvent::ToolCall));
        events.extend(self.usage.map(ModelEvent::Usage));
        events.push(ModelEvent::Finished(finish));
        events
    }
}

impl Reader for AnswerReader {
    fn event(&mut self, _name: &str, data: Value) -> Result<Progress, ReadError> {
        let chunk: wire::ChatChunk = serde_json::from_value(data)
            .map_err(|error| ReadError::unreadable("an event of the stream is not a chunk", &error))?;
        let token = carries_token(&chunk);
        Ok(Progress {
            events: self.push(chunk)?,
            token,
            done: false,
        })
    }

    fn plain(&mut self, body: Value) -> Result<Vec<ModelEvent>, ReadError> {
        let response = serde_json::from_value(body)
            .map_err(|error| ReadError::unreadable("the answer is not a chat completion", &error))?;
        let events = self.push(response_as_chunk(response))?;
        if !self.any_choice {
            return Err(ReadError::Unreadable(
                "the answer is not a chat completion: it has no choice".to_owned(),
            ));
        }
        Ok(events)
    }

    fn is_complete(&self) -> bool {
        self.has_finish_reason()
    }

    // Servers leave out the finish reason or `[DONE]` (D10), and some send only the token counts as
    // their end. Where all of it is missing the connection was cut: nothing else tells.
    fn ending(&self, marked: bool) -> Ending {
        if !self.any_choice {
            Ending::Nothing
        } else if marked || self.counted || self.has_finish_reason() {
            Ending::Complete
        } else {
            Ending::Cut
        }
    }

    fn finish(self: Box<Self>, random: &dyn Random) -> Vec<ModelEvent> {
        AnswerReader::finish(*self, random)
    }
}

/// Whether a chunk brings the answer forward; chunks that only keep the connection busy do not
/// (OM-371).
pub(crate) fn carries_token(chunk: &wire::ChatChunk) -> bool {
    chunk.usage.is_some()
        || chunk.choices.iter().any(|choice| {
            let delta = &choice.delta;
            let text = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
            choice.finish_reason.is_some()
                || text(&delta.reasoning_content)
                || text(&delta.refusal)
                || delta
                    .reasoning
                    .as_ref()
                    .and_then(Value::as_str)
                    .is_some_and(|text| !text.is_empty())
                || delta.tool_calls.as_ref().is_some_and(|calls| !calls.is_empty())
                || delta.function_call.is_some()
                || match &delta.content {
                    Some(wire::Content::Text(text)) => !text.is_empty(),
                    Some(wire::Content::Parts(parts)) => !parts.is_empty(),
                    None => false,
                }
        })
}

/// A plain answer as the one chunk that says the same.
pub(crate) fn response_as_chunk(response: wire::ChatResponse) -> wire::ChatChunk {
    wire::ChatChunk {
        id: response.id,
        object: response.object,
        created: response.created,
        model: response.model,
        choices: response
            .choices
            .into_iter()
            .map(|choice| wire::ChunkChoice {
                index: choice.index,
                delta: wire::ChunkDelta {
                    role: Some(choice.message.role),
                    content: choice.message.content,
                    refusal: choice.message.refusal,
                    reasoning_content: choice.message.reasoning_content,
                    reasoning: choice.message.reasoning,
                    // Complete calls must not be taken for fragments of each other.
                    tool_calls: choice.message.tool_calls.map(|calls| {
                        let numbered = calls.into_iter().zip(0..);
                        numbered
                            .map(|(call, index)| wire::ToolCall {
                                index: Some(index),
                                ..call
                            })
                            .collect()
                    }),
                    function_call: choice.message.function_call,
                    extra: Map::new(),
                },
                finish_reason: choice.finish_reason,
                extra: Map::new(),
            })
            .collect(),
        usage: response.usage,
        extra: response.extra,
    }
}

#[cfg(test)]
mod tests;
