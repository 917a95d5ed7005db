//! `x-kubernetes-validations`: rules in CEL on the values of a custom resource. Requirement KA-015.
//!
//! A rule sees the value at its place as `self` and, on an update, the value that was there as `oldSelf`. A rule that
//! mentions `oldSelf` (a transition rule) runs only where there is such a value. The budget is that of the reference:
//! 1,000,000 units for one rule, 10,000,000 for all rules on one object.

mod convert;
mod evaluate;

use std::{collections::BTreeMap, sync::Arc};

use mainstay_cel::{CompileOptions, Program, compile};
use serde_json::{Value, json};

use super::{Node, NodeKind, ValidationRule};
use crate::field::{FieldError, FieldPath};

const MAX_SOURCE_BYTES: usize = 64 * 1024;
const RULES: &str = "x-kubernetes-validations";

/// The compiled rules of a schema, in the shape of the schema; places without rules below them are left out.
#[derive(Clone, Debug)]
pub struct Rules {
    root: Place,
}

/// The rules at and below one place.
#[derive(Clone, Debug)]
struct Place {
    node: Arc<Node>,
    rules: Vec<Rule>,
    properties: BTreeMap<String, Place>,
    additional: Option<Box<Place>>,
    items: Option<Box<Place>>,
}

#[derive(Clone, Debug)]
struct Rule {
    source: ValidationRule,
    program: Program,
    message: Option<Program>,
    uses_old: bool,
}

impl Rules {
    /// Every rule that `object` breaks. Without `old` transition rules are left out.
    pub fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        evaluate::run(&self.root, object, old)
    }

    /// Whether the schema has no rule at all.
    pub fn is_empty(&self) -> bool {
        self.root.is_empty()
    }
}

impl Place {
    fn is_empty(&self) -> bool {
        self.rules.is_empty()
            && self.properties.is_empty()
            && self.additional.is_none()
            && self.items.is_none()
    }
}

/// Compiles every rule of a schema.
///
/// # Errors
/// One error for each expression that does not compile, with its path below the schema:
/// `properties[spec].x-kubernetes-validations[0].rule`.
pub fn compile_rules(node: &Node) -> Result<Rules, Vec<FieldError>> {
    let mut errors = Vec::new();
    let root = compile_place(&Arc::new(node.clone()), &FieldPath::root(), None, &mut errors);
    if errors.is_empty() {
        Ok(Rules { root })
    } else {
        Err(errors)
    }
}

/// `uncorrelatable` is the outermost list or map above the place whose items have no identity, so that there is no old
/// value to compare with.
fn compile_place(
    node: &Arc<Node>,
    path: &FieldPath,
    uncorrelatable: Option<&FieldPath>,
    errors: &mut Vec<FieldError>,
) -> Place {
    let mut place = Place {
        node: Arc::clone(node),
        rules: Vec::new(),
        properties: BTreeMap::new(),
        additional: None,
        items: None,
    };
    for (index, source) in node
        .checks
        .iter()
        .flat_map(|checks| &checks.validations)
        .enumerate()
    {
        place.rules.extend(compile_rule(
            source,
            &path.child(RULES).index(index),
            uncorrelatable,
            errors,
        ));
    }
    match &node.kind {
        NodeKind::Object {
            properties,
            additional,
        } => {
            let below = match node.map_type {
                super::MapType::Atomic => uncorrelatable.or(Some(path)),
                super::MapType::Granular => uncorrelatable,
            };
            for (name, property) in properties {
                let nested = compile_place(property, &path.child("properties").key(name), below, errors);
                if !nested.is_empty() {
                    place.properties.insert(name.clone(), nested);
                }
            }
            if let Some(additional) = additional {
                let nested = compile_place(
                    additional,
                    &path.child("additionalProperties"),
                    uncorrelatable,
                    errors,
                );
                place.additional = (!nested.is_empty()).then(|| Box::new(nested));
            }
        }
        NodeKind::Array { items } => {
            let below = match node.list_type {
                super::ListType::Map => uncorrelatable,
                _ => uncorrelatable.or(Some(path)),
            };
            let nested = compile_place(items, &path.child("items"), below, errors);
            place.items = (!nested.is_empty()).then(|| Box::new(nested));
        }
        _ => {}
    }
    place
}

fn compile_rule(
    source: &ValidationRule,
    path: &FieldPath,
    uncorrelatable: Option<&FieldPath>,
    errors: &mut Vec<FieldError>,
) -> Option<Rule> {
    let options = CompileOptions {
        max_source_bytes: MAX_SOURCE_BYTES,
        ..CompileOptions::with_variables(["self", "oldSelf"])
    };
    let text = source.rule.trim();
    if text.is_empty() {
        errors.push(FieldError::required(&path.child("rule"), "rule is not specified"));
        return None;
    }
    let shown = || rule_value(source);
    let program = match compile(text, &options) {
        Ok(program) => program,
        Err(error) => {
            errors.push(FieldError::invalid(
                &path.child("rule"),
                shown(),
                format!("compilation failed: {error}"),
            ));
            return None;
        }
    };
    if program
        .result_type()
        .is_some_and(|result| result.name() != "bool" && result.name() != "dyn")
    {
        errors.push(FieldError::invalid(
            &path.child("rule"),
            shown(),
            "cel expression must evaluate to a bool",
        ));
    }
    let message = match source.message_expression.trim() {
        "" => None,
        text => match compile(text, &options) {
            Ok(message) => Some(message),
            Err(error) => {
                let detail = format!("messageExpression compilation failed: {error}");
                errors.push(FieldError::invalid(
                    &path.child("messageExpression"),
                    shown(),
                    detail,
                ));
                None
            }
        },
    };
    let uses_old = program.uses_variable("oldSelf");
    if let (true, Some(above)) = (uses_old, uncorrelatable) {
        errors.push(FieldError::invalid(
            &path.child("rule"),
            Value::from(source.rule.as_str()),
            format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {above}"),
        ));
    }
    if let (false, Some(flag)) = (uses_old, source.optional_old_self) {
        errors.push(FieldError::invalid(
            &path.child("optionalOldSelf"),
            Value::from(flag),
            "may not be set if oldSelf is not used in rule",
        ));
    }
    Some(Rule {
        source: source.clone(),
        program,
        message,
        uses_old,
    })
}

/// The rule as the reference shows it in messages: the structure of its internal type.
fn rule_value(rule: &ValidationRule) -> Value {
    json!({
        "Rule": rule.rule,
        "Message": rule.message,
        "MessageExpression": rule.message_expression,
        "Reason": rule.reason,
        "FieldPath": rule.field_path,
        "OptionalOldSelf": rule.optional_old_self,
    })
}

#[cfg(test)]
mod tests;
