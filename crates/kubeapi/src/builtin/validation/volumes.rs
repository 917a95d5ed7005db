//! The volumes of a Pod.

mod projected;
mod remote;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Errors, Field, claims, environment, formats, resources};
use crate::{field::FieldError, names, object};

const MORE_THAN_ONE: &str = "may not specify more than 1 volume type";
const FILE_MODES: &str = "must be a number between 0 and 0777 (octal), both inclusive";
const FOLDER_MODES: &str = "must be a number between 0 and 01777 (octal), both inclusive";
const HOST_PATHS: [&str; 8] = [
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
];
const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];

type Rule = fn(&Field<'_>, &mut Errors);

/// The kinds of volumes in the order of the reference, with the name that it says when there is another one already.
const KINDS: [(&str, &str, Rule); 30] = [
    ("hostPath", "hostPath", check_host_path),
    ("gitRepo", "gitRepo", remote::git_repository),
    ("gcePersistentDisk", "gcePersistentDisk", remote::gce_disk),
    (
        "awsElasticBlockStore",
        "awsElasticBlockStore",
        remote::aws_block_store,
    ),
    ("secret", "secret", check_secret),
    ("nfs", "nfs", remote::nfs),
    ("iscsi", "iscsi", remote::iscsi),
    ("glusterfs", "glusterfs", remote::glusterfs),
    ("flocker", "flocker", remote::flocker),
    ("persistentVolumeClaim", "persistentVolumeClaim", check_claim),
    ("rbd", "rbd", remote::rbd),
    ("cinder", "cinder", remote::cinder),
    ("cephfs", "cephFS", remote::ceph_fs),
    ("quobyte", "quobyte", remote::quobyte),
    // The reference has it so.
    ("downwardAPI", "downwarAPI", check_downward),
    ("fc", "fc", remote::fibre_channel),
    ("flexVolume", "flexVolume", remote::flex_volume),
    ("configMap", "configMap", check_config_map),
    ("azureFile", "azureFile", remote::azure_file),
    ("vsphereVolume", "vsphereVolume", remote::vsphere),
    (
        "photonPersistentDisk",
        "photonPersistentDisk",
        remote::photon_disk,
    ),
    ("portworxVolume", "portworxVolume", remote::portworx),
    ("azureDisk", "azureDisk", remote::azure_disk),
    ("storageos", "storageos", remote::storage_os),
    ("projected", "projected", projected::check),
    ("scaleIO", "scaleIO", remote::scale_io),
    ("csi", "csi", remote::csi),
    ("ephemeral", "ephemeral", check_ephemeral),
    ("image", "image", check_image),
    ("emptyDir", "emptyDir", |_, _| {}),
];

/// What is wrong with the volumes of a Pod. `pod` is the Pod where there is one, and not a template. The volumes that are
/// right are the answer.
pub(super) fn check<'object>(
    field: &Field<'object>,
    pod: Option<&Value>,
    errors: &mut Errors,
) -> BTreeMap<&'object str, &'object Value> {
    let mut right = BTreeMap::new();
    let pod_name = pod.map(object::name).unwrap_or_default();
    let made: Vec<String> = field
        .items()
        .filter(|volume| volume.has("ephemeral") && !pod_name.is_empty())
        .map(|volume| format!("{pod_name}-{}", volume.text_of("name")))
        .collect();
    for volume in field.items() {
        let name = volume.child("name");
        let before = errors.len();
        check_source(&volume, pod_name, errors);
        name.demand_as(errors, names::label);
        if right.contains_key(name.text()) {
            name.duplicate(errors);
        }
        if errors.len() == before {
            right.insert(name.text(), volume.value);
        }
        let claim = volume.child("persistentVolumeClaim").child("claimName");
        if made.iter().any(|made| made == claim.text()) {
            let detail = "must not reference a PVC that gets created for an ephemeral volume";
            claim.invalid(errors, detail);
        }
    }
    right
}

fn check_source(volume: &Field<'_>, pod_name: &str, errors: &mut Errors) {
    let folder = volume.child("emptyDir");
    let mut is_given = folder.is_set();
    if is_given {
        let limit = folder.child("sizeLimit");
        if resources::quantity(limit.value).is_some_and(|limit| limit.sign() < 0) {
            limit.forbidden(errors, "SizeLimit field must be a valid resource quantity");
        }
        check_mode(&folder.child("mode"), 0o1777, FOLDER_MODES, errors);
    }
    for (name, shown, rule) in KINDS.iter().filter(|(name, ..)| *name != "emptyDir") {
        let source = volume.child(name);
        if !source.is_set() {
            continue;
        }
        if is_given {
            let path = volume.path.child(shown);
            errors.push(FieldError::forbidden(&path, MORE_THAN_ONE));
        } else {
            is_given = true;
            rule(&source, errors);
            check_claim_name(volume, name, pod_name, errors);
        }
        if *name == "iscsi" {
            remote::check_length(volume, &source, errors);
        }
    }
    if !is_given {
        volume.required(errors, "must specify a volume type");
    }
}

/// The claim that is made for a volume has the names of the Pod and of the volume.
fn check_claim_name(volume: &Field<'_>, kind: &str, pod_name: &str, errors: &mut Errors) {
    let name = volume.child("name");
    if kind != "ephemeral" || pod_name.is_empty() || name.text().is_empty() {
        return;
    }
    let claim = format!("{pod_name}-{}", name.text());
    for message in names::subdomain(&claim) {
        name.invalid(errors, format!("PVC name {claim:?}: {message}"));
    }
}

fn check_mode(field: &Field<'_>, most: i64, detail: &str, errors: &mut Errors) {
    if field.number().is_some_and(|mode| !(0..=most).contains(&mode)) {
        field.invalid(errors, detail);
    }
}

/// What is wrong with the mode of a file.
fn check_file_mode(field: &Field<'_>, errors: &mut Errors) {
    check_mode(field, 0o777, FILE_MODES, errors);
}

fn check_user(field: &Field<'_>, errors: &mut Errors) {
    for message in field.number().map(formats::identity).unwrap_or_default() {
        field.invalid(errors, message);
    }
}

fn check_defaults(field: &Field<'_>, errors: &mut Errors) {
    check_file_mode(&field.child("defaultMode"), errors);
    check_user(&field.child("defaultUser"), errors);
}

/// A path leads down, and not up.
pub(super) fn check_descending(field: &Field<'_>, errors: &mut Errors) {
    if field.text().starts_with('/') {
        field.invalid_text(errors, "must be a relative path");
    }
    check_no_backsteps(field, errors);
}

/// No part of a path leads up.
pub(super) fn check_no_backsteps(field: &Field<'_>, errors: &mut Errors) {
    if field.text().split('/').any(|part| part == "..") {
        field.invalid_text(errors, "must not contain '..'");
    }
}

/// A path leads down, to no name that the reference keeps for itself.
fn check_file_path(field: &Field<'_>, errors: &mut Errors) {
    check_descending(field, errors);
    if field.text().starts_with("..") && !field.text().starts_with("../") {
        field.invalid_text(errors, "must not start with '..'");
    }
}

fn check_host_path(field: &Field<'_>, errors: &mut Errors) {
    let path = field.child("path");
    if path.demand(errors) {
        check_no_backsteps(&path, errors);
        field.child("type").one_of_if_set(errors, &HOST_PATHS);
    }
}

fn check_secret(field: &Field<'_>, errors: &mut Errors) {
    field.child("secretName").demand(errors);
    check_defaults(field, errors);
    check_items(field, errors);
}

fn check_config_map(field: &Field<'_>, errors: &mut Errors) {
    field.child("name").demand(errors);
    check_defaults(field, errors);
    check_items(field, errors);
}

fn check_items(field: &Field<'_>, errors: &mut Errors) {
    for item in field.child("items").items() {
        check_item(&item, errors);
    }
}

fn check_item(item: &Field<'_>, errors: &mut Errors) {
    item.child("key").demand(errors);
    let path = item.child("path");
    path.demand(errors);
    check_file_path(&path, errors);
    check_file_mode(&item.child("mode"), errors);
    check_user(&item.child("user"), errors);
}

fn check_claim(field: &Field<'_>, errors: &mut Errors) {
    field.child("claimName").demand(errors);
}

fn check_downward(field: &Field<'_>, errors: &mut Errors) {
    check_defaults(field, errors);
    for item in field.child("items").items() {
        // The reference names the volume, and not the item.
        check_downward_file(&item.at(field.path.clone()), errors);
    }
}

fn check_downward_file(file: &Field<'_>, errors: &mut Errors) {
    let path = file.child("path");
    path.demand(errors);
    check_file_path(&path, errors);
    let (field, resource) = (file.child("fieldRef"), file.child("resourceFieldRef"));
    if field.is_set() {
        environment::check_field_reference(&field, true, errors);
        if resource.is_set() {
            file.invalid_as(
                errors,
                json!("resource"),
                "fieldRef and resourceFieldRef can not be specified simultaneously",
            );
        }
    } else if resource.is_set() {
        environment::check_resource_reference(&resource, true, errors);
    } else {
        file.required(errors, "one of fieldRef and resourceFieldRef is required");
    }
    check_file_mode(&file.child("mode"), errors);
    check_user(&file.child("user"), errors);
}

fn check_ephemeral(field: &Field<'_>, errors: &mut Errors) {
    let template = field.child("volumeClaimTemplate");
    if template.is_set() {
        claims::check_template(&template, errors);
    } else {
        template.required(errors, "");
    }
}

fn check_image(field: &Field<'_>, errors: &mut Errors) {
    field.child("reference").demand(errors);
    field.child("pullPolicy").one_of(errors, &PULL_POLICIES);
}
