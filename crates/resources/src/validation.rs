//! One validator per kind: the rules of admission once more, for objects that bypassed it, and the rules that only a
//! controller enforces (DD-2, DD-22).
//!
//! Validators are pure. Admission (the schema with its CEL rules) and the validators are kept in step by the vectors
//! under `tests/cases/admission`: every object that admission refuses is refused here too.

pub mod agent_runtime;
pub mod endpoint;
pub mod prompt_pack;
pub mod provider;
mod retry;
pub mod tool_auth;
pub mod tool_policy;
pub mod tool_registry;

use std::fmt;

/// One thing that is wrong with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Path of the field, from the object's root (`spec.rules[0].deny`).
    pub field: String,
    /// What is wrong, as a sentence without the field.
    pub message: String,
}

impl Finding {
    pub(crate) fn new(field: impl Into<String>, message: impl Into<String>) -> Finding {
        Finding {
            field: field.into(),
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.field, self.message)
    }
}

/// All findings in one line, separated by semicolons.
#[must_use]
pub fn join(findings: &[Finding]) -> String {
    findings
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}

/// Whether a text is a name of a handler, sandbox or provider entry (OM-020).
fn is_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty()
        && text.len() <= 63
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Checks a duration that has to be above zero.
fn positive_duration(findings: &mut Vec<Finding>, field: String, text: &str) {
    match crate::duration::parse_go(text) {
        Ok(duration) if duration.is_zero() => findings.push(Finding::new(field, "must be above zero")),
        Ok(_) => {}
        Err(error) => findings.push(Finding::new(field, error.to_string())),
    }
}
