//! A container's environment and arguments: pure functions over the Pod and what it refers to.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EnvVarSource, ObjectFieldSelector, Pod};
use kube::ResourceExt;

use super::image;
use super::objects::Objects;

/// The address of everything that runs here.
pub(crate) const ADDRESS: &str = "127.0.0.1";

/// Why a container cannot be configured. It is tried again when something changes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("configmap {name:?} not found")]
    ConfigMapMissing { name: String },
    #[error("secret {name:?} not found")]
    SecretMissing { name: String },
    #[error("couldn't find key {key} in {kind} {namespace}/{name}")]
    KeyMissing {
        kind: &'static str,
        namespace: String,
        name: String,
        key: String,
    },
    #[error(
        "the value of key {key} in {kind} {namespace}/{name} is not UTF-8, so it cannot be in the environment"
    )]
    NotText {
        kind: &'static str,
        namespace: String,
        name: String,
        key: String,
    },
    #[error("unsupported field path {path:?} in {place}")]
    FieldPath { path: String, place: String },
    #[error("{place} uses {what}, which is not supported here")]
    Unsupported { place: String, what: &'static str },
    #[error("{place}: path {path:?} is not allowed: it must be relative and without \"..\"")]
    Path { place: String, path: String },
    #[error("volume mount {mount:?} of container {container:?} names no volume of the Pod")]
    NoVolume { container: String, mount: String },
    #[error("{place} names the port {port:?}, which the container does not declare")]
    NoPort { place: String, port: String },
    #[error("the ServiceAccount token of {place} is not there yet")]
    TokenMissing { place: String },
    #[error("the files of {place} cannot be written: {error}")]
    Write { place: String, error: String },
}

impl ConfigError {
    /// Whether a whole object that the Pod uses is not there.
    pub(crate) fn is_missing_object(&self) -> bool {
        matches!(self, Self::ConfigMapMissing { .. } | Self::SecretMissing { .. })
    }
}

/// The environment of a container, references replaced. It begins with what the host lends every Pod.
pub(crate) fn environment(
    pod: &Pod,
    container: &Container,
    objects: &Objects,
    host: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, ConfigError> {
    let namespace = pod.namespace().unwrap_or_default();
    let mut found = host.clone();
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or("");
        if let Some(reference) = &source.config_map_ref {
            match objects.config_maps.get(&reference.name) {
                Some(map) => {
                    for (key, value) in map.data.iter().flatten() {
                        found.insert(format!("{prefix}{key}"), value.clone());
                    }
                }
                None if reference.optional == Some(true) => {}
                None => {
                    return Err(ConfigError::ConfigMapMissing {
                        name: reference.name.clone(),
                    });
                }
            }
        }
        if let Some(reference) = &source.secret_ref {
            match objects.secrets.get(&reference.name) {
                Some(secret) => {
                    for (key, value) in secret.data.iter().flatten() {
                        let value = text(&value.0, "Secret", &namespace, &reference.name, key)?;
                        found.insert(format!("{prefix}{key}"), value);
                    }
                }
                None if reference.optional == Some(true) => {}
                None => {
                    return Err(ConfigError::SecretMissing {
                        name: reference.name.clone(),
                    });
                }
            }
        }
    }
    for variable in container.env.iter().flatten() {
        let value = match (&variable.value, &variable.value_from) {
            (Some(value), _) => Some(expand(value, &found)),
            (None, Some(source)) => value_from(pod, container, &variable.name, source, objects)?,
            (None, None) => Some(String::new()),
        };
        if let Some(value) = value {
            found.insert(variable.name.clone(), value);
        }
    }
    Ok(found)
}

/// The container's words with references to its environment replaced: the role first, then its arguments.
pub(crate) fn words(container: &Container, environment: &BTreeMap<String, String>) -> Vec<String> {
    image::words(container)
        .iter()
        .map(|word| expand(word, environment))
        .collect()
}

fn value_from(
    pod: &Pod,
    container: &Container,
    variable: &str,
    source: &EnvVarSource,
    objects: &Objects,
) -> Result<Option<String>, ConfigError> {
    let namespace = pod.namespace().unwrap_or_default();
    let place = || {
        format!(
            "environment variable {variable} of container {:?}",
            container.name
        )
    };
    if let Some(reference) = &source.config_map_key_ref {
        let missing = |kind_missing: ConfigError| {
            if reference.optional == Some(true) {
                Ok(None)
            } else {
                Err(kind_missing)
            }
        };
        let Some(map) = objects.config_maps.get(&reference.name) else {
            return missing(ConfigError::ConfigMapMissing {
                name: reference.name.clone(),
            });
        };
        return match map.data.as_ref().and_then(|data| data.get(&reference.key)) {
            Some(value) => Ok(Some(value.clone())),
            None => missing(key_missing(
                "ConfigMap",
                &namespace,
                &reference.name,
                &reference.key,
            )),
        };
    }
    if let Some(reference) = &source.secret_key_ref {
        let missing = |kind_missing: ConfigError| {
            if reference.optional == Some(true) {
                Ok(None)
            } else {
                Err(kind_missing)
            }
        };
        let Some(secret) = objects.secrets.get(&reference.name) else {
            return missing(ConfigError::SecretMissing {
                name: reference.name.clone(),
            });
        };
        return match secret.data.as_ref().and_then(|data| data.get(&reference.key)) {
            Some(value) => text(&value.0, "Secret", &namespace, &reference.name, &reference.key).map(Some),
            None => missing(key_missing("Secret", &namespace, &reference.name, &reference.key)),
        };
    }
    if let Some(field) = &source.field_ref {
        return field_value(pod, field, place()).map(Some);
    }
    if source.resource_field_ref.is_some() {
        return Err(ConfigError::Unsupported {
            place: place(),
            what: "resourceFieldRef",
        });
    }
    Err(ConfigError::Unsupported {
        place: place(),
        what: "an unknown source",
    })
}

pub(super) fn key_missing(kind: &'static str, namespace: &str, name: &str, key: &str) -> ConfigError {
    ConfigError::KeyMissing {
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        key: key.to_owned(),
    }
}

fn text(
    value: &[u8],
    kind: &'static str,
    namespace: &str,
    name: &str,
    key: &str,
) -> Result<String, ConfigError> {
    String::from_utf8(value.to_vec()).map_err(|_| ConfigError::NotText {
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        key: key.to_owned(),
    })
}

/// A field of the Pod (downward API).
pub(super) fn field_value(
    pod: &Pod,
    field: &ObjectFieldSelector,
    place: String,
) -> Result<String, ConfigError> {
    let spec = pod.spec.as_ref();
    let path = field.field_path.as_str();
    let unsupported = || ConfigError::FieldPath {
        path: path.to_owned(),
        place: place.clone(),
    };
    if let Some((map, key)) = path.strip_suffix("']").and_then(|path| path.split_once("['")) {
        let map = match map {
            "metadata.labels" => pod.labels(),
            "metadata.annotations" => pod.annotations(),
            _ => return Err(unsupported()),
        };
        return Ok(map.get(key).cloned().unwrap_or_default());
    }
    Ok(match path {
        "metadata.name" => pod.name_any(),
        "metadata.namespace" => pod.namespace().unwrap_or_default(),
        "metadata.uid" => pod.uid().unwrap_or_default(),
        "metadata.labels" => lines(pod.labels()),
        "metadata.annotations" => lines(pod.annotations()),
        "spec.nodeName" => spec.and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
        "spec.serviceAccountName" => service_account(pod),
        "status.hostIP" | "status.podIP" | "status.hostIPs" | "status.podIPs" => ADDRESS.to_owned(),
        _ => return Err(unsupported()),
    })
}

/// The Pod's ServiceAccount.
pub(crate) fn service_account(pod: &Pod) -> String {
    let named = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.service_account_name.clone());
    named
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "default".to_owned())
}

fn lines(map: &BTreeMap<String, String>) -> String {
    map.iter()
        .map(|(name, value)| format!("{name}={value:?}"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Replaces `$(NAME)` where NAME is known; `$$` stands for `$`; anything else stays as it is.
pub(crate) fn expand(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(after) = after.strip_prefix('$') {
            expanded.push('$');
            rest = after;
        } else if let Some((name, after)) = after.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match variables.get(name) {
                Some(value) => expanded.push_str(value),
                None => {
                    expanded.push_str("$(");
                    expanded.push_str(name);
                    expanded.push(')');
                }
            }
            rest = after;
        } else {
            expanded.push('$');
            rest = after;
        }
    }
    expanded.push_str(rest);
    expanded
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn pod(container: serde_json::Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": { "name": "p", "namespace": "ns", "uid": "u", "labels": { "a": "b" } },
            "spec": { "containers": [container], "nodeName": "mainstay" },
        }))
        .unwrap()
    }

    fn objects() -> Objects {
        let map = json!({ "metadata": { "name": "cm" }, "data": { "LEVEL": "info", "k": "$(NOT)" } });
        // "czNjcmV0" is "s3cret", "/w==" is no text.
        let secret = json!({ "metadata": { "name": "s" }, "data": { "TOKEN": "czNjcmV0" } });
        let binary = json!({ "metadata": { "name": "b" }, "data": { "RAW": "/w==" } });
        Objects {
            config_maps: [("cm".to_owned(), Arc::new(serde_json::from_value(map).unwrap()))].into(),
            secrets: [
                ("s".to_owned(), Arc::new(serde_json::from_value(secret).unwrap())),
                ("b".to_owned(), Arc::new(serde_json::from_value(binary).unwrap())),
            ]
            .into(),
            ..Objects::default()
        }
    }

    fn resolve(container: serde_json::Value) -> Result<BTreeMap<String, String>, ConfigError> {
        let pod = pod(container);
        let host = BTreeMap::from([
            ("KEY".to_owned(), "of the host".to_owned()),
            ("LENT".to_owned(), "yes".to_owned()),
        ]);
        environment(&pod, &pod.spec.as_ref().unwrap().containers[0], &objects(), &host)
    }

    #[test]
    fn the_environment_comes_from_objects_fields_and_values_and_later_entries_win() {
        let found = resolve(json!({
            "name": "c",
            "envFrom": [
                { "prefix": "CM_", "configMapRef": { "name": "cm" } },
                { "secretRef": { "name": "s" } },
                { "configMapRef": { "name": "missing", "optional": true } },
            ],
            "env": [
                { "name": "PLAIN", "value": "x" },
                { "name": "EXPANDED", "value": "$(PLAIN)-$(CM_LEVEL)-$(LATER)-$$(PLAIN)" },
                { "name": "KEY", "valueFrom": { "configMapKeyRef": { "name": "cm", "key": "k" } } },
                { "name": "NONE", "valueFrom": { "configMapKeyRef": { "name": "cm", "key": "no", "optional": true } } },
                { "name": "TOKEN", "valueFrom": { "secretKeyRef": { "name": "s", "key": "TOKEN" } } },
                { "name": "NAME", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
                { "name": "LABEL", "valueFrom": { "fieldRef": { "fieldPath": "metadata.labels['a']" } } },
                { "name": "IP", "valueFrom": { "fieldRef": { "fieldPath": "status.podIP" } } },
                { "name": "ACCOUNT", "valueFrom": { "fieldRef": { "fieldPath": "spec.serviceAccountName" } } },
                { "name": "LATER", "value": "l" },
            ],
        }))
        .unwrap();
        let expected = [
            ("ACCOUNT", "default"),
            ("CM_LEVEL", "info"),
            ("CM_k", "$(NOT)"),
            ("EXPANDED", "x-info-$(LATER)-$(PLAIN)"),
            ("IP", "127.0.0.1"),
            ("KEY", "$(NOT)"),
            ("LABEL", "b"),
            ("LATER", "l"),
            ("LENT", "yes"),
            ("NAME", "p"),
            ("PLAIN", "x"),
            ("TOKEN", "s3cret"),
        ];
        let found: Vec<(&str, &str)> = found
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_missing_is_named_with_object_and_key() {
        let text = |container| resolve(container).unwrap_err().to_string();
        let key = |kind: &str, name: &str| json!({ "name": "c", "env": [{ "name": "X", "valueFrom": { kind: { "name": name, "key": "no" } } }] });
        assert_eq!(
            text(key("configMapKeyRef", "gone")),
            "configmap \"gone\" not found"
        );
        assert_eq!(
            text(key("configMapKeyRef", "cm")),
            "couldn't find key no in ConfigMap ns/cm"
        );
        assert_eq!(text(key("secretKeyRef", "gone")), "secret \"gone\" not found");
        assert_eq!(
            text(key("secretKeyRef", "s")),
            "couldn't find key no in Secret ns/s"
        );
        let missing = |name| {
            resolve(key("configMapKeyRef", name))
                .unwrap_err()
                .is_missing_object()
        };
        assert!(missing("gone") && !missing("cm"));
        let binary = text(json!({ "name": "c", "envFrom": [{ "secretRef": { "name": "b" } }] }));
        assert!(binary.contains("key RAW in Secret ns/b"), "{binary}");
        let field = json!({ "name": "c", "env": [{ "name": "X", "valueFrom": { "fieldRef": { "fieldPath": "spec.magic" } } }] });
        assert!(text(field).contains("spec.magic"));
    }

    #[test]
    fn dollars_that_refer_to_nothing_stay() {
        let variables = BTreeMap::from([("A".to_owned(), "1".to_owned())]);
        for (text, expected) in [
            ("$(A)", "1"),
            ("$A", "$A"),
            ("$(", "$("),
            ("$$", "$"),
            ("$$$(A)", "$1"),
            ("$(B)$(A)", "$(B)1"),
            ("é$", "é$"),
        ] {
            assert_eq!(expand(text, &variables), expected, "{text}");
        }
    }

    #[test]
    fn words_are_the_command_without_the_program_and_the_arguments() {
        let pod =
            pod(json!({ "name": "c", "command": ["/bin/mainstay", "agent"], "args": ["--name", "$(N)"] }));
        let container = &pod.spec.as_ref().unwrap().containers[0];
        let environment = BTreeMap::from([("N".to_owned(), "x".to_owned())]);
        assert_eq!(words(container, &environment), ["agent", "--name", "x"]);
    }
}
