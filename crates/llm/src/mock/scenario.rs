//! The scenario file: its form, and what is checked when it is read.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use regex::{Regex, RegexBuilder};
use serde::Deserialize;
use serde_json::Value;

use super::template::{Template, TemplateError};
use crate::event::{FinishReason, Usage};

/// Longest scenario file, in bytes: what a ConfigMap can hold.
const MAX_BYTES: usize = 1024 * 1024;

const PATTERN_LIMIT: usize = 1024 * 1024;

/// What a scripted model says.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Model names to list; never empty.
    pub models: Vec<String>,
    /// The turns in the order they are tried; a turn without a pattern is tried last.
    pub turns: Vec<Turn>,
}

/// How the model behaves in one turn, from the user's message to the end of the answer.
#[derive(Debug, Clone)]
pub struct Turn {
    /// The user's messages it is for; `None` takes any.
    pub pattern: Option<Regex>,
    /// Which of the user's messages it is for, counted from 1; `None` takes any.
    pub position: Option<usize>,
    /// The answers, one per call of the model.
    pub steps: Vec<Step>,
}

/// One answer of the model.
#[derive(Debug, Clone)]
pub struct Step {
    /// Reasoning, before the text.
    pub think: Option<Template>,
    /// Text.
    pub text: Option<Template>,
    /// How the text is cut.
    pub chunks: Chunks,
    /// Wait before the answer begins.
    pub wait: Duration,
    /// Wait before each piece.
    pub delay: Duration,
    /// Calls, after the text.
    pub calls: Vec<Call>,
    /// Token counts; `None` = counted from the texts.
    pub usage: Option<Usage>,
    /// Why the answer ends; `None` = by whether there are calls.
    pub finish: Option<FinishReason>,
    /// A failure in place of the answer, or in the middle of it.
    pub fail: Option<Failure>,
    /// How it goes on when a call failed.
    pub on_error: Option<Vec<Step>>,
    /// How it goes on when a call was refused by policy.
    pub on_denied: Option<Vec<Step>>,
}

/// How a text is cut into pieces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Chunks {
    /// After each run of white space.
    #[default]
    Words,
    /// After each line.
    Lines,
    /// After each character.
    Characters,
    /// Not at all.
    Whole,
}

/// One tool call.
#[derive(Debug, Clone)]
pub struct Call {
    /// The tool.
    pub tool: String,
    /// The arguments; an object.
    pub arguments: Argument,
}

/// A value whose texts are templates.
#[derive(Debug, Clone)]
pub enum Argument {
    /// A text.
    Text(Template),
    /// A list.
    List(Vec<Argument>),
    /// An object.
    Object(BTreeMap<String, Argument>),
    /// Anything else.
    Other(Value),
}

/// A failure of the provider.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Failure {
    /// HTTP status; without one the connection breaks.
    pub status: Option<u16>,
    /// The provider's message.
    #[serde(default = "default_failure")]
    pub message: String,
    /// The provider's word for it.
    pub code: Option<String>,
    /// Seconds of the `Retry-After` header.
    pub retry_after: Option<u64>,
    /// How many pieces of text are sent before the failure.
    #[serde(default)]
    pub after_chunks: usize,
    /// The failure is sent inside a stream that began with status 200, even as its first event.
    #[serde(default)]
    pub in_stream: bool,
    /// Not an error but a chunk that cannot be read.
    #[serde(default)]
    pub malformed: bool,
    /// How many calls of the step fail before it succeeds; `None` = all.
    pub times: Option<u64>,
    /// Failures so far. Shared by the clones of a scenario, so it counts from when the file was read.
    #[serde(skip)]
    pub failed: Arc<AtomicU64>,
}

impl Failure {
    /// Whether this call fails. Counts it where the failures are limited.
    pub fn strikes(&self) -> bool {
        match self.times {
            None => true,
            Some(times) => self.failed.fetch_add(1, Ordering::Relaxed) < times,
        }
    }
}

impl PartialEq for Failure {
    // What a scenario says, not how far it has come.
    fn eq(&self, other: &Self) -> bool {
        let said = |failure: &Self| {
            (
                failure.status,
                failure.message.clone(),
                failure.code.clone(),
                failure.retry_after,
                failure.after_chunks,
                failure.in_stream,
                failure.malformed,
                failure.times,
            )
        };
        said(self) == said(other)
    }
}

fn default_failure() -> String {
    "the scenario says that this call fails".to_owned()
}

/// Why a scenario cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// It is not YAML of the expected form; the text names line, column and field.
    #[error("the scenario cannot be read: {0}")]
    Form(String),
    /// A field has a value that cannot be used.
    #[error("the scenario's `{field}` cannot be used: {problem}")]
    Field {
        /// Path of the field, such as `turns[1].match`.
        field: String,
        /// What is wrong.
        problem: String,
    },
    /// Larger than a ConfigMap can hold.
    #[error("the scenario is larger than {MAX_BYTES} bytes")]
    TooLarge,
    /// The file is not there.
    #[error("the scenario file cannot be read: {0}")]
    File(#[source] std::io::Error),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ScenarioFile {
    #[serde(default)]
    models: Vec<String>,
    #[serde(
        default,
        with = "jiff::fmt::serde::unsigned_duration::friendly::compact::optional"
    )]
    delay: Option<Duration>,
    turns: Vec<TurnFile>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TurnFile {
    r#match: Option<String>,
    position: Option<usize>,
    #[serde(default)]
    ignore_case: bool,
    #[serde(default)]
    default: bool,
    steps: Vec<StepFile>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StepFile {
    think: Option<String>,
    text: Option<String>,
    #[serde(default)]
    chunks: Chunks,
    #[serde(
        default,
        with = "jiff::fmt::serde::unsigned_duration::friendly::compact::optional"
    )]
    wait: Option<Duration>,
    #[serde(
        default,
        with = "jiff::fmt::serde::unsigned_duration::friendly::compact::optional"
    )]
    delay: Option<Duration>,
    #[serde(default)]
    calls: Vec<CallFile>,
    usage: Option<UsageFile>,
    finish: Option<FinishFile>,
    fail: Option<Failure>,
    on_error: Option<Vec<StepFile>>,
    on_denied: Option<Vec<StepFile>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CallFile {
    tool: String,
    #[serde(default)]
    arguments: serde_json::Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct UsageFile {
    input_tokens: u64,
    output_tokens: u64,
    #[serde(default)]
    cached_tokens: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum FinishFile {
    Completed,
    Incomplete,
    Refused,
}

impl Scenario {
    /// Reads a scenario file.
    ///
    /// # Errors
    /// [`ScenarioError`]; unknown fields are errors.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        if text.len() > MAX_BYTES {
            return Err(ScenarioError::TooLarge);
        }
        let file: ScenarioFile = serde_saphyr::from_str(text)
            .map_err(|error| ScenarioError::Form(error.without_snippet().to_string()))?;
        let mut turns = Vec::with_capacity(file.turns.len());
        let mut default = None;
        for (index, turn) in file.turns.into_iter().enumerate() {
            let path = format!("turns[{index}]");
            let turn = compile_turn(turn, &path, file.delay.unwrap_or_default())?;
            if turn.pattern.is_some() || turn.position.is_some() {
                turns.push(turn);
            } else if default.replace(turn).is_some() {
                return Err(invalid(
                    format!("{path}.default"),
                    "another turn is the default already",
                ));
            }
        }
        turns.extend(default);
        if turns.is_empty() {
            return Err(invalid("turns".to_owned(), "at least one turn is needed"));
        }
        let mut models = file.models;
        if models.is_empty() {
            models.push("mock".to_owned());
        }
        Ok(Self { models, turns })
    }
}

fn invalid(field: String, problem: impl ToString) -> ScenarioError {
    ScenarioError::Field {
        field,
        problem: problem.to_string(),
    }
}

fn compile_turn(turn: TurnFile, path: &str, delay: Duration) -> Result<Turn, ScenarioError> {
    let chosen = turn.r#match.is_some() || turn.position.is_some();
    if chosen == turn.default {
        let problem = if chosen {
            "`default: true` excludes `match` and `position`"
        } else {
            "`match`, `position` or `default: true` is needed"
        };
        return Err(invalid(path.to_owned(), problem));
    }
    if turn.position == Some(0) {
        return Err(invalid(format!("{path}.position"), "the first message is 1"));
    }
    let pattern = turn
        .r#match
        .map(|pattern| {
            RegexBuilder::new(&pattern)
                .case_insensitive(turn.ignore_case)
                .size_limit(PATTERN_LIMIT)
                .build()
                .map_err(|error| invalid(format!("{path}.match"), error))
        })
        .transpose()?;
    let captures: Vec<String> = pattern
        .iter()
        .flat_map(Regex::capture_names)
        .flatten()
        .map(str::to_owned)
        .collect();
    let steps = compile_steps(turn.steps, &format!("{path}.steps"), delay, &captures)?;
    Ok(Turn {
        pattern,
        position: turn.position,
        steps,
    })
}

fn compile_steps(
    steps: Vec<StepFile>,
    path: &str,
    delay: Duration,
    captures: &[String],
) -> Result<Vec<Step>, ScenarioError> {
    if steps.is_empty() {
        return Err(invalid(path.to_owned(), "at least one step is needed"));
    }
    let numbered = steps.into_iter().enumerate();
    numbered
        .map(|(index, step)| compile_step(step, &format!("{path}[{index}]"), delay, captures))
        .collect()
}

fn compile_step(
    step: StepFile,
    path: &str,
    delay: Duration,
    captures: &[String],
) -> Result<Step, ScenarioError> {
    let template = |field: &str, text: Option<String>| {
        text.map(|text| Template::parse(&text, captures))
            .transpose()
            .map_err(|error| invalid(format!("{path}.{field}"), error))
    };
    let branch = |field: &str, steps: Option<Vec<StepFile>>| {
        steps
            .map(|steps| compile_steps(steps, &format!("{path}.{field}"), delay, captures))
            .transpose()
    };
    if step.text.is_none() && step.think.is_none() && step.calls.is_empty() && step.fail.is_none() {
        return Err(invalid(
            path.to_owned(),
            "a step needs at least one of `text`, `think`, `calls` and `fail`",
        ));
    }
    if step.calls.is_empty() && (step.on_error.is_some() || step.on_denied.is_some()) {
        return Err(invalid(path.to_owned(), "`onError` and `onDenied` need `calls`"));
    }
    if let Some(fail) = &step.fail {
        check_failure(fail, &format!("{path}.fail"))?;
        let says = step.text.is_some() || step.think.is_some() || !step.calls.is_empty();
        if fail.times.is_some() && !says {
            return Err(invalid(
                path.to_owned(),
                "a step whose `fail` has `times` needs an answer for the calls after them",
            ));
        }
    }
    let mut calls = Vec::with_capacity(step.calls.len());
    for (index, call) in step.calls.into_iter().enumerate() {
        let arguments = compile_argument(Value::Object(call.arguments), captures)
            .map_err(|error| invalid(format!("{path}.calls[{index}].arguments"), error))?;
        calls.push(Call {
            tool: call.tool,
            arguments,
        });
    }
    Ok(Step {
        think: template("think", step.think)?,
        text: template("text", step.text)?,
        chunks: step.chunks,
        wait: step.wait.unwrap_or_default(),
        delay: step.delay.unwrap_or(delay),
        calls,
        usage: step.usage.map(|usage| Usage {
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            cached_tokens: usage.cached_tokens,
        }),
        finish: step.finish.map(|finish| match finish {
            FinishFile::Completed => FinishReason::Completed,
            FinishFile::Incomplete => FinishReason::Incomplete,
            FinishFile::Refused => FinishReason::Refused,
        }),
        fail: step.fail,
        on_error: branch("onError", step.on_error)?,
        on_denied: branch("onDenied", step.on_denied)?,
    })
}

fn check_failure(fail: &Failure, path: &str) -> Result<(), ScenarioError> {
    if fail.status.is_some_and(|status| !(400..600).contains(&status)) {
        return Err(invalid(format!("{path}.status"), "it must be from 400 to 599"));
    }
    let described = fail.status.is_some() || fail.code.is_some() || fail.retry_after.is_some();
    if fail.malformed && described {
        return Err(invalid(
            format!("{path}.malformed"),
            "it excludes `status`, `code` and `retryAfter`",
        ));
    }
    if fail.in_stream && fail.status.is_none() {
        return Err(invalid(
            format!("{path}.inStream"),
            "it needs the `status` that the error stands for",
        ));
    }
    Ok(())
}

fn compile_argument(value: Value, captures: &[String]) -> Result<Argument, TemplateError> {
    Ok(match value {
        Value::String(text) => Argument::Text(Template::parse(&text, captures)?),
        Value::Array(items) => Argument::List(
            items
                .into_iter()
                .map(|item| compile_argument(item, captures))
                .collect::<Result<_, _>>()?,
        ),
        Value::Object(fields) => Argument::Object(
            fields
                .into_iter()
                .map(|(name, value)| Ok((name, compile_argument(value, captures)?)))
                .collect::<Result<_, _>>()?,
        ),
        other => Argument::Other(other),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    fn error(text: &str) -> String {
        Scenario::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn an_unknown_field_is_named_with_its_line() {
        let error = error("turns:\n- default: true\n  steps:\n  - txet: hello\n");
        assert!(error.contains("line 4") && error.contains("txet"), "{error}");
    }

    #[test]
    fn mistakes_inside_values_name_their_field() {
        for (text, field) in [
            ("turns: []", "`turns`"),
            ("turns:\n- steps:\n  - text: a\n", "`turns[0]`"),
            (
                "turns:\n- match: '('\n  steps:\n  - text: a\n",
                "`turns[0].match`",
            ),
            (
                "turns:\n- position: 0\n  steps:\n  - text: a\n",
                "`turns[0].position`",
            ),
            (
                "turns:\n- default: true\n  steps:\n  - fail: {inStream: true}\n",
                "`turns[0].steps[0].fail.inStream`",
            ),
            (
                "turns:\n- default: true\n  steps:\n  - fail: {malformed: true, status: 500}\n",
                "`turns[0].steps[0].fail.malformed`",
            ),
            (
                "turns:\n- default: true\n  steps:\n  - fail: {times: 2}\n",
                "`turns[0].steps[0]`",
            ),
            (
                "turns:\n- match: a\n  default: true\n  steps:\n  - text: a\n",
                "`turns[0]`",
            ),
            ("turns:\n- default: true\n  steps: []\n", "`turns[0].steps`"),
            (
                "turns:\n- default: true\n  steps:\n  - delay: 5ms\n",
                "`turns[0].steps[0]`",
            ),
            (
                "turns:\n- default: true\n  steps:\n  - text: '{{id}}'\n",
                "`turns[0].steps[0].text`",
            ),
            (
                "turns:\n- default: true\n  steps:\n  - calls:\n    - tool: a\n      arguments:\n        x: ['{{id']\n",
                "`turns[0].steps[0].calls[0].arguments`",
            ),
            (
                "turns:\n- default: true\n  steps:\n  - text: a\n    onError:\n    - text: b\n",
                "`turns[0].steps[0]`",
            ),
            (
                "turns:\n- default: true\n  steps:\n  - fail:\n      status: 200\n",
                "`turns[0].steps[0].fail.status`",
            ),
            (
                "turns:\n- default: true\n  steps:\n  - text: a\n- default: true\n  steps:\n  - text: b\n",
                "`turns[1].default`",
            ),
        ] {
            let error = error(text);
            assert!(error.contains(field), "{text}\n{error}");
        }
    }

    #[test]
    fn the_documented_examples_are_scenarios() {
        let page = include_str!("../../../../docs/reference/scenario.md");
        let mut examples = page.split("```yaml\n").skip(1);
        let mut next = || {
            let example = examples.next().unwrap().split("```").next().unwrap();
            Scenario::parse(example).unwrap()
        };
        let scenario = next();
        assert_eq!(scenario.turns.len(), 3);
        assert_eq!(scenario.models, ["helpdesk"]);
        let failures = next();
        assert_eq!(failures.turns.len(), 5);
        assert!(examples.next().is_none());
    }

    #[test]
    fn a_delay_without_a_unit_is_refused() {
        let error = error("delay: 30\nturns:\n- default: true\n  steps:\n  - text: a\n");
        assert!(error.contains("line 1"), "{error}");
    }

    #[test]
    fn the_default_turn_is_tried_last_wherever_it_stands() {
        let scenario = Scenario::parse(
            "turns:\n- default: true\n  steps:\n  - text: a\n- match: b\n  steps:\n  - text: b\n",
        )
        .unwrap();
        assert!(scenario.turns[0].pattern.is_some());
        assert!(scenario.turns[1].pattern.is_none());
        assert_eq!(scenario.models, ["mock"]);
    }
}
