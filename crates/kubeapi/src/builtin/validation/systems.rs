//! What a Pod has of its node, and what each operating system has.

use serde_json::{Value, json};

use super::{Errors, Field, pods};
use crate::{field::FieldError, names};

const SYSTEMS: [&str; 2] = ["linux", "windows"];
const HOST_NAME_LENGTH: usize = 64;
const OF_LINUX_PODS: [&str; 11] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seLinuxChangePolicy",
];
const OF_LINUX_CONTAINERS: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];

/// What is wrong for the operating system that a Pod names.
pub(super) fn check(spec: &Field<'_>, errors: &mut Errors) {
    let system = spec.child("os");
    if !system.is_set() {
        return;
    }
    match system.text_of("name") {
        "" => system.child("name").required(errors, ""),
        "linux" => {
            const DETAIL: &str = "windows options cannot be set for a linux pod";
            let contexts = std::iter::once(spec.child("securityContext"));
            let of_containers =
                pods::all_containers(spec).map(|container| container.child("securityContext"));
            for context in contexts.chain(of_containers) {
                if context.has("windowsOptions") {
                    context.child("windowsOptions").forbidden(errors, DETAIL);
                }
            }
        }
        "windows" => check_windows(spec, errors),
        name => errors.push(FieldError::not_supported(&system.path, json!(name), &SYSTEMS)),
    }
}

fn check_windows(spec: &Field<'_>, errors: &mut Errors) {
    const DETAIL: &str = "cannot be set for a windows pod";
    let refuse = |parent: &Field<'_>, names: &[&str], errors: &mut Errors| {
        for name in names {
            if parent.has(name) {
                parent.child(name).forbidden(errors, DETAIL);
            }
        }
    };
    refuse(&spec.child("securityContext"), &OF_LINUX_PODS, errors);
    refuse(spec, &["hostUsers"], errors);
    for name in ["hostPID", "hostIPC"] {
        if spec.flag(name) {
            spec.child(name).forbidden(errors, DETAIL);
        }
    }
    refuse(spec, &["shareProcessNamespace"], errors);
    for container in pods::all_containers(spec) {
        refuse(&container.child("securityContext"), &OF_LINUX_CONTAINERS, errors);
    }
}

/// Whether containers run as the node's own processes is the same for all containers of a Pod.
pub(super) fn check_host_processes(spec: &Field<'_>, errors: &mut Errors) {
    let of = |parent: &Field<'_>| {
        parent
            .value
            .pointer("/securityContext/windowsOptions/hostProcess")
            .and_then(Value::as_bool)
    };
    let whole = of(spec);
    let (mut count, mut of_host) = (0, 0);
    for container in pods::all_containers(spec) {
        count += 1;
        let own = of(&container);
        if let (Some(whole), Some(own)) = (whole, own)
            && whole != own
        {
            let path = container.path.child("securityContext.windowsOptions.hostProcess");
            let detail =
                format!("pod hostProcess value must be identical if both are specified, was {whole}");
            errors.push(FieldError::invalid(&path, json!(own), detail));
        }
        of_host += usize::from(own.or(whole) == Some(true));
    }
    if of_host == 0 {
        return;
    }
    if of_host != count {
        let detail =
            "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        spec.invalid_as(errors, json!(""), detail);
    }
    if !spec.flag("hostNetwork") {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        spec.child("hostNetwork").invalid_as(errors, json!(false), detail);
    }
}

/// A Pod with users of its own has little of its node.
pub(super) fn check_host_users(spec: &Field<'_>, errors: &mut Errors) {
    const DETAIL: &str = "when `hostUsers` is false";
    if spec.value.get("hostUsers") != Some(&Value::Bool(false)) {
        return;
    }
    // The reference writes two of these names with a capital letter.
    for (name, shown) in [
        ("hostNetwork", "hostNetwork"),
        ("hostPID", "HostPID"),
        ("hostIPC", "HostIPC"),
    ] {
        if spec.flag(name) {
            errors.push(FieldError::forbidden(&spec.path.child(shown), DETAIL));
        }
    }
    for container in pods::all_containers(spec) {
        let devices = container.child("volumeDevices");
        if devices.count() > 0 {
            devices.forbidden(errors, DETAIL);
        }
    }
}

/// What is wrong with the name that a Pod has instead of its own.
pub(super) fn check_host_name(spec: &Field<'_>, errors: &mut Errors) {
    let name = spec.child("hostnameOverride");
    if !name.is_set() {
        return;
    }
    if spec.flag("setHostnameAsFQDN") {
        name.forbidden(errors, "may not be specified when setHostnameAsFQDN is true");
    }
    if spec.flag("hostNetwork") {
        name.forbidden(errors, "may not be specified when hostNetwork is true");
    }
    if name.text().len() > HOST_NAME_LENGTH {
        name.too_long(errors, HOST_NAME_LENGTH);
    }
    name.texts(errors, names::subdomain(name.text()));
}
