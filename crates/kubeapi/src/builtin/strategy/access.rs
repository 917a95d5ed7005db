//! Roles and bindings of `rbac.authorization.k8s.io`. Requirements KA-010, KA-041.

use serde_json::{Value, json};

use super::labels;
use crate::{
    field::{FieldError, FieldPath},
    names::{self, NameRule},
};

/// The API group of roles, bindings, and the users and groups they name.
const GROUP: &str = "rbac.authorization.k8s.io";

/// A list that is left out is shown as `null`, as the reference writes rules that are not there.
pub(super) fn default_role(object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.entry("rules").or_insert(Value::Null);
    }
}

/// Users and groups belong to the group of RBAC, ServiceAccounts to the core group.
pub(super) fn default_binding(object: &mut Value) {
    for subject in object
        .get_mut("subjects")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let named = matches!(
            subject.get("kind").and_then(Value::as_str),
            Some("User" | "Group")
        );
        let Some(fields) = subject.as_object_mut() else {
            continue;
        };
        let group = fields.get("apiGroup").and_then(Value::as_str).unwrap_or_default();
        if named && group.is_empty() {
            fields.insert("apiGroup".to_owned(), json!(GROUP));
        }
    }
}

pub(super) fn validate_role(object: &Value, _old: Option<&Value>, errors: &mut Vec<FieldError>) {
    validate_rules(object, true, errors);
}

pub(super) fn validate_cluster_role(object: &Value, _old: Option<&Value>, errors: &mut Vec<FieldError>) {
    validate_rules(object, false, errors);
    let Some(aggregation) = object.get("aggregationRule").filter(|rule| !rule.is_null()) else {
        return;
    };
    let path = FieldPath::of("aggregationRule").child("clusterRoleSelectors");
    let selectors = list(aggregation, "clusterRoleSelectors");
    if selectors.is_empty() {
        errors.push(FieldError::required(
            &path,
            "at least one clusterRoleSelector required if aggregationRule is non-nil",
        ));
    }
    for (index, selector) in selectors.iter().enumerate() {
        labels::validate_selector(selector, &path.index(index), errors);
    }
}

fn validate_rules(object: &Value, namespaced: bool, errors: &mut Vec<FieldError>) {
    for (index, rule) in list(object, "rules").iter().enumerate() {
        let path = FieldPath::of("rules").index(index);
        if list(rule, "verbs").is_empty() {
            errors.push(FieldError::required(
                &path.child("verbs"),
                "verbs must contain at least one value",
            ));
        }
        let urls = list(rule, "nonResourceURLs");
        if !urls.is_empty() {
            let path = path.child("nonResourceURLs");
            let mut refuse =
                |detail: &str| errors.push(FieldError::invalid(&path, Value::from(urls.to_vec()), detail));
            if namespaced {
                refuse("namespaced rules cannot apply to non-resource URLs");
            }
            if ["apiGroups", "resources", "resourceNames"]
                .iter()
                .any(|name| !list(rule, name).is_empty())
            {
                refuse("rules cannot apply to both regular resources and non-resource URLs");
            }
            continue;
        }
        for (name, detail) in [
            ("apiGroups", "resource rules must supply at least one api group"),
            ("resources", "resource rules must supply at least one resource"),
        ] {
            if list(rule, name).is_empty() {
                errors.push(FieldError::required(&path.child(name), detail));
            }
        }
    }
}

pub(super) fn validate_role_binding(object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    validate_binding(object, old, true, errors);
}

pub(super) fn validate_cluster_role_binding(
    object: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    validate_binding(object, old, false, errors);
}

fn validate_binding(object: &Value, old: Option<&Value>, namespaced: bool, errors: &mut Vec<FieldError>) {
    let path = FieldPath::of("roleRef");
    let reference = object.get("roleRef").cloned().unwrap_or_default();
    let value = |name: &str| json!(text(&reference, name));
    if text(&reference, "apiGroup") != GROUP {
        errors.push(FieldError::not_supported(
            &path.child("apiGroup"),
            value("apiGroup"),
            &[GROUP],
        ));
    }
    let kinds: &[&str] = if namespaced {
        &["Role", "ClusterRole"]
    } else {
        &["ClusterRole"]
    };
    if !kinds.contains(&text(&reference, "kind")) {
        errors.push(FieldError::not_supported(
            &path.child("kind"),
            value("kind"),
            kinds,
        ));
    }
    let name = text(&reference, "name");
    if name.is_empty() {
        errors.push(FieldError::required(&path.child("name"), ""));
    } else {
        for detail in NameRule::PathSegment.check(name, false) {
            errors.push(FieldError::invalid(&path.child("name"), json!(name), detail));
        }
    }
    for (index, subject) in list(object, "subjects").iter().enumerate() {
        validate_subject(
            subject,
            namespaced,
            &FieldPath::of("subjects").index(index),
            errors,
        );
    }
    // A binding that changes its role is another grant: whoever looked at the first one did not look at this one.
    if old.is_some_and(|old| old.get("roleRef") != object.get("roleRef")) {
        errors.push(FieldError::invalid(&path, reference, "field is immutable"));
    }
}

fn validate_subject(subject: &Value, namespaced: bool, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let (name, group) = (text(subject, "name"), text(subject, "apiGroup"));
    if name.is_empty() {
        errors.push(FieldError::required(&path.child("name"), ""));
    }
    let mut expect_group = |expected: &str| {
        if group != expected {
            errors.push(FieldError::not_supported(
                &path.child("apiGroup"),
                json!(group),
                &[expected],
            ));
        }
    };
    match text(subject, "kind") {
        "ServiceAccount" => {
            expect_group("");
            if !name.is_empty() {
                for detail in names::subdomain(name) {
                    errors.push(FieldError::invalid(&path.child("name"), json!(name), detail));
                }
            }
            if !namespaced && text(subject, "namespace").is_empty() {
                errors.push(FieldError::required(&path.child("namespace"), ""));
            }
        }
        "User" | "Group" => expect_group(GROUP),
        kind => errors.push(FieldError::not_supported(
            &path.child("kind"),
            json!(kind),
            &["ServiceAccount", "User", "Group"],
        )),
    }
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value
        .get(name)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}
