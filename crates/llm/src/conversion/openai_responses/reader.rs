//! Reads the answers of OpenAI Responses, streamed or plain.

use std::collections::{BTreeMap, BTreeSet};

use mainstay_telemetry::random::Random;
use serde_json::Value;

use super::usage_from_wire;
use crate::{
    conversion::{
        reader::{Ending, Progress, ReadError, Reader},
        tool_calls::{MAX_ARGUMENT_BYTES, MAX_CALLS, TooMuch, normalise_arguments},
    },
    event::{FinishReason, ModelEvent, Usage},
    message::ToolCall,
    types::openai_responses as wire,
};

// What is read of a stream. Everything else (`response.in_progress`, parts, what the provider's own
// tools do, what is new) is passed over unread, whatever its form.
const KNOWN: &[&str] = &[
    "response.output_text.delta",
    "response.output_text.done",
    "response.refusal.delta",
    "response.refusal.done",
    "response.reasoning_summary_text.delta",
    "response.reasoning_text.delta",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.output_item.added",
    "response.output_item.done",
    "response.completed",
    "response.incomplete",
    "response.failed",
    "response.cancelled",
    "response.canceled",
];

#[derive(Debug, Default)]
struct PartialCall {
    id: String,
    name: String,
    arguments: String,
}

/// Turns the events of one answer into [`ModelEvent`]s.
///
/// Text and arguments come three times over: as deltas, in a `done` event, and in the finished item.
/// Deltas are shown as they come; the later forms only fill what the deltas left out, since servers
/// differ in which of them they send. The events before the first content (`response.created`, …)
/// show nothing, so that an answer that fails right after them can still be asked for again (OR-216).
#[derive(Debug, Default)]
pub(crate) struct AnswerReader {
    started: bool,
    anything: bool,
    // Parts whose text was shown already, by item and part.
    shown: BTreeSet<(u64, &'static str, u64)>,
    calls: BTreeMap<u64, PartialCall>,
    refused: bool,
    finish: Option<FinishWord>,
    usage: Option<Usage>,
}

#[derive(Debug)]
struct FinishWord {
    status: String,
    reason: Option<String>,
}

impl AnswerReader {
    fn show(&mut self, events: &mut Vec<ModelEvent>, event: ModelEvent) {
        if !std::mem::replace(&mut self.started, true) {
            events.push(ModelEvent::Started);
        }
        events.push(event);
    }

    fn text(
        &mut self,
        events: &mut Vec<ModelEvent>,
        place: (u64, &'static str, u64),
        text: Option<String>,
        whole: bool,
    ) {
        let Some(text) = text.filter(|text| !text.is_empty()) else {
            return;
        };
        let (_, kind, _) = place;
        if !self.shown.insert(place) && whole {
            return;
        }
        let event = match kind {
            "thinking" => ModelEvent::Thinking(text),
            "refusal" => {
                self.refused = true;
                ModelEvent::Text(text)
            }
            _ => ModelEvent::Text(text),
        };
        self.show(events, event);
    }

    fn call(&mut self, index: u64) -> Result<&mut PartialCall, TooMuch> {
        if self.calls.len() >= MAX_CALLS && !self.calls.contains_key(&index) {
            return Err(TooMuch::Calls);
        }
        Ok(self.calls.entry(index).or_default())
    }

    fn arguments(&mut self, index: u64, text: &str, whole: bool) -> Result<(), TooMuch> {
        let call = self.call(index)?;
        if whole && text.is_empty() {
            return Ok(());
        }
        if whole {
            call.arguments.clear();
        }
        if call.arguments.len() + text.len() > MAX_ARGUMENT_BYTES {
            return Err(TooMuch::Arguments {
                name: mainstay_telemetry::text::escape(&call.name, 64),
            });
        }
        call.arguments.push_str(text);
        Ok(())
    }

    /// Takes an item: at its start only what names a call, at its end also what was not streamed.
    fn item(
        &mut self,
        events: &mut Vec<ModelEvent>,
        index: u64,
        item: wire::Item,
        complete: bool,
    ) -> Result<(), TooMuch> {
        match item {
            wire::Item::FunctionCall(item) => {
                let call = self.call(index)?;
                // The item's own id stands in where a server sends no other.
                let id = if item.call_id.is_empty() {
                    item.id.unwrap_or_default()
                } else {
                    item.call_id
                };
                if !id.is_empty() {
                    call.id = id;
                }
                if !item.name.is_empty() {
                    call.name = item.name;
                }
                self.arguments(index, &item.arguments, true)?;
            }
            wire::Item::Message(message) if complete => {
                let parts = match message.content {
                    wire::Content::Text(text) => vec![super::part("output_text", &text)],
                    wire::Content::Parts(parts) => parts,
                };
                for (place, part) in (0_u64..).zip(parts) {
                    self.text(events, (index, "refusal", place), part.refusal, true);
                    self.text(events, (index, "text", place), part.text, true);
                }
            }
            wire::Item::Reasoning(item) if complete => {
                let parts = item.summary.into_iter().chain(item.content.unwrap_or_default());
                // Deltas of thoughts are not told apart by part: any that were shown are all of them.
                let whole: String = parts.filter_map(|part| part.text).collect();
                self.text(events, (index, "thinking", 0), Some(whole), true);
            }
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, word: &str, response: Option<wire::ResponseObject>) -> Vec<ModelEvent> {
        let response = response.unwrap_or_default();
        if let Some(usage) = &response.usage {
            self.usage = Some(usage_from_wire(usage));
        }
        self.finish = Some(FinishWord {
            status: response.status.unwrap_or_else(|| word.to_owned()),
            reason: response.incomplete_details.and_then(|details| details.reason),
        });
        Vec::new()
    }
}

impl Reader for AnswerReader {
    fn event(&mut self, name: &str, data: Value) -> Result<Progress, ReadError> {
        let kind = data
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or(name)
            .to_owned();
        self.anything |= kind.starts_with("response.");
        if !KNOWN.contains(&kind.as_str()) {
            return Ok(Progress {
                token: kind == "response.created",
                ..Progress::default()
            });
        }
        let event: wire::StreamEvent = serde_json::from_value(data)
            .map_err(|error| ReadError::unreadable("an event of the stream is not an event", &error))?;
        let index = event.output_index.unwrap_or(0);
        let part = event.content_index.unwrap_or(0);
        let delta = match event.delta {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        let mut events = Vec::new();
        let mut done = false;
        match kind.as_str() {
            "response.output_text.delta" => self.text(&mut events, (index, "text", part), delta, false),
            "response.output_text.done" => self.text(&mut events, (index, "text", part), event.text, true),
            "response.refusal.delta" => self.text(&mut events, (index, "refusal", part), delta, false),
            "response.refusal.done" => self.text(&mut events, (index, "refusal", part), event.refusal, true),
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.text(&mut events, (index, "thinking", 0), delta, false);
            }
            "response.function_call_arguments.delta" => {
                self.arguments(index, &delta.unwrap_or_default(), false)?;
            }
            "response.function_call_arguments.done" => {
                self.arguments(index, &event.arguments.unwrap_or_default(), true)?;
            }
            "response.output_item.added" | "response.output_item.done" => {
                if let Some(item) = event.item {
                    self.item(&mut events, index, item, kind.ends_with(".done"))?;
                }
            }
            "response.completed"
            | "response.incomplete"
            | "response.failed"
            | "response.cancelled"
            | "response.canceled" => {
                events = self.end(&kind, event.response);
                done = true;
            }
            _ => {}
        }
        if !self.started && !self.calls.is_empty() {
            self.started = true;
            events.insert(0, ModelEvent::Started);
        }
        Ok(Progress {
            events,
            token: true,
            done,
        })
    }

    fn plain(&mut self, body: Value) -> Result<Vec<ModelEvent>, ReadError> {
        let mut response: wire::ResponseObject = serde_json::from_value(body)
            .map_err(|error| ReadError::unreadable("the answer is not a response", &error))?;
        match response.status.as_deref() {
            None if response.object != "response" && response.output.is_empty() => {
                return Err(ReadError::Unreadable(
                    "the answer is not a response: it has neither a status nor output".to_owned(),
                ));
            }
            Some(status @ ("in_progress" | "queued")) => {
                return Err(ReadError::Unreadable(format!(
                    "the answer is not there yet: its status is `{status}`"
                )));
            }
            _ => {}
        }
        let mut events = Vec::new();
        for (index, item) in (0_u64..).zip(std::mem::take(&mut response.output)) {
            self.item(&mut events, index, item, true)?;
        }
        self.end("completed", Some(response));
        Ok(events)
    }

    fn is_complete(&self) -> bool {
        self.finish.is_some()
    }

    // `[DONE]` is not of this format; proxies add it also where the answer broke off.
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
        let mut events = Vec::new();
        if !self.started {
            events.push(ModelEvent::Started);
        }
        let calls: Vec<ToolCall> = std::mem::take(&mut self.calls)
            .into_values()
            .filter(|call| !call.name.is_empty())
            .map(|call| ToolCall {
                id: if call.id.is_empty() {
                    format!("call_{}", random.suffix(24))
                } else {
                    call.id
                },
                name: call.name,
                arguments: normalise_arguments(call.arguments),
                signature: None,
            })
            .collect();
        let word = self.finish.as_ref().map(|finish| finish.status.as_str());
        let mut finish = FinishReason::normalise(word, !calls.is_empty());
        let reason = self.finish.as_ref().and_then(|finish| finish.reason.as_deref());
        let filtered = finish == FinishReason::Incomplete && reason == Some("content_filter");
        if filtered || (self.refused && finish == FinishReason::Completed) {
            finish = FinishReason::Refused;
        }
        events.extend(calls.into_iter().map(ModelEvent::ToolCall));
        events.extend(self.usage.map(ModelEvent::Usage));
        events.push(ModelEvent::Finished(finish));
        events
    }
}

#[cfg(test)]
mod tests;
