//! Validator of ToolPolicy (OM-187 … OM-194): its form. Expressions are compiled by the policy engine.

use std::collections::BTreeSet;

use super::Finding;
use crate::omnia::tool_policy::ToolPolicySpec;

/// Judges a spec.
#[must_use]
pub fn validate(spec: &ToolPolicySpec) -> Vec<Finding> {
    let mut findings = Vec::new();
    if spec.selector.registry.is_empty() {
        findings.push(Finding::new("spec.selector.registry", "must not be empty"));
    }
    if spec.rules.is_empty() {
        findings.push(Finding::new("spec.rules", "at least one rule is required"));
    }
    let mut names = BTreeSet::new();
    for (index, rule) in spec.rules.iter().enumerate() {
        let field = format!("spec.rules[{index}]");
        if rule.name.is_empty() {
            findings.push(Finding::new(format!("{field}.name"), "must not be empty"));
        }
        if !names.insert(rule.name.as_str()) {
            findings.push(Finding::new(
                format!("{field}.name"),
                "another rule has the same name",
            ));
        }
        if rule.deny.is_some() == rule.permit.is_some() {
            findings.push(Finding::new(field, "a rule has exactly one of deny and permit"));
        }
    }
    for (index, injection) in spec.header_injection.iter().enumerate() {
        if injection.value.is_some() == injection.cel.is_some() {
            findings.push(Finding::new(
                format!("spec.headerInjection[{index}]"),
                "a header has exactly one of value and cel",
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn policy(rules: serde_json::Value) -> ToolPolicySpec {
        serde_json::from_value(serde_json::json!({ "selector": { "registry": "r" }, "rules": rules }))
            .unwrap()
    }

    #[test]
    fn a_rule_denies_or_permits_om_190() {
        let both = policy(serde_json::json!([
            { "name": "a", "deny": { "cel": "true", "message": "no" }, "permit": { "cel": "true" } },
            { "name": "a" },
        ]));
        let findings = validate(&both);
        assert_eq!(findings.len(), 3, "{findings:?}");
        assert!(
            findings
                .iter()
                .any(|finding| finding.field == "spec.rules[1].name")
        );
    }
}
