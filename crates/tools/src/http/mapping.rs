//! JMESPath over a request's body or an answer (OM-383, OM-390).
//!
//! Expressions come with a registry and data with an answer, so both are bounded: the expression's
//! length and nesting before it is parsed, the result's size while it is copied (a short expression
//! can repeat a large value many times).

use jmespath::{DEFAULT_RUNTIME, Expression, Variable, ast::Ast};
use serde_json::{Map, Number, Value};

const EXPRESSION_BYTES: usize = 4 * 1024;
const EXPRESSION_DEPTH: usize = 48;
const RESULT_NODES: usize = 1_000_000;
const RESULT_DEPTH: usize = 128;

/// Why a mapping gave nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MappingError {
    /// The expression cannot be used.
    #[error("the expression is not valid: {0}")]
    Expression(String),
    /// It failed on this data.
    #[error("the expression failed: {0}")]
    Evaluation(String),
    /// The result is too large.
    #[error("the result is larger than {RESULT_NODES} values")]
    TooLarge,
}

/// Whether `expression` can be used at all, whatever the data: so a mistake is found when a registry is loaded, and not by
/// the first call.
pub(crate) fn check(expression: &str) -> Result<(), MappingError> {
    match unknown_function(compile(expression)?.as_ast()) {
        Some(name) => Err(MappingError::Expression(format!(
            "there is no function `{}`",
            mainstay_telemetry::text::escape(name, 64)
        ))),
        None => Ok(()),
    }
}

/// The first function of an expression that JMESPath does not have. An evaluation may never come to it.
fn unknown_function(ast: &Ast) -> Option<&str> {
    match ast {
        Ast::Function { name, args, .. } => match DEFAULT_RUNTIME.get_function(name) {
            None => Some(name),
            Some(_) => args.iter().find_map(unknown_function),
        },
        Ast::Comparison { lhs, rhs, .. }
        | Ast::Projection { lhs, rhs, .. }
        | Ast::And { lhs, rhs, .. }
        | Ast::Or { lhs, rhs, .. }
        | Ast::Subexpr { lhs, rhs, .. } => unknown_function(lhs).or_else(|| unknown_function(rhs)),
        Ast::Condition { predicate, then, .. } => {
            unknown_function(predicate).or_else(|| unknown_function(then))
        }
        Ast::Expref { ast: node, .. }
        | Ast::Flatten { node, .. }
        | Ast::Not { node, .. }
        | Ast::ObjectValues { node, .. } => unknown_function(node),
        Ast::MultiList { elements, .. } => elements.iter().find_map(unknown_function),
        Ast::MultiHash { elements, .. } => elements.iter().find_map(|pair| unknown_function(&pair.value)),
        Ast::Identity { .. }
        | Ast::Field { .. }
        | Ast::Index { .. }
        | Ast::Literal { .. }
        | Ast::Slice { .. } => None,
    }
}

/// `expression` over `data`.
pub(crate) fn apply(expression: &str, data: &Value) -> Result<Value, MappingError> {
    let compiled = compile(expression)?;
    let data = Variable::from_serializable(data)
        .map_err(|error| MappingError::Evaluation(shown(&error.reason.to_string())))?;
    let found = compiled
        .search(data)
        .map_err(|error| MappingError::Evaluation(shown(&error.reason.to_string())))?;
    let mut nodes = RESULT_NODES;
    to_json(&found, &mut nodes, 0)
}

fn compile(expression: &str) -> Result<Expression<'static>, MappingError> {
    let invalid = |message: &str| Err(MappingError::Expression(message.to_owned()));
    if expression.len() > EXPRESSION_BYTES {
        return invalid("it is longer than 4096 bytes");
    }
    if nesting(expression) > EXPRESSION_DEPTH {
        return invalid("it is nested too deeply");
    }
    jmespath::compile(expression).map_err(|error| MappingError::Expression(shown(&error.reason.to_string())))
}

fn shown(text: &str) -> String {
    mainstay_telemetry::text::escape(text, 256)
}

// Every bracket, and every prefix operator, is one level of the parser's recursion.
fn nesting(expression: &str) -> usize {
    let mut depth: usize = 0;
    let mut deepest = 0;
    let mut operators = 0;
    for letter in expression.chars() {
        match letter {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            '!' | '&' => operators += 1,
            _ => operators = 0,
        }
        deepest = deepest.max(depth + operators);
    }
    deepest
}

fn to_json(variable: &Variable, nodes: &mut usize, depth: usize) -> Result<Value, MappingError> {
    *nodes = nodes.checked_sub(1).ok_or(MappingError::TooLarge)?;
    if depth > RESULT_DEPTH {
        return Err(MappingError::TooLarge);
    }
    Ok(match variable {
        Variable::Null => Value::Null,
        Variable::Bool(value) => Value::Bool(*value),
        Variable::Number(number) => whole(number),
        Variable::String(text) => Value::String(text.clone()),
        Variable::Array(items) => Value::Array(
            items
                .iter()
                .map(|item| to_json(item, nodes, depth + 1))
                .collect::<Result<_, _>>()?,
        ),
        Variable::Object(fields) => {
            let mut object = Map::new();
            for (name, field) in fields {
                object.insert(name.clone(), to_json(field, nodes, depth + 1)?);
            }
            Value::Object(object)
        }
        Variable::Expref(_) => {
            return Err(MappingError::Evaluation(
                "the result is an expression, not a value".to_owned(),
            ));
        }
    })
}

/// Functions such as `length` and `sum` give doubles; JMESPath itself knows only one kind of number,
/// and `2.0` where a count is meant reads like a measurement.
fn whole(number: &Number) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match number.as_f64() {
        Some(double) if number.is_f64() && double.fract() == 0.0 && double.abs() < EXACT => {
            // The guard keeps the value within what both types hold exactly.
            Value::from(double as i64)
        }
        _ => Value::Number(number.clone()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_mapping_selects_and_counts() {
        let data = json!({"ssn": "1", "a": [1, 2], "price": 1.5, "big": 9_007_199_254_740_993_u64});
        for (expression, expected) in [
            ("{s: ssn, n: length(a)}", json!({"s": "1", "n": 2})),
            ("a[1]", json!(2)),
            ("price", json!(1.5)),
            ("big", json!(9_007_199_254_740_993_u64)),
            ("missing", json!(null)),
            ("@", data.clone()),
        ] {
            assert_eq!(apply(expression, &data).unwrap(), expected, "{expression}");
        }
    }

    #[test]
    fn what_cannot_be_used_says_why() {
        assert!(matches!(
            apply("a[", &json!({})),
            Err(MappingError::Expression(_))
        ));
        assert!(matches!(
            apply("length(a)", &json!({"a": 5})),
            Err(MappingError::Evaluation(_))
        ));
        assert!(matches!(
            apply("&a", &json!({})),
            Err(MappingError::Evaluation(_))
        ));
        assert!(matches!(
            apply(&"(".repeat(3_000), &json!({})),
            Err(MappingError::Expression(_))
        ));
        assert!(matches!(
            apply(&"!".repeat(3_000), &json!({})),
            Err(MappingError::Expression(_))
        ));
        assert!(matches!(
            apply(&"a.".repeat(3_000), &json!({})),
            Err(MappingError::Expression(_))
        ));
    }

    #[test]
    fn what_can_never_work_is_found_without_data_om_383_om_390() {
        for expression in [
            "a",
            "{n: length(a)}",
            "a[?b > `1`].c | sort_by(@, &d)",
            "!a || b[*].*",
        ] {
            assert_eq!(check(expression), Ok(()), "{expression}");
        }
        for expression in [
            "",
            "a[",
            "size(a)",
            "a.b | {n: [size(@)]}",
            "a[?size(b) > `1`]",
            "map(&size(@), a)",
            "!size(a) && b",
        ] {
            let error = check(expression).unwrap_err();
            assert!(
                matches!(error, MappingError::Expression(_)),
                "{expression}: {error}"
            );
        }
        let error = check("a.size(b)").unwrap_err().to_string();
        assert_eq!(error, "the expression is not valid: there is no function `size`");
    }

    #[test]
    fn a_short_expression_cannot_make_a_huge_result() {
        let doubling = vec!["[@,@]"; 40].join(" | ");
        assert_eq!(apply(&doubling, &json!("x")), Err(MappingError::TooLarge));
    }

    proptest! {
        #[test]
        fn no_expression_panics(expression in "[a-c\\[\\]{}()@.*|&!?:,'`0-9 -]{0,40}") {
            let _ = apply(&expression, &json!({"a": [1, {"b": "c"}], "b": {"c": null}}));
        }
    }
}
