//! A program of at most 5 KB is refused or evaluated within its budget.
#![no_main]
use libfuzzer_sys::fuzz_target;
use mainstay_cel::{Budget, CompileOptions, Value, Variables, compile};

fuzz_target!(|source: &str| {
    let options = CompileOptions::with_variables(["body", "headers", "identity"]);
    let Ok(program) = compile(source, &options) else { return };
    let body = serde_json::json!({"id": 1017, "list": [1, 2, 3], "text": "abc", "none": null, "nested": {"a": [true]}});
    let variables = Variables::new()
        .with("body", Value::from(&body))
        .with("headers", Value::from(&serde_json::json!({"X-A": "b"})))
        .with("identity", Value::from(&serde_json::json!({"claims": {"role": "viewer"}})));
    let mut budget = Budget::policy();
    let _ = program.evaluate(&variables, &mut budget);
});
