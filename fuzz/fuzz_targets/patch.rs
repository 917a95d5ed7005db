//! Patches change a document or are refused. The first half of the input is the document, the second the patch.
#![no_main]
use libfuzzer_sys::fuzz_target;
use mainstay_kubeapi::patch::{json_patch, merge_patch};
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let (document, patch) = bytes.split_at(bytes.len() / 2);
    let (Ok(document), Ok(patch)) = (serde_json::from_slice::<Value>(document), serde_json::from_slice::<Value>(patch)) else {
        return;
    };
    let _ = merge_patch(&mut document.clone(), &patch);
    let _ = json_patch(&mut document.clone(), &patch);
});
