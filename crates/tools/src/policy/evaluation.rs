//! One decision being made: the variables, the order of judgement, the trace.

use std::time::Instant;

use mainstay_cel::{Budget, EvaluationErrorKind, Program, Value, Variables};
use serde_json::Value as Json;

use super::compiled::{CompiledHeader, CompiledSource, Effect, Policy};
use super::decision::{DecisionRequest, Identity, Mode, StepResult};
use super::header;
use super::spec::OnFailure;
use super::trace::{self, Steps};

/// Makes a decision's expressions run: same variables, one deadline.
pub(super) struct Evaluation {
    variables: Variables,
    deadline: Instant,
    steps: Steps,
}

/// What one policy says about the call.
pub(super) enum Verdict {
    /// It permits the call.
    Permit,
    /// It has rules that permit, and none of them does; another policy may (DD-4).
    NoPermit,
    /// It refuses the call.
    Deny(Denial),
    /// The deadline passed, so there is no answer (OM-488).
    OutOfTime,
}

/// A refusal.
pub(super) struct Denial {
    pub(super) denied_by: String,
    pub(super) message: String,
}

/// How one expression came out.
enum Outcome {
    Is(bool),
    Failed(String),
    OutOfTime,
}

impl Evaluation {
    /// Prepares the variables that the policies read.
    pub(super) fn new<'a>(
        request: &DecisionRequest,
        policies: impl Iterator<Item = &'a Policy> + Clone,
        deadline: Instant,
    ) -> Self {
        let used = |variable: &str| policies.clone().any(|policy| policy.uses(variable));
        let mut variables = Variables::new();
        if used("body") {
            variables.set("body", Value::from(&request.body));
        }
        if used("headers") {
            let headers = request.headers.iter();
            variables.set(
                "headers",
                Value::map(
                    headers.map(|(name, value)| (header::canonical_name(name), Value::from(value.as_str()))),
                ),
            );
        }
        if used("identity") {
            variables.set("identity", identity_value(&request.identity));
        }
        Self {
            variables,
            deadline,
            steps: Steps::default(),
        }
    }

    pub(super) fn into_steps(self) -> Steps {
        self.steps
    }

    /// Judges one policy: claims, then rules in order (OM-487).
    pub(super) fn judge(&mut self, policy: &Policy, identity: &Identity) -> Verdict {
        if let Some(reason) = &policy.broken {
            let denied_by = format!("policy-error:{}", policy.name);
            let result = StepResult::Failed(reason.clone());
            self.steps
                .add_deciding(trace::plain_step(&policy.name, denied_by.clone(), result));
            return Verdict::Deny(Denial {
                denied_by,
                message: format!("policy {} is in error: {reason}", policy.name),
            });
        }
        for required in &policy.required_claims {
            let present = identity
                .claims
                .get(&required.claim)
                .is_some_and(|claim| !claim.is_null());
            let name = format!("required-claim:{}", required.claim);
            if present {
                self.steps
                    .add(trace::plain_step(&policy.name, name, StepResult::True));
                continue;
            }
            self.steps.add_deciding(trace::plain_step(
                &policy.name,
                name.clone(),
                StepResult::ClaimMissing,
            ));
            return Verdict::Deny(Denial {
                denied_by: name,
                message: required.message.clone(),
            });
        }
        self.judge_rules(policy)
    }

    fn judge_rules(&mut self, policy: &Policy) -> Verdict {
        let mut permitted = !policy.has_permit_rules();
        for rule in &policy.rules {
            match self.condition(&policy.name, &rule.name, &rule.program) {
                Outcome::OutOfTime => return Verdict::OutOfTime,
                Outcome::Is(false) => {}
                Outcome::Is(true) => match &rule.effect {
                    Effect::Permit => permitted = true,
                    Effect::Deny(message) => {
                        return Verdict::Deny(Denial {
                            denied_by: rule.name.clone(),
                            message: message.clone(),
                        });
                    }
                },
                Outcome::Failed(reason) => {
                    if policy.on_failure == OnFailure::Deny {
                        return Verdict::Deny(Denial {
                            denied_by: rule.name.clone(),
                            message: format!("rule {} could not be evaluated: {reason}", rule.name),
                        });
                    }
                }
            }
        }
        if permitted {
            Verdict::Permit
        } else {
            Verdict::NoPermit
        }
    }

    fn budget(&self) -> Budget {
        Budget::policy().until(self.deadline)
    }

    fn condition(&mut self, policy: &str, rule: &str, program: &Program) -> Outcome {
        let mut budget = self.budget();
        let (result, values) = program.evaluate_traced(&self.variables, &mut budget);
        let (outcome, step) = match result {
            Ok(Value::Bool(true)) => (Outcome::Is(true), StepResult::True),
            Ok(Value::Bool(false)) => (Outcome::Is(false), StepResult::False),
            Ok(other) => {
                let reason = format!("the expression is a {}, not a bool", other.type_of().name());
                (Outcome::Failed(reason.clone()), StepResult::Failed(reason))
            }
            Err(error) => {
                let reason = trace::failure_text(program, &error);
                let outcome = if error.kind() == EvaluationErrorKind::DeadlineExceeded {
                    Outcome::OutOfTime
                } else {
                    Outcome::Failed(reason.clone())
                };
                (outcome, StepResult::Failed(reason))
            }
        };
        let step = trace::expression_step(policy, rule, program, step, values);
        // Rules that turn out false are many; everything else may decide.
        match outcome {
            Outcome::Is(false) => self.steps.add(step),
            _ => self.steps.add_deciding(step),
        }
        outcome
    }

    /// The value of an injected header, or why there is none (OM-491).
    pub(super) fn header(&mut self, policy: &Policy, injected: &CompiledHeader) -> Result<String, String> {
        let rule = header_rule(&injected.name);
        let program = match &injected.source {
            CompiledSource::Value(value) => {
                self.steps
                    .add(trace::plain_step(&policy.name, rule, StepResult::Injected));
                return Ok(value.clone());
            }
            CompiledSource::Cel(program) => program,
        };
        let mut budget = self.budget();
        let (result, values) = program.evaluate_traced(&self.variables, &mut budget);
        let reason = match result {
            Ok(value) => match header_text(&value) {
                Some(text) if header::is_value(&text) => {
                    let step = trace::expression_step(
                        &policy.name,
                        &rule,
                        program,
                        StepResult::Injected,
                        Vec::new(),
                    );
                    self.steps.add(step);
                    return Ok(text);
                }
                Some(_) => "the value has characters that no header may have".to_owned(),
                None => format!("a {} cannot be a header's value", value.type_of().name()),
            },
            Err(error) => trace::failure_text(program, &error),
        };
        let result = StepResult::Failed(reason.clone());
        self.steps.add_deciding(trace::expression_step(
            &policy.name,
            &rule,
            program,
            result,
            values,
        ));
        Err(reason)
    }
}

/// How traces and denials name an injected header.
pub(super) fn header_rule(name: &str) -> String {
    format!("header-injection:{name}")
}

fn header_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.to_string()),
        Value::Bool(value) => Some(value.to_string()),
        Value::Int(value) => Some(value.to_string()),
        Value::Uint(value) => Some(value.to_string()),
        Value::Double(value) => Some(value.to_string()),
        _ => None,
    }
}

fn identity_value(identity: &Identity) -> Value {
    let text = |value: &str| Value::from(value);
    let claims = identity.claims.iter();
    Value::map([
        ("origin", text(&identity.origin)),
        ("subject", text(&identity.subject)),
        ("endUser", text(&identity.end_user)),
        ("workspace", text(&identity.workspace)),
        ("agent", text(&identity.agent)),
        (
            "claims",
            Value::map(claims.map(|(name, claim): (&String, &Json)| (name.as_str(), Value::from(claim)))),
        ),
    ])
}

/// Whether a policy refuses or only reports.
pub(super) fn enforces(policy: &Policy) -> bool {
    // A policy in error cannot tell what it would have let through, so it refuses in any mode (OM-488).
    policy.mode == Mode::Enforce || policy.broken.is_some()
}
