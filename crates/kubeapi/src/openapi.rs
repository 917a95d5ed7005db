//! OpenAPI documents, from which `kubectl` explains and validates. Requirement KA-005.
//!
//! Built-in kinds are published as upstream publishes them; a custom kind by the schema of its definition. The paths say
//! what `kubectl` looks for: which kind a resource is, and that a write takes `fieldValidation`.

mod components;
mod paths;
mod two;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, OnceLock, PoisonError},
};

use bytes::Bytes;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::builtin::{KindInfo, Kinds, definitions};

pub use two::v2;

/// Where the document about `/version` is.
const VERSION: &str = "version";

/// The encoded documents of one set of kinds. Each is made when it is first asked for and kept as long as the kinds: it is
/// large, and clients ask for it at every start.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    index: OnceLock<Bytes>,
    two: OnceLock<Bytes>,
    /// By path, for those paths that are served.
    three: Mutex<BTreeMap<String, Bytes>>,
}

/// [`index`] as JSON text.
pub(crate) fn encoded_index(kinds: &Kinds) -> Bytes {
    let documents = kinds.documents();
    documents.index.get_or_init(|| encoded(&index(kinds))).clone()
}

/// [`v2`] as JSON text.
pub(crate) fn encoded_v2(kinds: &Kinds) -> Bytes {
    let documents = kinds.documents();
    documents.two.get_or_init(|| encoded(&v2(kinds))).clone()
}

/// [`document`] as JSON text.
pub(crate) fn encoded_document(kinds: &Kinds, path: &str) -> Option<Bytes> {
    // Never held while a document is made: two who ask at the same time make it twice.
    let three = || {
        let three = &kinds.documents().three;
        three.lock().unwrap_or_else(PoisonError::into_inner)
    };
    let known = three().get(path).cloned();
    if known.is_some() {
        return known;
    }
    let made = encoded(&document(kinds, path)?);
    three().insert(path.to_owned(), made.clone());
    Some(made)
}

fn encoded(document: &Value) -> Bytes {
    Bytes::from(document.to_string())
}

/// `/openapi/v3`: where the document of each group version is. The address carries a digest of what the document is made
/// of, so that clients may keep what they have read.
pub fn index(kinds: &Kinds) -> Value {
    let mut digests: BTreeMap<String, Sha256> = BTreeMap::new();
    for info in kinds.all() {
        let digest = digests.entry(path_of(info)).or_default();
        digest.update(format!("{}\0{}\0{}\0", info.kind, info.plural, info.namespaced));
        match &info.document {
            Some(document) => digest.update(document.to_string()),
            None => digest.update(definitions::document_text(&info.definition).unwrap_or_default()),
        }
        digest.update(format!("{}{:?}", info.status, info.scale));
    }
    digests.entry(VERSION.to_owned()).or_default();
    let paths: BTreeMap<String, Value> = digests
        .into_iter()
        .map(|(path, digest)| {
            let hash: String = digest
                .finalize()
                .iter()
                .map(|byte| format!("{byte:02X}"))
                .collect();
            let url = format!("/openapi/v3/{path}?hash={hash}");
            (path, json!({"serverRelativeURL": url}))
        })
        .collect();
    json!({"paths": paths})
}

/// `/openapi/v3/PATH`, where the path is `api/v1` or `apis/GROUP/VERSION`; `None` if nothing is served there.
pub fn document(kinds: &Kinds, path: &str) -> Option<Value> {
    if path == VERSION {
        return Some(version_document());
    }
    let served: Vec<&KindInfo> = kinds
        .all()
        .iter()
        .map(AsRef::as_ref)
        .filter(|info| path_of(info) == path)
        .collect();
    if served.is_empty() {
        return None;
    }
    let schemas = components::of(&served);
    let paths: BTreeMap<String, Value> = served.iter().flat_map(|info| paths::of(info)).collect();
    Some(json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.37.2"},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"BearerToken": {
                "type": "apiKey", "in": "header", "name": "authorization",
                "description": "Bearer Token authentication",
            }},
        },
    }))
}

/// What `/version` answers.
fn version_document() -> Value {
    const INFO: &str = "io.k8s.apimachinery.pkg.version.Info";
    let required = [
        "major",
        "minor",
        "gitVersion",
        "gitCommit",
        "gitTreeState",
        "buildDate",
        "goVersion",
        "compiler",
        "platform",
    ];
    let text = |is_required: bool| match is_required {
        true => json!({"type": "string", "default": ""}),
        false => json!({"type": "string"}),
    };
    let optional = [
        "emulationMajor",
        "emulationMinor",
        "minCompatibilityMajor",
        "minCompatibilityMinor",
    ];
    let properties: BTreeMap<&str, Value> = required
        .iter()
        .map(|name| (*name, text(true)))
        .chain(optional.iter().map(|name| (*name, text(false))))
        .collect();
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "1.37"},
        "paths": {"/version/": {"get": {
            "tags": ["version"],
            "description": "get the version information for this server",
            "operationId": "getCodeVersion",
            "responses": {
                "200": {"description": "OK", "content": {"application/json": {
                    "schema": {"$ref": format!("#/components/schemas/{INFO}")}}}},
                "401": {"description": "Unauthorized"},
            },
        }}},
        "components": {"schemas": {INFO: {
            "description": "Info contains versioning information. how we'll want to distribute that information.",
            "type": "object", "required": required, "properties": properties,
        }}},
    })
}

fn path_of(info: &KindInfo) -> String {
    if info.group.is_empty() {
        format!("api/{}", info.version)
    } else {
        format!("apis/{}/{}", info.group, info.version)
    }
}

/// The name of the list of a definition.
fn list_name(definition: &str) -> String {
    format!("{definition}List")
}

/// The definitions that the documents of all kinds need beside those of the kinds.
fn common() -> BTreeSet<String> {
    let mut names: BTreeSet<String> = [
        "DeleteOptions",
        "ListMeta",
        "ObjectMeta",
        "Patch",
        "Status",
        "WatchEvent",
    ]
    .iter()
    .map(|name| definitions::meta(name))
    .collect();
    names.insert("io.k8s.api.autoscaling.v1.Scale".to_owned());
    names
}

/// The schema of a kind as it is published, and all that it refers to, by name.
pub(crate) fn schemas_of(kind: &KindInfo) -> BTreeMap<String, Value> {
    components::of(&[kind])
}

#[cfg(test)]
mod tests;
