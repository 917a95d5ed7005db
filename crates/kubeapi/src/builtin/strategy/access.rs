//! Roles and bindings of `rbac.authorization.k8s.io`. Requirements KA-010, KA-041.

use serde_json::{Value, json};

use super::labels;
use crate::{
    builtin::validation::{Errors, Field, IMMUTABLE, internal},
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

pub(super) fn validate_role(object: &Value, _old: Option<&Value>, errors: &mut Errors) {
    validate_rules(object, true, errors);
    demand_verbs(object, errors);
}

pub(super) fn validate_cluster_role(object: &Value, _old: Option<&Value>, errors: &mut Errors) {
    validate_rules(object, false, errors);
    let aggregation = Field::of(object, "aggregationRule");
    let selectors = aggregation.child("clusterRoleSelectors");
    if aggregation.is_set() && selectors.count() == 0 {
        let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        selectors.required(errors, detail);
    }
    for selector in selectors.items() {
        let before = errors.len();
        labels::validate_selector(selector.value, &selector.path, errors);
        if errors.len() > before {
            // What the reference shows here is no selector.
            selector.invalid_as(errors, Value::Null, "invalid label selector.");
        }
    }
    demand_verbs(object, errors);
}

fn validate_rules(object: &Value, namespaced: bool, errors: &mut Errors) {
    for rule in Field::of(object, "rules").items() {
        let urls = rule.child("nonResourceURLs");
        if urls.count() > 0 {
            if namespaced {
                urls.invalid(errors, "namespaced rules cannot apply to non-resource URLs");
            }
            if ["apiGroups", "resources", "resourceNames"]
                .iter()
                .any(|name| rule.child(name).count() > 0)
            {
                let detail = "rules cannot apply to both regular resources and non-resource URLs";
                urls.invalid(errors, detail);
            }
            continue;
        }
        for (name, detail) in [
            ("apiGroups", "resource rules must supply at least one api group"),
            ("resources", "resource rules must supply at least one resource"),
        ] {
            if rule.child(name).count() == 0 {
                rule.child(name).required(errors, detail);
            }
        }
    }
}

/// What is declared of the rules, and told last.
fn demand_verbs(object: &Value, errors: &mut Errors) {
    for verbs in Field::of(object, "rules").items().map(|rule| rule.child("verbs")) {
        if verbs.count() == 0 {
            verbs.required(errors, "");
        }
    }
}

pub(super) fn validate_role_binding(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    validate_binding(object, old, true, errors);
}

pub(super) fn validate_cluster_role_binding(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    validate_binding(object, old, false, errors);
}

fn validate_binding(object: &Value, old: Option<&Value>, namespaced: bool, errors: &mut Errors) {
    let role = Field::of(object, "roleRef");
    let (group, kind, name) = (role.child("apiGroup"), role.child("kind"), role.child("name"));
    if group.text() != GROUP {
        group.not_supported(errors, &[GROUP]);
    }
    let kinds: &[&str] = if namespaced {
        &["Role", "ClusterRole"]
    } else {
        &["ClusterRole"]
    };
    if !kinds.contains(&kind.text()) {
        kind.not_supported(errors, kinds);
    }
    if !name.text().is_empty() {
        name.texts(errors, NameRule::PathSegment.check(name.text(), false));
    }
    let subjects = Field::of(object, "subjects");
    for subject in subjects.items() {
        validate_subject(&subject, namespaced, errors);
    }
    // A binding that changes its role is another grant: whoever looked at the first one did not look at this one.
    if old.is_some_and(|old| old.get("roleRef").unwrap_or(&Value::Null) != role.value) {
        let fields = [
            ("apiGroup", "APIGroup", json!("")),
            ("kind", "Kind", json!("")),
            ("name", "Name", json!("")),
        ];
        role.invalid_structure(errors, &internal(role.value, &fields), IMMUTABLE);
    }
    // These are declared, and told last.
    for subject in subjects.items() {
        subject.child("name").demand(errors);
    }
    name.demand(errors);
}

fn validate_subject(subject: &Field<'_>, namespaced: bool, errors: &mut Errors) {
    let (name, group, kind) = (
        subject.child("name"),
        subject.child("apiGroup"),
        subject.child("kind"),
    );
    match kind.text() {
        "ServiceAccount" => {
            if !name.text().is_empty() {
                name.texts(errors, names::subdomain(name.text()));
            }
            if !group.text().is_empty() {
                group.not_supported(errors, &[""]);
            }
            if !namespaced && subject.text_of("namespace").is_empty() {
                subject.child("namespace").required(errors, "");
            }
        }
        "User" | "Group" => {
            if group.text() != GROUP {
                group.not_supported(errors, &[GROUP]);
            }
        }
        _ => kind.not_supported(errors, &["ServiceAccount", "User", "Group"]),
    }
}
