//! A printer column's path is refused or finds something in bounded time.
#![no_main]
use libfuzzer_sys::fuzz_target;
use mainstay_kubeapi::table::jsonpath::JsonPath;

fuzz_target!(|text: &str| {
    let Ok(path) = JsonPath::parse(text) else { return };
    let object = serde_json::json!({"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "A"}]}, "a": {"b": [1, 2]}});
    let _ = path.find(&object);
});
