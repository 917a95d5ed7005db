//! Reading request bodies and manifests: JSON and YAML become one JSON value, and what was written twice is
//! reported instead of lost. Requirement KA-014; the bounds are part of KA-008.
//!
//! Scalars of YAML are those of the Go library that `kubectl` and the reference use: `yes`, `on` and `y` are
//! booleans, `0644` is octal, a date is a string. Unknown fields are not this module's concern: they need a schema.

mod documents;
mod value;

#[cfg(test)]
mod tests;

use serde::de::DeserializeSeed;
use serde_json::Value;
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy};

use crate::status::{ApiError, ApiResult, Reason};
pub use documents::documents;
use value::Reader;

/// How deep a document may be nested: the depth that every walk of this crate can recurse into.
pub const MAXIMUM_DEPTH: usize = 128;

/// The stack that a YAML document of the greatest depth is read on, with room to spare in unoptimised builds.
const YAML_STACK_BYTES: usize = 16 * 1024 * 1024;

/// The format of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `application/json`
    Json,
    /// `application/yaml`, one document
    Yaml,
}

/// A document that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The value; of a key that occurs twice, the last.
    pub value: Value,
    /// The paths of the keys that occur more than once, `spec.containers[0].name`, each once; at most 100.
    pub duplicates: Vec<String>,
}

impl Decoded {
    /// The texts for a strict decoding error or for warnings: `duplicate field "spec.replicas"`.
    pub fn strict_errors(&self) -> Vec<String> {
        self.duplicates
            .iter()
            .map(|path| format!("duplicate field {path:?}"))
            .collect()
    }
}

/// Reads one document.
///
/// # Errors
/// 400 with where and why, for a document that is malformed, nested too deep, or grows beyond its bounds by YAML
/// aliases.
pub fn decode(bytes: &[u8], format: Format) -> ApiResult<Decoded> {
    match format {
        Format::Json => read_json(bytes),
        // Clients send JSON under the media type of YAML, and JSON is YAML.
        Format::Yaml => read_json(bytes).or_else(|_| read_yaml(bytes)),
    }
}

fn read_json(bytes: &[u8]) -> ApiResult<Decoded> {
    let reader = Reader::new(MAXIMUM_DEPTH);
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = reader
        .seed()
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value));
    match value {
        Ok(value) => Ok(Decoded {
            value,
            duplicates: reader.into_duplicates(),
        }),
        Err(error) => Err(ApiError::new(Reason::BadRequest, json_error(bytes, &error))),
    }
}

/// The words of Go's decoder where the position is enough to find them.
fn json_error(bytes: &[u8], error: &serde_json::Error) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    let character = bytes
        .split(|byte| *byte == b'\n')
        .nth(error.line().saturating_sub(1))
        .and_then(|line| line.get(error.column().saturating_sub(1)..))
        .and_then(|rest| String::from_utf8_lossy(&rest[..rest.len().min(4)]).chars().next());
    match character {
        Some(character) if error.is_syntax() && is_first(bytes, error) => {
            format!("invalid character {character:?} looking for beginning of value")
        }
        _ => format!("invalid JSON: {error}"),
    }
}

fn is_first(bytes: &[u8], error: &serde_json::Error) -> bool {
    let before: usize = bytes
        .split_inclusive(|byte| *byte == b'\n')
        .take(error.line().saturating_sub(1))
        .map(<[u8]>::len)
        .sum();
    bytes
        .get(..(before + error.column()).saturating_sub(1))
        .is_some_and(|before| before.iter().all(u8::is_ascii_whitespace))
}

fn read_yaml(bytes: &[u8]) -> ApiResult<Decoded> {
    let refuse = |text: &str| {
        ApiError::new(
            Reason::BadRequest,
            format!("error converting YAML to JSON: yaml: {text}"),
        )
    };
    let text = std::str::from_utf8(bytes).map_err(|_| refuse("invalid UTF-8"))?;
    // An empty document is null, as it is to the Go library.
    if documents(text).is_empty() {
        return Ok(Decoded {
            value: Value::Null,
            duplicates: Vec::new(),
        });
    }
    // The YAML library recurses with large frames: a document of the greatest depth does not fit the stack of a
    // worker thread.
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("yaml".to_owned())
            .stack_size(YAML_STACK_BYTES)
            .spawn_scoped(scope, || read_yaml_here(text))
            .map_err(|error| {
                ApiError::new(
                    Reason::InternalError,
                    format!("cannot start a thread to read YAML: {error}"),
                )
            })?
            .join()
            .map_err(|_| ApiError::new(Reason::InternalError, "reading YAML failed unexpectedly"))?
            .map_err(|error| refuse(&error))
    })
}

fn read_yaml_here(text: &str) -> Result<Decoded, String> {
    let reader = Reader::new(MAXIMUM_DEPTH);
    let value = serde_saphyr::with_deserializer_from_str_with_options(text, yaml_options(), |deserializer| {
        reader.seed().deserialize(deserializer)
    });
    match value {
        Ok(value) => Ok(Decoded {
            value,
            duplicates: reader.into_duplicates(),
        }),
        Err(error) => {
            let place = error
                .location()
                .map_or_else(String::new, |at| format!("line {}: ", at.line()));
            let message = error.without_snippet().to_string();
            Err(format!("{place}{}", message.lines().next().unwrap_or_default()))
        }
    }
}

fn yaml_options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        merge_keys: MergeKeyPolicy::Merge,
        legacy_octal_numbers: true,
        strict_booleans: false,
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_depth: MAXIMUM_DEPTH,
            flow_nesting_limit: MAXIMUM_DEPTH,
            max_documents: 1,
            max_events: 500_000,
            max_nodes: 250_000,
            max_anchors: 1_000,
            max_aliases: 5_000,
            max_recorded_anchor_events: 250_000,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 250_000,
            max_replay_stack_depth: 32,
            max_alias_expansions_per_anchor: 1_000,
        },
    }
}
