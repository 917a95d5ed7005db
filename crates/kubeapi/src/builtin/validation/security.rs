//! With which rights the containers of a Pod run.

use regex::Regex;
use serde_json::{Value, json};
use std::sync::LazyLock;

use super::{Errors, Field, formats, internal, volumes};
use crate::names;

const SECCOMP: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];
const PROC_MOUNTS: [&str; 2] = ["Default", "Unmasked"];
const GROUP_CHANGES: [&str; 2] = ["Always", "OnRootMismatch"];
const LABEL_CHANGES: [&str; 2] = ["MountOption", "Recursive"];
const GROUP_POLICIES: [&str; 2] = ["Merge", "Strict"];
const PROFILE_LENGTH: usize = 4095;
const SYSCTL_LENGTH: usize = 253;
const SYSCTL: &str = r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
const CREDENTIAL_LENGTH: usize = 64 * 1024;
const DOMAIN_LENGTH: usize = 256;
const USER_LENGTH: usize = 104;

#[expect(
    clippy::expect_used,
    reason = "the patterns are constants, and a test compiles them"
)]
static PATTERNS: LazyLock<Patterns> = LazyLock::new(|| {
    Patterns {
    sysctl: Regex::new(SYSCTL).expect("is a pattern"),
    short_domain: Regex::new(r#"^[^\\/:\*\?"<>|\.][^\\/:\*\?"<>|]{0,14}$"#).expect("is a pattern"),
    domain: Regex::new(
        r"^[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$",
    )
    .expect("is a pattern"),
}
});

struct Patterns {
    sysctl: Regex,
    short_domain: Regex,
    domain: Regex,
}

fn check_identity(field: &Field<'_>, errors: &mut Errors) {
    for message in field.number().map(formats::identity).unwrap_or_default() {
        field.invalid(errors, message);
    }
}

/// What is wrong with the rights of one container.
pub(super) fn check(field: &Field<'_>, host_users: bool, errors: &mut Errors) {
    if !field.is_set() {
        return;
    }
    check_identity(&field.child("runAsUser"), errors);
    check_identity(&field.child("runAsGroup"), errors);
    let mount = field.child("procMount");
    mount.one_of_if_set(errors, &PROC_MOUNTS);
    if host_users && mount.text() == "Unmasked" {
        mount.invalid(errors, "`hostUsers` must be false to use `Unmasked`");
    }
    check_seccomp(&field.child("seccompProfile"), errors);
    if field.value.get("allowPrivilegeEscalation") == Some(&Value::Bool(false)) {
        if field.flag("privileged") {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            field.invalid_structure(errors, &context(field.value), detail);
        }
        for added in field.child("capabilities").child("add").items() {
            if added.text() == "CAP_SYS_ADMIN" {
                let detail =
                    "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
                field.invalid_structure(errors, &context(field.value), detail);
            }
        }
    }
    check_windows(&field.child("windowsOptions"), errors);
    check_app_armor(&field.child("appArmorProfile"), errors);
}

/// A container's rights as the reference shows them.
fn context(value: &Value) -> String {
    let nested = |name: &str, fields: &[(&str, &str, Value)]| match value.get(name) {
        Some(nested) if nested.is_object() => internal(nested, fields),
        _ => "null".to_owned(),
    };
    let plain = |name: &str| value.get(name).unwrap_or(&Value::Null).to_string();
    let null = || Value::Null;
    let empty = || json!("");
    let profile = [
        ("type", "Type", empty()),
        ("localhostProfile", "LocalhostProfile", null()),
    ];
    let parts = [
        (
            "Capabilities",
            nested(
                "capabilities",
                &[("add", "Add", null()), ("drop", "Drop", null())],
            ),
        ),
        ("Privileged", plain("privileged")),
        (
            "SELinuxOptions",
            nested(
                "seLinuxOptions",
                &[
                    ("user", "User", empty()),
                    ("role", "Role", empty()),
                    ("type", "Type", empty()),
                    ("level", "Level", empty()),
                ],
            ),
        ),
        (
            "WindowsOptions",
            nested(
                "windowsOptions",
                &[
                    ("gmsaCredentialSpecName", "GMSACredentialSpecName", null()),
                    ("gmsaCredentialSpec", "GMSACredentialSpec", null()),
                    ("runAsUserName", "RunAsUserName", null()),
                    ("hostProcess", "HostProcess", null()),
                ],
            ),
        ),
        ("RunAsUser", plain("runAsUser")),
        ("RunAsGroup", plain("runAsGroup")),
        ("RunAsNonRoot", plain("runAsNonRoot")),
        ("ReadOnlyRootFilesystem", plain("readOnlyRootFilesystem")),
        ("AllowPrivilegeEscalation", plain("allowPrivilegeEscalation")),
        ("ProcMount", plain("procMount")),
        ("SeccompProfile", nested("seccompProfile", &profile)),
        ("AppArmorProfile", nested("appArmorProfile", &profile)),
    ];
    let parts: Vec<String> = parts
        .iter()
        .map(|(name, value)| format!("{name:?}:{value}"))
        .collect();
    format!("{{{}}}", parts.join(","))
}

/// What is wrong with the rights of all containers of a Pod.
pub(super) fn check_pod(spec: &Field<'_>, errors: &mut Errors) {
    let field = spec.child("securityContext");
    for name in ["fsGroup", "runAsUser", "runAsGroup"] {
        check_identity(&field.child(name), errors);
    }
    for group in field.child("supplementalGroups").items() {
        check_identity(&group, errors);
    }
    check_sysctls(spec, &field.child("sysctls"), errors);
    field
        .child("fsGroupChangePolicy")
        .one_of_if_set(errors, &GROUP_CHANGES);
    check_seccomp(&field.child("seccompProfile"), errors);
    check_windows(&field.child("windowsOptions"), errors);
    check_app_armor(&field.child("appArmorProfile"), errors);
    field
        .child("supplementalGroupsPolicy")
        .one_of_if_set(errors, &GROUP_POLICIES);
    field
        .child("seLinuxChangePolicy")
        .one_of_if_set(errors, &LABEL_CHANGES);
}

fn check_sysctls(spec: &Field<'_>, field: &Field<'_>, errors: &mut Errors) {
    let mut seen = Vec::new();
    for item in field.items() {
        let name = item.child("name");
        let text = name.text();
        if text.is_empty() {
            name.required(errors, "");
        } else if text.len() > SYSCTL_LENGTH || !PATTERNS.sysctl.is_match(text) {
            let detail = format!("must have at most {SYSCTL_LENGTH} characters and match regex {SYSCTL}");
            name.invalid(errors, detail);
        } else if seen.contains(&text) {
            name.duplicate(errors);
        }
        // Either sign separates; what is the other one stays as it is.
        let dotted = match (text.find('.'), text.find('/')) {
            (dot, Some(slash)) if dot.is_none_or(|dot| slash < dot) => text.replace('/', "."),
            _ => text.to_owned(),
        };
        let of_network = dotted.starts_with("net.");
        let of_processes = dotted.starts_with("fs.mqueue.")
            || [
                "kernel.sem",
                "kernel.shmall",
                "kernel.shmmax",
                "kernel.shmmni",
                "kernel.shm_rmid_forced",
                "kernel.shm",
                "kernel.msgmax",
                "kernel.msgmnb",
                "kernel.msgmni",
                "kernel.msg",
            ]
            .contains(&dotted.as_str());
        if of_network && spec.flag("hostNetwork") {
            name.invalid_text(errors, "may not be specified when 'hostNetwork' is true");
        } else if of_processes && spec.flag("hostIPC") {
            name.invalid_text(errors, "may not be specified when 'hostIPC' is true");
        }
        seen.push(text);
    }
}

fn check_seccomp(field: &Field<'_>, errors: &mut Errors) {
    if !field.is_set() {
        return;
    }
    let (kind, profile) = (field.child("type"), field.child("localhostProfile"));
    match kind.text() {
        "" => kind.required(errors, "type is required when seccompProfile is set"),
        _ => kind.one_of_if_set(errors, &SECCOMP),
    }
    if kind.text() != "Localhost" {
        if profile.is_set() {
            let fields = [
                ("type", "Type", json!("")),
                ("localhostProfile", "LocalhostProfile", Value::Null),
            ];
            let shown = internal(field.value, &fields);
            profile.invalid_structure(errors, &shown, "can only be set when seccomp type is Localhost");
        }
    } else if profile.is_set() {
        volumes::check_descending(&profile, errors);
    } else {
        profile.required(errors, "must be set when seccomp type is Localhost");
    }
}

fn check_app_armor(field: &Field<'_>, errors: &mut Errors) {
    if !field.is_set() {
        return;
    }
    const MISSING: &str = "must be set when AppArmor type is Localhost";
    let (kind, profile) = (field.child("type"), field.child("localhostProfile"));
    match kind.text() {
        "Localhost" if !profile.is_set() => profile.required(errors, MISSING),
        "Localhost" => {
            let text = profile.text();
            if text.trim() != text {
                profile.invalid(errors, "must not be padded with whitespace");
            } else if text.is_empty() {
                profile.required(errors, MISSING);
            }
            if text.len() > PROFILE_LENGTH {
                profile.too_long(errors, PROFILE_LENGTH);
            }
        }
        "RuntimeDefault" | "Unconfined" if profile.is_set() => {
            profile.invalid(errors, "can only be set when AppArmor type is Localhost");
        }
        "RuntimeDefault" | "Unconfined" => {}
        "" => kind.required(errors, "type is required when appArmorProfile is set"),
        _ => kind.not_supported(errors, &SECCOMP),
    }
}

fn check_windows(field: &Field<'_>, errors: &mut Errors) {
    let name = field.child("gmsaCredentialSpecName");
    if name.is_set() {
        name.texts(errors, names::subdomain(name.text()));
    }
    let credential = field.child("gmsaCredentialSpec");
    if credential.is_set() {
        match credential.text().len() {
            0 => credential.invalid(errors, "gmsaCredentialSpec cannot be an empty string"),
            length if length > CREDENTIAL_LENGTH => {
                let detail = format!(
                    "gmsaCredentialSpec size must be under {} KiB",
                    CREDENTIAL_LENGTH / 1024
                );
                credential.invalid(errors, detail);
            }
            _ => {}
        }
    }
    let user = field.child("runAsUserName");
    if user.is_set() {
        check_user_name(&user, errors);
    }
}

fn check_user_name(field: &Field<'_>, errors: &mut Errors) {
    let text = field.text();
    if text.is_empty() {
        field.invalid(errors, "runAsUserName cannot be an empty string");
        return;
    }
    if text.chars().any(|c| c.is_ascii_control()) {
        field.invalid(errors, "runAsUserName cannot contain control characters");
        return;
    }
    let (domain, user) = match text.split_once('\\') {
        Some((_, rest)) if rest.contains('\\') => {
            field.invalid(errors, "runAsUserName cannot contain more than one backslash");
            return;
        }
        Some((domain, user)) => (Some(domain), user),
        None => (None, text),
    };
    if let Some(domain) = domain {
        if domain.len() >= DOMAIN_LENGTH {
            let detail = format!("runAsUserName's Domain length must be under {DOMAIN_LENGTH} characters");
            field.invalid(errors, detail);
        }
        if !PATTERNS.short_domain.is_match(domain) && !PATTERNS.domain.is_match(domain) {
            let detail = "runAsUserName's Domain doesn't match the NetBios nor the DNS format";
            field.invalid(errors, detail);
        }
    }
    if user.is_empty() {
        field.invalid(errors, "runAsUserName's User cannot be empty");
    } else if user.len() > USER_LENGTH {
        let detail = format!("runAsUserName's User length must not be longer than {USER_LENGTH} characters");
        field.invalid(errors, detail);
    }
    if !user.is_empty() && user.chars().all(|c| matches!(c, '.' | ' ')) {
        field.invalid(
            errors,
            "runAsUserName's User cannot contain only periods or spaces",
        );
    }
    if user.contains(|c| r#""/\:;|=,+*?<>@[]"#.contains(c)) {
        let detail = r#"runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]"#;
        field.invalid(errors, detail);
    }
}
