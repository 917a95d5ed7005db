//! Reading request bodies and manifests: JSON and YAML become one JSON value, and what was written twice is
//! reported instead of lost. Requirement KA-014; the bounds are part of KA-008.
//!
//! Scalars of YAML are those of the Go library that `kubectl` and the reference use: `yes`, `on` and `y` are
//! booleans, `0644` is octal, a date is a string. Unknown fields are not this module's concern: they need a schema.

mod documents;
mod findings;
mod syntax;
mod value;

#[cfg(test)]
mod tests;

use serde::de::DeserializeSeed;
use serde_json::Value;
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy};

use crate::status::{ApiError, ApiResult, Reason};
pub use documents::documents;
pub(crate) use findings::Findings;
use value::{Reader, Repeated};

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
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decoded {
    /// The value; of a key that occurs twice, the last.
    pub value: Value,
    /// The paths of the keys that occur more than once, `spec.containers[0].name`, each once; at most 100.
    pub duplicates: Vec<String>,
    /// The same keys of a YAML document as its reader tells them, `line 3: key "name" already set in map`; at most 100.
    pub repeated_keys: Vec<String>,
}

impl Decoded {
    /// The texts for warnings: `duplicate field "spec.replicas"`, of YAML the repeated keys.
    pub fn warnings(&self) -> Vec<String> {
        if self.repeated_keys.is_empty() {
            return self
                .duplicates
                .iter()
                .map(|path| format!("duplicate field {path:?}"))
                .collect();
        }
        self.repeated_keys.clone()
    }

    /// The texts for a strict decoding error. Of YAML they are one: it is refused as a whole.
    pub fn strict_errors(&self) -> Vec<String> {
        if self.repeated_keys.is_empty() {
            return self.warnings();
        }
        vec![format!(
            "yaml: unmarshal errors:\n  {}",
            self.repeated_keys.join("\n  ")
        )]
    }
}

/// Reads one document.
///
/// # Errors
/// 400 with where and why, for a document that is malformed, nested too deep, or grows beyond its bounds by YAML
/// aliases.
pub fn decode(bytes: &[u8], format: Format) -> ApiResult<Decoded> {
    match format {
        Format::Json => read_json(bytes, Repeated::LastWins),
        // Clients send JSON under the media type of YAML, and JSON is YAML.
        Format::Yaml => read_json(bytes, Repeated::LastWins).or_else(|_| read_yaml(bytes)),
    }
}

/// Reads one document of a built-in kind. As in a decoder of typed structures, two objects under the same key of a JSON
/// document become one.
///
/// # Errors
/// As for [`decode`].
pub fn decode_typed(bytes: &[u8], format: Format) -> ApiResult<Decoded> {
    match format {
        Format::Json => read_json(bytes, Repeated::Merges),
        Format::Yaml => decode(bytes, format),
    }
}

fn read_json(bytes: &[u8], repeated: Repeated) -> ApiResult<Decoded> {
    let reader = Reader::new(MAXIMUM_DEPTH, repeated);
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = reader
        .seed()
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value));
    match value {
        Ok(value) => Ok(Decoded {
            value,
            duplicates: reader.into_found().0,
            repeated_keys: Vec::new(),
        }),
        // A text that is well-formed is nested too deep, or has a number beyond all bounds.
        Err(error) => Err(ApiError::new(
            Reason::BadRequest,
            syntax::fault(bytes).unwrap_or_else(|| format!("invalid JSON: {error}")),
        )),
    }
}

/// What is wrong with a text that is no JSON, in the words of the reference; `None` for one that is well-formed.
pub(crate) fn json_fault(bytes: &[u8]) -> Option<String> {
    syntax::fault(bytes)
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
        return Ok(Decoded::default());
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
    let reader = Reader::new(MAXIMUM_DEPTH, Repeated::ByLine);
    let value = serde_saphyr::with_deserializer_from_str_with_options(text, yaml_options(), |deserializer| {
        reader.seed().deserialize(deserializer)
    });
    match value {
        Ok(value) => {
            let (duplicates, repeated_keys) = reader.into_found();
            Ok(Decoded {
                value,
                duplicates,
                repeated_keys,
            })
        }
        Err(error) => {
            let line = error.location().map(|at| at.line());
            let message = error.without_snippet().to_string();
            Err(yaml_fault(text, message.lines().next().unwrap_or_default(), line))
        }
    }
}

/// A fault in the words of the library that `kubectl` and the reference use, where it has such words; else as the parser
/// tells it.
fn yaml_fault(text: &str, message: &str, line: Option<u64>) -> String {
    // Faults of the scanner are told with their line, but for the first one; those of the parser are found at the end of
    // the text, and told with the number of lines before that.
    let at_line = |line: u64| match line {
        0 | 1 => String::new(),
        line => format!("line {line}: "),
    };
    let known = |needle: &str| message.contains(needle);
    if known("mapping values are not allowed") {
        return format!(
            "{}mapping values are not allowed in this context",
            at_line(line.unwrap_or(1))
        );
    }
    for (opening, closing) in [('{', '}'), ('[', ']')] {
        if !known(&format!("unclosed bracket '{opening}'")) {
            continue;
        }
        let before_end = text.trim_end_matches('\n').matches('\n').count() + 1;
        let ends_inside = text.trim_end().ends_with([opening, ',', ':']);
        return if ends_inside {
            format!("line {before_end}: did not find expected node content")
        } else {
            format!("line {before_end}: did not find expected ',' or '{closing}'")
        };
    }
    let place = line.map_or_else(String::new, |line| format!("line {line}: "));
    format!("{place}{message}")
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
