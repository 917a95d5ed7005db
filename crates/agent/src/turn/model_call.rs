//! One call of the model, from `model.started` to what it said.

mod observed;
mod spending;

use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use mainstay_llm::{
    CallEvent, FinishReason, Message, ModelError, ModelErrorKind, ModelEvent, Parameters, Request,
    SignedThought, ToolCall, ToolChoice, Usage,
};

use self::observed::{Answering, Observed};
use super::driver::{Driver, Interrupt};
use super::end::End;
use super::machine::{Input, Remedy};
use crate::event::{ModelDone, ModelFailed, ModelStarted, Payload, RecordedCall, UsageRecord, UsedGuardrail};
use crate::history;
use crate::journal::JournalError;
use crate::model_entry::ModelEntry;
use crate::pack::Direction;

/// What an attempt has said so far.
#[derive(Default)]
struct Said {
    text: String,
    thoughts: Vec<SignedThought>,
    calls: Vec<ToolCall>,
    usage: Option<Usage>,
    finish: Option<FinishReason>,
    /// Bytes of text, reasoning and calls; `None` until the provider sends the first event, by which it has taken the
    /// request.
    answered: Option<usize>,
}

/// How an attempt ended.
enum Outcome {
    Complete,
    Failed(ModelError),
    Interrupted(Interrupt),
}

impl Driver {
    /// Asks the model. What it said is pending when this returns: it is stored together with what follows
    /// from it.
    pub(super) async fn call_model(
        &mut self,
        attempt: u32,
        round: u32,
        remedy: Option<Remedy>,
    ) -> Result<Input, JournalError> {
        let entry = self.shared.model.clone();
        let request = self.request(round, remedy);
        let spending = match self.put_aside(&entry, &request).await {
            Ok(spending) => spending,
            Err(end) => return Ok(Input::Interrupted(end)),
        };
        self.pending.payloads.push(Payload::ModelStarted(ModelStarted {
            attempt,
            round,
            provider: entry.name.clone(),
            model: entry.model_name.clone(),
        }));
        self.flush().await?;

        let now = self.shared.options.clock.now();
        self.hub.begin_attempt(&self.turn, attempt, now);
        let withhold = self.pack.guardrails.covers(Direction::Output);
        let mut said = Said::default();
        let observed = Observed::default();
        let begun = {
            let mut call = pin!(entry.model.stream_observed(request, &observed));
            loop {
                tokio::select! {
                    biased;
                    // Whoever listens is told at once why nothing of the answer comes yet.
                    () = observed.told() => {
                        self.tell(attempt, observed.take());
                        self.flush().await?;
                    }
                    begun = self.uninterrupted(&mut call) => break begun,
                }
            }
        };
        // What happened before the answer is shown before it.
        self.tell(attempt, observed.take());
        let answering = self.answering(observed.answering());
        let outcome = match begun {
            Ok(Ok(stream)) => {
                self.flush().await?;
                self.listen(&answering.entry, stream, withhold, &mut said).await
            }
            Ok(Err(error)) => Outcome::Failed(error),
            Err(interrupt) => Outcome::Interrupted(interrupt),
        };
        let usage = said.usage;
        let answered = said.answered;
        let ended = match &outcome {
            Outcome::Complete => "completed",
            Outcome::Failed(_) => "failed",
            Outcome::Interrupted(_) => "interrupted",
        };
        let metrics = &self.shared.options.metrics;
        metrics.model_call_ended(entry.model.service(), ended);
        let input = match outcome {
            Outcome::Complete => self.complete(attempt, round, withhold, said, &answering),
            Outcome::Failed(error) => {
                self.failed(
                    attempt,
                    said.text,
                    error.reason(),
                    &error.to_string(),
                    error.status,
                );
                let too_long = error.kind == ModelErrorKind::ContextTooLong;
                Input::ModelFailed {
                    remedy: too_long.then_some(Remedy::Halve),
                    end: End::model_failed(&error),
                }
            }
            Outcome::Interrupted(interrupt) => {
                let end = self.end_of(interrupt);
                match interrupt {
                    // `turn.cancelled` carries the text.
                    Interrupt::Cancelled => self.answer = said.text,
                    Interrupt::OutOfTime => {
                        let message = "the turn ran out of time";
                        self.failed(attempt, said.text, "TurnDeadlineExceeded", message, None);
                    }
                }
                Input::Interrupted(end)
            }
        };
        self.account(attempt, usage, &answering);
        self.settle(spending, usage, answered, &entry, &answering.entry)
            .await;
        Ok(input)
    }

    /// Keeps what is to be stored of the way to the answer.
    fn tell(&mut self, attempt: u32, happened: Vec<CallEvent>) {
        let payloads = happened
            .into_iter()
            .filter_map(|event| observed::payload(attempt, event));
        self.pending.payloads.extend(payloads);
    }

    /// Whose answer it is: by the prices of that provider it is paid.
    fn answering(&self, answered: Option<(String, String)>) -> Answering {
        let Some((provider, model)) = answered else {
            return Answering::of(&self.shared.model);
        };
        let mut answering = Answering::of(self.shared.entry(&provider));
        answering.provider = provider;
        if !model.is_empty() {
            answering.model = model;
        }
        answering
    }

    fn request(&mut self, round: u32, remedy: Option<Remedy>) -> Request {
        let entry = &self.shared.model;
        let prompt = &self.pack.prompt;
        let wanted = match prompt.model_overrides.get(&entry.model_name) {
            Some(over) => prompt.parameters.overridden_by(&over.parameters),
            None => prompt.parameters,
        };
        let model = entry.model_name.clone();
        let tool_choice = match remedy {
            // They stay described: a provider refuses calls and results in the conversation whose tools it does not know.
            Some(Remedy::WithoutTools) => ToolChoice::None,
            _ => self.surface.choice(round),
        };
        let fixed = self.fixed_tokens();
        Request {
            model,
            system: Arc::clone(&self.system),
            messages: self.conversation(remedy == Some(Remedy::Halve), fixed).into(),
            tools: self.surface.descriptors(),
            tool_choice,
            response_format: self.pack.guardrails.answer_format(),
            parameters: Parameters {
                temperature: wanted.temperature,
                top_p: wanted.top_p,
                max_tokens: wanted.max_tokens,
                stop: Vec::new(),
            },
        }
    }

    /// Estimated tokens of what every request of the turn has beside the conversation.
    fn fixed_tokens(&self) -> u64 {
        history::tokens(self.system.len() + self.surface.bytes())
    }

    /// Reads the stream to its end, showing text as it comes unless guardrails have to see it first.
    async fn listen(
        &self,
        entry: &ModelEntry,
        mut stream: mainstay_llm::ModelStream,
        withhold: bool,
        said: &mut Said,
    ) -> Outcome {
        loop {
            // The stream itself ends when its provider is silent for too long (OM-371): it alone sees tokens that
            // make no event yet.
            let event = match self.uninterrupted(stream.next()).await {
                Err(interrupt) => return Outcome::Interrupted(interrupt),
                Ok(None) => {
                    let message = "the stream ended without saying that it is complete";
                    return Outcome::Failed(ModelError::new(&entry.name, ModelErrorKind::Protocol, message));
                }
                Ok(Some(Err(error))) => return Outcome::Failed(error),
                Ok(Some(Ok(event))) => event,
            };
            *said.answered.get_or_insert_default() += history::bytes_of_event(&event);
            match event {
                ModelEvent::Started | ModelEvent::Thinking(_) => {}
                ModelEvent::Text(text) => {
                    said.text.push_str(&text);
                    if !withhold {
                        self.hub.delta(&text, self.shared.options.clock.now());
                    }
                    let limit = self.shared.options.limits.answer_bytes;
                    if said.text.len() > limit {
                        let message = format!("the answer is longer than {limit} bytes");
                        return Outcome::Failed(ModelError::new(
                            &entry.name,
                            ModelErrorKind::Protocol,
                            message,
                        ));
                    }
                }
                ModelEvent::Thought(thought) => said.thoughts.push(thought),
                ModelEvent::ToolCall(call) => said.calls.push(call),
                ModelEvent::Usage(usage) => said.usage = Some(usage),
                ModelEvent::Finished(reason) => {
                    said.finish = Some(reason);
                    return Outcome::Complete;
                }
            }
        }
    }

    fn complete(
        &mut self,
        attempt: u32,
        round: u32,
        withhold: bool,
        said: Said,
        answering: &Answering,
    ) -> Input {
        let finish = said.finish.unwrap_or(FinishReason::Unknown);
        let verdict = self.pack.guardrails.check(Direction::Output, &said.text);
        let stopped = verdict.stops();
        let guardrails: Vec<UsedGuardrail> = verdict
            .violations
            .into_iter()
            .map(|violation| UsedGuardrail {
                validator: violation.validator,
                reason: violation.reason,
                stopped: violation.stops,
            })
            .collect();
        let text = verdict.text;
        let called = self.told_apart(said.calls);
        let calls: Vec<RecordedCall> = called.iter().map(recorded).collect();
        let nothing = text.is_empty() && calls.is_empty();
        // A guardrail that emptied the text has had its say; that is no blank answer.
        let nothing = nothing && guardrails.is_empty();
        let failure = match finish {
            FinishReason::Failed => Some(("ModelFailed", "the provider gave up on the answer")),
            FinishReason::Refused if nothing => Some(("ModelRefused", "the model refused to answer")),
            FinishReason::Incomplete if nothing => Some((
                "ModelEmptyAnswer",
                "the answer reached its length limit before it said anything",
            )),
            _ if nothing => Some(("ModelEmptyAnswer", "the model answered nothing")),
            _ => None,
        };
        if let Some((reason, message)) = failure {
            self.failed(attempt, text, reason, message, None);
            // Models that have just used a tool, or thought for long, sometimes say nothing: asked once more, they do.
            let blank = reason == "ModelEmptyAnswer";
            return Input::ModelFailed {
                remedy: blank.then_some(Remedy::WithoutTools),
                end: End::failed(reason, message),
            };
        }
        if withhold && !text.is_empty() {
            self.hub.delta(&text, self.shared.options.clock.now());
        }
        self.pending.payloads.push(Payload::ModelDone(ModelDone {
            attempt,
            round,
            text: text.clone(),
            tool_calls: calls.clone(),
            finish: word(finish).to_owned(),
            guardrails,
        }));
        self.answer.clone_from(&text);
        if !calls.is_empty() && !stopped {
            let message_id = self.shared.options.random.uuid().to_string();
            let message = Message {
                thoughts: said.thoughts,
                author: Some(answering.provider.clone()),
                ..Message::assistant(text, called)
            };
            self.remember(message_id, message);
        }
        Input::Answered { calls, stopped }
    }

    /// Gives every call an id of its own. Some servers send none, or the same one in every answer, and a
    /// result could not be told from another then.
    fn told_apart(&mut self, mut calls: Vec<ToolCall>) -> Vec<ToolCall> {
        for call in &mut calls {
            while call.id.is_empty() || !self.call_ids.insert(call.id.clone()) {
                call.id = format!("call_{}", self.shared.options.random.suffix(16));
            }
        }
        calls
    }

    fn failed(&mut self, attempt: u32, text: String, reason: &str, message: &str, status: Option<u16>) {
        self.pending.payloads.push(Payload::ModelFailed(ModelFailed {
            attempt,
            text,
            reason: reason.to_owned(),
            message: message.to_owned(),
            status,
        }));
    }

    /// Usage counts whatever became of the attempt: it is paid for, at the prices of the provider that answered.
    fn account(&mut self, attempt: u32, usage: Option<Usage>, answering: &Answering) {
        let Some(usage) = usage else { return };
        let cost_usd = answering.entry.prices.cost(&usage);
        self.totals.input_tokens += usage.input_tokens;
        self.totals.output_tokens += usage.output_tokens;
        if let Some(cost) = cost_usd {
            *self.totals.cost_usd.get_or_insert(0.0) += cost;
        }
        self.pending.payloads.push(Payload::Usage(UsageRecord {
            attempt,
            provider: answering.entry.name.clone(),
            model: answering.model.clone(),
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            cached_tokens: usage.cached_tokens,
            cost_usd,
        }));
    }
}

fn recorded(call: &ToolCall) -> RecordedCall {
    RecordedCall {
        id: call.id.clone(),
        name: call.name.clone(),
        arguments: call.arguments.clone(),
    }
}

fn word(finish: FinishReason) -> &'static str {
    match finish {
        FinishReason::Completed => "completed",
        FinishReason::ToolCalls => "tool_calls",
        FinishReason::Incomplete => "incomplete",
        FinishReason::Refused => "refused",
        FinishReason::Failed => "failed",
        FinishReason::Unknown => "unknown",
    }
}
