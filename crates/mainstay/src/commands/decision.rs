//! A decision about a tool call as it is printed: what came of it, what every policy has to do with it, what was evaluated.

use mainstay_agent::tool::{Considered, Decision, Explanation, Finding, StepResult, TraceStep};
use mainstay_telemetry::text::escape;
use serde_json::{Map, Value};

use crate::{terminal, terminal::Failure};

/// The longest shown expression, message or value, in bytes.
const SHOWN: usize = 160;

/// Reads the arguments of a call; `what` names where they were given.
pub(crate) fn arguments(text: &str, what: &str) -> Result<Map<String, Value>, Failure> {
    let quoted = "quote it as a whole: '{\"id\": 1017}'";
    match serde_json::from_str(text) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(other) => Err(Failure::new(format!(
            "{what}: the arguments must be a JSON object, not {}",
            kind(&other)
        ))
        .with_hint(quoted)),
        Err(error) => Err(Failure::new(format!("{what}: not valid JSON: {error}")).with_hint(quoted)),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Prints `explanation` for people.
pub(crate) fn print(explanation: &Explanation) {
    terminal::data(terminal::printable(&headline(explanation)));
    for (name, value) in &explanation.decision.injected_headers {
        terminal::data(format!("adds the header {name}: {}", escape(value, SHOWN)));
    }
    if !explanation.policies.is_empty() {
        let mut rows = vec![
            ["POLICY", "REGISTRY", "TOOLS", "MODE", "SAYS"]
                .map(str::to_owned)
                .to_vec(),
        ];
        rows.extend(explanation.policies.iter().map(considered));
        terminal::data(format!("\n{}", terminal::table(&rows)));
    }
    if !explanation.decision.trace.is_empty() {
        let mut rows = vec![
            ["POLICY", "RULE", "RESULT", "EXPRESSION", "VALUES"]
                .map(str::to_owned)
                .to_vec(),
        ];
        rows.extend(explanation.decision.trace.iter().map(step));
        terminal::data(format!("\n{}", terminal::table(&rows)));
    }
}

/// The decision in one line.
pub(crate) fn headline(explanation: &Explanation) -> String {
    let Decision {
        allow,
        denied_by,
        message,
        ..
    } = &explanation.decision;
    if !explanation.judged && *allow {
        return "allowed: calls are not judged, there is no policy engine".to_owned();
    }
    let by = denied_by.as_deref().unwrap_or_default();
    let message = escape(message.as_deref().unwrap_or_default(), SHOWN);
    let policy = explanation
        .decision
        .deciding_policy()
        .filter(|_| by != "no-matching-permit");
    let source = match policy {
        Some(policy) => format!("rule {by} of ToolPolicy {policy}"),
        None => by.to_owned(),
    };
    if !allow {
        return format!("denied by {source}: {message}");
    }
    if denied_by.is_some() {
        return format!("allowed, but {source} would deny it: {message}");
    }
    let permitting: Vec<&str> = explanation
        .policies
        .iter()
        .filter(|considered| considered.finding == Finding::Permits)
        .map(|considered| considered.policy.as_str())
        .collect();
    match permitting.as_slice() {
        [] => "allowed".to_owned(),
        policies => format!("allowed by ToolPolicy {}", policies.join(", ")),
    }
}

fn considered(considered: &Considered) -> Vec<String> {
    let tools = match considered.tools.as_slice() {
        [] => "all".to_owned(),
        tools => tools.join(", "),
    };
    let says = match &considered.finding {
        Finding::OtherRegistry => "not asked: another registry".to_owned(),
        Finding::OtherTools => "not asked: other tools".to_owned(),
        Finding::Permits => "permits".to_owned(),
        Finding::NoPermitRuleHolds => "permits nothing: none of its permit rules is true".to_owned(),
        Finding::Denies { by } => format!("denies ({by})"),
        Finding::WouldDeny { by } => format!("would deny ({by}), and permits"),
        Finding::NotReached => "not reached: denied before".to_owned(),
    };
    vec![
        considered.policy.clone(),
        considered.registry.clone(),
        tools,
        match considered.mode {
            mainstay_tools::policy::Mode::Enforce => "enforce",
            mainstay_tools::policy::Mode::Audit => "audit",
        }
        .to_owned(),
        escape(&says, SHOWN),
    ]
}

fn step(step: &TraceStep) -> Vec<String> {
    let result = match &step.result {
        StepResult::True => "true".to_owned(),
        StepResult::False => "false".to_owned(),
        StepResult::Failed(reason) => format!("failed: {reason}"),
        StepResult::ClaimMissing => "claim missing".to_owned(),
        StepResult::Injected => "injected".to_owned(),
    };
    let values: Vec<String> = step
        .values
        .iter()
        .map(|(path, value)| format!("{path}={value}"))
        .collect();
    let one_line = |text: &str| escape(&text.split_whitespace().collect::<Vec<_>>().join(" "), SHOWN);
    vec![
        step.policy.clone(),
        escape(&step.rule, SHOWN),
        escape(&result, SHOWN),
        one_line(&step.expression),
        escape(&values.join(" "), SHOWN),
    ]
}
