//! A service's own description becomes tools or an error, whatever its references do.
#![no_main]
use libfuzzer_sys::fuzz_target;
use mainstay_tools::openapi::{ParseOptions, parse};

fuzz_target!(|bytes: &[u8]| {
    let _ = parse(bytes, &ParseOptions::default());
});
