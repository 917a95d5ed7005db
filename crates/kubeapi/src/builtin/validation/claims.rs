//! Claims of storage.

use serde_json::{Value, json};

use super::{Errors, Field, IMMUTABLE, resources};
use crate::{
    builtin::strategy::labels,
    field::{FieldError, FieldPath},
    names,
};

const MODES: [&str; 4] = [
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];
const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];
const FIXED: &str = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
const STORAGE: &str = "/spec/resources/requests/storage";

/// What is wrong with a claim.
pub(crate) fn check(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    check_spec(&Field::of(object, "spec"), errors);
    if let Some(old) = old {
        check_update(object, old, errors);
    }
}

/// What is wrong with what a claim for each Pod is made from.
pub(super) fn check_template(template: &Field<'_>, errors: &mut Errors) {
    let metadata = template.child("metadata");
    let (annotations, own_labels) = (metadata.child("annotations"), metadata.child("labels"));
    names::check_annotations(annotations.value, &annotations.path, errors);
    labels::validate_labels(own_labels.value, &own_labels.path, errors);
    for (name, _) in metadata.entries() {
        if !matches!(name, "annotations" | "labels") {
            metadata.child(name).forbidden(errors, "cannot be set");
        }
    }
    check_spec(&template.child("spec"), errors);
}

fn check_spec(spec: &Field<'_>, errors: &mut Errors) {
    let modes = spec.child("accessModes");
    if modes.count() == 0 {
        modes.required(errors, "at least 1 access mode is required");
    }
    let selector = spec.child("selector");
    labels::validate_selector(selector.value, &selector.path, errors);
    for mode in modes.items() {
        if !MODES.contains(&mode.text()) {
            mode.at(modes.path.clone()).not_supported(errors, &MODES);
        }
    }
    let has = |wanted: fn(&str) -> bool| modes.items().any(|mode| wanted(mode.text()));
    if has(|mode| mode == "ReadWriteOncePod")
        && has(|mode| mode != "ReadWriteOncePod" && MODES.contains(&mode))
    {
        modes.forbidden(errors, "may not use ReadWriteOncePod with other access modes");
    }
    let resources = spec.child("resources");
    let storage = resources
        .child("requests")
        .child("storage")
        .at(resources.path.key("storage"));
    match resources::quantity(storage.value) {
        None => storage.required(errors, ""),
        Some(size) if size.sign() <= 0 => storage.invalid(errors, "must be greater than zero"),
        Some(_) => {}
    }
    let class = spec.child("storageClassName");
    if !class.text().is_empty() {
        class.texts(errors, names::subdomain(class.text()));
    }
    spec.child("volumeMode").one_of_if_set(errors, &VOLUME_MODES);
    let (source, reference) = (spec.child("dataSource"), spec.child("dataSourceRef"));
    for source in [&source, &reference] {
        if source.is_set() {
            check_source(source, errors);
        }
    }
    let is_elsewhere = !reference.text_of("namespace").is_empty();
    let differs = ["apiGroup", "kind", "name"]
        .iter()
        .any(|name| source.value.get(*name) != reference.value.get(*name));
    if source.is_set() && reference.is_set() {
        let detail = if is_elsewhere {
            "may not be specified when dataSourceRef.namespace is specified"
        } else {
            "must match dataSourceRef"
        };
        if is_elsewhere || differs {
            // The reference shows the path of the field, which has no fields that are shown.
            spec.invalid_structure(errors, "{}", detail);
        }
    }
    let attributes = spec.child("volumeAttributesClassName");
    if !attributes.text().is_empty() {
        attributes.texts(errors, names::subdomain(attributes.text()));
    }
}

fn check_source(source: &Field<'_>, errors: &mut Errors) {
    source.child("name").demand(errors);
    let (kind, group) = (source.child("kind"), source.child("apiGroup"));
    kind.demand(errors);
    if group.text().is_empty() {
        if kind.text() != "PersistentVolumeClaim" {
            let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
            source.invalid_as(errors, json!(kind.text()), detail);
        }
    } else {
        group.texts(errors, names::subdomain(group.text()));
    }
    let namespace = source.child("namespace");
    if !namespace.text().is_empty() {
        namespace.texts(errors, names::label(namespace.text()));
    }
}

fn check_update(object: &Value, old: &Value, errors: &mut Errors) {
    let is_bound = object.pointer("/status/phase") == Some(&json!("Bound"));
    let was_named = old.pointer("/spec/volumeName").is_some();
    let fixed = |object: &Value| {
        let mut fixed = object.get("spec").cloned().unwrap_or_default();
        if let Some(fields) = fixed.as_object_mut() {
            if !was_named {
                fields.remove("volumeName");
            }
            if is_bound {
                fields.remove("volumeAttributesClassName");
            }
        }
        if is_bound
            && let Some(requests) = fixed
                .pointer_mut("/resources/requests")
                .and_then(Value::as_object_mut)
        {
            requests.remove("storage");
        }
        fixed
    };
    let spec = Field::of(object, "spec");
    if fixed(object) != fixed(old) {
        spec.forbidden(errors, FIXED);
    }
    let size = |object: &Value, pointer: &str| object.pointer(pointer).and_then(resources::quantity);
    let (now, before) = (size(object, STORAGE), size(old, STORAGE));
    // What was never given may be given back.
    let given = size(old, "/status/capacity/storage").map(|given| now.map(|now| now.compare(given)));
    if let (Some(now), Some(before)) = (now, before)
        && now.compare(before).is_lt()
        && given.is_some_and(|order| order.is_some_and(std::cmp::Ordering::is_le))
    {
        errors.push(FieldError::forbidden(
            &FieldPath::of("spec.resources.requests.storage"),
            "field can not be less than status.capacity",
        ));
    }
    let mode = |object: &Value| object.pointer("/spec/volumeMode").cloned().unwrap_or_default();
    if mode(object) != mode(old) {
        let path = FieldPath::of("volumeMode");
        errors.push(FieldError::invalid(&path, mode(object), IMMUTABLE));
    }
    let class = spec.child("volumeAttributesClassName");
    let has_current = old.pointer("/status/currentVolumeAttributesClassName").is_some();
    let before = old
        .pointer("/spec/volumeAttributesClassName")
        .unwrap_or(&Value::Null);
    if has_current && class.value != before && class.text().is_empty() {
        let what = if class.is_set() { "empty string" } else { "nil" };
        let detail =
            format!("update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil");
        class.forbidden(errors, detail);
    }
}
