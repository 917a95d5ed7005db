//! Running the rules over an object.

use mainstay_cel::{Budget, EvaluationError, OBJECT_COST, Value as Cel, Variables};
use serde_json::Value;

use super::{Judgement, Place, Rule, convert::to_cel};
use crate::{
    field::{FieldError, FieldErrorKind, FieldPath},
    schema::{Correlation, Node},
};

/// The longest message that an expression may give, in bytes.
const MAX_MESSAGE_BYTES: usize = 5 * 1024;
const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

pub(super) fn run(root: &Place, object: &Value, old: Option<&Value>) -> Judgement {
    let mut run = Run {
        left: OBJECT_COST,
        stopped: false,
        found: Judgement::default(),
    };
    run.visit(
        root,
        object,
        Correlation::of(old),
        false,
        true,
        &FieldPath::root(),
    );
    run.found
}

struct Run {
    left: u64,
    stopped: bool,
    found: Judgement,
}

impl Run {
    /// `unchanged_above` tells that the nearest value above that has an old one equals it, so that a broken rule here was
    /// broken before.
    fn visit(
        &mut self,
        place: &Place,
        value: &Value,
        correlation: Correlation<'_>,
        unchanged_above: bool,
        is_root: bool,
        path: &FieldPath,
    ) {
        if value.is_null() || self.stopped {
            return;
        }
        let unchanged = match correlation.old {
            Some(old) => old == value,
            None => unchanged_above,
        };
        self.run_rules(place, value, correlation, unchanged, is_root, path);
        match value {
            Value::Array(list) => {
                let Some(items) = &place.items else { return };
                for (index, item) in list.iter().enumerate() {
                    let below = correlation.item(&place.node, item);
                    self.visit(items, item, below, unchanged, false, &path.index(index));
                }
            }
            Value::Object(fields) => {
                for (name, nested) in fields {
                    let below = correlation.field(&place.node, name);
                    if let Some(property) = place.properties.get(name) {
                        self.visit(property, nested, below, unchanged, false, &path.child(name));
                    } else if let (None, Some(additional)) = (place.node.property(name), &place.additional) {
                        self.visit(additional, nested, below, unchanged, false, &path.key(name));
                    }
                }
            }
            _ => {}
        }
    }

    fn run_rules(
        &mut self,
        place: &Place,
        value: &Value,
        correlation: Correlation<'_>,
        unchanged: bool,
        is_root: bool,
        path: &FieldPath,
    ) {
        if place.rules.is_empty() {
            return;
        }
        let is_resource = is_root || place.node.embedded_resource;
        let current = to_cel(&place.node, value, is_resource);
        let needs_old = place.rules.iter().any(|rule| rule.uses_old);
        let old = correlation
            .old
            .filter(|old| needs_old && !old.is_null())
            .map(|old| to_cel(&place.node, old, is_resource));
        for rule in &place.rules {
            let optional = rule.source.optional_old_self == Some(true);
            if rule.uses_old && old.is_none() && !optional {
                continue;
            }
            let mut variables = Variables::new().with("self", current.clone());
            if rule.uses_old {
                let given = match (optional, &old) {
                    (true, old) => Cel::Optional(old.clone().map(std::sync::Arc::new)),
                    (false, Some(old)) => old.clone(),
                    (false, None) => continue,
                };
                variables = variables.with("oldSelf", given);
            }
            // A broken rule that was broken before, on a value that the update left alone, does not count.
            let ratchet = unchanged && !rule.uses_old;
            self.run_rule(&place.node, rule, &variables, value, ratchet, path);
            if self.stopped {
                return;
            }
        }
    }

    fn run_rule(
        &mut self,
        node: &Node,
        rule: &Rule,
        variables: &Variables,
        value: &Value,
        ratchet: bool,
        path: &FieldPath,
    ) {
        let type_name = Value::from(node.type_name());
        let program = match &rule.program {
            Ok(program) => program,
            Err(fault) => {
                let detail = format!("rule compile error: {fault}");
                self.found
                    .errors
                    .push(FieldError::invalid(path, type_name, detail));
                return;
            }
        };
        let object_bound = self.left < mainstay_cel::RULE_COST;
        let result = self.evaluate(program, variables);
        let detail = match result {
            Ok(Cel::Bool(true)) => return,
            Ok(_) => None,
            Err(error) if error.is_limit() => {
                self.stopped = true;
                let detail = if object_bound {
                    OUT_OF_BUDGET.to_owned()
                } else {
                    format!(
                        "'{error}': no further validation rules will be run due to call cost exceeds limit for rule: \
                         {}",
                        shown(rule)
                    )
                };
                self.found
                    .errors
                    .push(FieldError::invalid(path, type_name, detail));
                return;
            }
            Err(error) if error.reference().starts_with("no such overload") => Some(format!(
                "'{}': call arguments did not match a supported operator, function or macro signature for rule: {}",
                error.reference(),
                shown(rule)
            )),
            Err(error) => Some(format!("{} evaluating rule: {}", error.reference(), shown(rule))),
        };
        if let Some(detail) = detail {
            self.found
                .errors
                .push(FieldError::invalid(path, type_name, detail));
            return;
        }
        let detail = self.message(rule, variables, path, &type_name);
        if self.stopped {
            return;
        }
        let at = match rule.source.field_path.trim() {
            "" => path.clone(),
            below => normalized(path, below),
        };
        let kind = match rule.source.reason.as_deref() {
            Some("FieldValueForbidden") => FieldErrorKind::Forbidden,
            Some("FieldValueRequired") => FieldErrorKind::Required,
            Some("FieldValueDuplicate") => FieldErrorKind::Duplicate,
            _ => FieldErrorKind::Invalid,
        };
        // Whole objects and lists are not repeated in the message. An object is called by its type, as releases up to 1.34 do
        // and readers of our pages expect (AK-010, AK-011).
        let value = match value {
            Value::Object(_) if kind == FieldErrorKind::Invalid => Some(type_name),
            Value::Object(_) | Value::Array(_) => None,
            other => Some(other.clone()),
        };
        let detail = if kind == FieldErrorKind::Duplicate {
            String::new()
        } else {
            detail
        };
        let error = FieldError {
            kind,
            path: at,
            value,
            detail,
        };
        if ratchet {
            self.found.unchanged.push(error);
        } else {
            self.found.errors.push(error);
        }
    }

    fn evaluate(
        &mut self,
        program: &mainstay_cel::Program,
        variables: &Variables,
    ) -> Result<Cel, EvaluationError> {
        let mut budget = Budget::shared(self.left);
        let result = program.evaluate(variables, &mut budget);
        self.left = self.left.saturating_sub(budget.used());
        result
    }

    /// What to say: the text of the message expression if that gives a usable one, or else the fixed message.
    fn message(&mut self, rule: &Rule, variables: &Variables, path: &FieldPath, type_name: &Value) -> String {
        let Some(Ok(program)) = &rule.message else {
            return fixed_message(rule);
        };
        match self.evaluate(program, variables) {
            Ok(Cel::String(text)) => {
                let text = text.trim();
                let usable = !text.is_empty() && text.len() <= MAX_MESSAGE_BYTES && !text.contains('\n');
                if usable {
                    text.to_owned()
                } else {
                    fixed_message(rule)
                }
            }
            Err(error) if error.is_limit() => {
                self.stopped = true;
                let detail = format!(
                    "no further validation rules will be run due to call cost exceeds limit for messageExpression: {:?}",
                    rule.source.message_expression
                );
                self.found
                    .errors
                    .push(FieldError::invalid(path, type_name.clone(), detail.clone()));
                detail
            }
            _ => fixed_message(rule),
        }
    }
}

fn fixed_message(rule: &Rule) -> String {
    match rule.source.message.trim() {
        "" => format!("failed rule: {}", shown(rule)),
        message => message.to_owned(),
    }
}

/// A rule is named by its message, or else by its text.
fn shown(rule: &Rule) -> String {
    match rule.source.message.trim() {
        "" => rule.source.rule.trim().to_owned(),
        message => message.to_owned(),
    }
}

/// `.a.b['c']` below `path`, rendered as field paths are.
fn normalized(path: &FieldPath, below: &str) -> FieldPath {
    let mut at = path.clone();
    let mut rest = below;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix("['") {
            let end = after.find("']").unwrap_or(after.len());
            at = at.child(&after[..end]);
            rest = after.get(end + 2..).unwrap_or_default();
        } else {
            let after = rest.strip_prefix('.').unwrap_or(rest);
            let end = after.find(['.', '[']).unwrap_or(after.len());
            at = at.child(&after[..end]);
            rest = &after[end..];
        }
    }
    at
}
