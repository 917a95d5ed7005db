//! The life of a CustomResourceDefinition: its conditions, and its removal with everything of its kind.
//! Requirement KA-012.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    api::Api,
    apply::{self, ApplyOptions},
    builtin::KindInfo,
    commit, crd,
    delete::DeleteOptions,
    object,
    present::View,
    status::{ApiError, ApiResult, Reason},
};

/// Where definitions are stored.
pub(crate) const DEFINITIONS: &str = "apiextensions.k8s.io/customresourcedefinitions";
/// Keeps a definition until its objects are gone.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Whether `kind` is that of definitions.
pub(crate) fn is_definition(kind: &KindInfo) -> bool {
    kind.storage_resource == DEFINITIONS
}

/// Completes a definition that is about to be stored: its status, which the server itself owns.
///
/// The reference sets the conditions by a controller a moment later; here they are part of the same write, and the kind
/// is served when the write is answered.
pub(crate) fn prepare(api: &Api, kind: &KindInfo, definition: &mut Value) {
    let before = definition.clone();
    complete_status(api, definition);
    let options = ApplyOptions {
        manager: "kube-apiserver".to_owned(),
        force: false,
        api_version: kind.api_version(),
        subresource: "status".to_owned(),
        now: api.clock().now(),
        reset_fields: apply::reset_fields(&kind.kind, false, true, "status"),
    };
    apply::track_update(&kind.node, Some(&before), definition, &options);
}

/// Keeps the storage version among the stored ones, whatever a client says.
pub(crate) fn keep_storage_version(definition: &mut Value) {
    let stored = crd::stored_versions(definition, Some(definition));
    if let Some(status) = definition.get_mut("status").and_then(Value::as_object_mut) {
        status.insert("storedVersions".to_owned(), json!(stored));
    }
}

/// The finalizers of a definition whose deletion begins: its objects go first.
pub(crate) fn hold(finalizers: &mut Vec<String>) {
    if !finalizers.iter().any(|finalizer| finalizer == CLEANUP) {
        finalizers.push(CLEANUP.to_owned());
    }
}

fn complete_status(api: &Api, definition: &mut Value) {
    let snapshot = api.registry().snapshot();
    let others: Vec<Value> = api
        .store()
        .list(DEFINITIONS, None)
        .items
        .iter()
        .filter_map(|stored| serde_json::from_slice(&stored.value).ok())
        .collect();
    let names = crd::accept_names(definition, &others, &snapshot.kinds);
    let now = object::format_time(api.clock().now());
    let Some(fields) = definition.as_object_mut() else {
        return;
    };
    let status = fields.entry("status").or_insert_with(|| json!({}));
    let Some(status) = status.as_object_mut() else {
        return;
    };
    status.insert("acceptedNames".to_owned(), names.accepted);
    status.insert("storedVersions".to_owned(), json!(names.stored_versions));
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    for condition in [names.names_accepted, names.established] {
        set_condition(conditions, condition, &now);
    }
}

/// Replaces the condition of the same type, or adds it. The transition time changes with the status only.
fn set_condition(conditions: &mut Value, mut condition: Value, now: &str) {
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else {
        return;
    };
    let before = conditions
        .iter_mut()
        .find(|before| before.get("type") == condition.get("type"));
    let time = before
        .as_ref()
        .filter(|before| before.get("status") == condition.get("status"))
        .and_then(|before| before.get("lastTransitionTime").cloned())
        .unwrap_or_else(|| json!(now));
    if let Some(fields) = condition.as_object_mut() {
        fields.insert("lastTransitionTime".to_owned(), time);
    }
    match before {
        Some(before) => *before = condition,
        None => conditions.push(condition),
    }
}

impl Api {
    /// Goes on with the removal of a definition; `false` when something still holds one of its objects.
    pub(crate) async fn remove_definition(&self, name: &str) -> ApiResult<bool> {
        let Some(stored) = self.store().get(&commit::key(DEFINITIONS, "", name)) else {
            return Ok(true);
        };
        let definition: Value = serde_json::from_slice(&stored.value).map_err(|error| {
            ApiError::new(
                Reason::InternalError,
                format!("the stored definition {name:?} cannot be read: {error}"),
            )
        })?;
        let finalizers = object::finalizers(&definition);
        if !object::is_being_deleted(&definition) || !finalizers.iter().any(|finalizer| finalizer == CLEANUP)
        {
            return Ok(true);
        }
        let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or("");
        let resource = format!("{}/{}", text("/spec/group"), text("/spec/names/plural"));
        let snapshot = self.registry().snapshot();
        if let Some(kind) = snapshot
            .kinds
            .all()
            .iter()
            .find(|kind| kind.custom && kind.storage_resource == resource)
        {
            let keys = self
                .store()
                .list(&resource, None)
                .items
                .into_iter()
                .map(|stored| stored.key)
                .collect();
            self.delete_all(&View::new(kind, &snapshot), keys, &DeleteOptions::background())
                .await?;
        }
        if !self.store().list(&resource, None).items.is_empty() {
            return Ok(false);
        }
        let Some(kind) = snapshot
            .kinds
            .lookup("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        else {
            return Ok(true);
        };
        let uid = object::uid(&definition).to_owned();
        self.change(
            &kind,
            "",
            name,
            &uid,
            Arc::new(|definition: &mut Value| {
                let mut finalizers = object::finalizers(definition);
                finalizers.retain(|finalizer| finalizer != CLEANUP);
                object::set_finalizers(definition, &finalizers);
                Ok(())
            }),
        )
        .await?;
        Ok(true)
    }

    /// Objects of a kind whose definition is going cannot be created any more.
    pub(crate) fn check_definition_stays(&self, kind: &KindInfo, name: &str) -> ApiResult<()> {
        let definition = format!("{}.{}", kind.plural, kind.group);
        let Some(stored) = self.store().get(&commit::key(DEFINITIONS, "", &definition)) else {
            return Ok(());
        };
        let dying = serde_json::from_slice::<Value>(&stored.value)
            .is_ok_and(|definition| object::is_being_deleted(&definition));
        if !dying {
            return Ok(());
        }
        let detail = "create not allowed while custom resource definition is terminating";
        Err(ApiError::forbidden(&kind.group, &kind.plural, name, detail))
    }
}

/// Marks a definition whose deletion begins.
pub(crate) fn mark_terminating(definition: &mut Value, now: &str) {
    let condition = json!({
        "type": "Terminating", "status": "True", "reason": "InstanceDeletionPending",
        "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    });
    let Some(fields) = definition.as_object_mut() else {
        return;
    };
    let status = fields.entry("status").or_insert_with(|| json!({}));
    if let Some(status) = status.as_object_mut() {
        set_condition(
            status.entry("conditions").or_insert_with(|| json!([])),
            condition,
            now,
        );
    }
}
