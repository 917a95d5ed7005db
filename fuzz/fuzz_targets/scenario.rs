//! A scenario file is read or refused.
#![no_main]
use libfuzzer_sys::fuzz_target;
use mainstay_llm::mock::Scenario;

fuzz_target!(|text: &str| {
    let _ = Scenario::parse(text);
});
