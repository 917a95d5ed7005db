//! What is wrong with bindings.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Errors, invalid_each, matching::match_resources, must_be_one_of};
use crate::{
    admission::model::{BindingSpec, ParamRef},
    builtin::strategy::labels,
    field::{FieldError, FieldPath},
    names::{self, NameRule},
};

const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];

pub(super) fn binding(object: &Value, spec: &BindingSpec, path: &FieldPath, errors: Errors<'_>) {
    let name = path.child("policyName");
    if spec.policy_name.is_empty() {
        errors.push(FieldError::required(&name, ""));
    } else {
        invalid_each(
            &name,
            &spec.policy_name,
            names::subdomain(&spec.policy_name),
            errors,
        );
    }
    if let Some(reference) = &spec.param_ref {
        param_ref(reference, &path.child("paramRef"), errors);
    }
    if let Some(resources) = &spec.match_resources {
        match_resources(resources, &path.child("matchResources"), errors);
    }
    actions(
        object,
        &spec.validation_actions,
        &path.child("validationActions"),
        errors,
    );
}

fn actions(object: &Value, actions: &[String], path: &FieldPath, errors: Errors<'_>) {
    let mut seen = BTreeSet::new();
    for (index, action) in actions.iter().enumerate() {
        must_be_one_of(&path.index(index), Some(action), &ACTIONS, errors);
        if !seen.insert(action.as_str()) {
            errors.push(FieldError::duplicate(&path.index(index), json!(action)));
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        let shown = object
            .pointer("/spec/validationActions")
            .cloned()
            .unwrap_or_default();
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the API \
                      response and headers serves no purpose)";
        errors.push(FieldError::invalid(path, shown, detail));
    }
    if actions.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
}

fn param_ref(reference: &ParamRef, path: &FieldPath, errors: Errors<'_>) {
    let both = !reference.name.is_empty() && reference.selector.is_some();
    let exclusive =
        |name: &str| FieldError::forbidden(&path.child(name), "name and selector are mutually exclusive");
    if !reference.name.is_empty() {
        let messages = NameRule::PathSegment.check(&reference.name, false);
        invalid_each(&path.child("name"), &reference.name, messages, errors);
        errors.extend(both.then(|| exclusive("name")));
    }
    if let Some(selector) = &reference.selector {
        labels::validate_selector(selector, &path.child("selector"), errors);
        errors.extend(both.then(|| exclusive("selector")));
    }
    if reference.name.is_empty() && reference.selector.is_none() {
        errors.push(FieldError::required(
            path,
            "one of name or selector must be specified",
        ));
    }
    let action = reference
        .parameter_not_found_action
        .as_deref()
        .filter(|action| !action.is_empty());
    must_be_one_of(
        &path.child("parameterNotFoundAction"),
        action,
        &["Deny", "Allow"],
        errors,
    );
}
