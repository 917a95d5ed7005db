//! What an update of a Pod may change.

use serde_json::Value;

use super::{Errors, Field, pods, profiles, scheduling};

const FIXED: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// What is wrong with a Pod that was `old`.
pub(crate) fn check(object: &Value, old: &Value, errors: &mut Errors) {
    pods::check_always(object, errors);
    let annotations = Field::of(object, "metadata").child("annotations");
    let spec = Field::of(object, "spec");
    let old_annotations = old.pointer("/metadata/annotations").unwrap_or(&Value::Null);
    profiles::check_update(&annotations, old_annotations, errors);
    profiles::check(&annotations, &spec, errors);
    let before = Field::of(old, "spec");
    for list in ["containers", "initContainers"] {
        let (now, before) = (spec.child(list), before.child(list));
        if now.count() != before.count() {
            now.forbidden(errors, "pod updates may not add or remove containers");
            return;
        }
        for image in now.items().map(|container| container.child("image")) {
            image.demand(errors);
            if image.text().trim() != image.text() {
                image.invalid(errors, "must not have leading or trailing whitespace");
            }
        }
    }
    if !check_deadline(&spec, &before, errors) {
        return;
    }
    check_tolerations(&spec, &before, errors);
    check_gates(&spec, &before, errors);
    if spec.value == before.value {
        return;
    }
    if before.child("schedulingGates").count() > 0 {
        check_selector(&spec, &before, errors);
        check_node_affinity(&spec, &before, errors);
    }
    if fixed_part(spec.value, &before) != fixed_part(before.value, &before) {
        spec.forbidden(errors, FIXED);
    }
}

/// A deadline may come closer. Whether anything else is to be said.
fn check_deadline(spec: &Field<'_>, before: &Field<'_>, errors: &mut Errors) -> bool {
    const NAME: &str = "activeDeadlineSeconds";
    let (now, old) = (spec.child(NAME), before.child(NAME).number());
    match (now.number(), old) {
        (Some(seconds), _) if !(0..=i64::from(i32::MAX)).contains(&seconds) => {
            now.between(errors, 0, i64::from(i32::MAX));
            return false;
        }
        (Some(seconds), Some(old)) if old < seconds => {
            now.invalid(errors, "must be less than or equal to previous value");
            return false;
        }
        (None, Some(_)) => now.invalid(errors, "must not update from a positive integer to nil value"),
        _ => {}
    }
    true
}

fn check_tolerations(spec: &Field<'_>, before: &Field<'_>, errors: &mut Errors) {
    let (now, before) = (spec.child("tolerations"), before.child("tolerations"));
    let but_for_time = |toleration: &Value| {
        let mut toleration = toleration.clone();
        if let Some(fields) = toleration.as_object_mut() {
            fields.remove("tolerationSeconds");
        }
        toleration
    };
    let is_kept = |old: &Field<'_>| {
        now.items()
            .any(|toleration| but_for_time(toleration.value) == but_for_time(old.value))
    };
    if before.items().all(|old| is_kept(&old)) {
        scheduling::check_tolerations(&now, errors);
    } else {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        now.forbidden(errors, detail);
    }
}

fn check_gates(spec: &Field<'_>, before: &Field<'_>, errors: &mut Errors) {
    let old: Vec<&str> = before
        .child("schedulingGates")
        .items()
        .map(|gate| gate.text_of("name"))
        .collect();
    for gate in spec.child("schedulingGates").items() {
        let name = gate.child("name");
        if !old.contains(&name.text()) {
            let detail = format!(
                "only deletion is allowed, but found new scheduling gate '{}'",
                name.text()
            );
            name.forbidden(errors, detail);
        }
    }
}

/// A Pod that waits may become pickier about its node.
fn check_selector(spec: &Field<'_>, before: &Field<'_>, errors: &mut Errors) {
    let (now, before) = (spec.child("nodeSelector"), before.child("nodeSelector"));
    let is_kept = |(key, old): (&str, Field<'_>)| now.value.get(key) == Some(old.value);
    if !before.entries().all(is_kept) {
        let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        now.invalid(errors, detail);
    }
}

/// The alternatives of nodes of which a Pod must have one.
fn terms<'object>(spec: &Field<'object>) -> Field<'object> {
    spec.child("affinity")
        .child("nodeAffinity")
        .child("requiredDuringSchedulingIgnoredDuringExecution")
        .child("nodeSelectorTerms")
}

fn check_node_affinity(spec: &Field<'_>, before: &Field<'_>, errors: &mut Errors) {
    let (now, old) = (terms(spec), terms(before));
    if !old.is_set() || old.count() == 0 || now.value == old.value {
        return;
    }
    if now.count() != old.count() {
        now.invalid(
            errors,
            "no additions/deletions to non-empty NodeSelectorTerms list are allowed",
        );
        return;
    }
    let begins_as = |now: &Field<'_>, old: &Field<'_>, list: &str| {
        let (now, old) = (now.child(list), old.child(list));
        now.count() >= old.count()
            && now
                .items()
                .zip(old.items())
                .all(|(now, old)| now.value == old.value)
    };
    for (now, old) in now.items().zip(old.items()) {
        let is_empty = |term: &Field<'_>| {
            term.child("matchExpressions").count() + term.child("matchFields").count() == 0
        };
        // An alternative without requirements fits no node, and would fit some with one.
        let grows = begins_as(&now, &old, "matchExpressions") && begins_as(&now, &old, "matchFields");
        if !grows || (is_empty(&old) && !is_empty(&now)) {
            let detail = "only additions are allowed (no mutations or deletions)";
            now.invalid(errors, detail);
        }
    }
}

/// The spec without what may change, or what other rules are about. The node is not among them: it is set by a binding.
fn fixed_part(spec: &Value, before: &Field<'_>) -> Value {
    let mut fixed = spec.clone();
    let Some(fields) = fixed.as_object_mut() else {
        return fixed;
    };
    for name in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        fields.remove(name);
    }
    if before.child("schedulingGates").count() > 0 {
        fields.remove("nodeSelector");
        let affinity = fields.get_mut("affinity").and_then(Value::as_object_mut);
        let is_empty = affinity.is_none_or(|affinity| {
            affinity.remove("nodeAffinity");
            affinity.is_empty()
        });
        if is_empty {
            fields.remove("affinity");
        }
    }
    let was_negative = before.number_of("terminationGracePeriodSeconds") < 0;
    if was_negative
        && fields
            .get("terminationGracePeriodSeconds")
            .and_then(Value::as_i64)
            == Some(1)
    {
        let old = before.child("terminationGracePeriodSeconds").value.clone();
        fields.insert("terminationGracePeriodSeconds".to_owned(), old);
    }
    if fields.get("nodeName").is_some_and(|node| node == "") {
        fields.remove("nodeName");
    }
    for list in ["containers", "initContainers"] {
        let containers = fields.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            container.remove("image");
        }
    }
    fixed
}
