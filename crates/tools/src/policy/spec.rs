//! A ToolPolicy as the broker sees it (OM-187…OM-194): no metadata, no status, no Kubernetes types.

use serde::{Deserialize, Serialize};

use super::decision::Mode;

/// One ToolPolicy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicySpec {
    /// Name of the ToolPolicy.
    pub name: String,
    /// Name of the ToolRegistry it selects, in the same namespace (OM-187).
    pub registry: String,
    /// Tools it selects, by exact name; empty means every tool of the registry (OM-188).
    #[serde(default)]
    pub tools: Vec<String>,
    /// Rules in the order in which they are judged (OM-189, OM-190).
    #[serde(default)]
    pub rules: Vec<Rule>,
    /// Claims the caller must have, judged before the rules (OM-191).
    #[serde(default)]
    pub required_claims: Vec<RequiredClaim>,
    /// Whether a denial refuses the call (OM-192).
    #[serde(default)]
    pub mode: Mode,
    /// What a rule that cannot be evaluated means (OM-193).
    #[serde(default)]
    pub on_failure: OnFailure,
    /// Headers added to calls that are allowed (OM-194).
    #[serde(default)]
    pub header_injection: Vec<HeaderInjection>,
    /// Why the policy is in phase `Error`, when it is. Such a policy denies what it selects (OM-488).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<String>,
}

/// One rule; exactly one of `deny` and `permit` is set.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// Name, unique within the policy; a denial says it.
    pub name: String,
    /// Refuses the call when its expression is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deny: Option<Deny>,
    /// CEL expression; once a policy has such a rule, it permits only when one of them is true (DD-4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permit: Option<String>,
}

/// When to refuse, and what to say.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Deny {
    /// CEL expression over `headers`, `body` and `identity`.
    pub cel: String,
    /// Text for the model and the record.
    pub message: String,
}

/// A claim the caller must have.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequiredClaim {
    /// Name of the claim.
    pub claim: String,
    /// Text for the model and the record when it is missing.
    pub message: String,
}

/// What a rule that cannot be evaluated means (OM-193).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// The call is denied.
    #[default]
    Deny,
    /// The rule, or the header, is left out.
    Allow,
}

/// A header for calls that are allowed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeaderInjection {
    /// Name of the header, in any spelling.
    pub header: String,
    /// Where its value comes from.
    #[serde(flatten)]
    pub source: HeaderSource,
}

/// Where a header's value comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HeaderSource {
    /// Always this text.
    Value(String),
    /// The result of a CEL expression.
    Cel(String),
}
