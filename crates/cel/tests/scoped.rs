//! Expressions whose variables each have a type of their own, fields that are found out late, and the authorisation library:
//! what admission policies are made of. Requirement KA-010.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use mainstay_cel::{
    Access, AccessDecision, Authorize, Budget, CompileOptions, Declaration, Extension, Fields, LazyFields,
    ResourceCheck, Scope, Shape, Value, Variables, compile_scoped,
};
use serde_json::json;

fn of(shape: Shape) -> Declaration {
    Declaration::new(shape, 0, 0)
}

fn scope() -> Scope {
    let mut scope = Scope::new();
    let fields = BTreeMap::from([("name".to_owned(), Arc::new(of(Shape::String)))]);
    scope.declare(&["object", "oldObject"], "Thing", &of(Shape::Object(fields)));
    scope.declare(&["anything"], "", &of(Shape::Dyn));
    scope.declare(
        &["variables"],
        "",
        &of(Shape::Named("example.Variables", BTreeMap::new())),
    );
    let authorizer = of(Shape::Opaque("kubernetes.authorization.Authorizer"));
    scope.declare(&["authorizer"], "", &authorizer);
    let check = of(Shape::Opaque("kubernetes.authorization.ResourceCheck"));
    scope.declare(&["authorizer.requestResource"], "", &check);
    scope
}

fn result(source: &str) -> String {
    compile_scoped(source, &CompileOptions::default(), &scope())
        .unwrap_or_else(|errors| panic!("{source}: {errors}"))
        .result
        .to_string()
}

fn refusal(source: &str) -> String {
    match compile_scoped(source, &CompileOptions::default(), &scope()) {
        Ok(program) => panic!("{source}: {}", program.result),
        Err(errors) => errors.to_string().lines().next().unwrap().to_owned(),
    }
}

fn run(source: &str, variables: &Variables, budget: &mut Budget) -> Result<Value, String> {
    compile_scoped(source, &CompileOptions::default(), &scope())
        .unwrap_or_else(|errors| panic!("{source}: {errors}"))
        .program
        .evaluate(variables, budget)
        .map_err(|error| error.to_string())
}

#[test]
fn each_variable_has_its_own_type_ka_010() {
    for (source, expected) in [
        ("object.name", "string"),
        ("[oldObject.name]", "list(string)"),
        ("anything.x.y", "dyn"),
        (
            "{'a': timestamp('2026-01-01T00:00:00Z')}",
            "map(string, google.protobuf.Timestamp)",
        ),
        ("null", "null_type"),
        (
            "authorizer.requestResource",
            "kubernetes.authorization.ResourceCheck",
        ),
        ("authorizer.requestResource.check('get').allowed()", "bool"),
        ("['a'].map(authorizer, authorizer)", "list(string)"),
    ] {
        assert_eq!(result(source), expected, "{source}");
    }
    for (source, expected) in [
        ("object.other", "ERROR: <input>:1:7: undefined field 'other'"),
        (
            "authorizer.other",
            "ERROR: <input>:1:11: unexpected failed resolution of 'kubernetes.authorization.Authorizer'",
        ),
        ("variables.a", "ERROR: <input>:1:10: undefined field 'a'"),
        (
            "object.name == 1",
            "ERROR: <input>:1:13: found no matching overload for '_==_' applied to '(string, int)'",
        ),
    ] {
        assert_eq!(refusal(source), expected);
    }
}

#[test]
fn a_field_has_the_type_of_its_expression_if_that_is_plain_ka_010() {
    let mut scope = scope();
    let options = CompileOptions::default();
    let compiled = compile_scoped("['a']", &options, &scope).unwrap();
    scope.add_field("example.Variables", "names", Some(&compiled.result));
    let object = compile_scoped("object", &options, &scope).unwrap();
    scope.add_field("example.Variables", "whole", Some(&object.result));
    scope.add_field("example.Variables", "broken", None);
    let result =
        |source: &str| compile_scoped(source, &options, &scope).map(|program| program.result.to_string());
    assert_eq!(result("variables.names").unwrap(), "list(string)");
    assert_eq!(result("variables.whole.anything").unwrap(), "dyn");
    assert_eq!(result("variables.broken").unwrap(), "dyn");
    assert!(result("variables.names == 1").is_err());
}

#[test]
fn the_depth_counts_what_macros_are_written_out_to_ka_010() {
    let depth = |source: &str| {
        compile_scoped(source, &CompileOptions::default(), &scope())
            .unwrap()
            .depth
    };
    assert_eq!(depth("1"), 1);
    assert_eq!(depth("1 + 2"), 2);
    assert!(depth("[1].all(x, x > 0)") > depth("[1] == [2]"));
}

/// Fields that count how often they are asked for.
#[derive(Debug, Default)]
struct Counted {
    asked: Mutex<Vec<String>>,
}

impl Fields for Counted {
    fn field(&self, name: &str) -> Option<Result<Value, String>> {
        self.asked.lock().unwrap().push(name.to_owned());
        match name {
            "good" => Some(Ok(Value::from(7_i64))),
            "bad" => Some(Err("it is bad".to_owned())),
            _ => None,
        }
    }
}

#[test]
fn fields_are_found_out_when_they_are_asked_for_ka_010() {
    let fields = Arc::new(Counted::default());
    let value = Value::extension(Extension::Fields(LazyFields(fields.clone())));
    let variables = Variables::new().with("anything", value);
    let run = |source: &str| run(source, &variables, &mut Budget::per_rule());
    assert_eq!(run("anything.good"), Ok(Value::from(7_i64)));
    assert_eq!(run("anything.bad"), Err("it is bad".to_owned()));
    assert_eq!(run("has(anything.bad)"), Err("it is bad".to_owned()));
    assert_eq!(run("anything.none"), Err("no such key: none".to_owned()));
    assert_eq!(
        run("has(anything.good) && !has(anything.none)"),
        Ok(Value::Bool(true))
    );
    assert_eq!(run("anything.?none.orValue(1)"), Ok(Value::from(1_i64)));
    fields.asked.lock().unwrap().clear();
    assert_eq!(run("true || anything.bad == 1"), Ok(Value::Bool(true)));
    assert!(fields.asked.lock().unwrap().is_empty());
}

/// Allows whatever concerns what its name says.
#[derive(Debug)]
struct Only(String);

impl Authorize for Only {
    fn path(&self, path: &str, verb: &str) -> AccessDecision {
        AccessDecision {
            allowed: self.0 == format!("{verb} {path}"),
            reason: format!("{} asked", self.0),
            error: None,
        }
    }

    fn resource(&self, check: &ResourceCheck, verb: &str) -> AccessDecision {
        let shown = json!([
            check.group,
            check.resource,
            check.subresource,
            check.namespace,
            check.name,
            check.field_selector,
            check.label_selector,
            verb
        ]);
        AccessDecision {
            allowed: false,
            reason: shown.to_string(),
            error: Some("cannot say".to_owned()),
        }
    }

    fn service_account(&self, namespace: &str, name: &str) -> Arc<dyn Authorize> {
        Arc::new(Only(format!("get /{namespace}/{name}")))
    }
}

#[test]
fn the_authorizer_is_asked_what_the_expression_says_ka_010_ka_041() {
    let authorizer: Arc<dyn Authorize> = Arc::new(Only("get /a".to_owned()));
    let own = ResourceCheck {
        resource: "things".to_owned(),
        ..ResourceCheck::default()
    };
    let value = |access| Value::extension(Extension::Access(access));
    let variables = Variables::new()
        .with("authorizer", value(Access::Authorizer(Arc::clone(&authorizer))))
        .with(
            "authorizer.requestResource",
            value(Access::Resource(authorizer, Box::new(own))),
        );
    for (source, expected) in [
        ("authorizer.path('/a').check('get').allowed()", Value::Bool(true)),
        ("authorizer.path('/a').check('put').allowed()", Value::Bool(false)),
        (
            "authorizer.path('/a').check('put').reason()",
            Value::from("get /a asked"),
        ),
        ("authorizer.path('/a').check('put').errored()", Value::Bool(false)),
        ("authorizer.path('/a').check('put').error()", Value::from("")),
        (
            "authorizer.serviceAccount('n', 'a').path('/n/a').check('get').allowed()",
            Value::Bool(true),
        ),
        (
            "authorizer.group('g').resource('r').subresource('s').namespace('n').name('o').fieldSelector('f')\
             .labelSelector('l').check('v').reason()",
            Value::from(r#"["g","r","s","n","o","f","l","v"]"#),
        ),
        (
            "authorizer.requestResource.check('get').reason()",
            Value::from(r#"["","things","","","","","","get"]"#),
        ),
        (
            "authorizer.requestResource.check('get').error()",
            Value::from("cannot say"),
        ),
    ] {
        assert_eq!(
            run(source, &variables, &mut Budget::per_rule()),
            Ok(expected),
            "{source}"
        );
    }
    for (source, expected) in [
        (
            "authorizer.path(' ').check('get').allowed()",
            "path must not be empty",
        ),
        (
            "authorizer.group('').resource('').check('get').allowed()",
            "resource must not be empty",
        ),
        (
            "authorizer.serviceAccount('n', 'A').path('/').check('get').allowed()",
            "Invalid service account name",
        ),
        (
            "authorizer.serviceAccount('n.m', 'a').path('/').check('get').allowed()",
            "Invalid service account namespace",
        ),
    ] {
        assert_eq!(
            run(source, &variables, &mut Budget::per_rule()),
            Err(expected.to_owned()),
            "{source}"
        );
    }
}

#[test]
fn two_questions_fit_a_budget_and_three_do_not_ka_010() {
    let authorizer: Arc<dyn Authorize> = Arc::new(Only("get /a".to_owned()));
    let variables = Variables::new().with(
        "authorizer",
        Value::extension(Extension::Access(Access::Authorizer(authorizer))),
    );
    let question = "authorizer.path('/a').check('get').allowed()";
    let mut budget = Budget::per_rule();
    let two = format!("{question} && {question}");
    assert_eq!(run(&two, &variables, &mut budget), Ok(Value::Bool(true)));
    assert!(budget.used() > 700_000, "{}", budget.used());
    let three = format!("{two} && {question}");
    assert_eq!(
        run(&three, &variables, &mut Budget::per_rule()),
        Err("operation cancelled: actual cost limit exceeded".to_owned())
    );
    let mut budget = Budget::per_rule();
    let selected = "authorizer.group('').resource('a').labelSelector('a=b,c').check('get').allowed()";
    assert_eq!(run(selected, &variables, &mut budget), Ok(Value::Bool(false)));
    // 10 for the list, 1 for reading five characters, 3 requirements of 50, the check, the variable and three calls.
    assert_eq!(budget.used(), 10 + 1 + 150 + 350_000 + 4);
}
