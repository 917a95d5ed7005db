//! A `pack.json` is valid or has findings.
#![no_main]
use libfuzzer_sys::fuzz_target;
use mainstay_agent::pack;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(pack) = pack::validate(bytes) {
        let _ = pack::select_prompt(&pack);
    }
});
