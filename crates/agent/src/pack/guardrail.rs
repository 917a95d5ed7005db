//! Guardrails: deterministic checks of what goes into and comes out of a model (OM-565).
//!
//! A length rule shortens the text, a content rule replaces it. A violation of a rule with
//! `fail_on_violation` moreover ends the round and drops its tool calls; the turn loop does that.

mod rule;

use std::sync::Arc;

use mainstay_llm::ResponseFormat;
use serde_json::Value;

use super::Validator;
use rule::Rule;

/// Which side of the model a text stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// What the user wrote.
    Input,
    /// What the model wrote.
    Output,
}

/// Why guardrails cannot be run; the agent is not ready and says so (OM-565).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GuardrailError {
    /// A type that is not known. Skipping it would run the agent without the check its author relies on.
    #[error("validator {index} has the unknown type `{kind}`; known types: {}", rule::KNOWN.join(", "))]
    UnknownType {
        /// Position in `validators`.
        index: usize,
        /// The type as written.
        kind: String,
    },
    /// Parameters that the type does not accept.
    #[error("validator {index} (`{kind}`) {reason}")]
    InvalidParams {
        /// Position in `validators`.
        index: usize,
        /// The type as written.
        kind: String,
        /// What is wrong.
        reason: String,
    },
}

/// One rule that a text broke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Type of the validator.
    pub validator: String,
    /// What was wrong; never repeats the text.
    pub reason: String,
    /// Whether the round ends (`fail_on_violation`).
    pub stops: bool,
}

/// The outcome of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The text to use: the original, a shortened or a replaced one.
    pub text: String,
    /// Whether a content rule replaced the text.
    pub replaced: bool,
    /// What was broken, in the order of the pack. Empty means `text` is the original.
    pub violations: Vec<Violation>,
}

impl Verdict {
    /// Whether a broken rule ends the round.
    pub fn stops(&self) -> bool {
        self.violations.iter().any(|violation| violation.stops)
    }
}

/// The enabled validators of a prompt, compiled.
#[derive(Debug, Clone, Default)]
pub struct Guardrails {
    entries: Vec<Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    kind: String,
    rule: Rule,
    input: bool,
    output: bool,
    stops: bool,
    message: Option<String>,
}

impl Guardrails {
    /// Compiles the validators of a prompt; disabled ones are skipped, whatever their type.
    ///
    /// # Errors
    ///
    /// The first validator that cannot be run.
    pub fn compile(validators: &[Validator]) -> Result<Self, GuardrailError> {
        let mut entries = Vec::new();
        for (index, validator) in validators
            .iter()
            .enumerate()
            .filter(|(_, validator)| validator.enabled)
        {
            let rule = match Rule::compile(&validator.kind, &validator.params) {
                Some(Ok(rule)) => rule,
                Some(Err(reason)) => {
                    return Err(GuardrailError::InvalidParams {
                        index,
                        kind: validator.kind.clone(),
                        reason,
                    });
                }
                None => {
                    return Err(GuardrailError::UnknownType {
                        index,
                        kind: validator.kind.clone(),
                    });
                }
            };
            let direction = validator
                .params
                .get("direction")
                .map_or(Some("output"), Value::as_str);
            let (input, output) = match direction {
                Some("input") => (true, false),
                Some("output") => (false, true),
                Some("both") => (true, true),
                _ => {
                    return Err(GuardrailError::InvalidParams {
                        index,
                        kind: validator.kind.clone(),
                        reason: "has a direction other than input, output or both".to_owned(),
                    });
                }
            };
            entries.push(Entry {
                kind: validator.kind.clone(),
                rule,
                input,
                output,
                stops: validator.fail_on_violation,
                message: validator.message.clone(),
            });
        }
        Ok(Self { entries })
    }

    /// Whether anything is checked in this direction. The turn loop withholds text from the reader until it
    /// is checked only when this is true.
    pub fn covers(&self, direction: Direction) -> bool {
        self.entries.iter().any(|entry| entry.applies(direction))
    }

    /// What the model is asked for: the schema that its answer is checked against afterwards, the first one where there
    /// are several. A provider that binds its answers to it spares the reader an answer that is withheld.
    pub fn answer_format(&self) -> ResponseFormat {
        let schemas = self.entries.iter().filter(|entry| entry.output);
        let author = schemas.filter_map(|entry| entry.rule.schema()).next();
        author.map_or(ResponseFormat::Text, |schema| ResponseFormat::Schema {
            name: "answer".to_owned(),
            schema: Arc::clone(schema),
        })
    }

    /// Checks a text against every rule of the direction, in the order of the pack. Each rule sees what the
    /// rules before it left.
    pub fn check(&self, direction: Direction, text: &str) -> Verdict {
        let mut verdict = Verdict {
            text: text.to_owned(),
            replaced: false,
            violations: Vec::new(),
        };
        for entry in self.entries.iter().filter(|entry| entry.applies(direction)) {
            // A replacement is our own text: checking it against a content rule again could only loop.
            if verdict.replaced && !entry.rule.is_length() {
                continue;
            }
            let Some(broken) = entry.rule.broken_by(&verdict.text) else {
                continue;
            };
            verdict.violations.push(Violation {
                validator: entry.kind.clone(),
                reason: broken.reason,
                stops: entry.stops,
            });
            match broken.shortened {
                Some(shortened) => verdict.text = shortened,
                None => {
                    verdict.replaced = true;
                    verdict.text = entry.message.clone().unwrap_or_else(|| match direction {
                        Direction::Input => "This message was not accepted.".to_owned(),
                        Direction::Output => "This answer was withheld.".to_owned(),
                    });
                }
            }
        }
        verdict
    }
}

impl Entry {
    fn applies(&self, direction: Direction) -> bool {
        match direction {
            Direction::Input => self.input,
            Direction::Output => self.output,
        }
    }
}
