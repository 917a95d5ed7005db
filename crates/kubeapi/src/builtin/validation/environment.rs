//! The environment of a container, and where its values come from.

use serde_json::json;

use super::{Errors, Field, formats, resources, volumes};
use crate::{names, names::NameRule};

const VARIABLE_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const FILE_FIELDS: [&str; 5] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];
/// Fields of a Pod that have a name, of which some cannot be used.
const FURTHER_FIELDS: [&str; 3] = ["spec.restartPolicy", "spec.schedulerName", "status.phase"];
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const UNITS: [&str; 13] = [
    "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
];

/// What is wrong with the variables of a container.
pub(super) fn check(field: &Field<'_>, errors: &mut Errors) {
    for variable in field.items() {
        variable.child("name").demand_as(errors, formats::variable_name);
        let source = variable.child("valueFrom");
        if source.is_set() {
            check_source(&source, variable.text_of("value"), errors);
        }
    }
}

fn check_source(source: &Field<'_>, value: &str, errors: &mut Errors) {
    let mut count = 0;
    let mut given = |name: &str| {
        let found = source.child(name);
        count += usize::from(found.is_set());
        found.is_set().then_some(found)
    };
    if let Some(field) = given("fieldRef") {
        check_field_reference(&field, false, errors);
    }
    if let Some(field) = given("resourceFieldRef") {
        check_resource_reference(&field, false, errors);
    }
    for name in ["configMapKeyRef", "secretKeyRef"] {
        if let Some(field) = given(name) {
            let name = field.child("name");
            name.texts(errors, NameRule::Subdomain.check(name.text(), false));
            field.child("key").demand_as(errors, formats::config_key);
        }
    }
    if let Some(field) = given("fileKeyRef") {
        field.child("key").demand_as(errors, formats::variable_name);
        field.child("volumeName").demand_as(errors, names::label);
        let path = field.child("path");
        if path.demand(errors) {
            volumes::check_no_backsteps(&path, errors);
        }
    }
    let detail = match count {
        0 => {
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        }
        _ if !value.is_empty() => "may not be specified when `value` is not empty",
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    source.invalid_as(errors, json!(""), detail);
}

/// What is wrong with the name of a field of the Pod; `in_file` for one that is written to a file.
pub(super) fn check_field_reference(field: &Field<'_>, in_file: bool, errors: &mut Errors) {
    if !field.child("apiVersion").demand(errors) || !field.child("fieldPath").demand(errors) {
        return;
    }
    let path = field.child("fieldPath");
    let version = field.text_of("apiVersion");
    let named = path.text();
    let mut refuse = |detail: String| path.invalid(errors, format!("error converting fieldPath: {detail}"));
    if version != "v1" {
        refuse(format!("unsupported pod version: {version}"));
        return;
    }
    if let Some((map, key)) = subscript(named) {
        match map {
            "metadata.annotations" => {
                let key = key.to_lowercase();
                for message in names::qualified_name(&key) {
                    field.invalid_as(errors, json!(key), message);
                }
            }
            "metadata.labels" => {
                for message in names::qualified_name(key) {
                    field.invalid_as(errors, json!(key), message);
                }
            }
            _ => refuse(format!("field label does not support subscript: {named}")),
        }
        return;
    }
    let meant = if named == "spec.host" {
        "spec.nodeName"
    } else {
        named
    };
    let allowed: &[&str] = if in_file { &FILE_FIELDS } else { &VARIABLE_FIELDS };
    if !VARIABLE_FIELDS.contains(&meant) && !FILE_FIELDS.contains(&meant) && !FURTHER_FIELDS.contains(&meant)
    {
        refuse(format!("field label not supported: {named}"));
    } else if !allowed.contains(&meant) {
        path.not_supported(errors, allowed);
    }
}

/// `metadata.labels['a']` is the entry `a` of `metadata.labels`.
fn subscript(path: &str) -> Option<(&str, &str)> {
    path.strip_suffix("']")?
        .split_once("['")
        .filter(|(map, _)| !map.is_empty())
}

/// What is wrong with the name of a resource of a container.
pub(super) fn check_resource_reference(field: &Field<'_>, in_file: bool, errors: &mut Errors) {
    let resource = field.child("resource");
    let name = resource.text();
    let is_huge_pages = ["limits.", "requests."]
        .iter()
        .any(|kind| name.strip_prefix(kind).is_some_and(resources::is_huge_pages));
    if in_file && field.text_of("containerName").is_empty() {
        field.child("containerName").required(errors, "");
    } else if name.is_empty() {
        resource.required(errors, "");
    } else if !RESOURCES.contains(&name) && !is_huge_pages {
        resource.not_supported(errors, &RESOURCES);
    }
    let divisor = field.child("divisor");
    let is_given = resources::quantity(divisor.value).is_some_and(|divisor| divisor.sign() != 0);
    let units = "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei";
    let (allowed, what): (&[&str], String) = match name {
        _ if !is_given => return,
        "limits.cpu" | "requests.cpu" => (
            &["1", "1m"],
            "1m and 1 are supported with the cpu resource".to_owned(),
        ),
        "limits.memory" | "requests.memory" => {
            (&UNITS, format!("{units} are supported with the memory resource"))
        }
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => (
            &UNITS,
            format!("{units} are supported with the local ephemeral storage resource"),
        ),
        _ if is_huge_pages => (
            &UNITS,
            format!("{units} are supported with the hugepages resource"),
        ),
        _ => return,
    };
    if !allowed.contains(&divisor.text()) {
        divisor.invalid_as(errors, json!(name), format!("only divisor's values {what}"));
    }
}

/// What is wrong with what all of a ConfigMap or a Secret is taken from.
pub(super) fn check_from(field: &Field<'_>, errors: &mut Errors) {
    for item in field.items() {
        let prefix = item.child("prefix");
        if !prefix.text().is_empty() {
            prefix.texts(errors, formats::variable_name(prefix.text()));
        }
        let mut count = 0;
        for source in ["configMapRef", "secretRef"] {
            let source = item.child(source);
            if source.is_set() {
                count += 1;
                source
                    .child("name")
                    .demand_as(errors, |name| NameRule::Subdomain.check(name, true));
            }
        }
        // The reference names the list, and not the item.
        match count {
            0 => field.invalid_as(
                errors,
                json!(""),
                "must specify one of: `configMapRef` or `secretRef`",
            ),
            1 => {}
            _ => field.invalid_as(
                errors,
                json!(""),
                "may not have more than one field specified at a time",
            ),
        }
    }
}
