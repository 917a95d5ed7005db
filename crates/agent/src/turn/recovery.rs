//! Where a turn stood when its process ended, read from its stored events (contract 7).

use std::collections::BTreeSet;

use crate::event::{Event, Payload, RecordedCall, Totals, TurnStarted};

/// A turn to be continued.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Recovered {
    pub(crate) started: TurnStarted,
    /// Attempts that were begun.
    pub(crate) attempts: u32,
    /// Rounds of tool calls that were begun.
    pub(crate) rounds: u32,
    /// Calls that count against the limit of the turn.
    pub(crate) calls: u32,
    pub(crate) totals: Totals,
    /// How often the turn was restarted before.
    pub(crate) restarts: u32,
    /// Ids of calls that are taken.
    pub(crate) call_ids: BTreeSet<String>,
    pub(crate) next: Next,
}

/// What comes next.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Next {
    /// Ask the model. `void` is an attempt that broke off: readers have to be told.
    Model { void: Option<u32> },
    /// Finish the calls of the last answer that have no result.
    Tools { pending: Vec<PendingCall> },
    /// The answer is there; only the end of the turn is missing.
    Answer { text: String },
}

/// A call without a result.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PendingCall {
    pub(crate) call: RecordedCall,
    pub(crate) progress: Progress,
}

/// How far a call without a result had come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// No intent is stored, so it was never sent.
    NotSent,
    /// The intent is stored: nobody knows whether it took effect.
    Unknown {
        /// Whether sending it again cannot do harm.
        repeat_safe: bool,
    },
}

/// Reads the stored events of one turn, in order. `None` when the turn has an end or no beginning.
pub(crate) fn recover<'a>(events: impl IntoIterator<Item = &'a Event>) -> Option<Recovered> {
    let mut found: Option<Recovered> = None;
    for event in events {
        if event.ends_turn() {
            return None;
        }
        // An event of a type this program does not know changes nothing that it could continue.
        let Some(payload) = event.payload() else { continue };
        match (&mut found, payload) {
            (None, Payload::TurnStarted(started)) => {
                found = Some(Recovered {
                    started,
                    attempts: 0,
                    rounds: 0,
                    calls: 0,
                    totals: Totals::default(),
                    restarts: 0,
                    call_ids: BTreeSet::new(),
                    next: Next::Model { void: None },
                });
            }
            (Some(turn), payload) => turn.follow(payload),
            (None, _) => {}
        }
    }
    found.map(Recovered::settle)
}

impl Recovered {
    fn follow(&mut self, payload: Payload) {
        match payload {
            Payload::ModelStarted(started) => {
                self.attempts = self.attempts.max(started.attempt);
                self.next = Next::Model {
                    void: Some(started.attempt),
                };
            }
            Payload::ModelRestarted(_) => {
                self.restarts += 1;
                self.next = Next::Model { void: None };
            }
            Payload::ModelFailed(_) => self.next = Next::Model { void: None },
            Payload::ModelDone(done) => {
                let stopped = done.guardrails.iter().any(|guardrail| guardrail.stopped);
                if done.tool_calls.is_empty() || stopped {
                    self.next = Next::Answer { text: done.text };
                    return;
                }
                self.rounds += 1;
                self.calls += u32::try_from(done.tool_calls.len()).unwrap_or(u32::MAX);
                self.call_ids
                    .extend(done.tool_calls.iter().map(|call| call.id.clone()));
                let pending = done
                    .tool_calls
                    .into_iter()
                    .map(|call| PendingCall {
                        call,
                        progress: Progress::NotSent,
                    })
                    .collect();
                self.next = Next::Tools { pending };
            }
            Payload::ToolStarted(started) => {
                if let Next::Tools { pending } = &mut self.next
                    && let Some(call) = pending
                        .iter_mut()
                        .find(|pending| pending.call.id == started.call_id)
                {
                    call.progress = Progress::Unknown {
                        repeat_safe: started.repeat_safe,
                    };
                }
            }
            Payload::ToolFinished(finished) => {
                if let Next::Tools { pending } = &mut self.next {
                    pending.retain(|pending| pending.call.id != finished.call_id);
                }
            }
            Payload::Usage(usage) => {
                self.totals.input_tokens += usage.input_tokens;
                self.totals.output_tokens += usage.output_tokens;
                if let Some(cost) = usage.cost_usd {
                    *self.totals.cost_usd.get_or_insert(0.0) += cost;
                }
            }
            _ => {}
        }
    }

    /// A round whose calls all have results is over; the model is next.
    fn settle(mut self) -> Self {
        if matches!(&self.next, Next::Tools { pending } if pending.is_empty()) {
            self.next = Next::Model { void: None };
        }
        self
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use jiff::Timestamp;
    use serde_json::Value;

    use super::*;
    use crate::event::{
        CallOutcome, ModelCooled, ModelDone, ModelRestarted, ModelStarted, ToolFinished, ToolStarted,
        TurnDone,
    };

    fn recovered(payloads: &[Payload]) -> Option<Recovered> {
        let events: Vec<Event> = payloads
            .iter()
            .map(|payload| Event::new("s", "t", Timestamp::UNIX_EPOCH, payload))
            .collect();
        recover(&events)
    }

    fn started() -> Payload {
        Payload::TurnStarted(TurnStarted::default())
    }

    fn model(attempt: u32) -> Payload {
        Payload::ModelStarted(ModelStarted {
            attempt,
            round: 1,
            provider: "p".to_owned(),
            model: "m".to_owned(),
        })
    }

    fn call(id: &str) -> RecordedCall {
        RecordedCall {
            id: id.to_owned(),
            name: "tool".to_owned(),
            arguments: "{}".to_owned(),
        }
    }

    fn answered(calls: &[&str]) -> Payload {
        Payload::ModelDone(ModelDone {
            attempt: 1,
            round: 1,
            text: "text".to_owned(),
            tool_calls: calls.iter().map(|id| call(id)).collect(),
            finish: "completed".to_owned(),
            guardrails: Vec::new(),
        })
    }

    fn intent(id: &str, repeat_safe: bool) -> Payload {
        Payload::ToolStarted(ToolStarted {
            call_id: id.to_owned(),
            tool: "tool".to_owned(),
            handler: "handler".to_owned(),
            arguments: Value::Null,
            repeat_safe,
            repeated: false,
        })
    }

    fn result(id: &str) -> Payload {
        Payload::ToolFinished(ToolFinished {
            call_id: id.to_owned(),
            tool: "tool".to_owned(),
            outcome: CallOutcome::Succeeded,
            is_error: false,
            content: String::new(),
            duration_ms: 1,
            attempts: 1,
            reason: None,
            status: None,
        })
    }

    #[test]
    fn a_turn_that_asked_no_model_yet_asks_it() {
        assert_eq!(recovered(&[started()]).unwrap().next, Next::Model { void: None });
    }

    #[test]
    fn an_attempt_that_broke_off_is_void_and_counts() {
        let turn = recovered(&[started(), model(1)]).unwrap();
        assert_eq!((turn.next, turn.attempts), (Next::Model { void: Some(1) }, 1));
        let cooled = Payload::ModelCooled(ModelCooled {
            attempt: 1,
            provider: "p".to_owned(),
            until: Timestamp::UNIX_EPOCH,
            failures: 1,
            reason: "ModelServerError".to_owned(),
            message: "boom".to_owned(),
            status: Some(500),
        });
        let turn = recovered(&[started(), model(1), cooled]).unwrap();
        assert_eq!(turn.next, Next::Model { void: Some(1) });
        let restarted = Payload::ModelRestarted(ModelRestarted {
            attempt: 1,
            reason: "crash".to_owned(),
        });
        let turn = recovered(&[started(), model(1), restarted, model(2)]).unwrap();
        assert_eq!(
            (turn.next, turn.attempts, turn.restarts),
            (Next::Model { void: Some(2) }, 2, 1)
        );
    }

    #[test]
    fn contract_7_finished_calls_are_gone_and_the_others_say_how_far_they_came() {
        let turn = recovered(&[
            started(),
            model(1),
            answered(&["a", "b", "c", "d"]),
            intent("a", false),
            intent("b", false),
            intent("c", true),
            result("a"),
        ])
        .unwrap();
        assert_eq!((turn.rounds, turn.calls), (1, 4));
        let pending = |id, progress| PendingCall {
            call: call(id),
            progress,
        };
        assert_eq!(
            turn.next,
            Next::Tools {
                pending: vec![
                    pending("b", Progress::Unknown { repeat_safe: false }),
                    pending("c", Progress::Unknown { repeat_safe: true }),
                    pending("d", Progress::NotSent),
                ]
            }
        );
    }

    #[test]
    fn a_round_whose_calls_are_all_finished_asks_the_model() {
        let turn = recovered(&[
            started(),
            model(1),
            answered(&["a"]),
            intent("a", false),
            result("a"),
        ])
        .unwrap();
        assert_eq!(turn.next, Next::Model { void: None });
    }

    #[test]
    fn a_turn_with_an_end_or_without_a_beginning_is_not_continued() {
        let done = Payload::TurnDone(TurnDone {
            message_id: "m".to_owned(),
            totals: Totals::default(),
        });
        assert_eq!(recovered(&[started(), model(1), answered(&[]), done]), None);
        assert_eq!(recovered(&[model(1)]), None);
        let turn = recovered(&[started(), model(1), answered(&[])]).unwrap();
        assert_eq!(
            turn.next,
            Next::Answer {
                text: "text".to_owned()
            }
        );
    }
}
