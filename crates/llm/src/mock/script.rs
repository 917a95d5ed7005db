//! From a scenario and a conversation to the next answer: a pure function.
//!
//! Nothing is remembered between calls. How far a turn has come is read from the conversation: each
//! assistant message after the user's last one has used up one step, and the results that follow it
//! decide which steps come next.

use std::{collections::BTreeMap, time::Duration};

use serde_json::Value;

use super::{
    scenario::{Argument, Chunks, Failure, Scenario, Step, Turn},
    template::Scene,
};
use crate::{
    event::{FinishReason, Usage},
    message::{Message, Role, ToolCall},
    request::Request,
};

/// How a policy's refusal of a tool call begins (OM-490).
pub const DENIAL_PREFIX: &str = "tool call denied by policy";

const NO_FURTHER_STEP: &str = "(The scenario ends here.)";

/// One answer, ready to be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Performance {
    /// Wait before it begins.
    pub wait: Duration,
    /// The pieces of the reasoning.
    pub thoughts: Vec<String>,
    /// The pieces of the text.
    pub chunks: Vec<String>,
    /// Wait before each piece, or once where there is none.
    pub delay: Duration,
    /// Calls.
    pub calls: Vec<ToolCall>,
    /// Token counts.
    pub usage: Usage,
    /// Why it ends.
    pub finish: FinishReason,
    /// A failure in its place or in the middle.
    pub fail: Option<Failure>,
}

/// The model's next answer. Without a scenario the model speaks for itself.
pub fn perform(scenario: Option<&Scenario>, request: &Request) -> Performance {
    let asked = request
        .messages
        .iter()
        .rposition(|message| message.role == Role::User);
    let (message, since) = match asked {
        Some(at) => (
            request.messages[at].content.as_str(),
            request.messages.get(at + 1..).unwrap_or_default(),
        ),
        None => ("", &*request.messages),
    };
    let Some(scenario) = scenario else {
        return spoken(own_answer(request, message, since), request);
    };
    let position = user_messages(request);
    let Some((turn, mut scene)) = select(scenario, message, position) else {
        let answer = format!("The scenario has no turn for this message: \"{message}\".");
        return spoken(answer, request);
    };
    let names = call_names(since);
    for result in since.iter().filter(|message| message.role == Role::Tool) {
        let value =
            serde_json::from_str(&result.content).unwrap_or_else(|_| Value::String(result.content.clone()));
        if let Some(name) = result_name(result, &names) {
            scene.results.insert(name.to_owned(), value);
        }
    }
    match next_step(turn, since) {
        Some(step) => play(step, &scene, request, since),
        None => spoken(NO_FURTHER_STEP.to_owned(), request),
    }
}

fn user_messages(request: &Request) -> usize {
    let messages = request.messages.iter();
    messages.filter(|message| message.role == Role::User).count()
}

fn select<'a>(scenario: &'a Scenario, message: &str, position: usize) -> Option<(&'a Turn, Scene)> {
    for turn in &scenario.turns {
        if turn.position.is_some_and(|wanted| wanted != position) {
            continue;
        }
        let mut captures = BTreeMap::new();
        if let Some(pattern) = &turn.pattern {
            let Some(found) = pattern.captures(message) else {
                continue;
            };
            for name in pattern.capture_names().flatten() {
                // An optional group that took no part is an empty text.
                let text = found.name(name).map_or("", |group| group.as_str());
                captures.insert(name.to_owned(), text.to_owned());
            }
        }
        let scene = Scene {
            message: message.to_owned(),
            captures,
            results: BTreeMap::new(),
        };
        return Some((turn, scene));
    }
    None
}

fn call_names(since: &[Message]) -> BTreeMap<&str, &str> {
    since
        .iter()
        .flat_map(|message| &message.tool_calls)
        .map(|call| (call.id.as_str(), call.name.as_str()))
        .collect()
}

fn result_name<'a>(result: &'a Message, names: &BTreeMap<&str, &'a str>) -> Option<&'a str> {
    let named = result.name.as_deref().filter(|name| !name.is_empty());
    named.or_else(|| names.get(result.tool_call_id.as_deref()?).copied())
}

fn next_step<'a>(turn: &'a Turn, since: &[Message]) -> Option<&'a Step> {
    let mut steps = turn.steps.as_slice();
    let mut position = 0;
    let mut rest = since;
    while let Some(at) = rest.iter().position(|message| message.role == Role::Assistant) {
        rest = rest.get(at + 1..).unwrap_or_default();
        let results: Vec<&Message> = rest
            .iter()
            .take_while(|message| message.role != Role::Assistant)
            .filter(|message| message.role == Role::Tool)
            .collect();
        let denied = results.iter().any(|result| is_denied(result));
        let failed = denied || results.iter().any(|result| result.is_error);
        let played = steps.get(position);
        position += 1;
        if let Some(step) = played {
            let branch = match (&step.on_denied, &step.on_error) {
                (Some(branch), _) if denied => Some(branch),
                (_, Some(branch)) if failed => Some(branch),
                _ => None,
            };
            if let Some(branch) = branch {
                steps = branch;
                position = 0;
            }
        }
    }
    steps.get(position)
}

fn is_denied(result: &Message) -> bool {
    result.content.starts_with(DENIAL_PREFIX)
}

fn play(step: &Step, scene: &Scene, request: &Request, since: &[Message]) -> Performance {
    let turns = user_messages(request);
    let answers = since
        .iter()
        .filter(|message| message.role == Role::Assistant)
        .count();
    let calls: Vec<ToolCall> = step
        .calls
        .iter()
        .enumerate()
        .map(|(index, call)| ToolCall {
            id: format!("call_{turns}_{answers}_{index}"),
            name: call.tool.clone(),
            arguments: argument(&call.arguments, scene).to_string(),
            signature: None,
        })
        .collect();
    let think = step.think.as_ref().map(|think| think.text(scene));
    let text = step
        .text
        .as_ref()
        .map(|text| text.text(scene))
        .unwrap_or_default();
    let finish = step.finish.unwrap_or(if calls.is_empty() {
        FinishReason::Completed
    } else {
        FinishReason::ToolCalls
    });
    let usage = step
        .usage
        .unwrap_or_else(|| estimate(request, think.as_deref(), &text, &calls));
    Performance {
        wait: step.wait,
        thoughts: cut(&think.unwrap_or_default(), step.chunks),
        chunks: cut(&text, step.chunks),
        delay: step.delay,
        calls,
        usage,
        finish,
        fail: step.fail.clone(),
    }
}

fn argument(argument: &Argument, scene: &Scene) -> Value {
    match argument {
        Argument::Text(template) => template.value(scene),
        Argument::List(items) => items.iter().map(|item| self::argument(item, scene)).collect(),
        Argument::Object(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), self::argument(value, scene)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        Argument::Other(value) => value.clone(),
    }
}

fn cut(text: &str, chunks: Chunks) -> Vec<String> {
    if text.is_empty() {
        return Vec::new();
    }
    match chunks {
        Chunks::Whole => vec![text.to_owned()],
        Chunks::Lines => text.split_inclusive('\n').map(str::to_owned).collect(),
        Chunks::Characters => text.chars().map(String::from).collect(),
        Chunks::Words => {
            let mut pieces: Vec<String> = Vec::new();
            let mut after_blank = true;
            for letter in text.chars() {
                let blank = letter.is_whitespace();
                match pieces.last_mut() {
                    Some(piece) if blank || !after_blank => piece.push(letter),
                    _ => pieces.push(letter.to_string()),
                }
                after_blank = blank;
            }
            pieces
        }
    }
}

/// Tokens of a request, as the mock counts them: one for every four bytes of text, begun ones
/// included. It keeps budgets and costs in motion (OR-260).
pub fn count_input(request: &Request) -> u64 {
    let messages = request.messages.iter();
    let asked: usize = messages
        .map(|message| message.content.len() + message.tool_calls.iter().map(bytes_of_call).sum::<usize>())
        .sum();
    tokens(request.system.len() + asked)
}

fn bytes_of_call(call: &ToolCall) -> usize {
    call.name.len() + call.arguments.len()
}

fn tokens(bytes: usize) -> u64 {
    u64::try_from(bytes.div_ceil(4)).unwrap_or(u64::MAX)
}

fn estimate(request: &Request, think: Option<&str>, text: &str, calls: &[ToolCall]) -> Usage {
    let calls: usize = calls.iter().map(bytes_of_call).sum();
    Usage {
        input_tokens: count_input(request),
        output_tokens: tokens(think.map_or(0, str::len) + text.len() + calls),
        cached_tokens: 0,
    }
}

fn spoken(text: String, request: &Request) -> Performance {
    Performance {
        wait: Duration::ZERO,
        thoughts: Vec::new(),
        usage: estimate(request, None, &text, &[]),
        chunks: cut(&text, Chunks::Words),
        delay: Duration::ZERO,
        calls: Vec::new(),
        finish: FinishReason::Completed,
        fail: None,
    }
}

fn own_answer(request: &Request, message: &str, since: &[Message]) -> String {
    let names = call_names(since);
    if let Some(result) = since.iter().rev().find(|message| message.role == Role::Tool) {
        let name = result_name(result, &names).unwrap_or("the tool");
        return format!("`{name}` answered: {}", result.content);
    }
    let tools: Vec<&str> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
    let seen = match tools.len() {
        0 => "I was offered no tools".to_owned(),
        1 => format!("I was offered the tool {}", tools.join(", ")),
        count => format!("I was offered {count} tools: {}", tools.join(", ")),
    };
    format!("Hello! I am a mock model without a scenario. You said: \"{message}\". {seen}.")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::message::ToolDescriptor;

    const HELP_DESK: &str = r#"
models: [helpdesk]
delay: 20ms
turns:
- match: 'where is order (?P<id>\d+)'
  ignoreCase: true
  steps:
  - think: looking
    text: "Let me look. "
    calls:
    - tool: get_order
      arguments: {id: "{{id}}", number: "{{id | number}}", nested: [{q: "{{message}}"}, 1, null]}
    - tool: list_orders
    onError:
    - text: "That failed: {{tool.get_order}}"
  - text: "Order {{id}} is {{tool.get_order.status}}."
    usage: {inputTokens: 10, outputTokens: 5}
- match: delete order (?P<id>\d+)
  ignoreCase: true
  steps:
  - calls:
    - tool: delete_order
      arguments: {id: "{{id}}"}
    onDenied:
    - text: "I may not do that."
    onError:
    - text: "It failed."
  - text: Deleted.
- default: true
  steps:
  - text: How can I help?
    chunks: whole
"#;

    fn scenario() -> Scenario {
        Scenario::parse(HELP_DESK).unwrap()
    }

    fn asked(messages: Vec<Message>) -> Performance {
        let request = Request {
            messages: messages.into(),
            ..Request::default()
        };
        perform(Some(&scenario()), &request)
    }

    fn text(performance: &Performance) -> String {
        performance.chunks.concat()
    }

    #[test]
    fn a_message_selects_its_turn_and_captures_values() {
        let first = asked(vec![Message::user("WHERE is order 1017?")]);
        assert_eq!(first.thoughts, ["looking"]);
        assert_eq!(first.chunks, ["Let ", "me ", "look. "]);
        assert_eq!(first.delay, Duration::from_millis(20));
        assert_eq!(first.finish, FinishReason::ToolCalls);
        assert_eq!(first.calls.len(), 2);
        assert_eq!(first.calls[0].id, "call_1_0_0");
        assert_eq!(
            serde_json::from_str::<Value>(&first.calls[0].arguments).unwrap(),
            json!({"id": "1017", "number": 1017, "nested": [{"q": "WHERE is order 1017?"}, 1, null]})
        );
        assert_eq!(first.calls[1].arguments, "{}");
    }

    fn after_calls(message: &str, result: &str, is_error: bool) -> Performance {
        let first = asked(vec![Message::user(message)]);
        let mut messages = vec![
            Message::user("hello"),
            Message::assistant("How can I help?", Vec::new()),
            Message::user(message),
            Message::assistant(text(&first), first.calls.clone()),
        ];
        for call in &first.calls {
            // Over HTTP a result has no name, only the call's id.
            messages.push(Message::tool_result(&call.id, "", result, is_error));
        }
        asked(messages)
    }

    #[test]
    fn a_result_is_quoted_in_the_next_step() {
        let second = after_calls("Where is order 1017?", r#"{"status":"shipped"}"#, false);
        assert_eq!(text(&second), "Order 1017 is shipped.");
        assert_eq!(second.usage.input_tokens, 10);
        assert_eq!(second.finish, FinishReason::Completed);
    }

    #[test]
    fn a_failed_call_takes_the_other_branch() {
        let second = after_calls("Where is order 1017?", "HTTP 503: busy", true);
        assert_eq!(text(&second), "That failed: HTTP 503: busy");
    }

    #[test]
    fn a_denied_call_takes_its_own_branch_om_490() {
        let denial = "tool call denied by policy: deletions need a person (rule no-delete)";
        assert_eq!(
            text(&after_calls("delete order 5", denial, true)),
            "I may not do that."
        );
        assert_eq!(
            text(&after_calls("delete order 5", denial, false)),
            "I may not do that."
        );
        assert_eq!(
            text(&after_calls("delete order 5", "HTTP 500: x", true)),
            "It failed."
        );
        assert_eq!(text(&after_calls("delete order 5", "{}", false)), "Deleted.");
    }

    #[test]
    fn a_branch_counts_its_own_steps() {
        let first = asked(vec![Message::user("delete order 5")]);
        let messages = vec![
            Message::user("delete order 5"),
            Message::assistant("", first.calls.clone()),
            Message::tool_result(&first.calls[0].id, "delete_order", "no", true),
            Message::assistant("It failed.", Vec::new()),
        ];
        assert_eq!(text(&asked(messages)), NO_FURTHER_STEP);
    }

    #[test]
    fn a_turn_can_be_for_one_position_of_the_conversation() {
        let scenario = Scenario::parse(
            "turns:\n- position: 2\n  steps:\n  - text: second\n- match: a\n  position: 3\n  steps:\n  - text: third\n- default: true\n  steps:\n  - text: other\n",
        )
        .unwrap();
        let answers: Vec<String> = (1..=4)
            .map(|count| {
                let request = Request {
                    messages: vec![Message::user("a"); count].into(),
                    ..Request::default()
                };
                text(&perform(Some(&scenario), &request))
            })
            .collect();
        assert_eq!(answers, ["other", "second", "third", "other"]);
    }

    #[test]
    fn other_messages_get_the_default_turn() {
        assert_eq!(asked(vec![Message::user("hi")]).chunks, ["How can I help?"]);
    }

    #[test]
    fn without_a_scenario_the_model_names_its_tools() {
        let mut request = Request {
            messages: vec![Message::user("hi")].into(),
            tools: ["a", "b"]
                .map(|name| ToolDescriptor {
                    name: name.to_owned(),
                    description: String::new(),
                    parameters: json!({}),
                })
                .into(),
            ..Request::default()
        };
        let answer = text(&perform(None, &request));
        assert!(
            answer.contains("\"hi\"") && answer.contains("2 tools: a, b"),
            "{answer}"
        );
        request.messages = [Message::user("hi"), Message::tool_result("1", "a", "42", false)].into();
        assert_eq!(text(&perform(None, &request)), "`a` answered: 42");
    }

    proptest! {
        #[test]
        fn pieces_always_join_to_the_text(text in "[a-z \n\tö]{0,60}") {
            for chunks in [Chunks::Words, Chunks::Lines, Chunks::Characters, Chunks::Whole] {
                let pieces = cut(&text, chunks);
                prop_assert_eq!(pieces.concat(), text.clone());
                prop_assert!(pieces.iter().all(|piece| !piece.is_empty()));
            }
        }
    }
}
