//! Volumes that lie elsewhere: with a provider, or on another machine.

use regex::Regex;
use serde_json::json;
use std::sync::LazyLock;

use super::check_descending;
use crate::{
    builtin::validation::{Errors, Field},
    field::FieldPath,
    names,
    names::NameRule,
};

const CACHING: [&str; 3] = ["None", "ReadOnly", "ReadWrite"];
const DISK_KINDS: [&str; 3] = ["Dedicated", "Managed", "Shared"];
const MANAGED_DISK: &str =
    "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
const BLOB_DISK: &str = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
const HOST_PORTS: &str = "must be a host:port pair or multiple pairs separated by commas";
const TENANT_LENGTH: usize = 64;
const DRIVER_LENGTH: usize = 63;
const TARGET_LENGTH: usize = 64;

#[expect(
    clippy::expect_used,
    reason = "the patterns are constants, and a test compiles them"
)]
static INITIATORS: LazyLock<[(&str, Regex); 3]> = LazyLock::new(|| {
    let pattern = |text: &str| Regex::new(text).expect("is a pattern");
    [
        (
            "iqn",
            pattern(r"iqn\.\d{4}-\d{2}\.([[:alnum:]\-.]+)(:[^,;*&$|\s]+)$"),
        ),
        ("eui", pattern(r"^eui.[[:alnum:]]{16}$")),
        ("naa", pattern(r"^naa.[[:alnum:]]{32}$")),
    ]
});

fn demand(field: &Field<'_>, names: &[&str], errors: &mut Errors) {
    for name in names {
        field.child(name).demand(errors);
    }
}

fn demand_list(field: &Field<'_>, name: &str, errors: &mut Errors) {
    if field.child(name).count() == 0 {
        field.child(name).required(errors, "");
    }
}

/// A Secret that is named has a name.
fn check_secret(field: &Field<'_>, errors: &mut Errors) {
    let secret = field.child("secretRef");
    if secret.is_set() {
        secret.child("name").demand(errors);
    }
}

pub(super) fn git_repository(field: &Field<'_>, errors: &mut Errors) {
    demand(field, &["repository"], errors);
    check_descending(&field.child("directory"), errors);
}

pub(super) fn gce_disk(field: &Field<'_>, errors: &mut Errors) {
    // The reference names the field otherwise.
    let mut path = field.path.as_str().to_owned();
    path.truncate(path.len() - "gcePersistentDisk".len());
    let field = &field.at(FieldPath::of(path + "persistentDisk"));
    demand(field, &["pdName"], errors);
    partition(field, errors);
}

pub(super) fn aws_block_store(field: &Field<'_>, errors: &mut Errors) {
    demand(field, &["volumeID"], errors);
    partition(field, errors);
}

fn partition(field: &Field<'_>, errors: &mut Errors) {
    let partition = field.child("partition");
    if partition
        .number()
        .is_some_and(|number| !(0..=255).contains(&number))
    {
        // The reference accepts 0, which its words leave out.
        partition.invalid(errors, "must be between 1 and 255, inclusive");
    }
}

pub(super) fn nfs(field: &Field<'_>, errors: &mut Errors) {
    demand(field, &["server", "path"], errors);
    let path = field.child("path");
    if !path.text().starts_with('/') {
        path.invalid_text(errors, "must be an absolute path");
    }
}

pub(super) fn iscsi(field: &Field<'_>, errors: &mut Errors) {
    demand(field, &["targetPortal"], errors);
    let name = field.child("iqn");
    if name.demand(errors) {
        check_initiator(&name, errors);
    }
    field.child("lun").between(errors, 0, 255);
    let authenticates = field.flag("chapAuthDiscovery") || field.flag("chapAuthSession");
    if authenticates && !field.has("secretRef") {
        field.child("secretRef").required(errors, "");
    }
    let initiator = field.child("initiatorName");
    if initiator.is_set() {
        check_initiator(&initiator.at(field.path.child("initiatorname")), errors);
    }
}

fn check_initiator(name: &Field<'_>, errors: &mut Errors) {
    match INITIATORS
        .iter()
        .find(|(prefix, _)| name.text().starts_with(prefix))
    {
        None => name.invalid_text(errors, "must be valid format starting with iqn, eui, or naa"),
        Some((_, pattern)) if !pattern.is_match(name.text()) => {
            name.invalid_text(errors, "must be valid format");
        }
        Some(_) => {}
    }
}

/// The name of a volume and its portal together are not too long, if an initiator is named.
pub(super) fn check_length(volume: &Field<'_>, source: &Field<'_>, errors: &mut Errors) {
    let name = volume.child("name");
    let length = name.text().len() + 1 + source.text_of("targetPortal").len();
    if source.has("initiatorName") && length > TARGET_LENGTH {
        let detail = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
                      iscsi.initiatorName is specified.";
        name.invalid_text(errors, detail);
    }
}

pub(super) fn glusterfs(field: &Field<'_>, errors: &mut Errors) {
    demand(field, &["endpoints", "path"], errors);
}

pub(super) fn flocker(field: &Field<'_>, errors: &mut Errors) {
    let (name, uuid) = (field.child("datasetName"), field.text_of("datasetUUID"));
    if name.text().is_empty() && uuid.is_empty() {
        field.required(errors, "one of datasetName and datasetUUID is required");
    }
    if !name.text().is_empty() && !uuid.is_empty() {
        let detail = "datasetName and datasetUUID can not be specified simultaneously";
        field.invalid_as(errors, json!("resource"), detail);
    }
    if name.text().contains('/') {
        name.invalid(errors, "must not contain '/'");
    }
}

pub(super) fn rbd(field: &Field<'_>, errors: &mut Errors) {
    demand_list(field, "monitors", errors);
    demand(field, &["image"], errors);
}

pub(super) fn cinder(field: &Field<'_>, errors: &mut Errors) {
    demand(field, &["volumeID"], errors);
    check_secret(field, errors);
}

pub(super) fn ceph_fs(field: &Field<'_>, errors: &mut Errors) {
    demand_list(field, "monitors", errors);
}

pub(super) fn quobyte(field: &Field<'_>, errors: &mut Errors) {
    let registry = field.child("registry");
    if registry.text().is_empty() {
        registry.required(errors, HOST_PORTS);
    } else if field.text_of("tenant").len() > TENANT_LENGTH {
        let detail = "must be a UUID and may not exceed a length of 64 characters";
        field.child("tenant").required(errors, detail);
    } else {
        let is_pair = |pair: &str| {
            pair.rsplit_once(':').is_some_and(|(host, _)| {
                !host.contains(':') || (host.starts_with('[') && host.ends_with(']'))
            })
        };
        for _ in registry.text().split(',').filter(|pair| !is_pair(pair)) {
            registry.invalid(errors, HOST_PORTS);
        }
    }
    demand(field, &["volume"], errors);
}

pub(super) fn fibre_channel(field: &Field<'_>, errors: &mut Errors) {
    let (targets, names) = (field.child("targetWWNs"), field.child("wwids"));
    if targets.count() == 0 && names.count() == 0 {
        targets.required(errors, "must specify either targetWWNs or wwids, but not both");
    }
    if targets.count() > 0 && names.count() > 0 {
        targets.invalid(errors, "targetWWNs and wwids can not be specified simultaneously");
    }
    if targets.count() > 0 {
        let unit = field.child("lun");
        if unit.is_set() {
            unit.between(errors, 0, 255);
        } else {
            unit.required(errors, "lun is required if targetWWNs is specified");
        }
    }
}

pub(super) fn flex_volume(field: &Field<'_>, errors: &mut Errors) {
    demand(field, &["driver"], errors);
    for (key, option) in field.child("options").entries() {
        let namespace = key.split('/').next().unwrap_or_default().to_lowercase();
        let namespace = format!(".{namespace}");
        if namespace.ends_with(".kubernetes.io") || namespace.ends_with(".k8s.io") {
            let detail = "kubernetes.io and k8s.io namespaces are reserved";
            option.invalid_as(errors, json!(key), detail);
        }
    }
}

pub(super) fn azure_file(field: &Field<'_>, errors: &mut Errors) {
    demand(field, &["secretName", "shareName"], errors);
}

pub(super) fn vsphere(field: &Field<'_>, errors: &mut Errors) {
    demand(field, &["volumePath"], errors);
}

pub(super) fn photon_disk(field: &Field<'_>, errors: &mut Errors) {
    demand(field, &["pdID"], errors);
}

pub(super) fn portworx(field: &Field<'_>, errors: &mut Errors) {
    demand(field, &["volumeID"], errors);
}

pub(super) fn azure_disk(field: &Field<'_>, errors: &mut Errors) {
    demand(field, &["diskName", "diskURI"], errors);
    field.child("cachingMode").one_of_if_set(errors, &CACHING);
    field.child("kind").one_of_if_set(errors, &DISK_KINDS);
    let place = field.child("diskURI");
    match field.text_of("kind") {
        "" => {}
        "Managed" if !place.text().starts_with("/subscriptions/") => {
            place.not_supported(errors, &[MANAGED_DISK]);
        }
        "Managed" => {}
        _ if !place.text().starts_with("https://") => place.not_supported(errors, &[BLOB_DISK]),
        _ => {}
    }
}

pub(super) fn storage_os(field: &Field<'_>, errors: &mut Errors) {
    field.child("volumeName").demand_as(errors, names::label);
    let namespace = field.child("volumeNamespace");
    if !namespace.text().is_empty() {
        namespace.texts(errors, names::label(namespace.text()));
    }
    check_secret(field, errors);
}

pub(super) fn scale_io(field: &Field<'_>, errors: &mut Errors) {
    demand(field, &["gateway", "system", "volumeName"], errors);
}

pub(super) fn csi(field: &Field<'_>, errors: &mut Errors) {
    let driver = field.child("driver");
    if driver.demand(errors) {
        if driver.text().len() > DRIVER_LENGTH {
            driver.too_long(errors, DRIVER_LENGTH);
        }
        driver.texts(errors, names::subdomain(&driver.text().to_lowercase()));
    }
    let secret = field.child("nodePublishSecretRef");
    if !secret.is_set() {
        return;
    }
    let name = secret.child("name");
    if name.demand(errors) {
        // The reference leaves out the reference itself.
        let name = name.at(field.path.child("name"));
        name.texts(errors, NameRule::Subdomain.check(name.text(), false));
    }
}

#[cfg(test)]
mod tests {
    use super::INITIATORS;

    #[test]
    fn names_of_initiators_are_told_apart_ka_010() {
        let is_right = |name: &str| {
            INITIATORS
                .iter()
                .any(|(prefix, pattern)| name.starts_with(prefix) && pattern.is_match(name))
        };
        assert!(is_right("iqn.2001-04.com.example:storage.disk1"));
        assert!(is_right("eui.0123456789abcdef"));
        assert!(!is_right("iqn.2001") && !is_right("eui.0123"));
    }
}
