//! Budgets hold whatever the expression does: hostile expressions end with an error, soon, and without
//! allocating what they ask for.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use mainstay_cel::{
    Budget, CompileOptions, Declaration, Environment, EvaluationErrorKind, OBJECT_COST, Shape, Value,
    Variables, compile, compile_checked,
};
use proptest::prelude::*;
use serde_json::json;

fn run(source: &str, budget: &mut Budget) -> Result<Value, (EvaluationErrorKind, String)> {
    let program = compile(source, &CompileOptions::with_variables(["self"])).expect("compiles");
    let variables = Variables::new().with(
        "self",
        json!({"text": "a".repeat(10_000), "list": vec![1; 1000], "numbers": (0..1000).collect::<Vec<_>>()}),
    );
    program
        .evaluate(&variables, budget)
        .map_err(|error| (error.kind(), error.to_string()))
}

#[test]
fn seven_nested_walks_over_ten_elements_exceed_the_cost_limit() {
    let list = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]";
    let source = ["a", "b", "c", "d", "e", "f", "g"]
        .iter()
        .rev()
        .fold("true".to_owned(), |body, name| {
            format!("{list}.all({name}, {body})")
        });
    let mut budget = Budget::per_rule();
    let (kind, message) = run(&source, &mut budget).expect_err("ten million rounds");
    assert_eq!(kind, EvaluationErrorKind::CostExceeded);
    assert_eq!(message, "operation cancelled: actual cost limit exceeded");
    assert_eq!(budget.used(), 1_000_000);
}

#[test]
fn doubling_a_text_is_refused_before_the_memory_is_taken() {
    let source = (0..26).fold("size(s)".to_owned(), |body, _| {
        format!("cel.bind(s, s + s, {body})")
    });
    let mut budget = Budget::new(u64::MAX, 16 << 20);
    let (kind, message) =
        run(&format!("cel.bind(s, 'aaaaaaaaaa', {source})"), &mut budget).expect_err("640 MiB");
    assert_eq!(kind, EvaluationErrorKind::MemoryExceeded);
    assert_eq!(message, "operation cancelled: actual memory limit exceeded");
    assert!(budget.memory_used() <= 16 << 20);
}

#[test]
fn every_way_to_make_something_large_is_charged() {
    for source in [
        "self.list.map(a, self.list.map(b, self.text + self.text)).size() > 0",
        "self.list.map(a, self.text.replace('a', self.text)).size() > 0",
        "self.list.map(a, self.list.map(b, self.text)).map(l, l.join(self.text)).size() > 0",
        "self.list.map(a, self.list + self.list + self.list).size() == self.list.map(a, self.text.split('')).size()",
        "self.list.map(a, '%s%s%s'.format([self.text, self.text, self.list])).size() > 0",
        "self.list.map(a, bytes(self.text)).map(b, string(b) + self.text.upperAscii()).size() == 0",
    ] {
        let mut budget = Budget::new(u64::MAX, 8 << 20);
        let (kind, _) = run(source, &mut budget).expect_err(source);
        assert_eq!(kind, EvaluationErrorKind::MemoryExceeded, "{source}");
    }
}

#[test]
fn every_way_to_walk_far_is_charged() {
    let shared = (0..12).fold("x == y".to_owned(), |body, _| {
        format!("cel.bind(x, [x, x, x, x, x, x, x, x], cel.bind(y, [y, y, y, y, y, y, y, y], {body}))")
    });
    for source in [
        format!("cel.bind(x, 1, cel.bind(y, 1, {shared}))").as_str(),
        "self.list.all(a, self.list.all(b, self.text == self.text))",
        "self.list.all(a, self.text.contains(self.text))",
        "self.list.exists(a, self.text.matches('(a|aa)*b|.*' + string(a)))",
        "self.numbers.all(a, self.numbers.all(b, 'a'.matches('\\\\w{50}' + string(a) + string(b)) || true))",
        "self.list.all(a, self.list.all(b, !(2 in self.list)))",
        "self.list.all(a, sets.equivalent(self.list, self.numbers.map(n, 1)))",
        "self.list.all(a, self.list.indexOf(2) == self.list.lastIndexOf(2))",
        "self.list.all(a, self.text.size() == self.text.indexOf('b') || true)",
    ] {
        let mut budget = Budget::per_rule();
        let started = Instant::now();
        let (kind, _) = run(source, &mut budget).expect_err(source);
        assert_eq!(kind, EvaluationErrorKind::CostExceeded, "{source}");
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "{source} took {:?}",
            started.elapsed()
        );
    }
}

#[test]
fn a_limit_is_never_absorbed() {
    for source in [
        "self.list.all(a, true) || true",
        "[1].exists(a, self.list.all(b, true)) || true",
        "!(self.list.all(a, true) && false)",
        "[1, 2].all(a, self.list.exists(b, false))",
    ] {
        let (kind, _) = run(source, &mut Budget::new(500, 1 << 20)).expect_err(source);
        assert_eq!(kind, EvaluationErrorKind::CostExceeded, "{source}");
    }
}

#[test]
fn a_passed_deadline_ends_the_evaluation() {
    let mut budget = Budget::per_rule().until(Instant::now());
    let (kind, message) = run("self.list.all(a, a == 1)", &mut budget).expect_err("no time");
    assert_eq!(kind, EvaluationErrorKind::DeadlineExceeded);
    assert_eq!(message, "operation cancelled: deadline exceeded");
}

#[test]
fn rules_of_one_object_share_a_budget() {
    let mut left = OBJECT_COST;
    let mut runs = 0;
    loop {
        let mut budget = Budget::shared(left);
        let result = run("self.list.all(a, self.list.exists(b, b == 1))", &mut budget);
        left -= budget.used();
        match result {
            Ok(value) => assert_eq!(value, Value::Bool(true)),
            Err((kind, _)) => {
                assert_eq!(kind, EvaluationErrorKind::CostExceeded);
                break;
            }
        }
        runs += 1;
    }
    assert!(runs > 100, "{runs}");
    assert_eq!(left, 0);
}

#[test]
fn the_deepest_accepted_expressions_fit_a_small_stack() {
    let options = CompileOptions::with_variables(["self"]);
    let sources = [
        "!(".repeat(30) + "true" + &")".repeat(30),
        "[".repeat(60) + &"]".repeat(60),
        "(".repeat(40) + "1" + &"+1)".repeat(40),
        "true?1:".repeat(90) + "1",
        "1".to_owned() + &"+1".repeat(95),
        "self".to_owned() + &".?a".repeat(95),
        (0..22).fold("true".to_owned(), |body, _| {
            format!("[1].all(i, true && ({body}))")
        }),
        (0..30).fold("1".to_owned(), |body, _| format!("dyn(1*2+{body})")),
        (0..18).fold("true".to_owned(), |body, _| {
            format!("(1 < 2) == ({body} || false && 1 + 2 * 3 < 4)")
        }),
        (0..30).fold("1".to_owned(), |body, _| format!("{{'a':{body}}}['a']")),
    ];
    let thread = std::thread::Builder::new()
        .stack_size(1 << 20)
        .spawn(move || {
            let variables = Variables::new().with("self", json!({}));
            for source in sources {
                match compile(&source, &options) {
                    Ok(program) => {
                        program
                            .evaluate(&variables, &mut Budget::per_rule())
                            .unwrap_or_else(|error| panic!("{source}: {error}"));
                    }
                    Err(error) => panic!("{source}: {error}"),
                }
            }
        })
        .expect("thread");
    thread.join().expect("no overflow");
}

/// Pieces of the language in any order: mostly nonsense, often nearly right.
fn piece() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "self",
        ".",
        "?",
        ":",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "&&",
        "||",
        "!",
        "-",
        "+",
        "*",
        "/",
        "%",
        "==",
        "<",
        ",",
        " ",
        "\n",
        "1",
        "1u",
        "1.5",
        "0x",
        "'a'",
        "\"",
        "'",
        "b'\\x",
        "r\"",
        "'''",
        "\\",
        "has(",
        ".all(i,",
        ".map(x,",
        "in",
        "true",
        "null",
        "size",
        ".matches(",
        "cel.bind(",
        "é",
        "😀",
        "`a`",
        "//",
        "optional.of(",
        ".?",
        "[?",
        "\u{0}",
        "@result",
        "as",
        "type(",
        ".format([",
        "e9",
        "9223372036854775808",
    ])
    .prop_map(str::to_owned)
}

/// Expressions that compile: small ones around each other.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "1",
        "-3",
        "2u",
        "1.5",
        "'text'",
        "b'ab'",
        "true",
        "null",
        "[1, 2, 3]",
        "{'a': 1}",
        "self",
        "self.text",
        "self.list",
        "self.?x",
        "timestamp(0)",
        "duration('1s')",
    ])
    .prop_map(str::to_owned);
    leaf.prop_recursive(6, 64, 3, |inner| {
        prop_oneof![
            (
                inner.clone(),
                inner.clone(),
                prop::sample::select(vec!["+", "-", "*", "/", "%", "==", "<", ">=", "in", "&&", "||"])
            )
                .prop_map(|(left, right, operator)| format!("(dyn({left}) {operator} dyn({right}))")),
            (inner.clone(), inner.clone()).prop_map(|(range, body)| format!("({range}).map(i, [i, {body}])")),
            (inner.clone(), inner.clone())
                .prop_map(|(range, body)| format!("({range}).exists(i, dyn({body}) == i)")),
            (inner.clone(), inner.clone())
                .prop_map(|(value, body)| format!("cel.bind(v, {value}, [v, {body}])")),
            (inner.clone(), inner.clone()).prop_map(|(value, index)| format!("({value})[{index}]")),
            (inner.clone(), inner.clone()).prop_map(|(text, old)| format!("({text}).replace({old}, 'xyz')")),
            (
                inner.clone(),
                prop::sample::select(vec![
                    "size", "string", "int", "uint", "double", "bytes", "type", "duration"
                ])
            )
                .prop_map(|(value, function)| format!("{function}({value})")),
            inner.clone().prop_map(|value| format!("'%s'.format([{value}])")),
            (inner.clone(), inner).prop_map(|(left, right)| format!("(dyn({left}) ? {right} : {right})")),
        ]
    })
}

fn declared() -> Declaration {
    let text = Arc::new(Declaration::new(Shape::String, 40, 2));
    let number = Arc::new(Declaration::new(Shape::Int, 0, 1));
    let list = Arc::new(Declaration::new(Shape::List(Arc::clone(&number)), 10, 2));
    let fields = [("a", number), ("text", text), ("list", list)];
    let fields = fields.map(|(name, field)| (name.to_owned(), field)).into();
    Declaration::new(Shape::Object(fields), 0, 2)
}

#[test]
fn types_and_macros_that_double_do_not_grow_without_bound() {
    // KA-015: the checker works within bounds, like the evaluator.
    let declaration = declared();
    let environment = Environment {
        declaration: &declaration,
        variables: &[("self", false)],
    };
    let options = CompileOptions {
        max_source_bytes: 64 * 1024,
        max_nodes: 16 * 1024,
        ..CompileOptions::default()
    };
    let chained = "optional.of(self.a)".to_owned() + &".optMap(x, x)".repeat(60) + ".hasValue()";
    let paired = "optional.of({})".to_owned() + &".optMap(x, {x: x})".repeat(12) + ".hasValue()";
    let added = vec!["self.a + self.a == 2"; 2000].join(" && ");
    let wrong = vec!["self.b == 1"; 2000].join(" && ");
    for source in [chained, paired, added, wrong, "@".repeat(60_000)] {
        let started = Instant::now();
        let result = compile_checked(&source, &options, environment);
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "{:.40} took {:?}",
            source,
            started.elapsed()
        );
        if let Err(error) = result {
            assert!(error.to_string().len() < 256 * 1024, "{:.40}", source);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_source_makes_the_compiler_panic_or_hang(pieces in prop::collection::vec(piece(), 0..60), wild in ".{0,40}") {
        let options = CompileOptions::with_variables(["self"]);
        for source in [pieces.concat(), wild] {
            if let Ok(program) = compile(&source, &options) {
                let variables = Variables::new().with("self", json!({"a": 1}));
                let mut budget = Budget::new(10_000, 1 << 20);
                let _ = program.evaluate_traced(&variables, &mut budget);
                prop_assert!(budget.used() <= 10_000 && budget.memory_used() <= 1 << 20);
            }
            let declaration = declared();
            let environment = Environment { declaration: &declaration, variables: &[("self", false)] };
            if let Err(error) = compile_checked(&source, &options, environment) {
                prop_assert!(!error.to_string().is_empty());
            }
        }
    }

    #[test]
    fn an_evaluation_never_exceeds_its_budget_and_is_the_same_each_time(source in expression(), cost in 0_u64..2_000) {
        let options = CompileOptions { max_depth: 400, ..CompileOptions::with_variables(["self"]) };
        prop_assume!(source.len() < 5000);
        let Ok(program) = compile(&source, &options) else { return Ok(()) };
        let variables = Variables::new().with("self", json!({"text": "abcabc", "list": [3, 1, 2]}));
        let mut budget = Budget::new(cost, 1 << 16);
        let first = program.evaluate(&variables, &mut budget);
        prop_assert!(budget.used() <= cost && budget.memory_used() <= 1 << 16);
        let again = program.evaluate(&variables, &mut Budget::new(cost, 1 << 16));
        prop_assert_eq!(format!("{first:?}"), format!("{again:?}"));
    }
}
