//! Applies manifests by server-side apply and says what became of each.

use std::{collections::BTreeMap, time::Duration};

use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams, ValidationDirective},
    core::GroupVersionKind,
    discovery::{ApiCapabilities, ApiResource, Scope, pinned_kind},
};
use serde_json::Value;

use crate::{
    manifests::Manifest,
    terminal::{self, Failure},
};

/// How long a kind that was just defined may take to be served.
const SERVED_WITHIN: Duration = Duration::from_secs(10);
/// The namespace of objects that name none.
const DEFAULT_NAMESPACE: &str = "default";

/// How objects are applied.
#[derive(Clone, Debug)]
pub(crate) struct ApplyOptions {
    /// The field manager.
    pub(crate) manager: String,
    /// Whether fields that others own are taken over.
    pub(crate) force: bool,
}

/// An object that was applied.
#[derive(Clone, Debug)]
pub(crate) struct Applied {
    /// Its group, version and kind.
    pub(crate) kind: GroupVersionKind,
    /// Its resource.
    pub(crate) resource: ApiResource,
    /// Its namespace, for a namespaced kind.
    pub(crate) namespace: Option<String>,
    /// Its name.
    pub(crate) name: String,
}

impl Applied {
    /// `plural.group/name`, with the namespace behind where it is not `default`.
    pub(crate) fn title(&self) -> String {
        title(&self.resource, self.namespace.as_deref(), &self.name)
    }
}

/// Applies `manifests` in their order, prints one line per object, and goes on after a failure. Gives what was applied
/// and how many were refused.
pub(crate) async fn apply(
    client: &Client,
    manifests: &[Manifest],
    options: &ApplyOptions,
) -> (Vec<Applied>, usize) {
    let mut kinds = Kinds {
        client,
        known: BTreeMap::new(),
    };
    let mut applied = Vec::new();
    let mut refused = 0;
    for manifest in manifests {
        match apply_one(&mut kinds, manifest, options).await {
            Ok((object, outcome)) => {
                terminal::data(format!("{} {outcome}", object.title()));
                applied.push(object);
            }
            Err(failure) => {
                refused += 1;
                terminal::error(&failure.text, failure.hint.as_deref());
            }
        }
    }
    (applied, refused)
}

struct Kinds<'a> {
    client: &'a Client,
    known: BTreeMap<(String, String), (ApiResource, ApiCapabilities)>,
}

impl Kinds<'_> {
    async fn find(&mut self, manifest: &Manifest) -> Result<(ApiResource, ApiCapabilities), Failure> {
        let key = (manifest.api_version().to_owned(), manifest.kind().to_owned());
        if let Some(found) = self.known.get(&key) {
            return Ok(found.clone());
        }
        let kind = group_version_kind(manifest);
        // A definition applied a moment ago may not be served yet on a cluster.
        let ends = tokio::time::Instant::now() + SERVED_WITHIN;
        let mut pause = Duration::from_millis(50);
        loop {
            let failure = match pinned_kind(self.client, &kind).await {
                Ok(found) => {
                    self.known.insert(key, found.clone());
                    return Ok(found);
                }
                Err(kube::Error::Api(status)) if status.code == 404 => unknown_kind(manifest),
                Err(kube::Error::Discovery(_)) => unknown_kind(manifest),
                Err(error) => {
                    return Err(Failure::new(format!("{}: {}", manifest.place(""), cause(&error))));
                }
            };
            let defined_here = self
                .known
                .keys()
                .any(|(_, kind)| kind == "CustomResourceDefinition");
            if !defined_here || tokio::time::Instant::now() + pause > ends {
                return Err(failure);
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
    }
}

/// The kind that a server leaves out when it judges no calls.
const POLICY_KIND: (&str, &str) = ("omnia.altairalabs.ai", "ToolPolicy");

fn unknown_kind(manifest: &Manifest) -> Failure {
    let group = manifest.api_version().split('/').next().unwrap_or_default();
    if (group, manifest.kind()) == POLICY_KIND {
        return Failure::new(format!(
            "{}: ToolPolicy {} has no effect: its kind is not served",
            manifest.place("kind"),
            manifest.name()
        ))
        .with_hint(
            "the policy engine is off, so no call is judged; start the server with `--policy-engine on`",
        );
    }
    Failure::new(format!(
        "{}: kind {} of {} is not served",
        manifest.place("kind"),
        manifest.kind(),
        manifest.api_version()
    ))
    .with_hint("apply its CustomResourceDefinition first, or check `apiVersion` and `kind`")
}

fn group_version_kind(manifest: &Manifest) -> GroupVersionKind {
    let (group, version) = manifest
        .api_version()
        .split_once('/')
        .unwrap_or(("", manifest.api_version()));
    GroupVersionKind::gvk(group, version, manifest.kind())
}

async fn apply_one(
    kinds: &mut Kinds<'_>,
    manifest: &Manifest,
    options: &ApplyOptions,
) -> Result<(Applied, &'static str), Failure> {
    let (resource, capabilities) = kinds.find(manifest).await?;
    let namespace = match capabilities.scope {
        Scope::Namespaced => Some(
            manifest
                .namespace()
                .unwrap_or(kinds.client.default_namespace())
                .to_owned(),
        ),
        Scope::Cluster => None,
    };
    let api: Api<DynamicObject> = match &namespace {
        Some(namespace) => Api::namespaced_with(kinds.client.clone(), namespace, &resource),
        None => Api::all_with(kinds.client.clone(), &resource),
    };
    let object = Applied {
        kind: group_version_kind(manifest),
        resource,
        namespace,
        name: manifest.name().to_owned(),
    };
    let before = api
        .get_opt(manifest.name())
        .await
        .map_err(|error| refusal(manifest, &object, &error))?;
    let parameters = PatchParams {
        field_manager: Some(options.manager.clone()),
        force: options.force,
        field_validation: Some(ValidationDirective::Strict),
        ..PatchParams::default()
    };
    let after = api
        .patch(manifest.name(), &parameters, &Patch::Apply(&manifest.object))
        .await
        .map_err(|error| refusal(manifest, &object, &error))?;
    let outcome = match before {
        None => "created",
        Some(before) if before.metadata.resource_version == after.metadata.resource_version => "unchanged",
        Some(_) => "configured",
    };
    Ok((object, outcome))
}

fn refusal(manifest: &Manifest, object: &Applied, error: &kube::Error) -> Failure {
    let kube::Error::Api(status) = error else {
        return Failure::new(format!(
            "{}: {}: {}",
            manifest.place(""),
            object.title(),
            cause(error)
        ));
    };
    let causes: Vec<(&str, &str)> = status
        .details
        .iter()
        .flat_map(|details| &details.causes)
        .map(|cause| (cause.field.trim_start_matches('.'), cause.message.as_str()))
        // The remark that rules were not looked at for the other faults' sake is no fault.
        .filter(|(field, _)| *field != "<nil>")
        .collect();
    let conflict = status.reason == "Conflict" && status.code == 409;
    let text = if causes.is_empty() {
        let (field, text) = match undeclared_field(&status.message) {
            Some(path) => {
                let field = indexed(&manifest.object, path);
                let text = format!("unknown field `{field}`");
                (field, text)
            }
            None => (
                named_field(&status.message).unwrap_or_default().to_owned(),
                status.message.clone(),
            ),
        };
        format!("{}: {}: {text}", manifest.place(&field), object.title())
    } else {
        causes
            .iter()
            .map(|(field, message)| {
                format!(
                    "{}: {}: {field}: {message}",
                    manifest.place(field),
                    object.title()
                )
            })
            .collect::<Vec<_>>()
            .join("\nerror: ")
    };
    let failure = Failure::new(text);
    if conflict {
        return failure.with_hint(
            "somebody else set this field since; take it over with `--force-conflicts`, or take it out of the manifest",
        );
    }
    failure
}

/// The field path that a message without causes names, so that its line can be shown: `.spec.a[0]: …` as the typed
/// conversion of an apply writes it, else the first that is quoted.
fn named_field(message: &str) -> Option<&str> {
    let path = message.split_whitespace().find_map(|word| {
        let path = word.strip_prefix('.')?.strip_suffix(':')?;
        path.starts_with(|letter: char| letter.is_alphabetic())
            .then_some(path)
    });
    path.or_else(|| message.split('"').nth(1))
}

/// The path of a field that the kind does not have, as an apply's typed conversion names it; the other verbs say
/// `unknown field "PATH"`.
fn undeclared_field(message: &str) -> Option<&str> {
    let path = message.strip_suffix(": field not declared in schema")?;
    path.rsplit(' ').next()?.strip_prefix('.')
}

/// `path` with list items by their index, `spec.handlers[0].x`, where an apply names them by their keys,
/// `spec.handlers[name="a"].x`.
fn indexed(object: &Value, path: &str) -> String {
    let mut place = String::new();
    let mut at = Some(object);
    let mut rest = path;
    while !rest.is_empty() {
        if let Some((keys, behind)) = rest.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
            let index = at.and_then(Value::as_array).and_then(|items| {
                items.iter().position(|item| {
                    keys.split(',').all(|pair| {
                        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                        let held = item.get(key).map(Value::to_string);
                        held.as_deref() == Some(value)
                    })
                })
            });
            let index = index.map_or_else(|| keys.to_owned(), |index| index.to_string());
            at = at.and_then(|value| index.parse::<usize>().ok().and_then(|index| value.get(index)));
            place.push_str(&format!("[{index}]"));
            rest = behind;
        } else {
            let named = rest.strip_prefix('.').unwrap_or(rest);
            let end = named.find(['.', '[']).unwrap_or(named.len());
            let (name, behind) = named.split_at(end);
            if name.is_empty() {
                break;
            }
            if !place.is_empty() {
                place.push('.');
            }
            place.push_str(name);
            at = at.and_then(|value| value.get(name));
            rest = behind;
        }
    }
    place
}

/// The innermost cause of an error, which is what a person can act upon.
pub(crate) fn cause(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(inner) = innermost.source() {
        innermost = inner;
    }
    innermost.to_string()
}

/// `plural.group/name`, with the namespace behind where it is not `default`.
pub(crate) fn title(resource: &ApiResource, namespace: Option<&str>, name: &str) -> String {
    let group = if resource.group.is_empty() {
        String::new()
    } else {
        format!(".{}", resource.group)
    };
    let place = match namespace {
        Some(namespace) if namespace != DEFAULT_NAMESPACE => format!(" in namespace {namespace}"),
        _ => String::new(),
    };
    format!("{}{group}/{name}{place}", resource.plural)
}

/// The value of `status.conditions[type=NAME]`, if there is one.
pub(crate) fn condition<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    object
        .pointer("/status/conditions")
        .and_then(Value::as_array)?
        .iter()
        .find(|condition| condition.get("type").and_then(Value::as_str) == Some(name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_named_by_keys_is_found_by_its_index() {
        let object = json!({"spec": {"handlers": [{"name": "a"}, {"name": "b", "endpoint": "x"}], "ports": [{"port": 80, "protocol": "TCP"}]}});
        let message = "failed to create typed patch object (default/x; omnia.altairalabs.ai/v1alpha1, Kind=ToolRegistry): .spec.handlers[name=\"b\"].endpoint: field not declared in schema";
        let path = undeclared_field(message).unwrap_or_default();
        assert_eq!(indexed(&object, path), "spec.handlers[1].endpoint");
        assert_eq!(
            indexed(&object, "spec.ports[port=80,protocol=\"TCP\"].x"),
            "spec.ports[0].x"
        );
        assert_eq!(indexed(&object, "spec.handlers[0].x"), "spec.handlers[0].x");
        assert_eq!(undeclared_field("something else"), None);
    }
}
