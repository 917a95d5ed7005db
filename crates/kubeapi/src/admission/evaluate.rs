//! Running the expressions of a policy on a request.

use std::sync::{Arc, Mutex, PoisonError};

use mainstay_cel::{Budget, Extension, Fields, LazyFields, OBJECT_COST, RULE_COST, Value as Cel, Variables};

use super::{
    compile::{Compiled, Judged, Programs},
    policies::Policy,
    subject::Versioned,
};

/// What all match conditions together may cost.
const CONDITIONS_COST: u64 = OBJECT_COST / 4;
/// The longest message that an expression may give, in bytes.
const MAX_MESSAGE_BYTES: usize = 5 * 1024;
/// How deep evaluations may be nested through variables that use each other before all earlier ones are evaluated first:
/// each level takes stack.
pub(super) const MAX_NESTING: usize = 150;
const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// What a policy says of a request with one parameter.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Outcome {
    /// One for each validation, or one for all that went wrong.
    pub(super) decisions: Vec<Decision>,
    pub(super) annotations: Vec<Annotation>,
}

/// What came of a validation.
#[derive(Debug, PartialEq)]
pub(super) struct Decision {
    /// Absent when the request is admitted.
    pub(super) denial: Option<Denial>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Denial {
    pub(super) message: String,
    /// Absent where the reason is `Invalid`.
    pub(super) reason: Option<String>,
}

/// What came of an audit annotation.
#[derive(Debug, PartialEq)]
pub(super) enum Annotation {
    /// By its key. There is no audit log that could hold its value.
    Published(String),
    Excluded,
    Failed(String),
}

/// The values that a policy is evaluated with.
pub(super) struct Inputs<'a> {
    pub(super) versioned: &'a Versioned<'a>,
    pub(super) parameters: Cel,
    pub(super) namespace: Cel,
    /// `authorizer` and `authorizer.requestResource`.
    pub(super) authorizers: (Cel, Cel),
}

/// The sum of the costs went over what is allowed.
struct OutOfBudget;

/// The outcome of a policy.
pub(super) fn evaluate(policy: &Arc<Policy>, inputs: &Inputs<'_>) -> Outcome {
    let programs = &policy.programs;
    let fails_closed = policy.spec.fails_closed();
    match conditions(policy, inputs) {
        Ok(true) => {}
        Ok(false) => return Outcome::default(),
        Err(_) if !fails_closed => return Outcome::default(),
        Err(message) => return failed(message, fails_closed),
    }
    let mut run = Run::new(policy, inputs, Sees::Everything, OBJECT_COST);
    let mut results = Vec::with_capacity(programs.validations.len());
    for validation in &programs.validations {
        match run.evaluate(&validation.source, &validation.program) {
            Ok(result) => results.push(result),
            Err(OutOfBudget) => return failed(OUT_OF_BUDGET.to_owned(), fails_closed),
        }
    }
    let messages = messages(policy, inputs, run.left);
    let mut decisions = Vec::with_capacity(results.len());
    for (index, (validation, result)) in programs.validations.iter().zip(results).enumerate() {
        let denial = match (result, &messages) {
            (Err(message), _) => unless_ignored(message, fails_closed),
            (Ok(_), None) => {
                unless_ignored(format!("failed messageExpression: {OUT_OF_BUDGET}"), fails_closed)
            }
            (Ok(Cel::Bool(true)), Some(_)) => None,
            (Ok(_), Some(messages)) => {
                let given = messages.get(index).and_then(Option::as_deref);
                Some(Denial {
                    message: message(validation, given),
                    reason: validation.reason.clone(),
                })
            }
        };
        decisions.push(Decision { denial });
    }
    let mut run = Run::new(policy, inputs, Sees::NoAuthorizer, OBJECT_COST);
    let mut annotations = Vec::with_capacity(programs.annotations.len());
    for annotation in &programs.annotations {
        let Ok(result) = run.evaluate(&annotation.source, &annotation.program) else {
            return failed(OUT_OF_BUDGET.to_owned(), fails_closed);
        };
        annotations.push(match result {
            Ok(Cel::String(text)) if !text.trim().is_empty() => {
                Annotation::Published(annotation.name.clone())
            }
            Ok(Cel::String(_) | Cel::Null) => Annotation::Excluded,
            Ok(other) => Annotation::Failed(format!(
                "valueExpression '{}' resulted in unsupported return type: {}. Return type must be either string or null.",
                annotation.source,
                other.type_of().name()
            )),
            Err(message) if fails_closed => Annotation::Failed(message),
            Err(_) => Annotation::Excluded,
        });
    }
    Outcome {
        decisions,
        annotations,
    }
}

fn unless_ignored(message: String, fails_closed: bool) -> Option<Denial> {
    fails_closed.then_some(Denial {
        message,
        reason: None,
    })
}

fn failed(message: String, fails_closed: bool) -> Outcome {
    Outcome {
        decisions: vec![Decision {
            denial: unless_ignored(message, fails_closed),
        }],
        annotations: Vec::new(),
    }
}

/// Whether every match condition holds. One that does not decides, whatever is wrong with the others.
fn conditions(policy: &Arc<Policy>, inputs: &Inputs<'_>) -> Result<bool, String> {
    let conditions = &policy.programs.conditions;
    if conditions.is_empty() {
        return Ok(true);
    }
    let mut run = Run::new(policy, inputs, Sees::NoNamespace, CONDITIONS_COST);
    let mut faults: Vec<String> = Vec::new();
    for condition in conditions {
        match run.evaluate(&condition.source, &condition.program) {
            Ok(Ok(Cel::Bool(false))) => return Ok(false),
            Ok(Ok(_)) => {}
            Ok(Err(fault)) if faults.contains(&fault) => {}
            Ok(Err(fault)) => faults.push(fault),
            Err(OutOfBudget) => return Err(OUT_OF_BUDGET.to_owned()),
        }
    }
    match faults.as_slice() {
        [] => Ok(true),
        [only] => Err(only.clone()),
        several => Err(format!("[{}]", several.join(", "))),
    }
}

/// The texts of the message expressions, where they give one; `None` when they cost too much.
fn messages(policy: &Arc<Policy>, inputs: &Inputs<'_>, left: u64) -> Option<Vec<Option<String>>> {
    let validations = &policy.programs.validations;
    if validations
        .iter()
        .all(|validation| validation.message_expression.is_none())
    {
        return Some(Vec::new());
    }
    let mut run = Run::new(policy, inputs, Sees::NoAuthorizer, left);
    validations
        .iter()
        .map(|validation| match &validation.message_expression {
            None => Some(None),
            Some((source, program)) => match run.evaluate(source, program) {
                Ok(Ok(Cel::String(text))) => Some(Some(text.to_string())),
                Ok(_) => Some(None),
                Err(OutOfBudget) => None,
            },
        })
        .collect()
}

/// What to say of a validation that failed: the text of its message expression where that is usable, or the message, or the
/// expression.
fn message(validation: &Judged, given: Option<&str>) -> String {
    let given = given
        .map(str::trim)
        .filter(|text| !text.is_empty() && text.len() <= MAX_MESSAGE_BYTES && !text.contains('\n'));
    match (given, validation.message.trim()) {
        (Some(text), _) => text.to_owned(),
        (None, "") => format!("failed expression: {}", validation.source.trim()),
        (None, text) => text.to_owned(),
    }
}

/// Which variables an evaluation has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sees {
    Everything,
    NoAuthorizer,
    /// The conditions that say whether the policy applies at all.
    NoNamespace,
}

/// Evaluations that share a budget and the values of the policy's variables.
struct Run {
    variables: Variables,
    composed: Arc<Composed>,
    /// Cost units left for all of them.
    left: u64,
}

impl Run {
    fn new(policy: &Arc<Policy>, inputs: &Inputs<'_>, sees: Sees, left: u64) -> Self {
        let programs = &policy.programs;
        let mut variables = Variables::new().with("request", inputs.versioned.request());
        // Whole objects are only converted for those that look at them.
        if programs.uses("object") {
            variables.set("object", inputs.versioned.object());
        }
        if programs.uses("oldObject") {
            variables.set("oldObject", inputs.versioned.old());
        }
        variables.set("params", inputs.parameters.clone());
        let namespace = match sees {
            Sees::NoNamespace => Cel::Null,
            Sees::Everything | Sees::NoAuthorizer => inputs.namespace.clone(),
        };
        variables.set("namespaceObject", namespace);
        if sees != Sees::NoAuthorizer {
            let (authorizer, resource) = &inputs.authorizers;
            variables.set("authorizer", authorizer.clone());
            variables.set("authorizer.requestResource", resource.clone());
        }
        let composed = Arc::new(Composed {
            policy: Arc::clone(policy),
            variables: variables.clone(),
            state: Mutex::new(State {
                values: vec![None; programs.variables.len()],
                spent: 0,
            }),
        });
        variables.set("variables", fields(&composed, programs.variables.len()));
        Self {
            variables,
            composed,
            left,
        }
    }

    /// Evaluates one expression: its value, or what went wrong in the words of the reference.
    fn evaluate(&mut self, source: &str, compiled: &Compiled) -> Result<Result<Cel, String>, OutOfBudget> {
        let program = match compiled {
            Ok(compiled) => &compiled.program,
            Err(fault) => return Ok(Err(format!("compilation error: {}", fault.text()))),
        };
        let is_bounded_by_rest = self.left < RULE_COST;
        let mut budget = Budget::shared(self.left);
        let result = program.evaluate(&self.variables, &mut budget);
        let composed = self.composed.take_spent();
        let is_over = |error: &mainstay_cel::EvaluationError| {
            is_bounded_by_rest && error.kind() == mainstay_cel::EvaluationErrorKind::CostExceeded
        };
        self.left = self
            .left
            .checked_sub(composed)
            .and_then(|left| left.checked_sub(budget.used()))
            .ok_or(OutOfBudget)?;
        if result.as_ref().is_err_and(is_over) {
            return Err(OutOfBudget);
        }
        Ok(result.map_err(|error| format!("expression '{source}' resulted in error: {}", error.reference())))
    }
}

/// The policy's variables. Each is evaluated when it is first asked for.
#[derive(Debug)]
struct Composed {
    policy: Arc<Policy>,
    /// What the variables see, but for each other.
    variables: Variables,
    /// Held only to look and to note, never while something is evaluated.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    values: Vec<Option<Result<Cel, String>>>,
    /// Cost units that variables took since the last look.
    spent: u64,
}

impl Composed {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // What is noted is whole at any time.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_spent(&self) -> u64 {
        std::mem::take(&mut self.state().spent)
    }

    fn programs(&self) -> &Programs {
        &self.policy.programs
    }

    /// The value of a variable.
    fn value(self: &Arc<Self>, index: usize) -> Option<Result<Cel, String>> {
        if let Some(known) = self.state().values.get(index)? {
            return Some(known.clone());
        }
        if self.programs().nesting.get(index).copied().unwrap_or_default() > MAX_NESTING {
            // In their order, so that each finds the ones before it evaluated.
            for earlier in 0..index {
                let is_known = matches!(self.state().values.get(earlier), Some(Some(_)));
                if !is_known {
                    self.compute(earlier);
                }
            }
        }
        self.compute(index);
        self.state().values.get(index).cloned().flatten()
    }

    fn compute(self: &Arc<Self>, index: usize) {
        let Some(variable) = self.programs().variables.get(index) else {
            return;
        };
        let name = &variable.name;
        let (result, spent) = match &variable.program {
            Err(fault) => (
                Err(format!(
                    "composited variable {name:?} fails to compile: {}",
                    fault.text()
                )),
                0,
            ),
            Ok(compiled) => {
                // A variable sees those before it.
                let variables = self.variables.clone().with("variables", fields(self, index));
                let mut budget = Budget::per_rule();
                let result = compiled.program.evaluate(&variables, &mut budget);
                (
                    result.map_err(|error| {
                        format!(
                            "composited variable {name:?} fails to evaluate: {}",
                            error.reference()
                        )
                    }),
                    budget.used(),
                )
            }
        };
        let mut state = self.state();
        state.spent = state.spent.saturating_add(spent);
        if let Some(slot) = state.values.get_mut(index) {
            *slot = Some(result);
        }
    }
}

/// The first so many variables.
#[derive(Debug)]
struct Visible {
    composed: Arc<Composed>,
    count: usize,
}

fn fields(composed: &Arc<Composed>, count: usize) -> Cel {
    Cel::extension(Extension::Fields(LazyFields(Arc::new(Visible {
        composed: Arc::clone(composed),
        count,
    }))))
}

impl Fields for Visible {
    fn field(&self, name: &str) -> Option<Result<Cel, String>> {
        // Of two with the same name the later one counts.
        let variables = self.composed.programs().variables.get(..self.count)?;
        let index = variables.iter().rposition(|variable| variable.name == name)?;
        self.composed.value(index)
    }
}
