//! The CustomResourceDefinitions.
//!
//! They are generated from the types, made structural, and checked in under `crds/` at the root of the repository
//! (`cargo run -p xtask -- generate`), so that a change of a schema shows in review. The checked-in text is also what
//! the binary prints and installs.

mod structural;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::Value;

use crate::{
    names,
    omnia::{AgentRuntime, PromptPack, Provider, ToolPolicy, ToolRegistry},
};

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
        Ok(document)
    })
    .collect()
}
