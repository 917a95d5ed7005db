//! The conversation as it is sent to a model: repaired where a turn broke off, and cut to the model's
//! context (OR-260).

use std::collections::HashMap;

use mainstay_llm::{Message, ModelEvent, Role, SignedThought, ToolCall, ToolDescriptor};

/// What a model reads about a call whose result nobody has.
pub(crate) const UNKNOWN_OUTCOME: &str = "The outcome of this call is unknown: it was sent, but no result was received. It may or may not have taken effect. \
     Check before repeating it.";

/// What a model reads about a call that was never sent.
const NEVER_SENT: &str = "This call was not made: the turn ended before it.";

/// Makes the stored messages a conversation that every provider accepts: each assistant message that calls
/// tools is followed by exactly one result per call, in the order of the calls (OM-367), and results
/// without a call are dropped.
pub(crate) fn repair(messages: Vec<Message>) -> Vec<Message> {
    let mut repaired = Vec::with_capacity(messages.len());
    let mut messages = messages.into_iter().peekable();
    while let Some(message) = messages.next() {
        if message.role == Role::Tool {
            continue;
        }
        let calls = message.tool_calls.clone();
        repaired.push(message);
        if calls.is_empty() {
            continue;
        }
        let mut results: HashMap<String, Message> = HashMap::new();
        while let Some(result) = messages.next_if(|next| next.role == Role::Tool) {
            if let Some(id) = result.tool_call_id.clone() {
                results.entry(id).or_insert(result);
            }
        }
        repaired.extend(calls.into_iter().map(|call| {
            results
                .remove(&call.id)
                .unwrap_or_else(|| Message::tool_result(&call.id, &call.name, NEVER_SENT, true))
        }));
    }
    repaired
}

/// Estimated tokens: a quarter of the bytes, rounded up, names, arguments and marks of calls included (OR-260).
pub(crate) fn estimate(message: &Message) -> u64 {
    let calls: usize = message.tool_calls.iter().map(bytes_of_call).sum();
    let thoughts: usize = message.thoughts.iter().map(bytes_of_thought).sum();
    let bytes = message.content.len()
        + calls
        + thoughts
        + message.name.as_ref().map_or(0, String::len)
        + message.tool_call_id.as_ref().map_or(0, String::len);
    tokens(bytes)
}

/// Bytes of a call as it goes back to its provider, the provider's mark included.
fn bytes_of_call(call: &ToolCall) -> usize {
    call.id.len() + call.name.len() + call.arguments.len() + call.signature.as_ref().map_or(0, String::len)
}

fn bytes_of_thought(thought: &SignedThought) -> usize {
    match thought {
        SignedThought::Thought { text, signature } => text.len() + signature.len(),
        SignedThought::Redacted { data } => data.len(),
    }
}

/// Bytes that an event adds to an answer. The text of a signed thought came as [`ModelEvent::Thinking`] before.
pub(crate) fn bytes_of_event(event: &ModelEvent) -> usize {
    match event {
        ModelEvent::Text(text) | ModelEvent::Thinking(text) => text.len(),
        ModelEvent::ToolCall(call) => bytes_of_call(call),
        ModelEvent::Thought(SignedThought::Redacted { data }) => data.len(),
        ModelEvent::Thought(SignedThought::Thought { .. })
        | ModelEvent::Started
        | ModelEvent::Usage(_)
        | ModelEvent::Finished(_) => 0,
    }
}

/// Bytes of tool descriptions, which cannot be dropped from a request.
pub(crate) fn bytes_of_tools(tools: &[ToolDescriptor]) -> usize {
    tools
        .iter()
        .map(|tool| tool.name.len() + tool.description.len() + tool.parameters.to_string().len())
        .sum()
}

/// Estimated tokens of a text of so many bytes.
pub(crate) fn tokens(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(4)
}

/// The conversation within `budget` tokens: the first message, a note about what was left out, and as many
/// blocks from the end as fit. A block is one message, or an assistant message with the results of its
/// calls (OR-260). The last block always stays: without it there is nothing to answer.
pub(crate) fn fit(messages: Vec<Message>, budget: u64) -> Vec<Message> {
    let total: u64 = messages.iter().map(estimate).sum();
    if total <= budget || messages.len() < 2 {
        return messages;
    }
    let mut blocks: Vec<Vec<Message>> = Vec::new();
    for message in messages {
        match blocks.last_mut() {
            Some(block) if message.role == Role::Tool => block.push(message),
            _ => blocks.push(vec![message]),
        }
    }
    let first = blocks.remove(0);
    let mut used: u64 = first.iter().map(estimate).sum();
    let mut kept = blocks.len();
    while let Some(block) = kept.checked_sub(1).and_then(|at| blocks.get(at)) {
        let cost: u64 = block.iter().map(estimate).sum();
        if used + cost > budget && kept < blocks.len() {
            break;
        }
        used += cost;
        kept -= 1;
    }
    let dropped: usize = blocks.iter().take(kept).map(Vec::len).sum();
    let mut fitted = first;
    if dropped > 0 {
        fitted.push(Message::system(format!(
            "[{dropped} earlier messages of this conversation were left out because they do not fit.]"
        )));
    }
    fitted.extend(blocks.into_iter().skip(kept).flatten());
    fitted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn call(id: &str) -> ToolCall {
        ToolCall::new(id, "t", "{}")
    }

    #[test]
    fn om_367_results_stand_in_the_order_of_the_calls_and_missing_ones_are_filled_in() {
        let repaired = repair(vec![
            Message::tool_result("lost", "t", "no call", false),
            Message::user("hi"),
            Message::assistant("", vec![call("a"), call("b"), call("c")]),
            Message::tool_result("c", "t", "C", false),
            Message::tool_result("a", "t", "A", false),
            Message::user("next"),
        ]);
        let shown: Vec<(Option<&str>, &str)> = repaired
            .iter()
            .map(|m| (m.tool_call_id.as_deref(), m.content.as_str()))
            .collect();
        assert_eq!(
            shown,
            [
                (None, "hi"),
                (None, ""),
                (Some("a"), "A"),
                (Some("b"), NEVER_SENT),
                (Some("c"), "C"),
                (None, "next"),
            ]
        );
    }

    #[test]
    fn or_260_the_mark_of_a_call_is_sent_and_counts() {
        let signed = ToolCall {
            signature: Some("s".repeat(400)),
            ..call("a")
        };
        let plain = estimate(&Message::assistant("", vec![call("a")]));
        assert_eq!(estimate(&Message::assistant("", vec![signed])), plain + 100);
    }

    #[test]
    fn or_260_the_first_message_and_the_last_blocks_stay() {
        let text = "x".repeat(40);
        let messages = vec![
            Message::user("first"),
            Message::user(&text),
            Message::assistant("", vec![call("a")]),
            Message::tool_result("a", "t", &text, false),
            Message::user("last"),
        ];
        assert_eq!(fit(messages.clone(), 1_000).len(), 5);
        let fitted = fit(messages.clone(), 17);
        assert_eq!(
            fitted.len(),
            5,
            "the call and its result stay together: {fitted:?}"
        );
        assert!(fitted[1].content.contains("1 earlier messages"), "{fitted:?}");
        let fitted = fit(messages, 4);
        let contents: Vec<&str> = fitted.iter().map(|m| m.content.as_str()).collect();
        assert_eq!(contents[0], "first");
        assert!(contents[1].contains("3 earlier messages"), "{contents:?}");
        assert_eq!(contents[2], "last");
    }

    proptest! {
        #[test]
        fn or_260_what_is_kept_is_a_valid_conversation(sizes in prop::collection::vec((0_usize..60, any::<bool>()), 1..20), budget in 0_u64..200) {
            let mut messages = Vec::new();
            for (index, (size, tool)) in sizes.iter().enumerate() {
                messages.push(Message::user("u".repeat(*size)));
                if *tool {
                    messages.push(Message::assistant("", vec![call(&index.to_string())]));
                    messages.push(Message::tool_result(index.to_string(), "t", "r", false));
                }
            }
            let last = messages.last().cloned();
            let fitted = fit(messages.clone(), budget);
            prop_assert_eq!(fitted.first(), messages.first());
            prop_assert_eq!(fitted.last(), last.as_ref());
            prop_assert_eq!(repair(fitted.clone()), fitted);
        }
    }
}
