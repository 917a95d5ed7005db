//! Joins the fragments of streamed tool calls (D9, D11).
//!
//! The published protocol sends `index` with every fragment and `id` and `name` with the first.
//! Servers in use leave any of them out, so a fragment is placed by these rules, in order:
//!
//! 1. with an index: the open call of that index, unless the fragment brings another id, which
//!    starts a new call;
//! 2. without an index but with an id: the call of that id, else a new call;
//! 3. with neither: the call that was open last, unless the fragment brings a name that cannot be
//!    its, which starts a new call.

use mainstay_telemetry::random::Random;

use super::openai_chat::signature_from_wire;
use crate::{message::ToolCall, types::openai_chat as wire};

/// Most calls in one answer.
pub(crate) const MAX_CALLS: usize = 128;

/// Most bytes of the arguments of one call.
pub(crate) const MAX_ARGUMENT_BYTES: usize = 1024 * 1024;

/// Most bytes of the reasoning of one answer that goes back to its provider, or of the marks on its calls.
pub(super) const MAX_THOUGHT_BYTES: usize = 4 * 1024 * 1024;

/// A provider sent more than is kept of one answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TooMuch {
    /// More than [`MAX_CALLS`].
    #[error("the answer holds more than {MAX_CALLS} tool calls")]
    Calls,
    /// More than [`MAX_THOUGHT_BYTES`].
    #[error("the reasoning of the answer exceeds {MAX_THOUGHT_BYTES} bytes")]
    Thoughts,
    /// More than [`MAX_ARGUMENT_BYTES`].
    #[error("the arguments of tool call `{name}` exceed {MAX_ARGUMENT_BYTES} bytes")]
    Arguments {
        /// The tool's name.
        name: String,
    },
}

#[derive(Debug, Default)]
struct PartialCall {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
    signature: Option<String>,
}

/// Joins the fragments of one answer's tool calls (D9, D11).
#[derive(Debug, Default)]
pub(crate) struct ToolCallAccumulator {
    calls: Vec<PartialCall>,
    // Position in `calls` of the one that took the last fragment.
    open: Option<usize>,
    // Bytes of the marks of all calls.
    signed: usize,
}

impl ToolCallAccumulator {
    /// Takes one fragment.
    ///
    /// # Errors
    /// [`TooMuch`].
    pub(crate) fn push(&mut self, fragment: wire::ToolCall) -> Result<(), TooMuch> {
        let signature = signature_from_wire(&fragment.extra);
        let function = fragment.function.unwrap_or_default();
        let id = fragment.id.unwrap_or_default();
        let name = function.name.unwrap_or_default();
        let arguments = function.arguments.unwrap_or_default();

        let position = match self.place(fragment.index, &id, &name) {
            Some(position) => position,
            None => {
                if self.calls.len() == MAX_CALLS {
                    return Err(TooMuch::Calls);
                }
                self.calls.push(PartialCall {
                    index: fragment.index,
                    ..PartialCall::default()
                });
                self.calls.len() - 1
            }
        };
        self.open = Some(position);
        let Some(call) = self.calls.get_mut(position) else {
            return Ok(());
        };
        if call.id.is_empty() {
            call.id = id;
        }
        if call.name.is_empty() {
            call.name = name;
        }
        if let Some(signature) = signature {
            let replaced = call.signature.as_ref().map_or(0, String::len);
            self.signed = self.signed - replaced + signature.len();
            if self.signed > MAX_THOUGHT_BYTES {
                return Err(TooMuch::Thoughts);
            }
            call.signature = Some(signature);
        }
        if call.arguments.len() + arguments.len() > MAX_ARGUMENT_BYTES {
            return Err(TooMuch::Arguments {
                name: mainstay_telemetry::text::escape(&call.name, 64),
            });
        }
        call.arguments.push_str(&arguments);
        Ok(())
    }

    fn place(&self, index: Option<u64>, id: &str, name: &str) -> Option<usize> {
        if let Some(index) = index {
            // The newest call of an index is the open one: a reused index has closed the others.
            let position = self.calls.iter().rposition(|call| call.index == Some(index))?;
            let known = &self.calls[position].id;
            return (id.is_empty() || known.is_empty() || known == id).then_some(position);
        }
        if !id.is_empty() {
            return self.calls.iter().rposition(|call| call.id == id);
        }
        let position = self.open?;
        let open = &self.calls[position];
        let another = !name.is_empty()
            && !open.name.is_empty()
            && (name != open.name || serde_json::from_str::<serde::de::IgnoredAny>(&open.arguments).is_ok());
        (!another).then_some(position)
    }

    /// The complete calls, in order. A call without an id gets one from `random`; fragments that
    /// never got a name are dropped, since nothing can be called by them.
    pub(crate) fn finish(self, random: &dyn Random) -> Vec<ToolCall> {
        self.calls
            .into_iter()
            .filter(|call| !call.name.is_empty())
            .map(|call| ToolCall {
                id: if call.id.is_empty() {
                    format!("call_{}", random.suffix(24))
                } else {
                    call.id
                },
                name: call.name,
                arguments: normalise_arguments(call.arguments),
                signature: call.signature,
            })
            .collect()
    }
}

/// A call without arguments is streamed as nothing, blanks or `null`; all mean `{}` (D11).
pub(crate) fn normalise_arguments(arguments: String) -> String {
    match arguments.trim() {
        "" | "null" => "{}".to_owned(),
        _ => arguments,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use mainstay_telemetry::random::SeededRandom;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn join(fragments: serde_json::Value) -> Vec<(String, String, String)> {
        let fragments: Vec<wire::ToolCall> = serde_json::from_value(fragments).unwrap();
        let mut calls = ToolCallAccumulator::default();
        for fragment in fragments {
            calls.push(fragment).unwrap();
        }
        calls
            .finish(&*SeededRandom::new(1))
            .into_iter()
            .map(|call| (call.id, call.name, call.arguments))
            .collect()
    }

    fn call(id: &str, name: &str, arguments: &str) -> (String, String, String) {
        (id.to_owned(), name.to_owned(), arguments.to_owned())
    }

    #[test]
    fn two_fragments_of_one_index_are_joined_in_order_d9() {
        assert_eq!(
            join(json!([
                {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{\"x\""}},
                {"index": 0, "function": {"arguments": ":1}"}},
                {"index": 1, "id": "b", "function": {"name": "g", "arguments": "{}"}},
                {"index": 0, "function": {"arguments": " "}},
            ])),
            [call("a", "f", "{\"x\":1} "), call("b", "g", "{}")]
        );
    }

    #[test]
    fn a_missing_index_means_the_open_call_d9() {
        assert_eq!(
            join(json!([
                {"id": "a", "function": {"name": "f", "arguments": ""}},
                {"function": {"arguments": "{\"x\":1}"}},
                {"id": "b", "function": {"name": "f", "arguments": "{}"}},
                {"id": "b", "function": {"arguments": "  "}},
            ])),
            [call("a", "f", "{\"x\":1}"), call("b", "f", "{}  ")]
        );
    }

    #[test]
    fn a_new_id_on_a_reused_index_starts_a_new_call_d9() {
        assert_eq!(
            join(json!([
                {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{\"x\":1}"}},
                {"index": 0, "id": "b", "function": {"name": "f", "arguments": "{\"x\":"}},
                {"index": 0, "function": {"arguments": "2}"}},
            ])),
            [call("a", "f", "{\"x\":1}"), call("b", "f", "{\"x\":2}")]
        );
    }

    #[test]
    fn an_id_that_is_repeated_does_not_start_a_call() {
        assert_eq!(
            join(json!([
                {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{"}},
                {"index": 0, "id": "a", "function": {"name": "f", "arguments": "}"}},
            ])),
            [call("a", "f", "{}")]
        );
    }

    #[test]
    fn complete_calls_without_index_and_id_stay_apart_and_get_ids() {
        let calls = join(json!([
            {"function": {"name": "f", "arguments": {"x": 1}}},
            {"function": {"name": "f", "arguments": {"x": 2}}},
        ]));
        assert_eq!(calls.len(), 2);
        assert_ne!(calls[0].0, calls[1].0);
        assert!(calls[0].0.starts_with("call_"));
    }

    #[test]
    fn empty_and_null_arguments_become_an_empty_object_d11() {
        assert_eq!(
            join(json!([
                {"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}},
                {"index": 1, "id": "b", "function": {"name": "f", "arguments": null}},
                {"index": 2, "id": "c", "function": {"name": "f", "arguments": "null"}},
                {"index": 3, "id": "d", "function": {"name": "f"}},
            ]))
            .into_iter()
            .map(|(_, _, arguments)| arguments)
            .collect::<Vec<_>>(),
            ["{}", "{}", "{}", "{}"]
        );
    }

    #[test]
    fn an_answer_cannot_hold_calls_without_end() {
        let mut calls = ToolCallAccumulator::default();
        let fragment = |index| wire::ToolCall {
            index: Some(index),
            ..wire::ToolCall::default()
        };
        for index in 0..MAX_CALLS as u64 {
            calls.push(fragment(index)).unwrap();
        }
        assert_eq!(calls.push(fragment(1_000)), Err(TooMuch::Calls));
    }

    #[test]
    fn the_marks_of_an_answer_are_bounded_as_its_reasoning_is() {
        let mut calls = ToolCallAccumulator::default();
        let mut fragment = |index: u64, mark: &str| {
            let extra = json!({"extra_content": {"google": {"thought_signature": mark}}});
            calls.push(wire::ToolCall {
                index: Some(index),
                extra: extra.as_object().unwrap().clone(),
                ..wire::ToolCall::default()
            })
        };
        let half = "x".repeat(MAX_THOUGHT_BYTES / 2);
        fragment(0, &half).unwrap();
        // The same call again: its mark is replaced.
        fragment(0, &half).unwrap();
        fragment(1, &half).unwrap();
        assert_eq!(fragment(2, "x"), Err(TooMuch::Thoughts));
    }

    proptest! {
        #[test]
        fn any_split_of_well_formed_calls_gives_them_back(
            calls in proptest::collection::vec("[a-z]{1,6}", 1..4),
            cut in 1usize..9,
        ) {
            let mut accumulator = ToolCallAccumulator::default();
            let arguments: Vec<String> =
                calls.iter().map(|name| json!({"name": name}).to_string()).collect();
            for (index, name) in calls.iter().enumerate() {
                let mut fragment = wire::ToolCall {
                    index: Some(index as u64),
                    id: Some(format!("id{index}")),
                    ..wire::ToolCall::default()
                };
                fragment.function = Some(wire::FunctionCall {
                    name: Some(name.clone()),
                    ..wire::FunctionCall::default()
                });
                accumulator.push(fragment).unwrap();
            }
            // The fragments of all calls interleave.
            let pieces: Vec<Vec<String>> = arguments
                .iter()
                .map(|text| text.as_bytes().chunks(cut).map(|piece| String::from_utf8_lossy(piece).into_owned()).collect())
                .collect();
            for round in 0..pieces.iter().map(Vec::len).max().unwrap_or(0) {
                for (index, pieces) in pieces.iter().enumerate() {
                    if let Some(piece) = pieces.get(round) {
                        accumulator.push(wire::ToolCall {
                            index: Some(index as u64),
                            function: Some(wire::FunctionCall {
                                arguments: Some(piece.clone()),
                                ..wire::FunctionCall::default()
                            }),
                            ..wire::ToolCall::default()
                        }).unwrap();
                    }
                }
            }
            let joined = accumulator.finish(&*SeededRandom::new(1));
            prop_assert_eq!(
                joined.iter().map(|call| (call.name.clone(), call.arguments.clone())).collect::<Vec<_>>(),
                calls.into_iter().zip(arguments).collect::<Vec<_>>()
            );
        }
    }
}
