//! PromptPack documents (`pack.json`): what they contain, whether they are usable, and how a prompt of
//! one becomes the system text of a turn (OM-541…OM-568).
//!
//! Start with [`validate`]: it reports every finding of a document at once. A [`Pack`] that it returned
//! renders without surprises: placeholders nobody declares, circular fragments and broken rules were
//! findings. What can still go wrong during a turn is a missing or ill-typed value of the caller
//! ([`RenderError`]).
//!
//! Nothing here reads files, knows Kubernetes or calls a model.

mod allowlist;
mod document;
mod guardrail;
mod render;
mod schema;
mod selection;
mod semantics;
mod skill;
mod template;
mod variable;

use std::fmt;

use sha2::{Digest, Sha256};

pub use allowlist::{Admission, Allowlist};
pub use document::{
    Agents, ClientHints, Consent, ModelOverride, Pack, PackTool, Parameters, Pattern, Prompt, TemplateEngine,
    ToolChoice, ToolPolicy, Validator, Variable, VariableRules, VariableType, Workflow, WorkflowState,
};
pub use guardrail::{Direction, GuardrailError, Guardrails, Verdict, Violation};
pub use render::{RenderError, render};
pub use selection::{SelectError, select_prompt};
pub use skill::{Skill, Skills};
pub use variable::VariableError;

/// Largest document that is looked at, in bytes. A ConfigMap cannot hold more.
pub const MAX_BYTES: usize = 1 << 20;

/// One thing that is wrong with a document: where, and why (OM-552).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// JSON pointer of the offending place; `/` is the document itself.
    pub path: String,
    /// What is wrong there, without a full stop.
    pub reason: String,
}

impl Finding {
    fn new(path: impl Into<String>, reason: impl Into<String>) -> Self {
        let path = path.into();
        Self {
            path: if path.is_empty() { "/".to_owned() } else { path },
            reason: reason.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.path, self.reason)
    }
}

/// The message of OM-301 and OM-552: `invalid pack.json: PATH: REASON; PATH: REASON`.
pub fn describe(findings: &[Finding]) -> String {
    let listed: Vec<String> = findings.iter().map(Finding::to_string).collect();
    format!("invalid pack.json: {}", listed.join("; "))
}

/// `sha256:<hex>` of the bytes of a validated document (OM-171).
pub fn digest(bytes: &[u8]) -> String {
    format!("sha256:{:x}", Sha256::digest(bytes))
}

/// Checks a `pack.json` against the compiled-in schema (OM-301, OM-302) and against what a schema cannot
/// say: placeholders, circular fragments, references between parts, parameters of guardrails.
///
/// # Errors
///
/// Every finding of the document, ordered by path. The semantic checks run only on a document that fits
/// the schema, because they would repeat its findings otherwise.
pub fn validate(bytes: &[u8]) -> Result<Pack, Vec<Finding>> {
    if bytes.len() > MAX_BYTES {
        return Err(vec![Finding::new(
            "/",
            format!("is {} bytes long; the limit is {MAX_BYTES}", bytes.len()),
        )]);
    }
    let value: serde_json::Value = serde_json::from_slice(bytes)
        .map_err(|error| vec![Finding::new("/", format!("is not JSON: {error}"))])?;
    let findings = schema::check(&value);
    if !findings.is_empty() {
        return Err(findings);
    }
    // The schema is stricter than the types, so this fails only where the two have drifted apart; a test
    // feeds every property through both.
    let pack: Pack = serde_json::from_value(value)
        .map_err(|error| vec![Finding::new("/", format!("cannot be read: {error}"))])?;
    let findings = semantics::check(&pack);
    if findings.is_empty() {
        Ok(pack)
    } else {
        Err(findings)
    }
}

#[cfg(test)]
mod tests;
