//! What is wrong with the rules that say which requests are meant.

use std::collections::BTreeSet;

use serde_json::json;

use super::{Errors, invalid_each, must_be_one_of};
use crate::{
    admission::model::{MatchResources, NamedRule},
    builtin::strategy::labels,
    field::{FieldError, FieldPath},
    names::NameRule,
};

const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const SCOPES: [&str; 3] = ["*", "Cluster", "Namespaced"];

pub(super) fn match_resources(resources: &MatchResources, path: &FieldPath, errors: Errors<'_>) {
    let policy = path.child("matchPolicy");
    must_be_one_of(
        &policy,
        resources.match_policy.as_deref(),
        &["Equivalent", "Exact"],
        errors,
    );
    for (name, selector) in [
        ("namespaceSelector", &resources.namespace_selector),
        ("objectSelector", &resources.object_selector),
    ] {
        match selector {
            None => errors.push(FieldError::required(&path.child(name), "")),
            Some(selector) => labels::validate_selector(selector, &path.child(name), errors),
        }
    }
    for (name, rules) in [
        ("resourceRules", &resources.resource_rules),
        ("excludeResourceRules", &resources.exclude_resource_rules),
    ] {
        for (index, rule) in rules.iter().enumerate() {
            named_rule(rule, &path.child(name).index(index), errors);
        }
    }
}

fn named_rule(rule: &NamedRule, path: &FieldPath, errors: Errors<'_>) {
    let mut seen = BTreeSet::new();
    for (index, name) in rule.resource_names.iter().enumerate() {
        let at = path.child("resourceNames").index(index);
        invalid_each(&at, name, NameRule::PathSegment.check(name, false), errors);
        if !seen.insert(name.as_str()) {
            errors.push(FieldError::duplicate(&at, json!(name)));
        }
    }
    alone(&rule.operations, &path.child("operations"), "operations", errors);
    for (index, operation) in rule.operations.iter().enumerate() {
        let at = path.child("operations").index(index);
        must_be_one_of(&at, Some(operation), &OPERATIONS, errors);
    }
    alone(&rule.api_groups, &path.child("apiGroups"), "API groups", errors);
    let versions = path.child("apiVersions");
    alone(&rule.api_versions, &versions, "API versions", errors);
    for (index, version) in rule.api_versions.iter().enumerate() {
        if version.is_empty() {
            errors.push(FieldError::required(&versions.index(index), ""));
        }
    }
    resources(&rule.resources, &path.child("resources"), errors);
    if let Some(scope) = &rule.scope {
        must_be_one_of(&path.child("scope"), Some(scope), &SCOPES, errors);
    }
}

/// A list that must not be empty, and in which `*` stands alone.
fn alone(items: &[String], path: &FieldPath, what: &str, errors: Errors<'_>) {
    if items.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    if items.len() > 1 && items.iter().any(|item| item == "*") {
        let detail = format!("if '*' is present, must not specify other {what}");
        errors.push(FieldError::invalid(path, json!(items), detail));
    }
}

fn resources(resources: &[String], path: &FieldPath, errors: Errors<'_>) {
    if resources.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    let (mut whole, mut under_all) = (BTreeSet::new(), BTreeSet::new());
    let (mut has_everything, mut has_all, mut has_plain) = (false, false, false);
    for (index, resource) in resources.iter().enumerate() {
        let at = path.index(index);
        if resource.is_empty() {
            errors.push(FieldError::required(&at, ""));
            continue;
        }
        has_everything |= resource == "*/*";
        has_all |= resource == "*";
        let Some((resource_name, subresource)) = resource.split_once('/') else {
            // As the reference: the last one decides.
            has_plain = resource != "*";
            continue;
        };
        let mut refuse = |pattern: String| {
            let detail = format!("if '{pattern}' is present, must not specify {resource}");
            errors.push(FieldError::invalid(&at, json!(resource), detail));
        };
        if whole.contains(resource_name) {
            refuse(format!("{resource_name}/*"));
        }
        if under_all.contains(subresource) {
            refuse(format!("*/{subresource}"));
        }
        if subresource == "*" {
            whole.insert(resource_name);
        }
        if resource_name == "*" {
            under_all.insert(subresource);
        }
    }
    if resources.len() > 1 && has_everything {
        let detail = "if '*/*' is present, must not specify other resources";
        errors.push(FieldError::invalid(path, json!(resources), detail));
    }
    if has_all && has_plain {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.push(FieldError::invalid(path, json!(resources), detail));
    }
}
