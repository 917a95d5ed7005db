//! A label selector is refused or matches in bounded time.
#![no_main]
use libfuzzer_sys::fuzz_target;
use mainstay_kubeapi::selector::LabelSelector;

fuzz_target!(|text: &str| {
    if let Ok(selector) = LabelSelector::parse(text) {
        let labels = serde_json::json!({"app": "orders", "tier": "a"});
        let _ = selector.matches(labels.as_object());
    }
});
