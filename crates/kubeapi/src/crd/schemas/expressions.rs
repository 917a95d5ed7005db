//! The expressions of `x-kubernetes-validations`: they compile with the types of their place, an old value is only asked
//! for where one can be found, and what they may cost stays within limits. Requirement KA-015.

use serde_json::Value;

use crate::{
    field::{FieldError, FieldErrorKind, FieldPath},
    schema::{MAX_REQUEST, Rule, ValidationRule, compile_rule, count, declare, shown_rule},
};

const RULES: &str = "x-kubernetes-validations";
/// Most cost units of one rule for all values that it can judge in one object.
const RULE_LIMIT: u64 = 10_000_000;
/// Most cost units of all rules of a schema together.
const SCHEMA_LIMIT: u64 = 100_000_000;
/// How many of the most expensive rules are named when all together cost too much.
const NAMED: usize = 4;

/// Where in the schema a place is, as far as its rules care.
#[derive(Clone)]
pub(super) struct Scope {
    /// How many values the place can have in one object; `None` where a list or map above has no limit.
    cardinality: Option<u64>,
    /// The outermost list or map above whose items cannot be found again in the old object.
    uncorrelatable: Option<FieldPath>,
}

impl Scope {
    pub(super) fn root() -> Self {
        Self {
            cardinality: Some(1),
            uncorrelatable: None,
        }
    }

    /// The scope of what is below the place of `schema`.
    pub(super) fn below(&self, schema: &Value) -> Self {
        let factor = match schema.get("type").and_then(Value::as_str) {
            Some("object")
                if schema
                    .get("additionalProperties")
                    .is_some_and(|values| !values.is_null()) =>
            {
                count(schema, "maxProperties")
            }
            Some("array") => count(schema, "maxItems"),
            _ => Some(1),
        };
        Self {
            cardinality: self
                .cardinality
                .zip(factor)
                .map(|(count, factor)| count.saturating_mul(factor)),
            uncorrelatable: self.uncorrelatable.clone(),
        }
    }

    /// The same for the properties of the object at `path`.
    pub(super) fn of_properties(&self, schema: &Value, path: &FieldPath) -> Self {
        self.cut(
            schema.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic"),
            path,
        )
    }

    /// The same for the items of the list at `path`.
    pub(super) fn of_items(&self, schema: &Value, path: &FieldPath) -> Self {
        self.cut(
            schema.get("x-kubernetes-list-type").and_then(Value::as_str) != Some("map"),
            path,
        )
    }

    fn cut(&self, is_cut: bool, path: &FieldPath) -> Self {
        let mut scope = self.clone();
        if is_cut && scope.uncorrelatable.is_none() {
            scope.uncorrelatable = Some(path.clone());
        }
        scope
    }
}

/// What was found out about the expressions of a schema.
pub(super) struct Expressions {
    is_unchanged: bool,
    total: u64,
    expensive: Vec<(FieldPath, u64)>,
    errors: Vec<FieldError>,
}

impl Expressions {
    pub(super) fn new(is_unchanged: bool) -> Self {
        Self {
            is_unchanged,
            total: 0,
            expensive: Vec::new(),
            errors: Vec::new(),
        }
    }

    /// Everything that is wrong, with the sum of all costs; `path` is that of the schema.
    pub(super) fn into_errors(mut self, path: &FieldPath) -> Vec<FieldError> {
        if self.total > SCHEMA_LIMIT {
            for (at, _) in &self.expensive {
                self.errors.push(FieldError::forbidden(
                    at,
                    "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema",
                ));
            }
            let detail = too_expensive(
                "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema",
                self.total,
                SCHEMA_LIMIT,
            );
            self.errors.push(FieldError::forbidden(path, detail));
        }
        self.errors
    }

    /// Compiles the rules of the schema at `path`, in which nothing else is wrong.
    pub(super) fn check(&mut self, schema: &Value, path: &FieldPath, is_root: bool, scope: &Scope) {
        let sources: Vec<ValidationRule> = schema
            .get(RULES)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .map(|rule| serde_json::from_value(rule.clone()).unwrap_or_default())
            .collect();
        if sources.is_empty() {
            return;
        }
        let is_resource = is_root || schema.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true));
        let at = path.child(RULES);
        let Some(declaration) = declare(schema, is_resource) else {
            self.errors.push(FieldError {
                kind: FieldErrorKind::Internal,
                path: at,
                value: None,
                detail: "internal error: failed to construct type information for x-kubernetes-validations rules: \
                         unable to convert structural schema to CEL declarations"
                    .to_owned(),
            });
            return;
        };
        let cardinality = scope
            .cardinality
            .unwrap_or(MAX_REQUEST / (declaration.min_serialized_size + 1));
        for (index, source) in sources.iter().enumerate() {
            let rule = compile_rule(source, &declaration);
            self.judge(&rule, &at.index(index), cardinality, scope);
        }
    }

    fn judge(&mut self, rule: &Rule, at: &FieldPath, cardinality: u64, scope: &Scope) {
        let source = &rule.source;
        let cost = rule.max_cost.saturating_mul(cardinality);
        self.charge(&at.child("rule"), "estimated rule cost", cost);
        if let Err(fault) = &rule.program {
            self.refuse(at.child("rule"), source, fault);
        }
        match &rule.message {
            Some(Err(fault)) => self.refuse(at.child("messageExpression"), source, fault),
            Some(Ok(_)) => self.charge(
                &at.child("messageExpression"),
                "estimated messageExpression cost",
                rule.message_max_cost,
            ),
            None => {}
        }
        if let (true, Some(above)) = (rule.uses_old, &scope.uncorrelatable) {
            self.errors.push(FieldError::invalid(
                &at.child("rule"),
                Value::from(source.rule.as_str()),
                format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {above}"),
            ));
        }
        if let (false, Some(flag)) = (rule.uses_old, source.optional_old_self) {
            self.errors.push(FieldError::invalid(
                &at.child("optionalOldSelf"),
                Value::from(flag),
                "may not be set if oldSelf is not used in rule",
            ));
        }
    }

    fn refuse(&mut self, path: FieldPath, source: &ValidationRule, fault: &str) {
        self.errors.push(FieldError {
            kind: FieldErrorKind::Invalid,
            path,
            value: None,
            detail: format!("{}: {fault}", shown_rule(source)),
        });
    }

    fn charge(&mut self, at: &FieldPath, what: &str, cost: u64) {
        if !self.is_unchanged && cost > RULE_LIMIT {
            self.errors
                .push(FieldError::forbidden(at, too_expensive(what, cost, RULE_LIMIT)));
        }
        self.total = self.total.saturating_add(cost);
        if cost >= SCHEMA_LIMIT / 100 {
            self.expensive.push((at.clone(), cost));
            self.expensive.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
            self.expensive.truncate(NAMED);
        }
    }
}

fn too_expensive(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let shown = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        // More digits, lest it say "by factor of 1.0x".
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {shown} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}
