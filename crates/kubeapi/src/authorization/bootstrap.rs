//! The roles and bindings of every cluster, from `data/roles.json`. Requirement KA-041.
//!
//! They are those of the reference that concern users and clients, and `mainstay:agent`: what the ServiceAccount of an
//! agent may read. As on the reference, one that is there already gets what it lacks at each start, unless its
//! annotation `rbac.authorization.kubernetes.io/autoupdate` is `false`.

use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Map, Value, json};

use super::{
    CLUSTER_ROLES, GROUP, Rule,
    rules::{self, missing},
};
use crate::{
    api::{Api, OpenError},
    commit, object,
    status::Reason,
    write::{Intention, WriteRequest},
};

const ROLES: &str = include_str!("../../data/roles.json");
const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
/// Enough to share the store's group commits.
const CONCURRENCY: usize = 64;

impl Api {
    /// Makes what is missing, and fills the aggregated roles.
    ///
    /// # Errors
    /// [`OpenError::Bootstrap`] when one cannot be stored.
    pub(crate) async fn ensure_roles(&self) -> Result<(), OpenError> {
        let objects: Vec<Value> = serde_json::from_str(ROLES).map_err(|source| OpenError::Stored {
            resource: "built-in roles".to_owned(),
            name: "roles.json".to_owned(),
            source,
        })?;
        stream::iter(objects)
            .map(|object| self.ensure_role(object))
            .buffer_unordered(CONCURRENCY)
            .try_collect::<()>()
            .await?;
        self.aggregate_roles()
            .await
            .map_err(|source| OpenError::Bootstrap {
                kind: "ClusterRole",
                name: "aggregated".to_owned(),
                source,
            })
    }

    async fn ensure_role(&self, wanted: Value) -> Result<(), OpenError> {
        let (kind_name, plural) = match wanted.get("kind").and_then(Value::as_str) {
            Some("ClusterRole") => ("ClusterRole", "clusterroles"),
            _ => ("ClusterRoleBinding", "clusterrolebindings"),
        };
        let name = object::name(&wanted).to_owned();
        let snapshot = self.registry().snapshot();
        let Some(kind) = snapshot.kinds.lookup(GROUP, "v1", plural) else {
            return Ok(());
        };
        let key = commit::key(&kind.storage_resource, "", &name);
        let present =
            match self.store().get(&key) {
                None => None,
                Some(stored) => Some(serde_json::from_slice::<Value>(&stored.value).map_err(|source| {
                    OpenError::Stored {
                        resource: kind.storage_resource.clone(),
                        name: name.clone(),
                        source,
                    }
                })?),
            };
        let intention = match present {
            None => Intention::Create(wanted),
            Some(present) => match completed(&present, &wanted) {
                None => return Ok(()),
                Some(completed) => Intention::Replace(completed),
            },
        };
        let request = WriteRequest::by_server(kind, snapshot, "", &name, intention);
        match self.write(request).await {
            Ok(_) => Ok(()),
            Err(error) if error.reason == Reason::AlreadyExists => Ok(()),
            Err(source) => Err(OpenError::Bootstrap {
                kind: kind_name,
                name,
                source,
            }),
        }
    }
}

/// `present` with what it lacks of `wanted`; `None` if it lacks nothing, or says that it is not to be touched.
fn completed(present: &Value, wanted: &Value) -> Option<Value> {
    let annotation = present
        .pointer("/metadata/annotations")
        .and_then(|annotations| annotations.get(AUTO_UPDATE));
    if annotation.and_then(Value::as_str) == Some("false") || object::is_being_deleted(present) {
        return None;
    }
    // Another role in a binding is somebody's decision: it cannot be changed in place, and is left alone.
    if present.get("roleRef") != wanted.get("roleRef") {
        return None;
    }
    let mut completed = present.clone();
    for field in ["labels", "annotations"] {
        let lacking = lacking_entries(present, wanted, field);
        if !lacking.is_empty()
            && let Some(metadata) = object::metadata_mut(&mut completed)
            && let Some(entries) = metadata.entry(field).or_insert_with(|| json!({})).as_object_mut()
        {
            entries.extend(lacking);
        }
    }
    if wanted.get("aggregationRule").is_none() && wanted.get("rules").is_some() {
        let read = |object: &Value| rules::read_and_report(CLUSTER_ROLES, object);
        let mut rules = read(present);
        let lacking: Vec<Rule> = read(wanted)
            .into_iter()
            .filter(|rule| !missing(&rules, std::slice::from_ref(rule)).is_empty())
            .collect();
        if !lacking.is_empty() {
            rules.extend(lacking);
            completed["rules"] = json!(rules);
        }
    }
    let subjects = |object: &Value| object.get("subjects").and_then(Value::as_array).cloned();
    if let Some(wanted) = subjects(wanted) {
        let mut all = subjects(present).unwrap_or_default();
        let lacking: Vec<Value> = wanted
            .into_iter()
            .filter(|subject| !all.contains(subject))
            .collect();
        if !lacking.is_empty() {
            all.extend(lacking);
            completed["subjects"] = Value::Array(all);
        }
    }
    (completed != *present).then_some(completed)
}

fn lacking_entries(present: &Value, wanted: &Value, field: &str) -> Map<String, Value> {
    let entries = |object: &Value| {
        object
            .pointer(&format!("/metadata/{field}"))
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default()
    };
    let present = entries(present);
    entries(wanted)
        .into_iter()
        .filter(|(key, _)| !present.contains_key(key))
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn a_role_gets_what_it_lacks_and_keeps_what_it_has_ka_041() {
        let wanted = json!({"metadata": {"name": "view", "labels": {"a": "1"}},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]});
        let mut present = json!({"metadata": {"name": "view", "labels": {"b": "2"}},
            "rules": [{"apiGroups": ["*"], "resources": ["secrets"], "verbs": ["get"]}]});
        let done = completed(&present, &wanted).unwrap();
        assert_eq!(done["metadata"]["labels"], json!({"a": "1", "b": "2"}));
        assert_eq!(done["rules"].as_array().unwrap().len(), 2);
        assert_eq!(completed(&done, &wanted), None);
        present["metadata"]["annotations"] = json!({AUTO_UPDATE: "false"});
        assert_eq!(completed(&present, &wanted), None);
    }
}
