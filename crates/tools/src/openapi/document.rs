//! A document and its operations (OM-426…OM-428).

use std::collections::BTreeSet;

use http::Method;
use serde_json::{Map, Value};

use super::{
    call::Plan,
    name::{self, Named},
    operation::Reader,
    reference, server,
};

/// Largest document that is read. The largest published ones have 12 MB.
pub const MAX_DOCUMENT_BYTES: usize = 16 * 1024 * 1024;

/// Most operations that become tools of one handler; the filter is applied before.
pub const MAX_OPERATIONS: usize = 2_048;

/// Bytes of all schemas of one document together, which stay in memory with the tools.
const MAX_SCHEMA_BYTES: usize = 32 * 1024 * 1024;

/// Operations that are looked at. More is no description of a service.
const MAX_LISTED: usize = 32_768;

// A longer id is none: operations may share it.
const MAX_ID_BYTES: usize = 1_024;

const METHODS: [&str; 5] = ["delete", "get", "patch", "post", "put"];

/// The document's version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    V2,
    V30,
    /// 3.1 and what comes after it: schemas are JSON Schema.
    V31,
}

/// What the caller decides about a document.
#[derive(Debug, Clone, Default)]
pub struct ParseOptions {
    /// Ids of the operations that are wanted; empty means all (OM-085). An operation without an
    /// `operationId` is listed by its generated id.
    pub operation_filter: Vec<String>,
    /// Headers that every call carries anyway. They are no arguments: the handler's author has decided.
    pub fixed_headers: Vec<String>,
}

/// A document that was read.
#[derive(Debug)]
pub struct Document {
    /// The operations that became tools, by path and method.
    pub operations: Vec<Operation>,
    /// The wanted operations that could not.
    pub skipped: Vec<Skipped>,
    /// Entries of the filter that no operation has.
    pub unknown_ids: Vec<String>,
    /// Where the document says the service is, before it is resolved (OM-429).
    pub(super) server: Option<String>,
}

/// One operation as a tool.
#[derive(Debug, Clone)]
pub struct Operation {
    /// The `operationId`, or the generated id (OM-427).
    pub id: String,
    /// The id as every provider takes it, unique in the document (D3).
    pub tool: String,
    /// The method.
    pub method: Method,
    /// The path as the document writes it.
    pub path: String,
    /// What the model is told (OM-427).
    pub description: String,
    /// Schema of the arguments: parameters and body together (OM-428).
    pub input_schema: Value,
    pub(super) plan: Plan,
    /// A server of the operation's own.
    pub(super) server: Option<String>,
}

/// An operation that cannot be a tool. The others are unaffected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Its id.
    pub id: String,
    /// Why.
    pub reason: String,
}

/// Why a document gives no operations.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// Too many bytes.
    #[error("the document is larger than {MAX_DOCUMENT_BYTES} bytes")]
    TooLarge,
    /// Most likely YAML (OM-083).
    #[error("the document is not JSON, and YAML is not read; use the address of the JSON form")]
    NotJson,
    /// JSON with a mistake.
    #[error("the document is not valid JSON: {0}")]
    Invalid(String),
    /// Not a version that is known.
    #[error("the document is not OpenAPI 2.0, 3.0 or 3.1: {0}")]
    Version(String),
    /// More operations than a model could be offered.
    #[error(
        "the document has {0} operations, more than {MAX_OPERATIONS}; list the ones to use in `operationFilter`"
    )]
    TooManyOperations(usize),
    /// The schemas would fill the memory.
    #[error(
        "the schemas of the document's operations are larger than {MAX_SCHEMA_BYTES} bytes; list the operations to use in `operationFilter`"
    )]
    SchemasTooLarge,
}

/// Reads a document: OpenAPI 2.0, 3.0 or 3.1 in JSON. Pure: the same text gives the same operations.
///
/// # Errors
/// See [`DocumentError`]. An operation that cannot be used is no error but listed in
/// [`Document::skipped`].
pub fn parse(text: &[u8], options: &ParseOptions) -> Result<Document, DocumentError> {
    if text.len() > MAX_DOCUMENT_BYTES {
        return Err(DocumentError::TooLarge);
    }
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    if text.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Err(DocumentError::NotJson);
    }
    let root: Value =
        serde_json::from_slice(text).map_err(|error| DocumentError::Invalid(error.to_string()))?;
    let version = version(&root)?;

    let found = operations(&root);
    if found.len() > MAX_LISTED {
        return Err(DocumentError::TooManyOperations(found.len()));
    }
    let named: Vec<Named<'_>> = found
        .iter()
        .map(|found| Named {
            id: &found.id,
            method: found.method,
            path: found.path,
        })
        .collect();
    // Of all operations, so that the filter does not decide about a name.
    let names = name::tool_names(&named);

    let filter: BTreeSet<&str> = options.operation_filter.iter().map(String::as_str).collect();
    let wanted: Vec<(&Found<'_>, String)> = found
        .iter()
        .zip(names)
        .filter(|(found, _)| filter.is_empty() || filter.contains(found.id.as_str()))
        .collect();
    if wanted.len() > MAX_OPERATIONS {
        return Err(DocumentError::TooManyOperations(wanted.len()));
    }
    let known: BTreeSet<&str> = found.iter().map(|found| found.id.as_str()).collect();

    let reader = Reader {
        root: &root,
        version,
        fixed_headers: options
            .fixed_headers
            .iter()
            .map(|name| name.to_ascii_lowercase())
            .collect(),
    };
    let mut document = Document {
        operations: Vec::new(),
        skipped: Vec::new(),
        unknown_ids: filter.difference(&known).map(|id| (*id).to_owned()).collect(),
        server: server::of_document(&root, version),
    };
    let mut schema_bytes = 0;
    for (found, tool) in wanted {
        match reader.operation(found, tool) {
            Ok((operation, bytes)) => {
                schema_bytes += bytes;
                if schema_bytes > MAX_SCHEMA_BYTES {
                    return Err(DocumentError::SchemasTooLarge);
                }
                document.operations.push(operation);
            }
            Err(reason) => document.skipped.push(Skipped {
                id: found.id.clone(),
                reason,
            }),
        }
    }
    Ok(document)
}

fn version(root: &Value) -> Result<Version, DocumentError> {
    let text = |key: &str| {
        root.get(key).map(|value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        })
    };
    let shown = |key: &str, version: &str| {
        let version = mainstay_telemetry::text::escape(version, 32);
        DocumentError::Version(format!("its `{key}` is `{version}`"))
    };
    match (text("openapi"), text("swagger")) {
        (Some(version), _) if version == "3.0" || version.starts_with("3.0.") => Ok(Version::V30),
        (Some(version), _) if version.starts_with("3.") => Ok(Version::V31),
        (Some(version), _) => Err(shown("openapi", &version)),
        (None, Some(version)) if version == "2" || version.starts_with("2.") => Ok(Version::V2),
        (None, Some(version)) => Err(shown("swagger", &version)),
        (None, None) => Err(DocumentError::Version(
            "it has neither `openapi` nor `swagger`".to_owned(),
        )),
    }
}

/// An operation before it is read.
pub(super) struct Found<'d> {
    pub(super) id: String,
    pub(super) method: &'static str,
    pub(super) path: &'d str,
    pub(super) item: &'d Map<String, Value>,
    pub(super) fields: &'d Map<String, Value>,
}

/// All operations, by path and method.
fn operations(root: &Value) -> Vec<Found<'_>> {
    let mut found = Vec::new();
    let paths = root.get("paths").and_then(Value::as_object);
    for (path, item) in paths.into_iter().flatten() {
        // A path item that cannot be resolved has no operations to speak of.
        let Ok(Some(item)) = reference::object(root, item) else {
            continue;
        };
        for method in METHODS {
            let Some(Value::Object(fields)) = item.get(method) else {
                continue;
            };
            let id = match fields.get("operationId") {
                Some(Value::String(id)) if !id.is_empty() && id.len() <= MAX_ID_BYTES => id.clone(),
                _ => name::generated_id(method, path),
            };
            found.push(Found {
                id,
                method,
                path,
                item,
                fields,
            });
        }
    }
    found
}
