//! Does what the machine says and stores what happened.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use mainstay_llm::Message as ModelMessage;
use mainstay_telemetry::text::escape;
use serde_json::{Map, Value};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::end::End;
use super::machine::{Action, Bounds, Input, Machine};
use super::recovery::{Next, Progress, Recovered};
use super::surface::Surface;
use crate::engine::Shared;
use crate::event::{
    Message, ModelRestarted, Payload, Totals, TurnCancelled, TurnDone, TurnFailed, TurnStarted,
};
use crate::history;
use crate::hub::{Hub, Running};
use crate::journal::{Entry, HistoryMessage, JournalError};
use crate::pack::{self, Direction};
use crate::pack_source::LoadedPack;
use crate::session::IncomingMessage;

/// Names of unused variables that a turn tells of.
const UNUSED_NAMES: usize = 16;

/// A running turn.
pub(super) struct Driver {
    pub(super) shared: Arc<Shared>,
    pub(super) hub: Arc<Hub>,
    pub(super) pack: Arc<LoadedPack>,
    pub(super) turn: String,
    pub(super) started: TurnStarted,
    pub(super) surface: Surface,
    /// System text of the turn (OM-562).
    pub(super) system: Arc<str>,
    /// The conversation, this turn's part included.
    pub(super) history: Vec<ModelMessage>,
    /// Text of the last complete attempt.
    pub(super) answer: String,
    pub(super) totals: Totals,
    /// Ids of tool calls that are taken in this turn.
    pub(super) call_ids: BTreeSet<String>,
    /// What is to be stored with the next transaction.
    pub(super) pending: Entry,
    /// Tokens of what was sent last, for the one cut of OR-260.
    pub(super) last_estimate: u64,
    /// Whether the session was told in this turn that a budget is exceeded.
    pub(super) told_of_budget: bool,
    machine: Machine,
    first: First,
    cancel: CancellationToken,
    deadline: Instant,
    ceiling: Duration,
}

/// The first step of a driver.
enum First {
    Step(Input),
    Pending(Vec<super::recovery::PendingCall>),
}

/// Why a turn was interrupted while it waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interrupt {
    Cancelled,
    OutOfTime,
}

impl Driver {
    /// Begins a turn: stores it together with its message.
    pub(super) async fn begin(
        shared: Arc<Shared>,
        hub: Arc<Hub>,
        pack: Arc<LoadedPack>,
        turn: String,
        message: IncomingMessage,
    ) -> Result<Self, JournalError> {
        let options = &shared.options;
        if hub.last_seq() == 0 {
            options
                .journal
                .create_session(&hub.key, options.clock.now())
                .await?;
        }
        let ceiling = options.tools.ceiling();
        let unused = unused(&pack, &message.metadata);
        let started = TurnStarted {
            unused,
            pack: pack.reference.clone(),
            prompt: pack.prompt_name.clone(),
            provider: shared.model.name.clone(),
            model: shared.model.model_name.clone(),
            metadata: message.metadata,
            caller: message.caller,
            client_tools: message.client_tools,
            client_key: message.client_key.clone(),
            ceiling_ms: milliseconds(ceiling),
        };
        let message_id = match &message.client_key {
            // The same key gives the same id, so a repetition cannot store the message twice either.
            Some(key) => format!("client/{key}"),
            None => options.random.uuid().to_string(),
        };
        let checked = pack.guardrails.check(Direction::Input, &message.content);
        let history = Self::load(&shared, &hub).await?;
        let mut driver = Self::new(shared, hub, pack, turn, started, Totals::default(), ceiling);
        driver.history = history;
        driver.pending.client_key = message.client_key;
        driver
            .pending
            .payloads
            .push(Payload::TurnStarted(driver.started.clone()));
        driver.pending.payloads.push(Payload::Message(Message {
            message_id: message_id.clone(),
            role: "user".to_owned(),
            content: checked.text.clone(),
        }));
        driver.remember(message_id, ModelMessage::user(checked.text.clone()));
        driver.first = First::Step(if checked.replaced || checked.stops() {
            driver.answer = checked.text;
            Input::Interrupted(End::Answered)
        } else {
            driver.render()
        });
        driver.flush().await?;
        Ok(driver)
    }

    /// Takes up a turn that was found open.
    pub(super) async fn resume(
        shared: Arc<Shared>,
        hub: Arc<Hub>,
        pack: Arc<LoadedPack>,
        turn: String,
        recovered: Recovered,
    ) -> Result<Self, JournalError> {
        // Time during which no process ran does not count, so the turn has its whole ceiling again.
        let ceiling = shared.options.tools.ceiling();
        let limits = shared.options.limits.clone();
        let history = Self::load(&shared, &hub).await?;
        let mut driver = Self::new(
            shared,
            hub,
            pack,
            turn,
            recovered.started,
            recovered.totals,
            ceiling,
        );
        driver.history = history;
        driver.call_ids = recovered.call_ids;
        let (bounds, attempts, rounds, calls) = (
            driver.bounds(),
            recovered.attempts,
            recovered.rounds,
            recovered.calls,
        );
        driver.machine = Machine::resumed(bounds, attempts, rounds, calls);
        let begin = driver.render();
        if recovered.restarts >= limits.restarts {
            if let Next::Tools { pending } = recovered.next {
                let unknown = pending
                    .into_iter()
                    .filter(|call| call.progress != Progress::NotSent);
                unknown.for_each(|call| driver.outcome_unknown(&call.call));
            }
            driver.first = First::Step(Input::Interrupted(End::restarted_too_often(recovered.restarts)));
            return Ok(driver);
        }
        driver.first = match recovered.next {
            Next::Model { void } => {
                if let Some(attempt) = void {
                    driver
                        .pending
                        .payloads
                        .push(Payload::ModelRestarted(ModelRestarted {
                            attempt,
                            reason: "ProcessEnded".to_owned(),
                        }));
                }
                First::Step(begin)
            }
            Next::Answer { text } => {
                driver.answer = text;
                First::Step(Input::Interrupted(End::Answered))
            }
            Next::Tools { pending } => {
                driver.machine = Machine::resumed_in_tools(bounds, attempts, rounds, calls);
                match begin {
                    Input::Begin => First::Pending(pending),
                    failed => First::Step(failed),
                }
            }
        };
        Ok(driver)
    }

    fn new(
        shared: Arc<Shared>,
        hub: Arc<Hub>,
        pack: Arc<LoadedPack>,
        turn: String,
        started: TurnStarted,
        totals: Totals,
        ceiling: Duration,
    ) -> Self {
        let options = &shared.options;
        let surface = Surface::new(
            &pack,
            &shared.model,
            options.tools.tools(),
            options.surface_unlisted_tools,
        );
        let cancel = CancellationToken::new();
        hub.set_running(Some(Running {
            turn: turn.clone(),
            cancel: cancel.clone(),
        }));
        let mut driver = Self {
            shared,
            hub,
            pack,
            turn,
            started,
            surface,
            system: Arc::default(),
            history: Vec::new(),
            answer: String::new(),
            totals,
            call_ids: BTreeSet::new(),
            pending: Entry::default(),
            last_estimate: 0,
            told_of_budget: false,
            machine: Machine::new(Bounds {
                rounds: 0,
                calls: None,
            }),
            first: First::Step(Input::Begin),
            cancel,
            deadline: Instant::now() + ceiling,
            ceiling,
        };
        driver.machine = Machine::new(driver.bounds());
        driver
    }

    async fn load(shared: &Shared, hub: &Hub) -> Result<Vec<ModelMessage>, JournalError> {
        let limit = shared.options.limits.history_messages;
        let stored = shared.options.journal.messages(&hub.key, limit).await?;
        Ok(stored.into_iter().map(|stored| stored.message).collect())
    }

    fn bounds(&self) -> Bounds {
        let policy = &self.pack.prompt.tool_policy;
        Bounds {
            rounds: policy
                .max_rounds
                .unwrap_or(self.shared.options.limits.tool_rounds),
            calls: policy.max_tool_calls_per_turn,
        }
    }

    /// Renders the system text; a text that cannot be rendered never reaches a model (OM-562).
    fn render(&mut self) -> Input {
        let pack = &self.pack;
        match pack::render(
            &pack.pack,
            &pack.prompt,
            &self.shared.model.model_name,
            &self.started.metadata,
        ) {
            Ok(system) => {
                self.system = system.into();
                Input::Begin
            }
            Err(error) => Input::Interrupted(End::not_rendered(&error)),
        }
    }

    /// Runs the turn to its end. A turn that cannot be stored is suspended: it stays open in the store.
    pub(super) async fn run(mut self) {
        if let Err(error) = self.steps().await {
            tracing::error!(turn = self.turn, session = self.hub.key.session, %error, "a turn cannot be stored");
            self.hub.suspend(&self.turn);
        }
    }

    async fn steps(&mut self) -> Result<(), JournalError> {
        let mut input = match std::mem::replace(&mut self.first, First::Step(Input::Begin)) {
            First::Step(input) => input,
            First::Pending(pending) => self.finish_calls(pending).await?,
        };
        // An input without meaning here would leave the turn without a next step.
        while let Some(action) = self.machine.step(input) {
            input = match action {
                Action::CallModel {
                    attempt,
                    round,
                    remedy,
                } => self.call_model(attempt, round, remedy).await?,
                Action::RunTools { calls, refused, .. } => self.run_tools(calls, refused).await?,
                Action::Finish(end) => return self.finish(end).await,
            };
        }
        self.finish(End::failed("InternalError", "the turn lost its way"))
            .await
    }

    async fn finish(&mut self, end: End) -> Result<(), JournalError> {
        self.totals.rounds = self.machine.rounds();
        self.totals.tool_calls = self.machine.calls();
        match end {
            End::Answered => {
                let message_id = self.shared.options.random.uuid().to_string();
                self.pending.payloads.push(Payload::Message(Message {
                    message_id: message_id.clone(),
                    role: "assistant".to_owned(),
                    content: self.answer.clone(),
                }));
                let answer = ModelMessage::assistant(self.answer.clone(), Vec::new());
                self.remember(message_id.clone(), answer);
                let done = TurnDone {
                    message_id,
                    totals: self.totals,
                };
                self.pending.payloads.push(Payload::TurnDone(done));
            }
            End::Failed(failed) => {
                let TurnFailed { reason, message, .. } = &failed;
                tracing::warn!(
                    turn = self.turn,
                    session = self.hub.key.session,
                    reason,
                    message,
                    "a turn failed"
                );
                self.pending.payloads.push(Payload::TurnFailed(failed));
            }
            End::Cancelled { reason } => {
                let text = std::mem::take(&mut self.answer);
                self.pending
                    .payloads
                    .push(Payload::TurnCancelled(TurnCancelled { reason, text }));
            }
        }
        let outcome = self.pending.payloads.last().map(Payload::kind);
        self.flush().await?;
        if let Some(outcome) = outcome {
            self.shared.options.metrics.turn_ended(outcome);
        }
        Ok(())
    }

    /// Stores what is pending in one transaction, then shows it.
    pub(super) async fn flush(&mut self) -> Result<(), JournalError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let entry = std::mem::take(&mut self.pending);
        let options = &self.shared.options;
        let events = options
            .journal
            .append(&self.hub.key, &self.turn, options.clock.now(), entry)
            .await?;
        self.hub.publish(events);
        Ok(())
    }

    /// Adds a message to the conversation and to the next transaction.
    pub(super) fn remember(&mut self, message_id: String, message: ModelMessage) {
        self.history.push(message.clone());
        self.pending.messages.push(HistoryMessage { message_id, message });
    }

    /// Waits for a future, unless the turn is cancelled or out of time first.
    pub(super) async fn uninterrupted<T>(&self, future: impl Future<Output = T>) -> Result<T, Interrupt> {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(Interrupt::Cancelled),
            () = tokio::time::sleep_until(self.deadline) => Err(Interrupt::OutOfTime),
            value = future => Ok(value),
        }
    }

    pub(super) fn end_of(&self, interrupt: Interrupt) -> End {
        match interrupt {
            Interrupt::Cancelled => End::cancelled("requested"),
            Interrupt::OutOfTime => End::out_of_time(self.ceiling),
        }
    }

    /// The conversation as it may be sent: repaired, and within the model's window (OR-260).
    pub(super) fn conversation(&mut self, halve: bool, fixed: u64) -> Vec<ModelMessage> {
        let messages = history::repair(self.history.clone());
        let entry = &self.shared.model;
        let budget = match (halve, entry.context_window) {
            (true, _) => Some(self.last_estimate / 2),
            (false, window) => window.map(|window| window.saturating_sub(entry.answer_reserve + fixed)),
        };
        let messages = match budget {
            Some(budget) => history::fit(messages, budget),
            None => messages,
        };
        self.last_estimate = messages.iter().map(history::estimate).sum();
        messages
    }
}

impl Drop for Driver {
    // Also when the engine is stopped half way: the next engine must be able to run the session.
    fn drop(&mut self) {
        self.hub.set_running(None);
    }
}

/// Names in a message's metadata that the prompt declares no variable for, the first few.
fn unused(pack: &LoadedPack, metadata: &Map<String, Value>) -> Vec<String> {
    let declared = |name: &str| pack.prompt.variables.iter().any(|variable| variable.name == name);
    metadata
        .keys()
        .filter(|name| !declared(name))
        .take(UNUSED_NAMES)
        .map(|name| escape(name, 128))
        .collect()
}

pub(super) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
