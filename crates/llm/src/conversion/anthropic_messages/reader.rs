//! Reads the answers of Anthropic Messages, streamed or plain.

use mainstay_telemetry::random::Random;
use serde_json::Value;

use super::{arguments_from_wire, thought_from_wire, usage_from_wire};
use crate::{
    conversion::{
        reader::{Ending, Progress, ReadError, Reader},
        tool_calls::{MAX_ARGUMENT_BYTES, MAX_CALLS, MAX_THOUGHT_BYTES, TooMuch, normalise_arguments},
    },
    event::{FinishReason, ModelEvent},
    message::{SignedThought, ToolCall},
    types::anthropic_messages as wire,
};

// What is read of a stream. Everything else (`ping`, what is new) is passed over unread, whatever its
// form.
const KNOWN: &[&str] = &[
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
];

/// A call whose input is still being sent.
#[derive(Debug)]
struct OpenCall {
    index: Option<u64>,
    id: String,
    name: String,
    // What the block already had at its start; counts where no piece follows.
    given: Value,
    json: String,
}

/// Reasoning that is still being sent.
#[derive(Debug, Default)]
struct OpenThought {
    index: Option<u64>,
    block: wire::ThinkingBlock,
}

/// Turns the events of one answer into [`ModelEvent`]s.
///
/// `message_start` and pings show nothing, so that an answer that fails right after them can still
/// be asked for again (OR-216).
#[derive(Debug, Default)]
pub(crate) struct AnswerReader {
    started: bool,
    anything: bool,
    open: Vec<OpenCall>,
    thought: Option<OpenThought>,
    kept: usize,
    calls: Vec<ToolCall>,
    stop_reason: Option<String>,
    stopped: bool,
    usage: Option<wire::Usage>,
}

impl AnswerReader {
    fn show(&mut self, events: &mut Vec<ModelEvent>, event: Option<ModelEvent>) {
        if !std::mem::replace(&mut self.started, true) {
            events.push(ModelEvent::Started);
        }
        events.extend(event);
    }

    fn start(
        &mut self,
        events: &mut Vec<ModelEvent>,
        index: Option<u64>,
        block: wire::Block,
    ) -> Result<(), TooMuch> {
        match block {
            wire::Block::Text(block) => self.text(events, block.text),
            wire::Block::Thinking(block) => {
                self.settle(events);
                let text = block.thinking.clone();
                self.thought = Some(OpenThought {
                    index,
                    block: wire::ThinkingBlock {
                        thinking: String::new(),
                        ..block
                    },
                });
                self.thinking(events, index, text)?;
            }
            wire::Block::Redacted(block) => {
                self.settle(events);
                self.keep(block.data.len())?;
                self.show(
                    events,
                    Some(ModelEvent::Thought(SignedThought::Redacted { data: block.data })),
                );
            }
            wire::Block::ToolUse(block) => {
                if self.calls.len() + self.open.len() >= MAX_CALLS {
                    return Err(TooMuch::Calls);
                }
                // A block begins where the one before it has ended, also unsaid.
                self.stop(index);
                self.show(events, None);
                self.open.push(OpenCall {
                    index,
                    id: block.id,
                    name: block.name,
                    given: block.input,
                    json: String::new(),
                });
            }
            wire::Block::ToolResult(_) | wire::Block::Other(_) => {}
        }
        Ok(())
    }

    fn text(&mut self, events: &mut Vec<ModelEvent>, text: String) {
        if !text.is_empty() {
            self.show(events, Some(ModelEvent::Text(text)));
        }
    }

    fn thinking(
        &mut self,
        events: &mut Vec<ModelEvent>,
        index: Option<u64>,
        text: String,
    ) -> Result<(), TooMuch> {
        if text.is_empty() {
            return Ok(());
        }
        self.keep(text.len())?;
        if let Some(open) = self.thought.as_mut().filter(|open| open.index == index) {
            open.block.thinking.push_str(&text);
        }
        self.show(events, Some(ModelEvent::Thinking(text)));
        Ok(())
    }

    fn sign(&mut self, index: Option<u64>, signature: Option<String>) -> Result<(), TooMuch> {
        let Some(signature) = signature else { return Ok(()) };
        self.keep(signature.len())?;
        if let Some(open) = self.thought.as_mut().filter(|open| open.index == index) {
            open.block.signature.get_or_insert_default().push_str(&signature);
        }
        Ok(())
    }

    /// Counts what is kept of the reasoning to be sent back.
    fn keep(&mut self, bytes: usize) -> Result<(), TooMuch> {
        self.kept += bytes;
        if self.kept > MAX_THOUGHT_BYTES {
            return Err(TooMuch::Thoughts);
        }
        Ok(())
    }

    /// Completes the reasoning that is open.
    fn settle(&mut self, events: &mut Vec<ModelEvent>) {
        let thought = self.thought.take().and_then(|open| thought_from_wire(open.block));
        if let Some(thought) = thought {
            self.show(events, Some(ModelEvent::Thought(thought)));
        }
    }

    fn piece(&mut self, index: Option<u64>, piece: &str) -> Result<(), TooMuch> {
        let position = match index {
            Some(_) => self.open.iter().rposition(|call| call.index == index),
            None => self.open.len().checked_sub(1),
        };
        let Some(call) = position.and_then(|position| self.open.get_mut(position)) else {
            return Ok(());
        };
        if call.json.len() + piece.len() > MAX_ARGUMENT_BYTES {
            return Err(TooMuch::Arguments {
                name: mainstay_telemetry::text::escape(&call.name, 64),
            });
        }
        call.json.push_str(piece);
        Ok(())
    }

    /// Completes the call of block `index`, or the newest where the event does not say which.
    fn stop(&mut self, index: Option<u64>) {
        let position = match index {
            Some(_) => self.open.iter().rposition(|call| call.index == index),
            None => self.open.len().checked_sub(1),
        };
        if let Some(position) = position {
            let call = self.open.remove(position);
            self.complete(call);
        }
    }

    fn complete(&mut self, call: OpenCall) {
        if call.name.is_empty() {
            return;
        }
        let arguments = if call.json.trim().is_empty() {
            arguments_from_wire(&call.given)
        } else {
            normalise_arguments(call.json)
        };
        self.calls.push(ToolCall::new(call.id, call.name, arguments));
    }

    /// Counts grow in the course of a stream; each event brings some of them.
    fn count(&mut self, new: wire::Usage) {
        let known = self.usage.get_or_insert_default();
        let newest = |known: &mut Option<u64>, new: Option<u64>| {
            if let Some(new) = new {
                *known = Some(known.unwrap_or(0).max(new));
            }
        };
        newest(&mut known.input_tokens, new.input_tokens);
        newest(
            &mut known.cache_creation_input_tokens,
            new.cache_creation_input_tokens,
        );
        newest(&mut known.cache_read_input_tokens, new.cache_read_input_tokens);
        newest(&mut known.output_tokens, new.output_tokens);
    }
}

impl Reader for AnswerReader {
    fn event(&mut self, name: &str, data: Value) -> Result<Progress, ReadError> {
        let kind = data
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or(name)
            .to_owned();
        if !KNOWN.contains(&kind.as_str()) {
            return Ok(Progress::default());
        }
        self.anything = true;
        let event: wire::StreamEvent = serde_json::from_value(data)
            .map_err(|error| ReadError::unreadable("an event of the stream is not an event", &error))?;
        let mut progress = Progress {
            token: true,
            ..Progress::default()
        };
        let events = &mut progress.events;
        match kind.as_str() {
            "message_start" => {
                if let Some(message) = event.message {
                    self.count(message.usage);
                }
            }
            "content_block_start" => {
                if let Some(block) = event.content_block {
                    self.start(events, event.index, block)?;
                }
            }
            "content_block_delta" => {
                let delta = event.delta.unwrap_or_default();
                self.text(events, delta.text.unwrap_or_default());
                self.thinking(events, event.index, delta.thinking.unwrap_or_default())?;
                self.sign(event.index, delta.signature)?;
                self.piece(event.index, &delta.partial_json.unwrap_or_default())?;
            }
            "content_block_stop" => {
                if self
                    .thought
                    .as_ref()
                    .is_some_and(|open| open.index == event.index)
                {
                    self.settle(events);
                }
                self.stop(event.index);
            }
            "message_delta" => {
                if let Some(usage) = event.usage {
                    self.count(usage);
                }
                if let Some(word) = event.delta.and_then(|delta| delta.stop_reason) {
                    self.stop_reason = Some(word);
                }
            }
            "message_stop" => {
                self.stopped = true;
                progress.done = true;
            }
            _ => {}
        }
        Ok(progress)
    }

    fn plain(&mut self, body: Value) -> Result<Vec<ModelEvent>, ReadError> {
        let message: wire::MessageObject = serde_json::from_value(body)
            .map_err(|error| ReadError::unreadable("the answer is not a message", &error))?;
        if message.kind != "message" && message.content.is_empty() {
            return Err(ReadError::Unreadable(
                "the answer is not a message: it has neither that type nor content".to_owned(),
            ));
        }
        let mut events = Vec::new();
        for (index, block) in (0_u64..).zip(message.content) {
            self.start(&mut events, Some(index), block)?;
            self.settle(&mut events);
            self.stop(Some(index));
        }
        self.count(message.usage);
        self.stop_reason = message.stop_reason;
        self.stopped = true;
        Ok(events)
    }

    fn is_complete(&self) -> bool {
        self.stopped || self.stop_reason.is_some()
    }

    // A stop reason comes behind all content, so `message_stop` is not missed after it. `[DONE]` is
    // not of this format.
    fn ending(&self, _marked: bool) -> Ending {
        if self.is_complete() {
            Ending::Complete
        } else if self.anything {
            Ending::Cut
        } else {
            Ending::Nothing
        }
    }

    fn finish(mut self: Box<Self>, random: &dyn Random) -> Vec<ModelEvent> {
        for call in std::mem::take(&mut self.open) {
            self.complete(call);
        }
        let mut events = Vec::new();
        self.settle(&mut events);
        if !self.started {
            events.push(ModelEvent::Started);
        }
        let finish = FinishReason::normalise(self.stop_reason.as_deref(), !self.calls.is_empty());
        events.extend(self.calls.into_iter().map(|mut call| {
            if call.id.is_empty() {
                call.id = format!("toolu_{}", random.suffix(24));
            }
            ModelEvent::ToolCall(call)
        }));
        let usage = self.usage.as_ref().map(usage_from_wire);
        events.extend(usage.map(ModelEvent::Usage));
        events.push(ModelEvent::Finished(finish));
        events
    }
}

#[cfg(test)]
mod tests;
