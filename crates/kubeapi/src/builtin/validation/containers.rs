//! Containers of a Pod.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    Errors, Field, PROTOCOLS, devices, environment, formats,
    handlers::{self, Pod},
    resources::{self, Asker},
    security,
};
use crate::{field::FieldError, names};

const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
const MESSAGE_POLICIES: [&str; 2] = ["File", "FallbackToLogsOnError"];
const RESTART_POLICIES: [&str; 3] = ["Always", "Never", "OnFailure"];
const RESTART_ACTIONS: [&str; 2] = ["Restart", "RestartAllContainers"];
const RESIZED: [&str; 2] = ["cpu", "memory"];
const RESIZE_POLICIES: [&str; 2] = ["NotRequired", "RestartContainer"];
const MOST_RULES: usize = 20;
const MOST_CODES: usize = 255;

/// What of a Pod the rules of its containers depend on.
pub(super) struct Surroundings<'object> {
    /// The volumes that are right, by name.
    pub(super) volumes: BTreeMap<&'object str, &'object Value>,
    /// The names of the claims of devices.
    pub(super) claims: Vec<&'object str>,
    /// Whether the users of the containers are those of the node.
    pub(super) host_users: bool,
    /// When the containers are started again.
    pub(super) restart_policy: &'object str,
    pub(super) pod: Pod<'object>,
}

/// What is wrong with the containers of a Pod.
pub(super) fn check(field: &Field<'_>, surroundings: &Surroundings<'_>, errors: &mut Errors) {
    if field.count() == 0 {
        field.required(errors, "");
        return;
    }
    let mut names = Vec::new();
    for container in field.items() {
        check_common(&container, surroundings, errors);
        let name = container.child("name");
        if names.contains(&name.text()) {
            name.duplicate(errors);
        } else {
            names.push(name.text());
        }
        handlers::check(&container, &surroundings.pod, errors);
        check_restarts(&container, errors);
    }
    check_host_ports(field.items(), errors);
}

/// What is wrong with the containers that run before the others.
pub(super) fn check_initial(
    field: &Field<'_>,
    others: &Field<'_>,
    surroundings: &Surroundings<'_>,
    errors: &mut Errors,
) {
    let mut names: Vec<&str> = others
        .items()
        .map(|container| container.text_of("name"))
        .collect();
    for container in field.items() {
        check_common(&container, surroundings, errors);
        check_restarts(&container, errors);
        let stays = container.text_of("restartPolicy") == "Always";
        let name = container.child("name");
        if names.contains(&name.text()) {
            name.duplicate(errors);
        } else if !name.text().is_empty() {
            names.push(name.text());
        }
        // The reference names the ports as if the container were the first of the list.
        let alone = Field::new(container.value, field.path.index(0));
        check_host_ports(std::iter::once(alone), errors);
        if stays {
            handlers::check(&container, &surroundings.pod, errors);
            continue;
        }
        for name in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if container.has(name) {
                let detail = "may not be set for init containers without restartPolicy=Always";
                container.child(name).forbidden(errors, detail);
            }
        }
        for policy in container.child("resizePolicy").items() {
            let policy = policy.child("restartPolicy");
            if policy.text() == "RestartContainer" {
                let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
                policy.invalid(errors, detail);
            }
        }
    }
}

/// What is wrong with a container of any kind.
pub(super) fn check_common(container: &Field<'_>, surroundings: &Surroundings<'_>, errors: &mut Errors) {
    container.child("name").demand_as(errors, names::label);
    container.child("image").demand(errors);
    container
        .child("terminationMessagePolicy")
        .one_of(errors, &MESSAGE_POLICIES);
    check_ports(&container.child("ports"), errors);
    environment::check(&container.child("env"), errors);
    environment::check_from(&container.child("envFrom"), errors);
    devices::check(container, &surroundings.volumes, errors);
    container.child("imagePullPolicy").one_of(errors, &PULL_POLICIES);
    resources::check(
        &container.child("resources"),
        Asker::Container,
        &surroundings.claims,
        errors,
    );
    check_resizing(
        &container.child("resizePolicy"),
        surroundings.restart_policy,
        errors,
    );
    security::check(
        &container.child("securityContext"),
        surroundings.host_users,
        errors,
    );
}

/// A Pod's image has no space around it, which a template's may have.
pub(super) fn check_image_of_pod(container: &Field<'_>, errors: &mut Errors) {
    let image = container.child("image");
    if image.text().trim() != image.text() {
        image.invalid(errors, "must not have leading or trailing whitespace");
    }
}

fn check_ports(field: &Field<'_>, errors: &mut Errors) {
    let mut names = Vec::new();
    for port in field.items() {
        let name = port.child("name");
        if !name.text().is_empty() {
            let messages = formats::port_name(name.text());
            if !messages.is_empty() {
                name.texts(errors, messages);
            } else if names.contains(&name.text()) {
                name.duplicate(errors);
            } else {
                names.push(name.text());
            }
        }
        let (number, of_host) = (port.child("containerPort"), port.child("hostPort"));
        match number.number().unwrap_or_default() {
            0 => number.required(errors, ""),
            given => {
                for message in formats::port_number(given) {
                    number.invalid(errors, message);
                }
            }
        }
        if let Some(given) = of_host.number().filter(|number| *number != 0) {
            for message in formats::port_number(given) {
                of_host.invalid(errors, message);
            }
        }
        port.child("protocol").one_of(errors, &PROTOCOLS);
    }
}

/// A port of the node is given to one container.
fn check_host_ports<'object>(containers: impl Iterator<Item = Field<'object>>, errors: &mut Errors) {
    let mut seen = Vec::new();
    for port in containers.flat_map(|container| container.child("ports").items()) {
        let number = port.number_of("hostPort");
        if number == 0 {
            continue;
        }
        let key = format!("{}/{}/{number}", port.text_of("protocol"), port.text_of("hostIP"));
        if seen.contains(&key) {
            let path = port.path.child("hostPort");
            errors.push(FieldError::duplicate(&path, json!(key)));
        } else {
            seen.push(key);
        }
    }
}

fn check_resizing(field: &Field<'_>, restart_policy: &str, errors: &mut Errors) {
    let mut seen = Vec::new();
    for item in field.items() {
        let resource = item.text_of("resourceName");
        if seen.contains(&resource) {
            errors.push(FieldError::duplicate(&item.path, json!(resource)));
        }
        seen.push(resource);
        // The reference names the list.
        let policy = item.child("restartPolicy").at(field.path.clone());
        item.child("resourceName")
            .at(field.path.clone())
            .one_of(errors, &RESIZED);
        policy.one_of(errors, &RESIZE_POLICIES);
        if restart_policy == "Never" && policy.text() != "NotRequired" {
            let detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            policy.invalid_text(errors, detail);
        }
    }
}

/// What is wrong with when a container is started again, if it says so itself.
fn check_restarts(container: &Field<'_>, errors: &mut Errors) {
    let (policy, rules) = (
        container.child("restartPolicy"),
        container.child("restartPolicyRules"),
    );
    if !policy.is_set() {
        if rules.count() > 0 {
            policy.required(errors, "must specify restartPolicy when restart rules are used");
        }
        if container.path.as_str().contains(".initContainers[") || rules.count() == 0 {
            return;
        }
    }
    policy.one_of_if_set(errors, &RESTART_POLICIES);
    rules.too_many(errors, MOST_RULES);
    for rule in rules.items() {
        let (action, codes) = (rule.child("action"), rule.child("exitCodes"));
        if !RESTART_ACTIONS.contains(&action.text()) {
            action.not_supported(errors, &RESTART_ACTIONS);
        }
        if !codes.is_set() {
            codes.required(errors, "must be specified");
            continue;
        }
        let operator = codes.child("operator");
        if !["In", "NotIn"].contains(&operator.text()) {
            operator.not_supported(errors, &["In", "NotIn"]);
        }
        codes.child("values").too_many(errors, MOST_CODES);
    }
}
