//! What is wrong with the fields of a body, in the order in which the reference tells it. Requirement KA-014.

use std::collections::{HashMap, hash_map::Entry};

use bytes::Bytes;
use serde::de::DeserializeSeed as _;

use super::{MAXIMUM_DEPTH, Repeated, value::Reader};
use crate::field::FieldPath;

/// Of a longer document the order is not worth its time.
const LONGEST_ORDERED: usize = 64 * 1024;

/// What was found while a body was decoded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    /// The repeated fields, as messages.
    pub(crate) texts: Vec<String>,
    /// The body, if it is JSON of a built-in kind: the reference's decoder of typed structures meets unknown and repeated fields
    /// on its way, and does not look into unknown ones. Else empty.
    pub(crate) document: Bytes,
}

impl Findings {
    /// All that is told when these fields are unknown.
    pub(crate) fn with_unknown(&self, unknown: &[FieldPath]) -> Vec<String> {
        let told = unknown
            .iter()
            .map(|path| format!("unknown field {:?}", path.as_str()));
        let mut all: Vec<String> = self.texts.iter().cloned().chain(told).collect();
        if all.len() < 2 || self.document.is_empty() || self.document.len() > LONGEST_ORDERED {
            return all;
        }
        let met = met(&self.document);
        let inside_unknown = |path: &str| {
            unknown.iter().any(|unknown| {
                path.strip_prefix(unknown.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
            })
        };
        all.retain(|text| {
            met.get(text)
                .is_none_or(|(_, path)| text.starts_with('u') || !inside_unknown(path))
        });
        // Stable, for what is not in the document: it stays at the end.
        all.sort_by_key(|text| met.get(text).map_or(usize::MAX, |(at, _)| *at));
        all
    }
}

/// For each key of a document what would be said if it was unknown, where it is first, and that it is repeated, where it is
/// for the second time; with its path.
fn met(document: &[u8]) -> HashMap<String, (usize, String)> {
    let reader = Reader::new(MAXIMUM_DEPTH, Repeated::Merges).noting_keys();
    // It was read before.
    let _same = reader
        .seed()
        .deserialize(&mut serde_json::Deserializer::from_slice(document));
    let mut met = HashMap::new();
    for (at, path) in reader.into_keys().into_iter().enumerate() {
        let repeated = format!("duplicate field {path:?}");
        match met.entry(format!("unknown field {path:?}")) {
            Entry::Vacant(first) => {
                first.insert((at, path));
            }
            Entry::Occupied(_) => {
                met.entry(repeated).or_insert((at, path));
            }
        }
    }
    met
}
