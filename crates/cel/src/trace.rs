//! What an evaluation read, for decision traces.

use std::sync::Arc;

use serde_json::Value as Json;

use crate::value::Value;

/// Paths that one trace holds.
const ENTRIES: usize = 32;
/// Bytes of JSON, roughly, of one value in a trace.
const VALUE_SIZE: usize = 1024;

/// The first values that were read, by path.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    entries: Vec<(String, Json)>,
}

impl Trace {
    pub(crate) fn record(&mut self, path: &Arc<str>, value: &Value) {
        if self.entries.len() >= ENTRIES || self.entries.iter().any(|(seen, _)| **seen == **path) {
            return;
        }
        let json = value
            .to_json_within(VALUE_SIZE)
            .unwrap_or_else(|_| Json::String(summary(value)));
        self.entries.push((path.to_string(), json));
    }

    pub(crate) fn into_entries(self) -> Vec<(String, Json)> {
        self.entries
    }
}

fn summary(value: &Value) -> String {
    match value {
        Value::String(text) => {
            let start: String = text.chars().take(VALUE_SIZE / 4).collect();
            format!("{start}… ({} bytes)", text.len())
        }
        Value::Bytes(bytes) => format!("bytes ({} bytes)", bytes.len()),
        Value::List(items) => format!("list ({} elements)", items.len()),
        Value::Map(map) => format!("map ({} entries)", map.len()),
        other => other.type_of().name().to_owned(),
    }
}
