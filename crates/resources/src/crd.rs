//! The CustomResourceDefinitions.
//!
//! They are generated from the types, made structural, and checked in under `crds/` at the root of the repository
//! (`cargo run -p xtask -- generate`), so that a change of a schema shows in review. The checked-in text is also what
//! the binary prints and installs.

mod structural;

use std::fmt::Write as _;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::{
    kourier::{self, AgentBackend, Binding, ChatConnection},
    names,
    omnia::{self, AgentRuntime, PromptPack, Provider, ToolPolicy, ToolRegistry},
};

/// A family of kinds that is served or left out as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// Agents, their packs, models, tools and policies.
    Omnia,
    /// Chat channels and the agents that answer there.
    Kourier,
}

impl Family {
    /// Every family of this version.
    pub const ALL: &'static [Family] = &[Family::Omnia, Family::Kourier];

    /// The API group of its kinds.
    #[must_use]
    pub fn group(self) -> &'static str {
        match self {
            Family::Omnia => omnia::GROUP,
            Family::Kourier => kourier::GROUP,
        }
    }
}

/// Name of the CRD that may be absent: without it there is no policy engine (OM-012).
pub const TOOL_POLICY_CRD: &str = "toolpolicies.omnia.altairalabs.ai";

/// The checked-in CRDs: file name and text, in the order in which they are installed.
#[must_use]
pub fn crd_yaml() -> &'static [(&'static str, &'static str)] {
    macro_rules! files {
        ($($name:literal),+ $(,)?) => {
            &[$(($name, include_str!(concat!("../../../crds/", $name)))),+]
        };
    }
    files![
        "agentkourier.dev_agentbackends.yaml",
        "agentkourier.dev_bindings.yaml",
        "agentkourier.dev_chatconnections.yaml",
        "omnia.altairalabs.ai_agentruntimes.yaml",
        "omnia.altairalabs.ai_promptpacks.yaml",
        "omnia.altairalabs.ai_providers.yaml",
        "omnia.altairalabs.ai_toolpolicies.yaml",
        "omnia.altairalabs.ai_toolregistries.yaml",
    ]
}

/// Every CRD of this product, generated from the types and labelled as ours.
///
/// # Errors
/// A generated schema that is no CRD; a fault of the types.
pub fn crds() -> Result<Vec<CustomResourceDefinition>, serde_json::Error> {
    documents()?.into_iter().map(serde_json::from_value).collect()
}

/// The CRDs as JSON documents, as [`crd_yaml`]'s files hold them.
///
/// # Errors
/// A generated schema that cannot be written; a fault of the types.
pub fn documents() -> Result<Vec<Value>, serde_json::Error> {
    [
        AgentBackend::crd(),
        Binding::crd(),
        ChatConnection::crd(),
        AgentRuntime::crd(),
        PromptPack::crd(),
        Provider::crd(),
        ToolPolicy::crd(),
        ToolRegistry::crd(),
    ]
    .into_iter()
    .map(|mut crd| {
        crd.metadata
            .labels
            .get_or_insert_default()
            .insert(names::MANAGED_LABEL.into(), "true".into());
        crd.spec.names.list_kind = Some(format!("{}List", crd.spec.names.kind));
        let mut document = serde_json::to_value(crd)?;
        structural::finish(&mut document);
        note_schema_hash(&mut document);
        Ok(document)
    })
    .collect()
}

/// The hash of a CRD's schemas by which a broker knows the definitions that it was built with (AK-007): lower-case hexadecimal
/// SHA-256 of the JSON object that leads from each version's name to its `openAPIV3Schema`, with sorted keys and without white
/// space.
#[must_use]
pub fn schema_hash(document: &Value) -> String {
    let versions = document.pointer("/spec/versions").and_then(Value::as_array);
    let schemas: Map<String, Value> = versions
        .into_iter()
        .flatten()
        .filter_map(|version| {
            let name = version.get("name")?.as_str()?;
            Some((
                name.to_owned(),
                version.pointer("/schema/openAPIV3Schema")?.clone(),
            ))
        })
        .collect();
    let mut hash = String::new();
    for byte in Sha256::digest(sorted(&Value::Object(schemas)).to_string()) {
        // Writing to a text cannot fail.
        let _ = write!(hash, "{byte:02x}");
    }
    hash
}

/// The same value with the keys of every object in order, whatever order the maps of the JSON library keep.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut entries: Vec<_> = fields.iter().collect();
            entries.sort_by_key(|(name, _)| *name);
            entries
                .into_iter()
                .map(|(name, value)| (name.clone(), sorted(value)))
                .collect()
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

fn note_schema_hash(document: &mut Value) {
    if document.pointer("/spec/group").and_then(Value::as_str) != Some(kourier::GROUP) {
        return;
    }
    let hash = schema_hash(document);
    if let Some(metadata) = document.get_mut("metadata").and_then(Value::as_object_mut) {
        let annotations = metadata
            .entry("annotations")
            .or_insert_with(|| Value::Object(Map::new()));
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.insert(kourier::SCHEMA_HASH_ANNOTATION.to_owned(), hash.into());
        }
    }
}
