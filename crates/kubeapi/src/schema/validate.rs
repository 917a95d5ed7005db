//! Validation of a value against its schema, with the texts of the reference
//! (`k8s.io/kube-openapi/pkg/validation/validate`). Requirement KA-013.

mod numbers;
mod values;

use serde_json::Value;

use super::{Checks, Correlation, Node, NodeKind};
use crate::field::{FieldError, FieldErrorKind, FieldPath};

/// Every violation of the schema in `object`, in the order of the fields.
pub fn validate(node: &Node, object: &Value) -> Vec<FieldError> {
    validate_update(node, object, None)
}

/// Every violation of the schema in `object` that was not there, unchanged, in `old`.
pub fn validate_update(node: &Node, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut outcome = Outcome::default();
    visit(
        node,
        object,
        Correlation::of(old),
        &FieldPath::root(),
        &mut outcome,
    );
    outcome.errors
}

/// What a validation found, and how many checks it passed: of several failed alternatives the reference reports the one
/// that got furthest.
#[derive(Debug, Default)]
struct Outcome {
    errors: Vec<FieldError>,
    passed: u32,
}

impl Outcome {
    fn add(&mut self, error: FieldError) {
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    fn merge(&mut self, other: Self) {
        self.passed += other.passed;
        for error in other.errors {
            self.add(error);
        }
    }

    /// A message about the value as a whole; the reference loses its path.
    fn add_general(&mut self, text: String) {
        self.add(FieldError::invalid(&FieldPath::root(), Value::from(""), text));
    }
}

/// The demands that hold for one value: its own type, and the checks of its node.
fn visit(node: &Node, value: &Value, correlation: Correlation<'_>, path: &FieldPath, outcome: &mut Outcome) {
    if correlation.is_unchanged(value) {
        outcome.passed += 1;
        return;
    }
    let checks = node.checks.as_deref();
    let types = node_types(node);
    let format = checks.and_then(|checks| checks.format);
    if value.is_null() {
        if let Some(error) = values::check_type(types, node.nullable, format, value, path) {
            outcome.add(error);
        } else {
            outcome.passed += 1;
        }
        if let Some(error) = checks.and_then(|checks| values::check_enum(checks, value, path)) {
            outcome.add(error);
        }
        return;
    }
    if !types.is_empty() || format.is_some() {
        match values::check_type(types, node.nullable, format, value, path) {
            Some(error) => outcome.add(error),
            None => outcome.passed += 1,
        }
        outcome.passed += 1;
    }
    match checks {
        Some(checks) => {
            visit_junctors(checks, value, path, outcome);
            outcome.passed += 1;
            values::check_scalar(checks, types, value, path, outcome);
        }
        None => {
            if let Value::Number(number) = value {
                numbers::check_range(None, types, number, path, outcome);
            }
            outcome.passed += 2;
        }
    }
    match value {
        Value::Array(list) => {
            if let NodeKind::Array { items } = &node.kind {
                for (index, item) in list.iter().enumerate() {
                    visit(
                        items,
                        item,
                        correlation.item(node, item),
                        &path.index(index),
                        outcome,
                    );
                }
            }
            if let Some(checks) = checks {
                values::check_list(checks, list, path, outcome);
            }
            outcome.passed += 2;
        }
        Value::Object(fields) => {
            if let Some(checks) = checks {
                values::check_size(checks, fields.len(), path, outcome);
            }
            for (name, nested) in fields {
                if let Some(child) = node.child(name) {
                    visit(
                        child,
                        nested,
                        correlation.field(node, name),
                        &path.child(name),
                        outcome,
                    );
                }
            }
            if let Some(checks) = checks {
                values::check_required(checks, fields, path, outcome);
            }
            outcome.passed += 1;
        }
        _ => {}
    }
    // The enum check and the schema as a whole.
    if let Some(error) = checks.and_then(|checks| values::check_enum(checks, value, path)) {
        outcome.add(error);
    }
    outcome.passed += 2;
}

fn node_types(node: &Node) -> &'static [&'static str] {
    if node.int_or_string {
        return &["integer", "string"];
    }
    match &node.kind {
        NodeKind::Any => &[],
        NodeKind::Object { .. } if node.preserve_unknown_fields && node.definition.is_none() => &["object"],
        NodeKind::Object { .. } => &["object"],
        NodeKind::Array { .. } => &["array"],
        NodeKind::String => &["string"],
        NodeKind::Integer => &["integer"],
        NodeKind::Number => &["number"],
        NodeKind::Boolean => &["boolean"],
    }
}

/// A schema below a junctor.
fn visit_nested(checks: &Checks, value: &Value, path: &FieldPath) -> Outcome {
    let mut outcome = Outcome::default();
    let types: Vec<&str> = checks.types.iter().map(String::as_str).collect();
    if value.is_null() {
        match values::check_type(&types, checks.nullable, checks.format, value, path) {
            Some(error) => outcome.add(error),
            None => outcome.passed += 1,
        }
        if let Some(error) = values::check_enum(checks, value, path) {
            outcome.add(error);
        }
        return outcome;
    }
    if !types.is_empty() || checks.format.is_some() {
        match values::check_type(&types, checks.nullable, checks.format, value, path) {
            Some(error) => outcome.add(error),
            None => outcome.passed += 1,
        }
        outcome.passed += 1;
    }
    visit_junctors(checks, value, path, &mut outcome);
    outcome.passed += 1;
    values::check_scalar(checks, &types, value, path, &mut outcome);
    match value {
        Value::Array(list) => {
            if let Some(items) = &checks.items {
                for (index, item) in list.iter().enumerate() {
                    outcome.merge(visit_nested(items, item, &path.index(index)));
                }
            }
            values::check_list(checks, list, path, &mut outcome);
            outcome.passed += 2;
        }
        Value::Object(fields) => {
            values::check_size(checks, fields.len(), path, &mut outcome);
            for (name, nested) in &checks.properties {
                if let Some(present) = fields.get(name) {
                    outcome.merge(visit_nested(nested, present, &path.child(name)));
                }
            }
            values::check_required(checks, fields, path, &mut outcome);
            outcome.passed += 1;
        }
        _ => {}
    }
    if let Some(error) = values::check_enum(checks, value, path) {
        outcome.add(error);
    }
    outcome.passed += 2;
    outcome
}

fn visit_junctors(checks: &Checks, value: &Value, path: &FieldPath, outcome: &mut Outcome) {
    let name = path.as_str();
    if !checks.any_of.is_empty() {
        let mut best: Option<Outcome> = None;
        let mut success = None;
        for alternative in &checks.any_of {
            let result = visit_nested(alternative, value, path);
            if result.errors.is_empty() {
                success = Some(result);
                break;
            }
            if best.as_ref().is_none_or(|best| result.passed > best.passed) {
                best = Some(result);
            }
        }
        match (success, best) {
            (Some(result), _) => outcome.merge(result),
            (None, best) => {
                outcome.add_general(format!("{name:?} must validate at least one schema (anyOf)"));
                if let Some(best) = best {
                    outcome.merge(best);
                }
            }
        }
    }
    if !checks.one_of.is_empty() {
        visit_one_of(checks, value, path, outcome);
    }
    if !checks.all_of.is_empty() {
        let mut valid = 0;
        for part in &checks.all_of {
            let result = visit_nested(part, value, path);
            if result.errors.is_empty() {
                valid += 1;
            }
            outcome.merge(result);
        }
        if valid != checks.all_of.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            outcome.add_general(format!("{name:?} must validate all the schemas (allOf){none}"));
        }
    }
    if let Some(not) = &checks.not
        && visit_nested(not, value, path).errors.is_empty()
    {
        outcome.add_general(format!("{name:?} must not validate the schema (not)"));
    }
    outcome.passed += 1;
}

fn visit_one_of(checks: &Checks, value: &Value, path: &FieldPath, outcome: &mut Outcome) {
    let mut best: Option<Outcome> = None;
    let mut success = None;
    let mut valid = 0;
    for alternative in &checks.one_of {
        let result = visit_nested(alternative, value, path);
        if result.errors.is_empty() {
            valid += 1;
            best = None;
            success.get_or_insert(result);
        } else if valid == 0 && best.as_ref().is_none_or(|best| result.passed > best.passed) {
            best = Some(result);
        }
    }
    if let (1, Some(result)) = (valid, success) {
        outcome.merge(result);
        return;
    }
    let found = if valid == 0 {
        "Found none valid".to_owned()
    } else {
        format!("Found {valid} valid alternatives")
    };
    outcome.add_general(format!(
        "{:?} must validate one and only one schema (oneOf). {found}",
        path.as_str()
    ));
    if let Some(best) = best {
        outcome.merge(best);
    }
}

fn error(kind: FieldErrorKind, path: &FieldPath, value: Option<Value>, detail: String) -> FieldError {
    FieldError {
        kind,
        path: path.clone(),
        value,
        detail,
    }
}

#[cfg(test)]
mod tests;
