//! Annotations of Pods that say what fields say as well, or say it for fields that there were not always.

use serde_json::{Value, json};

use super::{Errors, Field, pods, scheduling, volumes};
use crate::field::FieldPath;

const MIRROR: &str = "kubernetes.io/config.mirror";
const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const SECCOMP: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_OF: &str = "container.seccomp.security.alpha.kubernetes.io/";
const APP_ARMOR_OF: &str = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP_DEFAULTS: [&str; 2] = ["runtime/default", "docker/default"];

/// What is wrong with the annotations of a Pod or of a template.
pub(super) fn check(annotations: &Field<'_>, spec: &Field<'_>, errors: &mut Errors) {
    let text = |name: &str| annotations.value.get(name).and_then(Value::as_str);
    let path = |name: &str| annotations.path.key(name);
    if let Some(mirror) = text(MIRROR)
        && spec.text_of("nodeName").is_empty()
    {
        let detail = "must set spec.nodeName if mirror pod annotation is set";
        annotations
            .at(path(MIRROR))
            .invalid_as(errors, json!(mirror), detail);
    }
    if let Some(tolerations) = text(TOLERATIONS).filter(|text| !text.is_empty()) {
        match serde_json::from_str::<Value>(tolerations) {
            Ok(list) => {
                let field = Field::new(&list, annotations.path.child(TOLERATIONS));
                scheduling::check_tolerations(&field, errors);
            }
            Err(error) => annotations.invalid_as(errors, json!(TOLERATIONS), error.to_string()),
        }
    }
    if let Some(cost) = text(DELETION_COST)
        && !is_cost(cost)
    {
        let detail = "must be a 32bit integer";
        annotations
            .at(path(DELETION_COST))
            .invalid_as(errors, json!(cost), detail);
    }
    if let Some(profile) = annotations.value.get(SECCOMP) {
        check_seccomp(&Field::new(profile, annotations.path.child(SECCOMP)), errors);
    }
    for (key, entry) in annotations.entries() {
        if key.starts_with(SECCOMP_OF) {
            check_seccomp(&entry.at(annotations.path.child(key)), errors);
        }
    }
    for (key, entry) in annotations.entries() {
        let Some(container) = key.strip_prefix(APP_ARMOR_OF) else {
            continue;
        };
        if !pods::all_containers(spec).any(|one| one.text_of("name") == container) {
            entry.invalid_as(errors, json!(container), "container not found");
        }
        let profile = entry.text();
        let is_known = matches!(profile, "" | "runtime/default" | "unconfined");
        if !is_known && !profile.starts_with("localhost/") {
            entry.invalid(errors, format!("invalid AppArmor profile name: {profile:?}"));
        }
    }
}

/// Go reads no plus sign and no leading zeros here.
fn is_cost(text: &str) -> bool {
    let is_plain = text == "0" || text.starts_with(['-', '1', '2', '3', '4', '5', '6', '7', '8', '9']);
    is_plain && text.parse::<i32>().is_ok()
}

fn check_seccomp(field: &Field<'_>, errors: &mut Errors) {
    let profile = field.text();
    if SECCOMP_DEFAULTS.contains(&profile) || profile == "unconfined" {
        return;
    }
    match profile.strip_prefix("localhost/") {
        Some(path) => {
            let path = json!(path);
            volumes::check_descending(&Field::new(&path, field.path.clone()), errors);
        }
        None => field.invalid(errors, "must be a valid seccomp profile"),
    }
}

/// An annotation and a field that say the same thing do not differ.
pub(super) fn check_agreement(annotations: &Value, spec: &Field<'_>, errors: &mut Errors) {
    let text = |name: &str| annotations.get(name).and_then(Value::as_str);
    let of_pod = spec.child("securityContext");
    let compared = |profile: &Field<'_>, key: &str, what: &str, errors: &mut Errors| {
        if let Some(annotation) = text(key)
            && profile.is_set()
        {
            agree(annotation, profile, &profile.path, what, errors);
        }
    };
    compared(&of_pod.child("seccompProfile"), SECCOMP, "seccomp", errors);
    for container in pods::all_containers(spec) {
        let profile = container.child("securityContext").child("seccompProfile");
        let key = format!("{SECCOMP_OF}{}", container.text_of("name"));
        compared(&profile, &key, "seccomp", errors);
    }
    if spec.child("os").text_of("name") == "windows" {
        return;
    }
    for container in pods::all_containers(spec) {
        let own = container.child("securityContext").child("appArmorProfile");
        let path = own.path.clone();
        let profile = if own.is_set() {
            own
        } else {
            of_pod.child("appArmorProfile")
        };
        let key = format!("{APP_ARMOR_OF}{}", container.text_of("name"));
        if let Some(annotation) = text(&key)
            && profile.is_set()
        {
            agree(annotation, &profile, &path, "apparmor", errors);
        }
    }
}

fn agree(annotation: &str, profile: &Field<'_>, path: &FieldPath, what: &str, errors: &mut Errors) {
    let (fits, name) = match profile.text_of("type") {
        "Unconfined" => (annotation == "unconfined", "type"),
        "RuntimeDefault" => {
            let also = what == "seccomp" && SECCOMP_DEFAULTS.contains(&annotation);
            (also || annotation == "runtime/default", "type")
        }
        "Localhost" => match annotation.strip_prefix("localhost/") {
            None => (false, "type"),
            Some(own) => {
                let named = profile.value.get("localhostProfile").and_then(Value::as_str);
                (named == Some(own), "localhostProfile")
            }
        },
        _ => return,
    };
    if !fits {
        let kind = if name == "type" { "type" } else { "profile" };
        let detail = format!("{what} {kind} in annotation and field must match");
        profile.at(path.child(name)).forbidden(errors, detail);
    }
}

/// What an update may not do to the annotations of a Pod.
pub(super) fn check_update(annotations: &Field<'_>, old: &Value, errors: &mut Errors) {
    let fixed = |key: &str| key.starts_with(APP_ARMOR_OF) || key == MIRROR;
    let what = |key: &str| {
        if key == MIRROR {
            "mirror pod annotation"
        } else {
            "AppArmor annotations"
        }
    };
    for (key, value) in old.as_object().into_iter().flatten() {
        if fixed(key) && annotations.value.get(key) != Some(value) {
            let detail = format!("may not remove or update {}", what(key));
            annotations
                .at(annotations.path.key(key))
                .forbidden(errors, detail);
        }
    }
    for (key, entry) in annotations.entries() {
        if fixed(key) && old.get(key).is_none() {
            entry.forbidden(errors, format!("may not add {}", what(key)));
        }
    }
}
