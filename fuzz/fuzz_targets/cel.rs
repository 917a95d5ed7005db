//! A program of at most 5 KB is refused or evaluated within its budget; the type checker and the estimate end too.
#![no_main]
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

use mainstay_cel::{
    Budget, CompileOptions, Declaration, Environment, Shape, Value, Variables, compile, compile_checked,
};

fuzz_target!(|source: &str| {
    let options = CompileOptions::with_variables(["body", "headers", "identity"]);
    let text = Arc::new(Declaration::new(Shape::String, 40, 2));
    let declaration = Declaration::new(Shape::Map(text), 10, 2);
    let environment = Environment {
        declaration: &declaration,
        variables: &[("body", false), ("headers", true)],
    };
    let _ = compile_checked(source, &options, environment).map_err(|error| error.to_string());
    let Ok(program) = compile(source, &options) else { return };
    let body = serde_json::json!({"id": 1017, "list": [1, 2, 3], "text": "abc", "none": null, "nested": {"a": [true]}});
    let variables = Variables::new()
        .with("body", Value::from(&body))
        .with("headers", Value::from(&serde_json::json!({"X-A": "b"})))
        .with("identity", Value::from(&serde_json::json!({"claims": {"role": "viewer"}})));
    let mut budget = Budget::policy();
    let _ = program.evaluate(&variables, &mut budget);
});
