//! A label selector is refused or matches in bounded time.
#![no_main]
use libfuzzer_sys::fuzz_target;
use mainstay_kubeapi::selector::LabelSelector;

fuzz_target!(|text: &str| {
    if let Ok(selector) = LabelSelector::parse(text) {
        let labels = serde_json::Map::from_iter([("app".to_owned(), "orders".into()), ("tier".to_owned(), "a".into())]);
        let _ = selector.matches(&labels);
    }
});
