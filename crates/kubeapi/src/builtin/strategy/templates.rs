//! What Pods and the templates of workloads share: the defaults of a Pod's spec.

use serde_json::{Map, Value, json};

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
