#![allow(clippy::unwrap_used, clippy::expect_used)]

mod calls;
mod discovery;
mod reading;
mod references;

use serde_json::Value;

use super::*;

/// The same small shop in the three versions.
const SHOP_2: &str = include_str!("tests/shop-2.0.json");
const SHOP_30: &str = include_str!("tests/shop-3.0.json");
const SHOP_31: &str = include_str!("tests/shop-3.1.json");

fn read(document: &Value) -> Document {
    parse(document.to_string().as_bytes(), &ParseOptions::default()).unwrap()
}

fn operation<'a>(document: &'a Document, id: &str) -> &'a Operation {
    document
        .operations
        .iter()
        .find(|operation| operation.id == id)
        .unwrap_or_else(|| panic!("no operation {id}: {:?}", document.skipped))
}
