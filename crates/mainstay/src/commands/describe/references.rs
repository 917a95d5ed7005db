//! What an object names, and whether it is there.

use kube::Client;
use serde_json::Value;

use crate::{
    kinds::{Kinds, Served},
    requests::{self, Form, Query},
};

/// References of one object that are looked up.
const MOST: usize = 64;
/// The group that our agents' kinds are of.
const OMNIA: &str = "omnia.altairalabs.ai";

/// How a field names another object: the end of the field's name, and the kind.
const FIELDS: &[(&str, &str)] = &[
    ("secretref", "Secret"),
    ("secretkeyref", "Secret"),
    ("configmapref", "ConfigMap"),
    ("configmapkeyref", "ConfigMap"),
    ("toolregistryref", "ToolRegistry"),
    ("providerref", "Provider"),
    ("agentruntimeref", "AgentRuntime"),
    ("connectionref", "ChatConnection"),
    ("backendref", "AgentBackend"),
    ("promptpackref", "PromptPack"),
    ("scaletargetref", "Deployment"),
    ("imagepullsecrets", "Secret"),
    ("serviceref", "Service"),
];

/// One place where an object names another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    /// Where it stands.
    pub(super) field: String,
    /// The kind named.
    pub(super) kind: String,
    /// The name.
    pub(super) name: String,
    /// The namespace, where one is named.
    namespace: Option<String>,
    /// The key inside it, where one is named.
    key: Option<String>,
}

/// A reference and what it leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Looked {
    /// `plural.group/name`
    pub(super) title: String,
    /// Where it stands.
    pub(super) field: String,
    /// Why it leads nowhere; `None` when it does lead somewhere.
    pub(super) missing: Option<String>,
    /// The phase of what it leads to, or that it is there.
    pub(super) state: String,
}

/// Follows every reference in the spec of an object.
pub(super) async fn look(client: &Client, kinds: &Kinds, group: &str, object: &Value) -> Vec<Looked> {
    let namespace = object
        .pointer("/metadata/namespace")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let mut found = Vec::new();
    if let Some(spec) = object.get("spec") {
        collect(spec, "spec", &mut found);
    }
    found.truncate(MOST);
    futures::future::join_all(
        found
            .iter()
            .map(|reference| follow(client, kinds, group, namespace, reference)),
    )
    .await
    .into_iter()
    .flatten()
    .collect()
}

fn collect(value: &Value, place: &str, found: &mut Vec<Reference>) {
    match value {
        Value::Object(fields) => {
            for (name, below) in fields {
                let place = format!("{place}.{name}");
                if let Some(reference) = reference(name, below, &place) {
                    found.push(reference);
                }
                collect(below, &place, found);
            }
        }
        Value::Array(items) => {
            for (position, item) in items.iter().enumerate() {
                collect(item, &format!("{place}[{position}]"), found);
            }
        }
        _ => {}
    }
}

fn reference(field: &str, value: &Value, place: &str) -> Option<Reference> {
    let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let lower = field.to_lowercase();
    // The volumes of a Pod, and a policy's registry, are named without the word `ref`.
    let (kind, name) = match lower.as_str() {
        "secret" => ("Secret".to_owned(), text("secretName")?),
        "configmap" => ("ConfigMap".to_owned(), text("name")?),
        "selector" => ("ToolRegistry".to_owned(), text("registry")?),
        _ => {
            let known = FIELDS
                .iter()
                .filter(|(end, _)| lower.ends_with(end))
                .max_by_key(|(end, _)| end.len())
                .map(|(_, kind)| (*kind).to_owned());
            let kind = if lower.ends_with("ref") {
                text("kind").or(known)
            } else {
                known
            };
            (kind?, text("name")?)
        }
    };
    Some(Reference {
        field: place.to_owned(),
        kind,
        name,
        namespace: text("namespace"),
        key: text("key"),
    })
}

async fn follow(
    client: &Client,
    kinds: &Kinds,
    group: &str,
    namespace: &str,
    reference: &Reference,
) -> Option<Looked> {
    // A kind that is not served is not ours to judge.
    let kind = kinds.of_kind(&reference.kind, group)?;
    let namespace = reference.namespace.as_deref().unwrap_or(namespace);
    let looked = |missing: Option<String>, state: String| Looked {
        title: format!("{}/{}", kind.title(), reference.name),
        field: reference.field.clone(),
        missing,
        state,
    };
    if kind.group == OMNIA && kind.kind == "PromptPack" {
        return Some(pack(client, kind, namespace, reference).await);
    }
    let object = match requests::find(client, kind, Some(namespace), &reference.name, Form::Object).await {
        Ok(Some(object)) => object,
        Ok(None) => return Some(looked(Some("does not exist".to_owned()), String::new())),
        Err(failure) => return Some(looked(Some(failure.text), String::new())),
    };
    if let Some(key) = &reference.key
        && matches!(kind.kind.as_str(), "Secret" | "ConfigMap")
    {
        let holds = ["data", "binaryData"]
            .iter()
            .any(|part| object.get(part).and_then(|data| data.get(key)).is_some());
        if !holds {
            return Some(looked(Some(format!("has no key `{key}`")), String::new()));
        }
    }
    let state = super::state(&object).unwrap_or_else(|| "there".to_owned());
    Some(looked(None, state))
}

/// A pack is named by its `packName`, and several objects may have it.
async fn pack(client: &Client, kind: &Served, namespace: &str, reference: &Reference) -> Looked {
    let query = Query {
        namespace: Some(namespace.to_owned()),
        ..Query::default()
    };
    let title = format!("{} with packName {}", kind.title(), reference.name);
    let (missing, state) = match requests::list(client, kind, &query, Form::Object).await {
        Err(failure) => (Some(failure.text), String::new()),
        Ok(listed) => {
            let text = |object: &Value, pointer: &str| {
                let found = object.pointer(pointer).and_then(Value::as_str);
                found.unwrap_or_default().to_owned()
            };
            let packs: Vec<String> = listed
                .items()
                .iter()
                .filter(|object| text(object, "/spec/packName") == reference.name)
                .map(|object| {
                    format!(
                        "{} {}",
                        text(object, "/spec/version"),
                        text(object, "/status/phase")
                    )
                })
                .collect();
            if packs.is_empty() {
                (Some("does not exist".to_owned()), String::new())
            } else {
                (None, packs.join(", "))
            }
        }
    };
    Looked {
        title,
        field: reference.field.clone(),
        missing,
        state,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_of_other_objects_are_found_at_any_depth() {
        let spec = json!({
            "promptPackRef": {"name": "pack"},
            "providers": [{"name": "default", "providerRef": {"name": "model"}}],
            "identity": {"tokenSecretRef": {"name": "token", "key": "a"}},
            "connectionRef": {"name": "team", "namespace": "chat"},
            "claimRef": {"kind": "Service", "name": "x"},
            "template": {"spec": {"volumes": [
                {"name": "a", "configMap": {"name": "config"}}, {"name": "b", "secret": {"secretName": "secret"}},
            ], "containers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "env", "key": "k"}}}]}]}},
            "selector": {"registry": "tools"},
            "other": {"name": "nobody"},
        });
        let mut found = Vec::new();
        collect(&spec, "spec", &mut found);
        let mut shown: Vec<String> = found
            .iter()
            .map(|reference| {
                let key = reference
                    .key
                    .as_deref()
                    .map(|key| format!("#{key}"))
                    .unwrap_or_default();
                format!("{} {}/{}{key}", reference.field, reference.kind, reference.name)
            })
            .collect();
        shown.sort();
        assert_eq!(
            shown,
            [
                "spec.claimRef Service/x",
                "spec.connectionRef ChatConnection/team",
                "spec.identity.tokenSecretRef Secret/token#a",
                "spec.promptPackRef PromptPack/pack",
                "spec.providers[0].providerRef Provider/model",
                "spec.selector ToolRegistry/tools",
                "spec.template.spec.containers[0].env[0].valueFrom.secretKeyRef Secret/env#k",
                "spec.template.spec.volumes[0].configMap ConfigMap/config",
                "spec.template.spec.volumes[1].secret Secret/secret",
            ]
        );
        let team = found.iter().find(|reference| reference.name == "team");
        assert_eq!(team.and_then(|team| team.namespace.as_deref()), Some("chat"));
    }
}
