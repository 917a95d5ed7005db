//! The turn as a state machine: which step comes next, and when it is over. Pure; [`super::driver`] does
//! what it says and stores what happened.
//!
//! ```text
//! Ready ──► Calling ──► Executing ──► Calling ──► … ──► Ended
//!             │  ▲ a remedy, once each      │
//!             └──┘                          └─ every call has its result
//! ```

use crate::event::RecordedCall;
use crate::turn::end::End;

/// What bounds a turn (OM-370).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Rounds of tool calls.
    pub(crate) rounds: u32,
    /// Tool calls, where the pack limits them.
    pub(crate) calls: Option<u32>,
}

/// Where the turn is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// Nothing was asked of a model in this process yet. Next: `Calling`.
    Ready,
    /// A model is asked. Next: `Executing`, `Calling` or `Ended`.
    Calling,
    /// Tools are run. Next: `Calling` or `Ended`.
    Executing,
    /// Over. Nothing follows.
    Ended,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Input {
    /// The turn begins or goes on.
    Begin,
    /// The model's answer is complete; `stopped` when a guardrail ended the round (OM-565).
    Answered { calls: Vec<RecordedCall>, stopped: bool },
    /// The model failed; `remedy` is what may help, once.
    ModelFailed { remedy: Option<Remedy>, end: End },
    /// Every call of the round has its result.
    ToolsFinished,
    /// The turn has to end, whatever it is doing: cancelled, out of time, not to be rendered.
    Interrupted(End),
}

/// What may help after a failed call of the model. Each is tried once a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Cut the conversation to half of what was sent last: it was too long (OR-260).
    Halve,
    /// Offer no tools: the answer was blank (OR-453).
    WithoutTools,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Ask the model, with a remedy for what became of the attempt before.
    CallModel {
        attempt: u32,
        round: u32,
        remedy: Option<Remedy>,
    },
    /// Run `calls` and answer `refused` with an error: they are beyond the limit of calls.
    RunTools {
        round: u32,
        calls: Vec<RecordedCall>,
        refused: Vec<RecordedCall>,
    },
    /// End the turn.
    Finish(End),
}

#[derive(Debug, Clone)]
pub(crate) struct Machine {
    bounds: Bounds,
    state: State,
    attempts: u32,
    rounds: u32,
    calls: u32,
    halved: bool,
    without_tools: bool,
}

impl Machine {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            state: State::Ready,
            attempts: 0,
            rounds: 0,
            calls: 0,
            halved: false,
            without_tools: false,
        }
    }

    /// The machine of a turn that was found in the store, with what it had used up.
    pub(crate) fn resumed(bounds: Bounds, attempts: u32, rounds: u32, calls: u32) -> Self {
        Self {
            attempts,
            rounds,
            calls,
            ..Self::new(bounds)
        }
    }

    /// The machine of a turn whose tools were being run.
    pub(crate) fn resumed_in_tools(bounds: Bounds, attempts: u32, rounds: u32, calls: u32) -> Self {
        Self {
            state: State::Executing,
            ..Self::resumed(bounds, attempts, rounds, calls)
        }
    }

    pub(crate) fn rounds(&self) -> u32 {
        self.rounds
    }

    pub(crate) fn calls(&self) -> u32 {
        self.calls
    }

    /// The one step function. `None` when the input has no meaning in the state, which leaves it unchanged.
    pub(crate) fn step(&mut self, input: Input) -> Option<Action> {
        match (self.state.clone(), input) {
            (State::Ended, _) => None,
            (_, Input::Interrupted(end)) => Some(self.finish(end)),
            (State::Ready, Input::Begin) | (State::Executing, Input::ToolsFinished) => {
                Some(self.call_model(None))
            }
            (State::Calling, Input::Answered { calls, stopped }) => {
                if stopped || calls.is_empty() {
                    return Some(self.finish(End::Answered));
                }
                if self.rounds >= self.bounds.rounds {
                    return Some(self.finish(End::rounds_exceeded(self.bounds.rounds)));
                }
                self.rounds += 1;
                let left = self
                    .bounds
                    .calls
                    .map_or(calls.len(), |most| most.saturating_sub(self.calls) as usize);
                let mut calls = calls;
                let refused = calls.split_off(left.min(calls.len()));
                self.calls = self
                    .calls
                    .saturating_add(u32::try_from(calls.len()).unwrap_or(u32::MAX));
                self.state = State::Executing;
                Some(Action::RunTools {
                    round: self.rounds,
                    calls,
                    refused,
                })
            }
            (
                State::Calling,
                Input::ModelFailed {
                    remedy: Some(remedy), ..
                },
            ) if !std::mem::replace(self.tried(remedy), true) => Some(self.call_model(Some(remedy))),
            (State::Calling, Input::ModelFailed { end, .. }) => Some(self.finish(end)),
            (State::Ready, Input::Answered { .. } | Input::ModelFailed { .. } | Input::ToolsFinished)
            | (State::Calling, Input::Begin | Input::ToolsFinished)
            | (State::Executing, Input::Begin | Input::Answered { .. } | Input::ModelFailed { .. }) => None,
        }
    }

    /// Whether a remedy was tried in this turn.
    fn tried(&mut self, remedy: Remedy) -> &mut bool {
        match remedy {
            Remedy::Halve => &mut self.halved,
            Remedy::WithoutTools => &mut self.without_tools,
        }
    }

    fn call_model(&mut self, remedy: Option<Remedy>) -> Action {
        self.state = State::Calling;
        self.attempts += 1;
        Action::CallModel {
            attempt: self.attempts,
            round: self.rounds + 1,
            remedy,
        }
    }

    fn finish(&mut self, end: End) -> Action {
        self.state = State::Ended;
        Action::Finish(end)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn calls(count: usize) -> Vec<RecordedCall> {
        (0..count)
            .map(|index| RecordedCall {
                id: format!("c{index}"),
                name: "t".to_owned(),
                arguments: "{}".to_owned(),
            })
            .collect()
    }

    fn answered(count: usize) -> Input {
        Input::Answered {
            calls: calls(count),
            stopped: false,
        }
    }

    #[test]
    fn om_370_a_turn_may_use_all_its_rounds_and_then_answer_but_not_one_more() {
        let mut machine = Machine::new(Bounds {
            rounds: 2,
            calls: None,
        });
        assert_eq!(
            machine.step(Input::Begin),
            Some(Action::CallModel {
                attempt: 1,
                round: 1,
                remedy: None
            })
        );
        for round in 1..=2 {
            assert!(
                matches!(machine.step(answered(1)), Some(Action::RunTools { round: at, .. }) if at == round)
            );
            assert!(matches!(
                machine.step(Input::ToolsFinished),
                Some(Action::CallModel { .. })
            ));
        }
        let mut patient = machine.clone();
        assert_eq!(patient.step(answered(0)), Some(Action::Finish(End::Answered)));
        match machine.step(answered(1)) {
            Some(Action::Finish(End::Failed(failed))) => assert!(failed.message.contains('2'), "{failed:?}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn om_370_calls_beyond_the_limit_of_a_turn_are_refused_and_the_turn_goes_on() {
        let mut machine = Machine::new(Bounds {
            rounds: 9,
            calls: Some(3),
        });
        machine.step(Input::Begin);
        let ran = |action: Option<Action>| match action {
            Some(Action::RunTools { calls, refused, .. }) => (calls.len(), refused.len()),
            other => panic!("{other:?}"),
        };
        assert_eq!(ran(machine.step(answered(2))), (2, 0));
        machine.step(Input::ToolsFinished);
        assert_eq!(ran(machine.step(answered(2))), (1, 1));
        machine.step(Input::ToolsFinished);
        assert_eq!(ran(machine.step(answered(1))), (0, 1));
    }

    #[test]
    fn or_260_a_context_that_is_too_long_is_halved_once() {
        let end = End::failed("ModelContextTooLong", "too long");
        let mut machine = Machine::new(Bounds {
            rounds: 1,
            calls: None,
        });
        machine.step(Input::Begin);
        let too_long = Input::ModelFailed {
            remedy: Some(Remedy::Halve),
            end: end.clone(),
        };
        assert_eq!(
            machine.step(too_long.clone()),
            Some(Action::CallModel {
                attempt: 2,
                round: 1,
                remedy: Some(Remedy::Halve)
            })
        );
        assert_eq!(machine.step(too_long), Some(Action::Finish(end)));
    }

    #[test]
    fn or_453_a_blank_answer_is_asked_for_again_without_tools_once() {
        let end = End::failed("ModelEmptyAnswer", "nothing");
        let blank = Input::ModelFailed {
            remedy: Some(Remedy::WithoutTools),
            end: end.clone(),
        };
        let mut machine = Machine::new(Bounds {
            rounds: 1,
            calls: None,
        });
        machine.step(Input::Begin);
        assert_eq!(
            machine.step(blank.clone()),
            Some(Action::CallModel {
                attempt: 2,
                round: 1,
                remedy: Some(Remedy::WithoutTools)
            })
        );
        assert_eq!(machine.step(blank), Some(Action::Finish(end)));
    }

    #[test]
    fn om_565_a_guardrail_that_stops_the_round_drops_its_calls() {
        let mut machine = Machine::new(Bounds {
            rounds: 9,
            calls: None,
        });
        machine.step(Input::Begin);
        let stopped = Input::Answered {
            calls: calls(2),
            stopped: true,
        };
        assert_eq!(machine.step(stopped), Some(Action::Finish(End::Answered)));
    }

    fn input() -> impl Strategy<Value = Input> {
        prop_oneof![
            Just(Input::Begin),
            (0_usize..4, any::<bool>()).prop_map(|(count, stopped)| Input::Answered {
                calls: calls(count),
                stopped
            }),
            prop::option::of(prop_oneof![Just(Remedy::Halve), Just(Remedy::WithoutTools)]).prop_map(
                |remedy| Input::ModelFailed {
                    remedy,
                    end: End::failed("ModelServerError", "x")
                }
            ),
            Just(Input::ToolsFinished),
            Just(Input::Interrupted(End::cancelled("client"))),
        ]
    }

    proptest! {
        /// Whatever happens in whatever order: a turn ends at most once and does nothing afterwards, keeps its
        /// bounds, never asks the model while tools run, and numbers its attempts without a gap.
        #[test]
        fn a_turn_keeps_its_bounds_and_ends_once(
            inputs in prop::collection::vec(input(), 0..60), rounds in 1_u32..4, limit in prop::option::of(0_u32..6)
        ) {
            let mut machine = Machine::new(Bounds { rounds, calls: limit });
            let (mut ended, mut executing, mut attempts, mut tool_rounds, mut ran) = (false, false, 0, 0, 0);
            for input in inputs {
                let finishes_tools = input == Input::ToolsFinished;
                match machine.step(input) {
                    None => continue,
                    Some(_) if ended => prop_assert!(false, "a step after the end"),
                    Some(Action::CallModel { attempt, .. }) => {
                        prop_assert!(!executing || finishes_tools);
                        executing = false;
                        attempts += 1;
                        prop_assert_eq!(attempt, attempts);
                    }
                    Some(Action::RunTools { calls, .. }) => {
                        executing = true;
                        tool_rounds += 1;
                        ran += calls.len();
                    }
                    Some(Action::Finish(_)) => ended = true,
                }
            }
            prop_assert!(tool_rounds <= rounds);
            prop_assert!(limit.is_none_or(|limit| ran <= limit as usize));
        }
    }
}
