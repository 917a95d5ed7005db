//! Regular expressions in RE2's syntax: linear time, bounded size.

use std::sync::Arc;

use regex::{Regex, RegexBuilder};

use crate::budget::{Budget, text_cost};
use crate::error::EvaluationError;
use crate::evaluate::Context;
use crate::value::Value;

/// Bytes a compiled pattern may take when it is a literal, which is compiled once.
const LITERAL_SIZE: usize = 1 << 20;
/// Bytes a compiled pattern may take when it is made by the evaluation.
const COMPUTED_SIZE: usize = 256 << 10;
/// Nested groups and repetitions in a pattern.
const NESTING: u32 = 50;
/// Cost of compiling a pattern that is not a literal. A short pattern can be slow to compile
/// (`\w{100}`), and without this a loop over patterns would be nearly free.
const COMPILE_COST: u64 = 10_000;
/// Compiled patterns kept during one evaluation.
const KEPT: usize = 8;

/// Compiles a pattern; the error is the library's explanation. Behind an `Arc`, since a cloned `Regex`
/// starts with empty caches and is slow each time.
pub(crate) fn compile(pattern: &str) -> Result<Arc<Regex>, String> {
    build(pattern, LITERAL_SIZE)
}

/// The reference's words for a pattern that does not compile; for most mistakes those of this library.
pub(crate) fn explained(pattern: &str, reason: &str) -> String {
    let known = [
        ("unclosed group", "missing closing )"),
        ("unopened group", "unexpected )"),
        ("unclosed character class", "missing closing ]"),
        (
            "repetition operator missing expression",
            "missing argument to repetition operator",
        ),
    ];
    match known.iter().find(|(ours, _)| reason.contains(ours)) {
        Some((_, theirs)) => format!("error parsing regexp: {theirs}: `{pattern}`"),
        None => format!("error parsing regexp: {}", reason.replace('\n', " ")),
    }
}

fn build(pattern: &str, size: usize) -> Result<Arc<Regex>, String> {
    RegexBuilder::new(pattern)
        .size_limit(size)
        .dfa_size_limit(LITERAL_SIZE)
        .nest_limit(NESTING)
        .build()
        .map(Arc::new)
        .map_err(|error| error.to_string())
}

/// The patterns of one evaluation.
#[derive(Default)]
pub(crate) struct Patterns {
    /// The literal pattern of the call that is being made, compiled with the expression.
    pub(crate) literal: Option<Arc<Regex>>,
    kept: Vec<(String, Arc<Regex>)>,
}

impl Patterns {
    fn find(&mut self, pattern: &str, budget: &mut Budget) -> Result<Arc<Regex>, EvaluationError> {
        if let Some(literal) = self.literal.take() {
            return Ok(literal);
        }
        if let Some((_, regex)) = self.kept.iter().find(|(kept, _)| kept == pattern) {
            return Ok(regex.clone());
        }
        budget.work(COMPILE_COST.saturating_add(text_cost(pattern.len())))?;
        budget.allocate(COMPUTED_SIZE / 8)?;
        let regex = build(pattern, COMPUTED_SIZE).map_err(|error| {
            EvaluationError::argument(format!("error parsing regexp: {}", error.replace('\n', " ")))
        })?;
        if self.kept.len() == KEPT {
            self.kept.remove(0);
        }
        self.kept.push((pattern.to_owned(), regex.clone()));
        Ok(regex)
    }
}

/// The regex of a call `text.function(pattern, …)`, paid for: a tenth per byte of text times a quarter
/// per byte of pattern, as in Kubernetes' cost model.
fn prepared(context: &mut Context<'_>, text: &str, pattern: &str) -> Result<Arc<Regex>, EvaluationError> {
    let pattern_cost = u64::try_from(pattern.len())
        .unwrap_or(u64::MAX)
        .div_ceil(4)
        .max(1);
    let cost = text_cost(text.len().saturating_add(1)).saturating_mul(pattern_cost);
    context.budget.work(cost)?;
    context.patterns.find(pattern, context.budget)
}

/// `text.matches(pattern)`
pub(crate) fn matches(context: &mut Context<'_>, arguments: &[Value]) -> Result<Value, EvaluationError> {
    match arguments {
        [Value::String(text), Value::String(pattern)] => {
            let regex = prepared(context, text, pattern)?;
            Ok(Value::Bool(regex.is_match(text)))
        }
        _ => Err(EvaluationError::no_overload("matches", arguments)),
    }
}

/// `text.find(pattern)`: the first match, or an empty text.
pub(crate) fn find(context: &mut Context<'_>, arguments: &[Value]) -> Result<Value, EvaluationError> {
    match arguments {
        [Value::String(text), Value::String(pattern)] => {
            let regex = prepared(context, text, pattern)?;
            let found = regex.find(text).map_or("", |found| found.as_str());
            context.budget.allocate(found.len())?;
            Ok(Value::from(found))
        }
        _ => Err(EvaluationError::no_overload("find", arguments)),
    }
}

/// `text.findAll(pattern)` and `text.findAll(pattern, limit)`; a negative limit means all.
pub(crate) fn find_all(context: &mut Context<'_>, arguments: &[Value]) -> Result<Value, EvaluationError> {
    let (text, pattern, limit) = match arguments {
        [Value::String(text), Value::String(pattern)] => (text, pattern, -1),
        [Value::String(text), Value::String(pattern), Value::Int(limit)] => (text, pattern, *limit),
        _ => return Err(EvaluationError::no_overload("findAll", arguments)),
    };
    let regex = prepared(context, text, pattern)?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut found = Vec::new();
    for one in regex.find_iter(text).take(limit) {
        context.budget.work(1)?;
        context.budget.allocate_entries(1)?;
        context.budget.allocate(one.len())?;
        found.push(Value::from(one.as_str()));
    }
    Ok(Value::list(found))
}
