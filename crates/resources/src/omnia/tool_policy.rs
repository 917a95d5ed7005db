//! ToolPolicy: which calls of a registry's tools are permitted (OM-187 … OM-195, DD-4).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{enumeration::enumeration, schemas};

/// ToolPolicy permits calls of a registry's tools, minus what its rules deny.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "omnia.altairalabs.ai",
    version = "v1alpha1",
    kind = "ToolPolicy",
    plural = "toolpolicies",
    namespaced,
    status = "ToolPolicyStatus",
    derive = "PartialEq",
    shortname = "tp",
    doc = "ToolPolicy permits calls of a registry's tools, minus what its rules deny.",
    printcolumn(name = "Registry", type_ = "string", json_path = ".spec.selector.registry"),
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.mode"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Rules", type_ = "integer", json_path = ".status.ruleCount"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ToolPolicySpec {
    /// The tools that the policy is about.
    pub selector: Selector,
    /// Rules, judged in order.
    #[schemars(schema_with = "rules")]
    pub rules: Vec<Rule>,
    /// Claims that the caller's identity must carry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required_claims: Vec<RequiredClaim>,
    /// enforce refuses denied calls; audit lets them pass and records what would have been denied.
    #[serde(default)]
    pub mode: Mode,
    /// What happens when a rule cannot be evaluated.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// Headers added to permitted calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub header_injection: Vec<HeaderInjection>,
}

fn rules(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let mut schema = schemas::keyed_list::<Rule>(generator, "name");
    schema.insert("minItems".into(), 1.into());
    schema
}

/// Selection of tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Selector {
    /// Name of a ToolRegistry in the namespace.
    #[schemars(schema_with = "schemas::non_empty")]
    pub registry: String,
    /// Names of tools; empty means every tool of the registry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
}

/// One rule: it denies, or it permits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.deny) != has(self.permit)",
     "message": "a rule has exactly one of deny and permit"}
]))]
pub struct Rule {
    /// Name of the rule, unique in the policy; a refused call names it.
    #[schemars(schema_with = "schemas::non_empty")]
    pub name: String,
    /// What the rule is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Refuses the call when its expression is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deny: Option<Deny>,
    /// Once a policy has such rules, it permits only calls for which one of them is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permit: Option<Permit>,
}

/// A reason to refuse a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Deny {
    /// CEL expression over headers, body (the arguments) and identity.
    #[schemars(schema_with = "schemas::non_empty")]
    pub cel: String,
    /// Told to the model when the call is refused.
    pub message: String,
}

/// A reason to permit a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Permit {
    /// CEL expression over headers, body (the arguments) and identity.
    #[schemars(schema_with = "schemas::non_empty")]
    pub cel: String,
}

/// A claim that the caller's identity must carry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequiredClaim {
    /// Name of the claim.
    #[schemars(schema_with = "schemas::non_empty")]
    pub claim: String,
    /// Told to the model when the claim is missing.
    pub message: String,
}

/// A header added to permitted calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.value) != has(self.cel)",
     "message": "a header has exactly one of value and cel"}
]))]
pub struct HeaderInjection {
    /// Name of the header.
    #[schemars(schema_with = "schemas::non_empty")]
    pub header: String,
    /// Fixed value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// CEL expression that gives the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cel: Option<String>,
}

enumeration! {
    /// Whether denials take effect.
    #[derive(Default)]
    Mode {
        /// They do.
        #[default]
        Enforce = "enforce",
        /// They are recorded only.
        Audit = "audit",
    }
}

enumeration! {
    /// Outcome of a rule that cannot be evaluated.
    #[derive(Default)]
    OnFailure {
        /// The call is refused.
        #[default]
        Deny = "deny",
        /// The rule is skipped.
        Allow = "allow",
    }
}

enumeration! {
    /// Phase of a ToolPolicy.
    Phase {
        /// Compiled and in force.
        Active = "Active",
        /// An expression does not compile; the policy denies what it selects.
        Error = "Error",
    }
}

/// State of a ToolPolicy as last seen by its controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolPolicyStatus {
    /// Active or Error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Number of rules that compiled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule_count: Option<i32>,
    /// Aspects of the current state, by type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::conditions")]
    pub conditions: Vec<Condition>,
    /// The metadata.generation that was last reconciled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
