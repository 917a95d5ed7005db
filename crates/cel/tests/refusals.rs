//! What is refused when an expression is compiled, with the reference's texts (KA-015, OM-351), and
//! what a program tells about itself.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use mainstay_cel::{Budget, CompileOptions, Key, Map, Type, Value, Variables, compile, escape_property};
use serde_json::json;

fn refusal(source: &str) -> String {
    match compile(
        source,
        &CompileOptions::with_variables(["self", "headers", "body"]),
    ) {
        Ok(_) => panic!("{source} was accepted"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn an_undeclared_name_is_shown_with_its_place() {
    assert_eq!(
        refusal("x"),
        "ERROR: <input>:1:1: undeclared reference to 'x' (in container '')\n | x\n | ^"
    );
    assert_eq!(
        refusal("self.a > 1 &&\n  limit.x == 2"),
        "ERROR: <input>:2:3: undeclared reference to 'limit' (in container '')\n |   limit.x == 2\n | ..^"
    );
    assert_eq!(
        refusal("'é' + wrong"),
        "ERROR: <input>:1:7: undeclared reference to 'wrong' (in container '')\n | 'é' + wrong\n | .．....^"
    );
}

#[test]
fn macro_variables_end_with_their_macro() {
    assert!(refusal("[1].all(i, i > 0) && i > 0").contains("undeclared reference to 'i'"));
    assert!(refusal("cel.bind(a, a, 1)").contains("undeclared reference to 'a'"));
    assert!(refusal("[1].map(i, i > j, i)").contains("undeclared reference to 'j'"));
}

#[test]
fn unknown_functions_and_wrong_arguments_are_named() {
    assert_eq!(
        refusal("amount('1')"),
        "ERROR: <input>:1:7: undeclared reference to 'amount' (in container '')\n | amount('1')\n | ......^"
    );
    assert!(refusal("self.isLink()").contains("undeclared reference to 'isLink'"));
    assert!(refusal("math.least(1, 2)").contains("undeclared reference to 'math'"));
    assert!(refusal("size(1, 2)").contains("found no matching overload for 'size' applied to '(dyn, dyn)'"));
    assert!(
        refusal("self.startsWith()")
            .contains("found no matching overload for 'startsWith' applied to 'dyn.()'")
    );
    assert!(refusal("startsWith('a', 'b')").contains("found no matching overload for 'startsWith'"));
    assert!(refusal("Message{a: 1}").contains("undeclared reference to 'Message'"));
}

#[test]
fn what_can_never_be_a_bool_is_refused_as_a_condition() {
    assert!(refusal("1 && true").contains("expected type 'bool' but found 'int'"));
    assert!(refusal("'a' ? 1 : 2").contains("expected type 'bool' but found 'string'"));
}

#[test]
fn syntax_errors_have_a_place() {
    assert!(
        refusal("1 +").starts_with("ERROR: <input>:1:4: Syntax error"),
        "{}",
        refusal("1 +")
    );
    assert!(refusal("").starts_with("ERROR: <input>:1:1: Syntax error"));
    assert!(refusal("(1").starts_with("ERROR: <input>:1:"));
    assert!(refusal("'abc").contains("unterminated string literal"));
    assert!(refusal("self.namespace.let.x == namespace").contains("reserved identifier"));
    assert!(refusal("has(self)").contains("invalid argument to has() macro"));
    assert!(refusal("[1].all(i + 1, true)").contains("argument must be a simple name"));
    assert!(refusal("99999999999999999999").contains("invalid int literal"));
}

#[test]
fn a_literal_pattern_is_checked() {
    assert!(refusal("'a'.matches('(')").contains("invalid matches argument"));
    assert!(refusal("self.find('\\\\p{Nope}')").contains("invalid matches argument"));
    assert!(refusal("self.matches('(((a{1000}){1000}){1000})')").contains("invalid matches argument"));
}

#[test]
fn hostile_sources_are_refused_at_once() {
    let limit = "expression recursion limit exceeded";
    let bangs_and_brackets = "!(".repeat(62) + "!";
    assert!(refusal(&bangs_and_brackets).contains(limit));
    assert!(refusal(&"(".repeat(5000)).contains(limit));
    assert!(refusal(&"[".repeat(5000)).contains(limit));
    assert!(refusal(&("true?".repeat(900) + "1")).contains(limit));
    assert!(refusal(&("true?1:".repeat(700) + "1")).contains(limit));
    assert!(refusal(&("self".to_owned() + &".a".repeat(2000))).contains(limit));
    assert!(refusal(&("self".to_owned() + &".f()".repeat(1000))).contains(limit));
    assert!(refusal(&("!-".repeat(2000) + "1")).contains(limit));
    assert!(refusal(&("1".to_owned() + &"+1".repeat(2000))).contains(limit));
    assert!(refusal(&"x".repeat(31 * 1024)).contains("expression code point size exceeds limit"));
    let many = format!("[{}]", vec!["1"; 2400].join(","));
    assert!(refusal(&many).contains("expression node limit exceeded: 2048"));
}

#[test]
fn long_but_flat_expressions_are_accepted() {
    let options = CompileOptions::with_variables(["self"]);
    let alternatives = vec!["self.kind == 'a'"; 200].join(" || ");
    let program = compile(&alternatives, &options).expect("two hundred alternatives");
    let variables = Variables::new().with("self", json!({"kind": "b"}));
    assert_eq!(
        program.evaluate(&variables, &mut Budget::per_rule()),
        Ok(Value::Bool(false))
    );
    compile(&vec!["'part'"; 80].join(" + "), &options).expect("eighty parts");
}

#[test]
fn a_program_tells_what_it_reads() {
    let options = CompileOptions::with_variables(["headers", "body", "identity"]);
    let program = compile(
        "headers['X-Tenant'] == 'a' && headers[?'x-b'].hasValue() && 'X-c' in headers && has(headers.d) \
         && body['not-a-header'] == 1 && ['e'].all(headers, headers['f'] == 1)",
        &options,
    )
    .expect("compiles");
    assert_eq!(program.index_literals("headers"), ["X-Tenant", "x-b", "X-c", "d"]);
    assert_eq!(program.index_literals("identity"), Vec::<String>::new());
    assert!(
        program.uses_variable("headers")
            && program.uses_variable("body")
            && !program.uses_variable("identity")
    );
    assert_eq!(program.result_type(), Some(Type::Bool));
    assert_eq!(compile("body.x", &options).expect("compiles").result_type(), None);
    assert_eq!(
        compile("string(body.x)", &options)
            .expect("compiles")
            .result_type(),
        Some(Type::String)
    );
    assert_eq!(
        compile("[1].map(i, i)", &options)
            .expect("compiles")
            .result_type(),
        Some(Type::List)
    );
}

#[test]
fn a_trace_holds_what_was_read_and_is_bounded() {
    let options = CompileOptions::with_variables(["body", "headers"]);
    let source = "body.id > 1000 && headers[\"X-Tenant\"] == 'a' && body.items.all(i, i.price < 3) && !has(body.q) \
                  && (body.?z.orValue(1) == 1 || body.never)";
    let program = compile(source, &options).expect("compiles");
    let long = "v".repeat(5000);
    let variables = Variables::new()
        .with("body", json!({"id": 1017, "items": [{"price": 1}], "long": long}))
        .with("headers", json!({"X-Tenant": "a"}));
    let (result, values) = program.evaluate_traced(&variables, &mut Budget::policy());
    assert_eq!(result, Ok(Value::Bool(true)));
    assert_eq!(
        values,
        [
            ("body.id".to_owned(), json!(1017)),
            ("headers[\"X-Tenant\"]".to_owned(), json!("a")),
            ("body.items".to_owned(), json!([{"price": 1}])),
            ("has(body.q)".to_owned(), json!(false)),
            ("body.?z".to_owned(), json!(null)),
        ]
    );

    let many: Vec<String> = (0..60).map(|index| format!("has(body.f{index})")).collect();
    let program =
        compile(&format!("body.long != '' && !({})", many.join(" || ")), &options).expect("compiles");
    let (result, values) = program.evaluate_traced(&variables, &mut Budget::policy());
    assert_eq!(result, Ok(Value::Bool(true)));
    assert_eq!(values.len(), 32);
    let shown = values[0].1.as_str().expect("text");
    assert!(shown.len() < 1024 && shown.ends_with("… (5000 bytes)"), "{shown}");
}

#[test]
fn property_names_are_escaped_as_kubernetes_does() {
    for (name, escaped) in [
        ("name", Some("name")),
        ("_a1", Some("_a1")),
        ("namespace", Some("__namespace__")),
        ("in", Some("__in__")),
        ("x-kubernetes", Some("x__dash__kubernetes")),
        ("a.b/c", Some("a__dot__b__slash__c")),
        ("a__b", Some("a__underscores__b")),
        ("a___b", Some("a__underscores___b")),
        ("int", Some("int")),
        ("1a", None),
        ("", None),
        ("a b", None),
        ("é", None),
    ] {
        assert_eq!(escape_property(name).as_deref(), escaped, "{name}");
    }
}

#[test]
fn values_become_json_and_back() {
    let json = json!({"a": [1, 2.5, null, true, "x"], "b": {"c": -1}, "big": u64::MAX, "six": 6.0});
    assert_eq!(Value::from(&json).to_json(), Ok(json));
    assert_eq!(Value::Bytes(b"hi".as_slice().into()).to_json(), Ok(json!("aGk=")));
    assert_eq!(Value::Double(f64::INFINITY).to_json(), Ok(json!("+Inf")));
    let program = compile(
        "[duration('1.5s'), timestamp(0), optional.of(1), int]",
        &CompileOptions::default(),
    )
    .expect("compiles");
    let value = program
        .evaluate(&Variables::new(), &mut Budget::per_rule())
        .expect("evaluates");
    assert_eq!(
        value.to_json(),
        Ok(json!(["1.5s", "1970-01-01T00:00:00Z", 1, "int"]))
    );
}

#[test]
fn a_value_that_shares_its_parts_is_not_written_out_without_bound() {
    let source = (0..12).fold("x".to_owned(), |body, _| {
        format!("cel.bind(x, [x, x, x, x, x, x, x, x], {body})")
    });
    let program =
        compile(&format!("cel.bind(x, 'a', {source})"), &CompileOptions::default()).expect("compiles");
    let value = program
        .evaluate(&Variables::new(), &mut Budget::per_rule())
        .expect("evaluates");
    assert_eq!(value.to_json().expect_err("8^12 elements").limit, 8 << 20);
}

#[test]
fn of_two_equal_keys_of_a_built_map_the_later_stays() {
    let map: Map = [
        (Key::Int(1), Value::Int(1)),
        (Key::String("a".into()), Value::Int(2)),
        (Key::Uint(1), Value::Int(3)),
    ]
    .into_iter()
    .collect();
    assert_eq!(map.len(), 2);
    assert_eq!(map.get_key(&Key::Int(1)), Some(&Value::Int(3)));
    assert_eq!(map.get("a"), Some(&Value::Int(2)));
}
