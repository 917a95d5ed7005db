//! Validator of PromptPack: its version and its source, from the spec alone (OM-165, OM-166, OM-299).

use super::Finding;
use crate::{
    omnia::prompt_pack::{PromptPackSpec, Source, SourceType},
    pack_version,
};

/// Judges a spec. The content is judged elsewhere, by the pack's own schema.
#[must_use]
pub fn validate(spec: &PromptPackSpec) -> Vec<Finding> {
    let mut findings = Vec::new();
    if spec.pack_name.is_empty() {
        findings.push(Finding::new("spec.packName", "must not be empty"));
    }
    if let Err(error) = pack_version::parse(&spec.version) {
        findings.push(Finding::new("spec.version", error.to_string()));
    }
    findings.extend(source(&spec.source));
    if spec
        .skills_config
        .as_ref()
        .is_some_and(|config| config.max_active < 1)
    {
        findings.push(Finding::new("spec.skillsConfig.maxActive", "must be at least 1"));
    }
    findings
}

fn source(source: &Source) -> Option<Finding> {
    match source.kind {
        SourceType::ConfigMap if source.config_map_ref.is_none() => Some(Finding::new(
            "spec.source.configMapRef",
            "is required for a source of type configmap",
        )),
        SourceType::Live => {
            let named = source
                .live
                .as_ref()
                .is_some_and(|live| live.config_map_ref.is_some() || live.path.is_some());
            (!named).then(|| Finding::new("spec.source.live", "a live source names configMapRef or path"))
        }
        SourceType::ConfigMap => None,
    }
}
