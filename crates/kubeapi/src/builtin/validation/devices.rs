//! Where a container has the volumes of its Pod: as folders and as devices.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Errors, Field, volumes};

const PROPAGATIONS: [&str; 3] = ["Bidirectional", "HostToContainer", "None"];
const RECURSIVELY: [&str; 3] = ["Disabled", "Enabled", "IfPossible"];
const OPTIONS: [&str; 3] = ["nodev", "noexec", "nosuid"];

/// The paths of a list of mounts or devices by the names of the volumes.
fn paths<'object>(list: &Field<'object>, path: &str) -> BTreeMap<&'object str, &'object str> {
    list.items()
        .map(|item| (item.text_of("name"), item.text_of(path)))
        .collect()
}

/// What is wrong with the mounts and devices of a container. `known` are the volumes of the Pod that are right.
pub(super) fn check(container: &Field<'_>, known: &BTreeMap<&str, &Value>, errors: &mut Errors) {
    let (mounts, devices) = (container.child("volumeMounts"), container.child("volumeDevices"));
    check_mounts(&mounts, container, &paths(&devices, "devicePath"), known, errors);
    check_devices(&devices, &paths(&mounts, "mountPath"), known, errors);
}

fn check_mounts(
    mounts: &Field<'_>,
    container: &Field<'_>,
    devices: &BTreeMap<&str, &str>,
    known: &BTreeMap<&str, &Value>,
    errors: &mut Errors,
) {
    let mut places = Vec::new();
    for mount in mounts.items() {
        let (name, path) = (mount.child("name"), mount.child("mountPath"));
        name.demand(errors);
        if !known.contains_key(name.text()) {
            name.not_found(errors, "");
        }
        path.demand(errors);
        if places.contains(&path.text()) {
            path.invalid_text(errors, "must be unique");
        }
        places.push(path.text());
        if devices.contains_key(name.text()) {
            name.invalid_text(errors, "must not already exist in volumeDevices");
        }
        if devices.values().any(|device| *device == path.text()) {
            path.invalid_text(errors, "must not already exist as a path in volumeDevices");
        }
        let (below, expression) = (mount.child("subPath"), mount.child("subPathExpr"));
        // The reference names these fields below the list, and not below the item.
        if !below.text().is_empty() {
            volumes::check_descending(&below.at(mounts.path.child("subPath")), errors);
        }
        if !expression.text().is_empty() {
            if !below.text().is_empty() {
                expression.invalid(errors, "subPathExpr and subPath are mutually exclusive");
            }
            volumes::check_descending(&expression.at(mounts.path.child("subPathExpr")), errors);
        }
        check_propagation(
            &mount
                .child("mountPropagation")
                .at(mounts.path.child("mountPropagation")),
            container,
            errors,
        );
        check_recursion(
            &mount,
            &mount
                .child("recursiveReadOnly")
                .at(mounts.path.child("recursiveReadOnly")),
            errors,
        );
        let options = mount.child("bindMountOptions");
        let mut seen = Vec::new();
        for option in options.items() {
            if !OPTIONS.contains(&option.text()) {
                option.not_supported(errors, &OPTIONS);
            }
            if seen.contains(&option.text()) {
                option.duplicate(errors);
            }
            seen.push(option.text());
        }
        let is_image = known
            .get(name.text())
            .is_some_and(|volume| volume.get("image").is_some());
        if options.count() > 0 && is_image {
            options.invalid(errors, "bindMountOptions may not be used with image volumes");
        }
    }
}

fn check_propagation(field: &Field<'_>, container: &Field<'_>, errors: &mut Errors) {
    field.one_of_if_set(errors, &PROPAGATIONS);
    let is_privileged = container.child("securityContext").flag("privileged");
    if field.text() == "Bidirectional" && !is_privileged {
        let detail = "Bidirectional mount propagation is available only to privileged containers";
        field.forbidden(errors, detail);
    }
}

fn check_recursion(mount: &Field<'_>, field: &Field<'_>, errors: &mut Errors) {
    if matches!(field.text(), "Enabled" | "IfPossible") {
        if !mount.flag("readOnly") {
            field.forbidden(errors, "may only be specified when readOnly is true");
        }
        if !matches!(mount.text_of("mountPropagation"), "" | "None") {
            let detail = "may only be specified when mountPropagation is None or not specified";
            field.forbidden(errors, detail);
        }
    } else {
        field.one_of_if_set(errors, &RECURSIVELY);
    }
}

fn check_devices(
    devices: &Field<'_>,
    mounts: &BTreeMap<&str, &str>,
    known: &BTreeMap<&str, &Value>,
    errors: &mut Errors,
) {
    let (mut names, mut places) = (Vec::new(), Vec::new());
    for device in devices.items() {
        let (name, path) = (device.child("name"), device.child("devicePath"));
        name.demand(errors);
        if names.contains(&name.text()) {
            name.invalid_text(errors, "must be unique");
        }
        match known.get(name.text()) {
            Some(volume)
                if volume.get("persistentVolumeClaim").is_none() && volume.get("ephemeral").is_none() =>
            {
                let detail =
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                name.invalid_text(errors, detail);
            }
            Some(_) => {}
            None => name.not_found(errors, ""),
        }
        path.demand(errors);
        if places.contains(&path.text()) {
            path.invalid_text(errors, "must be unique");
        }
        if path.text().split('/').any(|part| part == "..") {
            path.invalid_as(errors, json!(path.text()), "can not contain backsteps ('..')");
        } else {
            places.push(path.text());
        }
        if mounts.contains_key(name.text()) {
            name.invalid_text(errors, "must not already exist in volumeMounts");
        }
        if mounts.values().any(|mount| *mount == path.text()) {
            path.invalid_text(errors, "must not already exist as a path in volumeMounts");
        }
        if !name.text().is_empty() {
            names.push(name.text());
        }
    }
}
