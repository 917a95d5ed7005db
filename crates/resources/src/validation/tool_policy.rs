//! Validator of ToolPolicy (OM-187 … OM-194). Expressions are compiled by the policy engine; what is judged here is
//! the form, and how expressions spell header names.

use std::collections::BTreeSet;

use super::Finding;
use crate::omnia::tool_policy::{Rule, ToolPolicySpec};

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

/// Every expression of a policy, with the path of its field.
pub fn expressions(spec: &ToolPolicySpec) -> impl Iterator<Item = (String, &str)> {
    let rules = spec.rules.iter().enumerate().flat_map(|(index, rule)| {
        rule_expressions(rule).map(move |(name, cel)| (format!("spec.rules[{index}].{name}.cel"), cel))
    });
    let headers = spec
        .header_injection
        .iter()
        .enumerate()
        .filter_map(|(index, injection)| {
            injection
                .cel
                .as_deref()
                .map(|cel| (format!("spec.headerInjection[{index}].cel"), cel))
        });
    rules.chain(headers)
}

fn rule_expressions(rule: &Rule) -> impl Iterator<Item = (&'static str, &str)> {
    let deny = rule.deny.as_ref().map(|deny| ("deny", deny.cel.as_str()));
    let permit = rule.permit.as_ref().map(|permit| ("permit", permit.cel.as_str()));
    deny.into_iter().chain(permit)
}

/// A header name as the policy engine's map spells it: each part between hyphens with one capital at its start, like
/// `X-Omnia-Agent-Name` (OM-487).
#[must_use]
pub fn canonical_header(name: &str) -> String {
    let mut canonical = String::with_capacity(name.len());
    let mut start = true;
    for character in name.chars() {
        canonical.push(if start {
            character.to_ascii_uppercase()
        } else {
            character.to_ascii_lowercase()
        });
        start = character == '-';
    }
    canonical
}

/// Header names that expressions look up in a spelling that the engine's map never has, so that the look-up always
/// fails (OM-351). Expressions that do not compile are left to the engine's own report.
#[must_use]
pub fn non_canonical_headers(spec: &ToolPolicySpec) -> Vec<Finding> {
    let options = mainstay_cel::CompileOptions {
        variables: ["headers", "body", "identity"].map(str::to_owned).to_vec(),
        ..mainstay_cel::CompileOptions::default()
    };
    let mut findings = Vec::new();
    for (field, cel) in expressions(spec) {
        let Ok(program) = mainstay_cel::compile(cel, &options) else {
            continue;
        };
        for name in program.index_literals("headers") {
            let canonical = canonical_header(&name);
            if canonical != name {
                findings.push(Finding::new(
                    field.clone(),
                    format!("headers[{name:?}] is never set; write headers[{canonical:?}]"),
                ));
            }
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

    #[test]
    fn headers_are_spelled_canonically_om_351() {
        assert_eq!(canonical_header("x-omnia-USER-id"), "X-Omnia-User-Id");
        let spec = policy(serde_json::json!([
            { "name": "a", "deny": { "cel": "headers['x-omnia-user-id'] == ''", "message": "no" } },
            { "name": "b", "deny": { "cel": "headers['X-Omnia-User-Id'] == ''", "message": "no" } },
        ]));
        let findings = non_canonical_headers(&spec);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].field, "spec.rules[0].deny.cel");
        assert!(
            findings[0].message.contains("X-Omnia-User-Id"),
            "{}",
            findings[0].message
        );
    }
}
