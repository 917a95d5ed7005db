//! The decision's trace: what was evaluated and what it saw, bounded and without credentials.

use std::collections::BTreeMap;

use mainstay_cel::{EvaluationError, EvaluationErrorKind, Program};
use mainstay_telemetry::text::escape;
use serde_json::Value as Json;

use super::decision::{StepResult, TraceStep};
use super::header;

/// Steps a trace holds; the step that decides is always added.
const STEPS: usize = 128;
/// Bytes of values, roughly, that a trace holds. Steps after that have no values.
const VALUE_BYTES: usize = 32 << 10;
/// Bytes of an evaluation error's text; it may quote a value.
const FAILURE_LIMIT: usize = 1024;
/// What stands for the value of a credential.
const MASKED: &str = "[redacted]";

/// A trace being written.
#[derive(Debug, Default)]
pub(super) struct Steps {
    steps: Vec<TraceStep>,
    value_bytes: usize,
}

impl Steps {
    /// Adds a step unless the trace is full.
    pub(super) fn add(&mut self, step: TraceStep) {
        if self.steps.len() < STEPS {
            self.add_deciding(step);
        }
    }

    /// Adds the step that decides.
    pub(super) fn add_deciding(&mut self, mut step: TraceStep) {
        let bytes: usize = step
            .values
            .iter()
            .map(|(path, value)| path.len() + value.to_string().len())
            .sum();
        if self.value_bytes + bytes > VALUE_BYTES {
            step.values.clear();
        } else {
            self.value_bytes += bytes;
        }
        self.steps.push(step);
    }

    pub(super) fn into_steps(self) -> Vec<TraceStep> {
        self.steps
    }
}

/// A step for a policy as a whole, or for a claim: no expression.
pub(super) fn plain_step(policy: &str, rule: String, result: StepResult) -> TraceStep {
    TraceStep {
        policy: policy.to_owned(),
        rule,
        expression: String::new(),
        result,
        values: BTreeMap::new(),
    }
}

/// A step for an evaluated expression.
pub(super) fn expression_step(
    policy: &str,
    rule: &str,
    program: &Program,
    result: StepResult,
    values: Vec<(String, Json)>,
) -> TraceStep {
    TraceStep {
        policy: policy.to_owned(),
        rule: rule.to_owned(),
        expression: program.source().to_owned(),
        result,
        values: values
            .into_iter()
            .map(|(path, value)| {
                let value = shown(&path, value);
                (path, value)
            })
            .collect(),
    }
}

/// The value as it may be shown: credentials among the headers are masked. A header picked by a name
/// that is only known at run time is masked too.
fn shown(path: &str, value: Json) -> Json {
    let Some(rest) = path.strip_prefix("headers") else {
        return value;
    };
    if rest.is_empty() {
        return match value {
            Json::Object(headers) => headers
                .into_iter()
                .map(|(name, value)| {
                    let secret = header::is_secret(&name);
                    (name, if secret { Json::from(MASKED) } else { value })
                })
                .collect(),
            // A map too large to be shown comes as a line of text that has no values.
            other => other,
        };
    }
    match literal_key(rest) {
        Some(name) if !header::is_secret(name) => value,
        _ => Json::from(MASKED),
    }
}

/// The name of a header in what follows `headers` in a path: `["X-Tenant"]`, `[?"X-Tenant"]`, `.Etag`.
fn literal_key(rest: &str) -> Option<&str> {
    let dotted = rest
        .strip_prefix('.')
        .map(|name| name.strip_prefix('?').unwrap_or(name));
    let indexed = || {
        let inner = rest.strip_prefix('[')?.strip_suffix(']')?;
        inner
            .strip_prefix('?')
            .unwrap_or(inner)
            .strip_prefix('"')?
            .strip_suffix('"')
    };
    let name = dotted.or_else(indexed)?;
    header::is_name(name).then_some(name)
}

/// The text of an evaluation error as it may be shown to the model and stored: one line.
pub(super) fn failure_text(program: &Program, error: &EvaluationError) -> String {
    escape(&told(program, error), FAILURE_LIMIT)
}

/// Some texts contain the value that was at fault; when the expression reads headers, that could be a credential.
fn told(program: &Program, error: &EvaluationError) -> String {
    let text = error.to_string();
    if !program.uses_variable("headers") {
        return text;
    }
    match error.kind() {
        EvaluationErrorKind::NoSuchKey => match text.strip_prefix("no such key: ") {
            Some(key) if !program.source().contains(key) => "no such key".to_owned(),
            _ => text,
        },
        EvaluationErrorKind::InvalidArgument => "invalid argument".to_owned(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn credentials_are_masked_however_the_header_is_read() {
        let secret = || json!("Bearer abc");
        for path in [
            "headers[\"Authorization\"]",
            "headers[?\"Authorization\"]",
            "headers.Authorization",
            "headers.?Authorization",
            "headers.?Cookie",
            "headers[body.name]",
            "headers[0]",
        ] {
            assert_eq!(shown(path, secret()), json!(MASKED), "{path}");
        }
        assert_eq!(
            shown("headers", json!({"Authorization": "Bearer abc", "X-Tenant": "a"})),
            json!({"Authorization": MASKED, "X-Tenant": "a"})
        );
        assert_eq!(shown("headers[\"X-Tenant\"]", json!("a")), json!("a"));
        assert_eq!(shown("has(headers.Authorization)", json!(true)), json!(true));
        assert_eq!(shown("body.password", json!("shown")), json!("shown"));
    }

    #[test]
    fn a_trace_is_bounded_but_keeps_the_deciding_step() {
        let mut steps = Steps::default();
        let step = |rule: String| TraceStep {
            values: BTreeMap::from([("body.text".to_owned(), json!("v".repeat(1000)))]),
            ..plain_step("policy", rule, StepResult::False)
        };
        for index in 0..500 {
            steps.add(step(format!("rule-{index}")));
        }
        steps.add_deciding(step("last".to_owned()));
        let steps = steps.into_steps();
        assert_eq!(steps.len(), STEPS + 1);
        assert_eq!(steps.last().map(|step| step.rule.as_str()), Some("last"));
        let bytes: usize = steps
            .iter()
            .flat_map(|step| step.values.values())
            .map(|value| value.to_string().len())
            .sum();
        assert!(bytes <= VALUE_BYTES && bytes > VALUE_BYTES / 2);
    }
}
