//! Where a Pod may run: affinity, tolerations and gates.

use serde_json::json;

use super::{Errors, Field, spreading};
use crate::{builtin::strategy::labels, names, names::NameRule};

/// What a taint does to Pods that do not bear it.
pub(crate) const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
const WEIGHTS: std::ops::RangeInclusive<i64> = 1..=100;

/// What is wrong with what attracts a Pod, and keeps it away.
pub(super) fn check_affinity(field: &Field<'_>, errors: &mut Errors) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let node = field.child("nodeAffinity");
    let required = node.child(REQUIRED);
    if required.is_set() {
        check_node_selector(&required, errors);
    }
    for term in node.child(PREFERRED).items() {
        check_weight(&term, errors);
        check_node_term(&term.child("preference"), false, errors);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let affinity = field.child(kind);
        for term in affinity.child(REQUIRED).items() {
            check_pod_term(&term, errors);
        }
        for term in affinity.child(PREFERRED).items() {
            check_weight(&term, errors);
            check_pod_term(&term.child("podAffinityTerm"), errors);
        }
    }
}

fn check_weight(term: &Field<'_>, errors: &mut Errors) {
    let weight = term.number_of("weight");
    if !WEIGHTS.contains(&weight) {
        term.child("weight")
            .invalid_as(errors, json!(weight), "must be in the range 1-100");
    }
}

fn check_node_selector(field: &Field<'_>, errors: &mut Errors) {
    let terms = field.child("nodeSelectorTerms");
    if terms.count() == 0 {
        terms.required(errors, "must have at least one node selector term");
    }
    for term in terms.items() {
        check_node_term(&term, true, errors);
    }
}

/// What is wrong with one alternative; values of labels are checked where nodes must fit.
fn check_node_term(term: &Field<'_>, is_required: bool, errors: &mut Errors) {
    for requirement in term.child("matchExpressions").items() {
        check_node_requirement(&requirement, is_required, errors);
    }
    for requirement in term.child("matchFields").items() {
        let (key, operator, values) = (
            requirement.child("key"),
            requirement.child("operator"),
            requirement.child("values"),
        );
        match operator.text() {
            "In" | "NotIn" if values.count() != 1 => {
                let detail =
                    "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                values.required(errors, detail);
            }
            "In" | "NotIn" => {}
            _ => operator.invalid_text(errors, "not a valid selector operator"),
        }
        if key.text() != "metadata.name" {
            key.invalid_text(errors, "not a valid field selector key");
            continue;
        }
        for value in values.items() {
            value.texts(errors, NameRule::Subdomain.check(value.text(), false));
        }
    }
}

fn check_node_requirement(requirement: &Field<'_>, is_required: bool, errors: &mut Errors) {
    let (key, operator, values) = (
        requirement.child("key"),
        requirement.child("operator"),
        requirement.child("values"),
    );
    match operator.text() {
        "In" | "NotIn" if values.count() == 0 => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            values.required(errors, detail);
        }
        "Exists" | "DoesNotExist" if values.count() > 0 => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            values.forbidden(errors, detail);
        }
        "Gt" | "Lt" if values.count() != 1 => {
            let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            values.required(errors, detail);
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        _ => operator.invalid_text(errors, "not a valid selector operator"),
    }
    key.texts(errors, names::qualified_name(key.text()));
    if is_required {
        for value in values.items() {
            value.texts(errors, names::label_value(value.text()));
        }
    }
}

fn check_pod_term(term: &Field<'_>, errors: &mut Errors) {
    for name in ["labelSelector", "namespaceSelector"] {
        let selector = term.child(name);
        labels::validate_selector(selector.value, &selector.path, errors);
    }
    for namespace in term.child("namespaces").items() {
        // The reference names the field in the singular, and no item.
        let field = namespace.at(term.path.child("namespace"));
        field.texts(errors, NameRule::Label.check(namespace.text(), false));
    }
    spreading::check_keys(term, &term.path, errors);
    let topology = term.child("topologyKey");
    if topology.text().is_empty() {
        topology.required(errors, "can not be empty");
    }
    topology.texts(errors, names::qualified_name(topology.text()));
}

/// What is wrong with the taints that a Pod bears.
pub(crate) fn check_tolerations(field: &Field<'_>, errors: &mut Errors) {
    for item in field.items() {
        let (key, operator, effect) = (item.child("key"), item.child("operator"), item.child("effect"));
        let value = item.text_of("value");
        if !key.text().is_empty() {
            key.texts(errors, names::qualified_name(key.text()));
        } else if operator.text() != "Exists" {
            let detail =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            operator.invalid_text(errors, detail);
        }
        if item.has("tolerationSeconds") && effect.text() != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            effect.invalid_text(errors, detail);
        }
        match operator.text() {
            "Equal" | "" => {
                let messages = names::label_value(value);
                if !messages.is_empty() {
                    operator.invalid_as(errors, json!(value), messages.join(";"));
                }
            }
            "Exists" if !value.is_empty() => {
                let detail = "value must be empty when `operator` is 'Exists'";
                operator.invalid_as(errors, json!(value), detail);
            }
            "Exists" => {}
            "Lt" | "Gt" => operator.not_supported(errors, &["Equal", "Exists", "Lt", "Gt"]),
            _ => operator.not_supported(errors, &["Equal", "Exists"]),
        }
        if !effect.text().is_empty() {
            effect.one_of_if_set(errors, &EFFECTS);
        }
    }
}

/// What is wrong with what a Pod waits for before it is placed.
pub(super) fn check_gates(field: &Field<'_>, errors: &mut Errors) {
    let mut seen = Vec::new();
    for gate in field.items() {
        // The reference names the item.
        let name = gate.child("name").at(gate.path.clone());
        name.texts(errors, names::qualified_name(name.text()));
        if seen.contains(&name.text()) {
            name.duplicate(errors);
        }
        seen.push(name.text());
    }
}
