//! What a Namespace gets by itself, and its removal: its content, then itself. Requirements KA-010, KA-023.

use std::{collections::BTreeMap, sync::Arc};

use mainstay_store::kube::Key;
use serde_json::{Value, json};

use crate::{
    api::{Api, OpenError},
    builtin::KindInfo,
    commit,
    delete::DeleteOptions,
    object,
    present::View,
    status::{ApiError, ApiResult, Reason},
};

/// The finalizer that holds a Namespace until it is empty.
const KUBERNETES: &str = "kubernetes";

impl Api {
    /// Gives a Namespace its default account. Of a terminating one, deletes what is in it, and the Namespace once it is
    /// empty. Objects that finalizers or grace periods hold bring this back when they go.
    pub(super) async fn attend_namespace(&self, name: &str) -> ApiResult<()> {
        let key = commit::key("/namespaces", "", name);
        let Some(stored) = self.store().get(&key) else {
            return Ok(());
        };
        let namespace: Value = serde_json::from_slice(&stored.value).map_err(|error| {
            ApiError::new(
                Reason::InternalError,
                format!("the stored namespace {name:?} cannot be read: {error}"),
            )
        })?;
        if !object::is_being_deleted(&namespace) {
            return match self
                .ensure("ServiceAccount", "serviceaccounts", name, "default")
                .await
            {
                Err(OpenError::Bootstrap { source, .. }) if source.reason == Reason::InternalError => {
                    Err(source)
                }
                // The Namespace went, or is going, meanwhile.
                _ => Ok(()),
            };
        }
        let finalizers = object::text_list(namespace.pointer("/spec/finalizers"));
        if !finalizers.iter().any(|finalizer| finalizer == KUBERNETES) {
            return Ok(());
        }
        // Pods first, and nothing else before they are gone: they may need their configuration, and a policy that guards
        // them must not go before they do.
        let (pods, mut others): (Vec<_>, Vec<_>) = self
            .content_of(name)
            .into_iter()
            .partition(|(kind, _)| is_pods(kind));
        if !pods.is_empty() {
            self.delete_content(pods).await?;
            others = self.content_of(name);
            if others.iter().any(|(kind, _)| is_pods(kind)) {
                others.clear();
            }
        }
        self.delete_content(others).await?;
        let snapshot = self.registry().snapshot();
        let Some(kind) = snapshot.kinds.lookup("", "v1", "namespaces") else {
            return Ok(());
        };
        // No creation is between its check of the namespace and its commit while this is held.
        let gate = self.namespace_gate().write().await;
        let mut remaining = self.content_of(name);
        let now = object::format_time(self.clock().now());
        if remaining.is_empty() {
            self.change(&kind, "", name, object::uid(&namespace), Arc::new(finish))
                .await?;
            return Ok(());
        }
        drop(gate);
        if remaining.iter().any(|(kind, _)| is_pods(kind)) {
            remaining.retain(|(kind, _)| is_pods(kind));
        }
        let remaining: Vec<(Arc<KindInfo>, Vec<String>)> = remaining
            .into_iter()
            .filter_map(|(kind, key)| {
                let stored = self.store().get(&key)?;
                Some((kind, finalizers_of(&stored.value)))
            })
            .collect();
        let conditions = remaining_conditions(&remaining, &now);
        self.change(
            &kind,
            "",
            name,
            object::uid(&namespace),
            Arc::new(move |namespace: &mut Value| {
                for condition in &conditions {
                    set_condition(namespace, condition);
                }
                Ok(())
            }),
        )
        .await?;
        Ok(())
    }

    async fn delete_content(&self, mut content: Vec<(Arc<KindInfo>, Key)>) -> ApiResult<()> {
        while let Some(kind) = content.first().map(|(kind, _)| Arc::clone(kind)) {
            let (of_kind, rest): (Vec<_>, Vec<_>) = content
                .into_iter()
                .partition(|(other, _)| other.storage_resource == kind.storage_resource);
            content = rest;
            let keys = of_kind.into_iter().map(|(_, key)| key).collect();
            let view = View::new(&kind, &self.registry().snapshot());
            self.delete_all(&view, keys, &DeleteOptions::background()).await?;
        }
        Ok(())
    }

    fn content_of(&self, namespace: &str) -> Vec<(Arc<KindInfo>, Key)> {
        let snapshot = self.registry().snapshot();
        let mut seen = std::collections::HashSet::new();
        let mut content = Vec::new();
        for kind in snapshot
            .kinds
            .all()
            .iter()
            .filter(|kind| kind.namespaced && !kind.storage_resource.is_empty())
        {
            if seen.insert(kind.storage_resource.clone()) {
                let items = self.store().list(&kind.storage_resource, Some(namespace)).items;
                content.extend(items.into_iter().map(|stored| (Arc::clone(kind), stored.key)));
            }
        }
        content
    }
}

fn is_pods(kind: &KindInfo) -> bool {
    kind.storage_resource == "/pods"
}

fn finish(namespace: &mut Value) -> ApiResult<()> {
    if let Some(spec) = namespace.get_mut("spec").and_then(Value::as_object_mut) {
        let mut finalizers = object::text_list(spec.get("finalizers"));
        finalizers.retain(|finalizer| finalizer != KUBERNETES);
        if finalizers.is_empty() {
            spec.remove("finalizers");
        } else {
            spec.insert("finalizers".to_owned(), json!(finalizers));
        }
    }
    Ok(())
}

/// Says what is left and what holds it, so that a Namespace that does not go away explains itself.
fn remaining_conditions(remaining: &[(Arc<KindInfo>, Vec<String>)], now: &str) -> Vec<Value> {
    let mut counts = BTreeMap::<String, usize>::new();
    let mut holders = BTreeMap::<&str, usize>::new();
    for (kind, finalizers) in remaining {
        *counts
            .entry(format!("{}.{}", kind.plural, kind.group))
            .or_default() += 1;
        for finalizer in finalizers {
            *holders.entry(finalizer).or_default() += 1;
        }
    }
    let condition = |type_: &str, status: &str, reason: &str, message: String| json!({"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": now});
    let texts: Vec<String> = counts
        .iter()
        .map(|(name, count)| format!("{name} has {count} resource instances"))
        .collect();
    let held: Vec<String> = holders
        .iter()
        .map(|(finalizer, count)| format!("{finalizer} in {count} resource instances"))
        .collect();
    let finalizers = if held.is_empty() {
        condition(
            "NamespaceFinalizersRemaining",
            "False",
            "ContentHasNoFinalizers",
            "All content-preserving finalizers finished".to_owned(),
        )
    } else {
        condition(
            "NamespaceFinalizersRemaining",
            "True",
            "SomeFinalizersRemain",
            format!(
                "Some content in the namespace has finalizers remaining: {}",
                held.join(", ")
            ),
        )
    };
    vec![
        condition(
            "NamespaceDeletionDiscoveryFailure",
            "False",
            "ResourcesDiscovered",
            "All resources successfully discovered".to_owned(),
        ),
        condition(
            "NamespaceDeletionGroupVersionParsingFailure",
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed".to_owned(),
        ),
        condition(
            "NamespaceDeletionContentFailure",
            "False",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization".to_owned(),
        ),
        condition(
            "NamespaceContentRemaining",
            "True",
            "SomeResourcesRemain",
            format!("Some resources are remaining: {}", texts.join(", ")),
        ),
        finalizers,
    ]
}

/// The finalizers of a stored object.
fn finalizers_of(stored: &[u8]) -> Vec<String> {
    serde_json::from_slice(stored).map_or_else(
        |_unreadable| Vec::new(),
        |object: Value| object::finalizers(&object),
    )
}

fn set_condition(namespace: &mut Value, condition: &Value) {
    let Some(fields) = namespace.as_object_mut() else {
        return;
    };
    let status = fields.entry("status").or_insert_with(|| json!({}));
    let Some(status) = status.as_object_mut() else {
        return;
    };
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(conditions) = conditions.as_array_mut() else {
        return;
    };
    let of_type = |entry: &Value| entry.get("type") == condition.get("type");
    match conditions.iter_mut().find(|entry| of_type(entry)) {
        // The time is that of the last change of the status.
        Some(entry) => {
            let time = entry.get("lastTransitionTime").cloned();
            let same_status = entry.get("status") == condition.get("status");
            *entry = condition.clone();
            if let (true, Some(time)) = (same_status, time) {
                entry["lastTransitionTime"] = time;
            }
        }
        None => conditions.push(condition.clone()),
    }
}
