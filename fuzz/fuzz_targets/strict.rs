//! A request's body is decoded or refused, as JSON and as YAML.
#![no_main]
use libfuzzer_sys::fuzz_target;
use mainstay_kubeapi::strict::{Format, decode};

fuzz_target!(|bytes: &[u8]| {
    let _ = decode(bytes, Format::Json);
    let _ = decode(bytes, Format::Yaml);
});
