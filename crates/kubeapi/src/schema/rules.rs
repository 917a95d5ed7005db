//! `x-kubernetes-validations`: rules in CEL on the values of a custom resource. Requirement KA-015.
//!
//! A rule sees the value at its place as `self` and, on an update, the value that was there as `oldSelf`. A rule that
//! mentions `oldSelf` (a transition rule) runs only where there is such a value. The budget is that of the reference:
//! 1,000,000 units for one rule, 10,000,000 for all rules on one object.

mod convert;
mod declare;
mod evaluate;

use std::{collections::BTreeMap, sync::Arc};

use mainstay_cel::{
    CheckErrors, CheckedProgram, CompileOptions, Declaration, Environment, Program, compile_checked,
};
use serde_json::Value;

pub(crate) use self::declare::{MAX_REQUEST, count, declare};
use super::{Node, NodeKind, ValidationRule};
use crate::field::FieldError;

const MAX_SOURCE_BYTES: usize = 64 * 1024;
const MAX_NODES: usize = 16 * 1024;

/// The compiled rules of a schema, in the shape of the schema; places without rules below them are left out.
#[derive(Clone, Debug)]
pub struct Rules {
    root: Place,
}

/// What the rules say of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judgement {
    /// The rules that it breaks.
    pub errors: Vec<FieldError>,
    /// The rules that are broken by values which the update left alone. They refuse nothing, but are warned of.
    pub unchanged: Vec<FieldError>,
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

/// A rule that was compiled, as far as that went.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) source: ValidationRule,
    /// The rule itself, or what is wrong with it.
    pub(crate) program: Result<Program, String>,
    /// The message expression, if there is one, or what is wrong with it.
    pub(crate) message: Option<Result<Program, String>>,
    /// Whether the rule mentions `oldSelf`.
    pub(crate) uses_old: bool,
    /// Most cost units of one evaluation.
    pub(crate) max_cost: u64,
    /// Most cost units of one evaluation of the message expression.
    pub(crate) message_max_cost: u64,
}

impl Rules {
    /// Every rule that `object` breaks, but for those that the update left broken. Without `old` transition rules are
    /// left out.
    pub fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        self.judge(object, old).errors
    }

    /// Every rule that `object` breaks.
    pub fn judge(&self, object: &Value, old: Option<&Value>) -> Judgement {
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

/// Compiles every rule of a schema. `document` is the schema from which `node` was read. A rule that does not compile, which
/// a definition that was checked does not have, is told of each object that it would judge.
pub fn compile_rules(document: &Value, node: &Arc<Node>) -> Rules {
    Rules {
        root: compile_place(document, node, true),
    }
}

fn compile_place(document: &Value, node: &Arc<Node>, is_root: bool) -> Place {
    let mut place = Place {
        node: Arc::clone(node),
        rules: Vec::new(),
        properties: BTreeMap::new(),
        additional: None,
        items: None,
    };
    let sources: Vec<&ValidationRule> = node
        .checks
        .iter()
        .flat_map(|checks| &checks.validations)
        .filter(|source| !source.rule.trim().is_empty())
        .collect();
    if !sources.is_empty()
        && let Some(declaration) = declare(document, is_root || node.embedded_resource)
    {
        place.rules = sources
            .into_iter()
            .map(|source| compile_rule(source, &declaration))
            .collect();
    }
    let below = |name: &str| document.get(name).filter(|below| below.is_object());
    match &node.kind {
        NodeKind::Object {
            properties,
            additional,
        } => {
            for (name, property) in below("properties")
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
            {
                let Some(node) = properties.get(name) else {
                    continue;
                };
                let nested = compile_place(property, node, false);
                if !nested.is_empty() {
                    place.properties.insert(name.clone(), nested);
                }
            }
            if let (Some(node), Some(values)) = (additional, below("additionalProperties")) {
                let nested = compile_place(values, node, false);
                place.additional = (!nested.is_empty()).then(|| Box::new(nested));
            }
        }
        NodeKind::Array { items: node } => {
            if let Some(items) = below("items") {
                let nested = compile_place(items, node, false);
                place.items = (!nested.is_empty()).then(|| Box::new(nested));
            }
        }
        _ => {}
    }
    place
}

/// Compiles one rule for values of that shape.
pub(crate) fn compile_rule(source: &ValidationRule, declaration: &Declaration) -> Rule {
    let options = CompileOptions {
        max_source_bytes: MAX_SOURCE_BYTES,
        max_nodes: MAX_NODES,
        ..CompileOptions::default()
    };
    let optional = source.optional_old_self == Some(true);
    let environment = Environment {
        declaration,
        variables: &[("self", false), ("oldSelf", optional)],
    };
    let compiled =
        |text: &str, wanted: &str, [failed, unmade, other]: [&str; 3]| -> Result<CheckedProgram, String> {
            match compile_checked(text, &options, environment) {
                Ok(checked) if checked.result == wanted => Ok(checked),
                Ok(_) => Err(other.to_owned()),
                Err(CheckErrors::Instantiation(fault)) => Err(format!("{unmade}: {fault}")),
                Err(errors @ CheckErrors::Compilation { .. }) => Err(format!("{failed}: {errors}")),
            }
        };
    let program = compiled(
        &source.rule,
        "bool",
        [
            "compilation failed",
            "program instantiation failed",
            "cel expression must evaluate to a bool",
        ],
    );
    // The message of a rule that does not compile is not looked at.
    let message = (program.is_ok() && !source.message_expression.is_empty()).then(|| {
        compiled(
            &source.message_expression,
            "string",
            [
                "messageExpression compilation failed",
                "messageExpression instantiation failed",
                "messageExpression must evaluate to a string",
            ],
        )
    });
    let cost = |checked: &CheckedProgram| checked.max_cost;
    Rule {
        source: source.clone(),
        uses_old: program
            .as_ref()
            .is_ok_and(|checked| checked.program.uses_variable("oldSelf")),
        max_cost: program.as_ref().map_or(0, cost),
        message_max_cost: message
            .as_ref()
            .and_then(|message| message.as_ref().ok())
            .map_or(0, cost),
        program: program.map(|checked| checked.program),
        message: message.map(|message| message.map(|checked| checked.program)),
    }
}

/// The rule as the reference shows it in messages: the structure of its internal type, in the order of its fields.
pub(crate) fn shown_rule(rule: &ValidationRule) -> String {
    let fields = [
        ("Rule", Value::from(rule.rule.as_str())),
        ("Message", Value::from(rule.message.as_str())),
        ("MessageExpression", Value::from(rule.message_expression.as_str())),
        ("Reason", Value::from(rule.reason.as_deref())),
        ("FieldPath", Value::from(rule.field_path.as_str())),
        ("OptionalOldSelf", Value::from(rule.optional_old_self)),
    ];
    let written: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("\"{name}\":{}", crate::field::shown(value)))
        .collect();
    format!("{{{}}}", written.join(","))
}

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
