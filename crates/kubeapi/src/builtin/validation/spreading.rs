//! How the Pods of a set are spread, and the labels by which they are told apart.

use serde_json::json;

use super::{Errors, Field};
use crate::{
    builtin::strategy::labels,
    field::{FieldError, FieldPath},
    names,
};

const ACTIONS: [&str; 2] = ["DoNotSchedule", "ScheduleAnyway"];
const POLICIES: [&str; 2] = ["Honor", "Ignore"];
const POSITIVE: &str = "must be greater than zero";

/// What is wrong with the constraints of a Pod.
pub(super) fn check(field: &Field<'_>, errors: &mut Errors) {
    let constraints: Vec<Field<'_>> = field.items().collect();
    for (index, item) in constraints.iter().enumerate() {
        let (topology, action) = (item.child("topologyKey"), item.child("whenUnsatisfiable"));
        let skew = item.number_of("maxSkew");
        if skew <= 0 {
            item.child("maxSkew").invalid_as(errors, json!(skew), POSITIVE);
        }
        if topology.text().is_empty() {
            topology.required(errors, "can not be empty");
        }
        if !ACTIONS.contains(&action.text()) {
            action.not_supported(errors, &ACTIONS);
        }
        let again = constraints
            .get(index + 1..)
            .unwrap_or_default()
            .iter()
            .any(|other| {
                other.text_of("topologyKey") == topology.text()
                    && other.text_of("whenUnsatisfiable") == action.text()
            });
        if again {
            let path = item.path.child("{topologyKey, whenUnsatisfiable}");
            let shown = format!("{{{}, {}}}", topology.text(), action.text());
            errors.push(FieldError::duplicate(&path, json!(shown)));
        }
        let domains = item.child("minDomains");
        if let Some(number) = domains.number() {
            if number <= 0 {
                domains.invalid(errors, POSITIVE);
            }
            if action.text() != "DoNotSchedule" {
                let detail = format!(
                    "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {}",
                    action.text()
                );
                domains.invalid(errors, detail);
            }
        }
        for name in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            item.child(name).one_of_if_set(errors, &POLICIES);
        }
        check_keys(item, &item.path, errors);
        let selector = item.child("labelSelector");
        labels::validate_selector(selector.value, &selector.path, errors);
    }
}

/// What is wrong with the keys of labels whose values are those of the Pod itself.
pub(super) fn check_keys(term: &Field<'_>, path: &FieldPath, errors: &mut Errors) {
    let selector = term.child("labelSelector");
    let (same, other) = (term.child("matchLabelKeys"), term.child("mismatchLabelKeys"));
    for list in [&same, &other] {
        if list.count() > 0 && !selector.is_set() {
            list.forbidden(errors, "must not be specified when labelSelector is not set");
            continue;
        }
        for key in list.items() {
            key.texts(errors, names::qualified_name(key.text()));
        }
    }
    let listed: Vec<&str> = same.items().map(|key| key.text()).collect();
    let mut chosen: Vec<&str> = selector
        .child("matchLabels")
        .entries()
        .map(|(key, _)| key)
        .collect();
    for expression in selector.child("matchExpressions").items() {
        let key = expression.text_of("key");
        if let Some(index) = listed.iter().rposition(|listed| *listed == key)
            && chosen.contains(&key)
        {
            let detail = "exists in both matchLabelKeys and labelSelector";
            errors.push(FieldError::invalid(&path.index(index), json!(key), detail));
        }
        chosen.push(key);
    }
    for key in same.items() {
        if other.items().any(|other| other.text() == key.text()) {
            key.invalid(errors, "exists in both matchLabelKeys and mismatchLabelKeys");
        }
    }
}
