//! Rules as the reference judges them: whether they compile and what is said if not, what they can cost, and what they
//! give and cost for one value. The answers in `reference.json` were recorded from `schema/cel` of
//! `k8s.io/apiextensions-apiserver` 0.37.2; rules whose broken syntax the reference explains at greater length are left
//! out.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use mainstay_cel::{Budget, Variables};
use serde_json::Value;

use super::{compile_rule, convert::to_cel, declare};
use crate::schema::{Node, ValidationRule};

#[derive(serde::Deserialize)]
struct Reference {
    schema: Value,
    #[serde(rename = "self")]
    object: Value,
    rules: Vec<Recorded>,
}

#[derive(serde::Deserialize)]
struct Recorded {
    rule: String,
    error: Option<String>,
    max: Option<u64>,
    cost: Option<u64>,
    result: Option<bool>,
    #[serde(default)]
    fails: bool,
}

#[test]
fn rules_compile_cost_and_decide_as_the_reference_says() {
    // KA-015
    let reference: Reference = serde_json::from_str(include_str!("reference.json")).expect("reads");
    let declaration = declare(&reference.schema, false).expect("is declared");
    let node = Node::from_nested_schema(&reference.schema).expect("reads");
    let object = to_cel(&node, &reference.object, false);
    let variables = Variables::new()
        .with("self", object.clone())
        .with("oldSelf", object);
    let mut differences = Vec::new();
    for recorded in &reference.rules {
        let source = ValidationRule {
            rule: recorded.rule.clone(),
            ..ValidationRule::default()
        };
        let rule = compile_rule(&source, &declaration);
        let mut note = |what: &str, ours: String, theirs: String| {
            if ours != theirs {
                differences.push(format!(
                    "{}\n  {what}: {ours}\n  reference: {theirs}",
                    recorded.rule
                ));
            }
        };
        let program = match &rule.program {
            Ok(program) => program,
            Err(fault) => {
                note("error", fault.clone(), recorded.error.clone().unwrap_or_default());
                continue;
            }
        };
        note("error", String::new(), recorded.error.clone().unwrap_or_default());
        note(
            "most cost",
            format!("{:?}", Some(rule.max_cost)),
            format!("{:?}", recorded.max),
        );
        let mut budget = Budget::per_rule();
        let result = program.evaluate(&variables, &mut budget);
        note("fails", result.is_err().to_string(), recorded.fails.to_string());
        let result = result.ok().and_then(|result| result.as_bool());
        note("result", format!("{result:?}"), format!("{:?}", recorded.result));
        if let Some(cost) = recorded.cost {
            note("cost", budget.used().to_string(), cost.to_string());
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(reference.rules.len() > 300, "the record is there");
}
