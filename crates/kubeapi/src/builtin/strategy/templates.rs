//! What Pods and the templates of workloads share: the defaults and rules of a Pod's spec.

use serde_json::{Map, Value, json};

use crate::{
    field::{FieldError, FieldPath},
    names,
};

const PROBES: [&str; 3] = ["livenessProbe", "readinessProbe", "startupProbe"];
const PROBE_DEFAULTS: [(&str, i64); 4] = [
    ("failureThreshold", 3),
    ("periodSeconds", 10),
    ("successThreshold", 1),
    ("timeoutSeconds", 1),
];
const CONTAINER_LISTS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

/// Defaults of a Pod's spec that depend on other fields.
pub(super) fn default_spec(spec: &mut Value) {
    let Some(fields) = spec.as_object_mut() else {
        return;
    };
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let account = match text(fields.get("serviceAccountName")) {
        named if named.is_empty() => text(fields.get("serviceAccount")),
        named => named,
    };
    if !account.is_empty() {
        fields.insert("serviceAccountName".to_owned(), json!(account));
        fields.insert("serviceAccount".to_owned(), json!(account));
    }
    for volume in list_mut(fields, "volumes") {
        // A volume without any source is an empty directory.
        if let Some(volume) = volume.as_object_mut()
            && volume.keys().all(|name| name == "name")
        {
            volume.insert("emptyDir".to_owned(), json!({}));
        }
    }
    let host_network = fields.get("hostNetwork") == Some(&Value::Bool(true));
    for list in CONTAINER_LISTS {
        for container in list_mut(fields, list) {
            default_container(container, host_network);
        }
    }
}

fn default_container(container: &mut Value, host_network: bool) {
    let Some(container) = container.as_object_mut() else {
        return;
    };
    if container
        .get("imagePullPolicy")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .is_empty()
    {
        let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
        let policy = if is_latest(image) {
            "Always"
        } else {
            "IfNotPresent"
        };
        container.insert("imagePullPolicy".to_owned(), json!(policy));
    }
    if let Some(resources) = container.get_mut("resources").and_then(Value::as_object_mut)
        && let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned()
    {
        let requests = resources.entry("requests").or_insert_with(|| json!({}));
        if let Some(requests) = requests.as_object_mut() {
            for (name, limit) in limits {
                requests.entry(name).or_insert(limit);
            }
        }
    }
    for probe in PROBES {
        if let Some(probe) = container.get_mut(probe).and_then(Value::as_object_mut) {
            // A count of zero is one that was not given.
            for (name, count) in PROBE_DEFAULTS {
                if probe.get(name).is_some_and(|given| given == 0) {
                    probe.insert(name.to_owned(), json!(count));
                }
            }
        }
    }
    if host_network {
        for port in list_mut(container, "ports") {
            if let Some(port) = port.as_object_mut()
                && port.get("hostPort").and_then(Value::as_i64).unwrap_or_default() == 0
                && let Some(number) = port.get("containerPort").cloned()
            {
                port.insert("hostPort".to_owned(), number);
            }
        }
    }
}

/// Whether an image reference means the newest image: the tag `latest`, or neither tag nor digest.
fn is_latest(image: &str) -> bool {
    if image.contains('@') {
        return false;
    }
    let last = image.rsplit('/').next().unwrap_or(image);
    match last.split_once(':') {
        Some((_, tag)) => tag == "latest",
        None => true,
    }
}

/// The objects of the list `name`; nothing where it is absent or no list.
fn list_mut<'object>(
    fields: &'object mut Map<String, Value>,
    name: &str,
) -> impl Iterator<Item = &'object mut Value> {
    fields
        .get_mut(name)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
}

/// The objects of the list `name`.
pub(crate) fn list<'object>(object: &'object Value, name: &str) -> impl Iterator<Item = &'object Value> {
    object.get(name).and_then(Value::as_array).into_iter().flatten()
}

/// What is wrong with a Pod's spec beyond the demands that are data.
pub(super) fn validate_spec(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut volumes = Vec::new();
    for (index, volume) in list(spec, "volumes").enumerate() {
        let at = path.child("volumes").index(index);
        let name = text(volume, "name");
        validate_name(name, &mut volumes, &at.child("name"), errors);
        let sources = volume
            .as_object()
            .map_or(0, |fields| fields.keys().filter(|key| *key != "name").count());
        if sources > 1 {
            errors.push(FieldError::forbidden(
                &at,
                "may not specify more than 1 volume type",
            ));
        }
    }
    let mut containers = Vec::new();
    for field in CONTAINER_LISTS {
        for (index, container) in list(spec, field).enumerate() {
            let at = path.child(field).index(index);
            validate_name(
                text(container, "name"),
                &mut containers,
                &at.child("name"),
                errors,
            );
            validate_container(container, &volumes, &at, errors);
        }
    }
    if list(spec, "containers").next().is_none() && spec.get("containers").is_some_and(Value::is_null) {
        errors.push(FieldError::required(&path.child("containers"), ""));
    }
    let account = text(spec, "serviceAccountName");
    if !account.is_empty() {
        for message in names::subdomain(account) {
            errors.push(FieldError::invalid(
                &path.child("serviceAccountName"),
                json!(account),
                message,
            ));
        }
    }
    if let Some(value) = spec
        .get("activeDeadlineSeconds")
        .filter(|value| value.as_i64().is_some_and(|n| n < 1))
    {
        let detail = "must be between 1 and 2147483647, inclusive";
        errors.push(FieldError::invalid(
            &path.child("activeDeadlineSeconds"),
            value.clone(),
            detail,
        ));
    }
}

/// Names of containers and of volumes are labels and unique.
fn validate_name<'object>(
    name: &'object str,
    seen: &mut Vec<&'object str>,
    at: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    // An absent name is reported as required.
    if name.is_empty() {
        return;
    }
    for message in names::label(name) {
        errors.push(FieldError::invalid(at, json!(name), message));
    }
    if seen.contains(&name) {
        errors.push(FieldError::duplicate(at, json!(name)));
    }
    seen.push(name);
}

fn validate_container(container: &Value, volumes: &[&str], at: &FieldPath, errors: &mut Vec<FieldError>) {
    if text(container, "image").is_empty() {
        errors.push(FieldError::required(&at.child("image"), ""));
    } else if text(container, "image").trim() != text(container, "image") {
        let detail = "must not have leading or trailing whitespace";
        errors.push(FieldError::invalid(
            &at.child("image"),
            json!(text(container, "image")),
            detail,
        ));
    }
    let mut port_names = Vec::new();
    for (index, port) in list(container, "ports").enumerate() {
        let at = at.child("ports").index(index);
        let name = text(port, "name");
        if !name.is_empty() {
            for message in port_name(name) {
                errors.push(FieldError::invalid(&at.child("name"), json!(name), message));
            }
            if port_names.contains(&name) {
                errors.push(FieldError::duplicate(&at.child("name"), json!(name)));
            }
            port_names.push(name);
        }
        match port
            .get("containerPort")
            .and_then(Value::as_i64)
            .unwrap_or_default()
        {
            0 => errors.push(FieldError::required(&at.child("containerPort"), "")),
            number => validate_port(number, &at.child("containerPort"), errors),
        }
        match port.get("hostPort").and_then(Value::as_i64).unwrap_or_default() {
            0 => {}
            number => validate_port(number, &at.child("hostPort"), errors),
        }
    }
    for (index, variable) in list(container, "env").enumerate() {
        let at = at.child("env").index(index);
        let name = text(variable, "name");
        if name.contains('=') || name.chars().any(|c| !c.is_ascii() || c.is_ascii_control()) {
            let detail = "a valid environment variable name must consist only of printable ASCII characters other than '='";
            errors.push(FieldError::invalid(&at.child("name"), json!(name), detail));
        }
        if !text(variable, "value").is_empty() && variable.get("valueFrom").is_some() {
            let detail = "may not be specified when `value` is not empty";
            errors.push(FieldError::invalid(&at.child("valueFrom"), json!(""), detail));
        }
    }
    let mut paths = Vec::new();
    for (index, mount) in list(container, "volumeMounts").enumerate() {
        let at = at.child("volumeMounts").index(index);
        let name = text(mount, "name");
        if !name.is_empty() && !volumes.contains(&name) {
            errors.push(not_found(&at.child("name"), name));
        }
        let path = text(mount, "mountPath");
        if !path.is_empty() && paths.contains(&path) {
            errors.push(FieldError::invalid(
                &at.child("mountPath"),
                json!(path),
                "must be unique",
            ));
        }
        paths.push(path);
    }
    for probe in PROBES {
        let Some(probe_value) = container.get(probe).filter(|value| value.is_object()) else {
            continue;
        };
        let at = at.child(probe);
        let handlers = ["exec", "httpGet", "tcpSocket", "grpc"];
        match handlers
            .iter()
            .filter(|handler| probe_value.get(**handler).is_some())
            .count()
        {
            0 => errors.push(FieldError::required(&at, "must specify a handler type")),
            1 => {}
            _ => errors.push(FieldError::forbidden(
                &at,
                "may not specify more than 1 handler type",
            )),
        }
        let successes = probe_value
            .get("successThreshold")
            .and_then(Value::as_i64)
            .unwrap_or(1);
        if probe != "readinessProbe" && successes != 1 {
            errors.push(FieldError::invalid(
                &at.child("successThreshold"),
                json!(successes),
                "must be 1",
            ));
        }
    }
}

pub(crate) fn validate_port(number: i64, at: &FieldPath, errors: &mut Vec<FieldError>) {
    if !(1..=65535).contains(&number) {
        errors.push(FieldError::invalid(
            at,
            json!(number),
            "must be between 1 and 65535, inclusive",
        ));
    }
}

/// What is wrong with a port's name (IANA service name).
pub(crate) fn port_name(name: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if name.len() > 15 {
        messages.push("must be no more than 15 characters".to_owned());
    }
    if !name
        .chars()
        .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    {
        messages.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !name.chars().any(|c| c.is_ascii_lowercase()) {
        messages.push("must contain at least one letter (a-z)".to_owned());
    }
    if name.contains("--") {
        messages.push("must not contain consecutive hyphens".to_owned());
    }
    if name.starts_with('-') || name.ends_with('-') {
        messages.push("must not begin or end with a hyphen".to_owned());
    }
    messages
}

fn not_found(at: &FieldPath, name: &str) -> FieldError {
    FieldError {
        kind: crate::field::FieldErrorKind::NotFound,
        path: at.clone(),
        value: Some(json!(name)),
        detail: String::new(),
    }
}

pub(crate) fn text<'object>(object: &'object Value, name: &str) -> &'object str {
    object.get(name).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::is_latest;

    #[test]
    fn an_image_without_tag_or_digest_is_the_latest() {
        // KA-011
        for (image, latest) in [
            ("nginx", true),
            ("nginx:latest", true),
            ("nginx:1.2", false),
            ("registry:5000/nginx", true),
            ("registry:5000/nginx:1", false),
            ("nginx@sha256:abc", false),
        ] {
            assert_eq!(is_latest(image), latest, "{image}");
        }
    }
}
