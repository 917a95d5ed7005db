//! Deletion: of one object and of collections. Requirements KA-020, KA-022, KA-023.

mod options;

use std::sync::Arc;

use futures::{StreamExt as _, stream};
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use mainstay_store::kube::{Expect, Key, Stored};
use mainstay_telemetry::task;
use serde_json::{Value, json};

use crate::{
    api::Api,
    builtin::KindInfo,
    commit::{self, Committed},
    custom, object,
    present::View,
    status::{ApiError, ApiResult, Reason},
    write::{Effect, MODIFIED},
};

pub(crate) use options::{DeleteOptions, Propagation};

/// How many objects of a collection are deleted at a time.
const CONCURRENCY: usize = 64;
/// How often a lost race is planned again.
const ATTEMPTS: usize = 8;
/// Namespaces that stay.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// What came of a deletion.
#[derive(Debug)]
pub(crate) struct Deleted {
    /// The object in its last state.
    pub(crate) object: Value,
    /// Whether it is gone; otherwise it waits for a finalizer or its grace period.
    pub(crate) gone: bool,
    /// What admission policies warn of.
    pub(crate) warnings: Vec<String>,
}

impl Api {
    /// Deletes one object, or begins to. Like a write, it is finished even if its client goes away.
    pub(crate) async fn delete(&self, view: &View, key: &Key, options: &DeleteOptions) -> ApiResult<Deleted> {
        let (api, view, key, options) = (self.clone(), view.clone(), key.clone(), options.clone());
        let task = task::spawn("kubeapi-delete", async move {
            api.delete_object(&view, &key, &options).await
        });
        task.await.unwrap_or_else(|error| Err(commit::unfinished(&error)))
    }

    async fn delete_object(&self, view: &View, key: &Key, options: &DeleteOptions) -> ApiResult<Deleted> {
        let kind = &view.kind;
        if &*key.resource == "/namespaces" && IMMORTAL.contains(&&*key.name) {
            return Err(crate::write::forbidden(
                kind,
                &key.name,
                "this namespace may not be deleted",
            ));
        }
        for _attempt in 0..ATTEMPTS {
            let Some(stored) = self.store().get(key) else {
                return Err(ApiError::not_found(&kind.group, &kind.plural, &key.name));
            };
            if let Some(deleted) = self.delete_stored(view, &stored, options).await? {
                return Ok(deleted);
            }
        }
        Err(ApiError::conflict(&kind.group, &kind.plural, &key.name, MODIFIED))
    }

    /// One attempt; `None` when it lost a race.
    async fn delete_stored(
        &self,
        view: &View,
        stored: &Stored,
        options: &DeleteOptions,
    ) -> ApiResult<Option<Deleted>> {
        // In the version that it is stored in: what the client's version does not have must not be lost.
        let snapshot = self.registry().snapshot();
        let own = View::new(&snapshot.in_storage_version(&view.kind), &snapshot).whole();
        let shown = |mut object: Value| {
            if own.api_version() != view.api_version() {
                view.convert(&mut object);
            }
            object
        };
        let kind = &view.kind;
        let mut object = own.value(&stored.value, stored.revision)?;
        object::set_meta(
            &mut object,
            "resourceVersion",
            Some(json!(stored.revision.to_string())),
        );
        options.check_preconditions(kind, &stored.key.name, &object)?;
        let warnings = self.admit_deletion(view, &stored.key, options, || shown(object.clone()))?;
        let effect = plan(kind, &mut object, options, self.clock().now());
        if options.dry_run || effect == Effect::Nothing {
            return Ok(Some(Deleted {
                object: shown(object),
                gone: effect == Effect::Remove,
                warnings,
            }));
        }
        let key = stored.key.clone();
        let committed = match effect {
            Effect::Remove => self.remove(key, &mut object, stored.revision).await?,
            _ => {
                self.put(key, &mut object, Expect::Revision(stored.revision))
                    .await?
            }
        };
        Ok(match committed {
            Committed::At(_) => Some(Deleted {
                object: shown(object),
                gone: effect == Effect::Remove,
                warnings,
            }),
            Committed::LostRace => None,
        })
    }

    /// Deletes many objects at a time, so that they share the store's commits; with what is to be warned of.
    pub(crate) async fn delete_all(
        &self,
        view: &View,
        keys: Vec<Key>,
        options: &DeleteOptions,
    ) -> ApiResult<Vec<String>> {
        let deletions = stream::iter(keys).map(|key| async move { self.delete(view, &key, options).await });
        // In order: the refusal that is told is that of the first object.
        let outcomes: Vec<ApiResult<Deleted>> = deletions.buffered(CONCURRENCY).collect().await;
        let mut warnings = Vec::new();
        for outcome in outcomes {
            match outcome {
                Ok(deleted) => warnings.extend(deleted.warnings),
                Err(error) if error.reason == Reason::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        warnings.dedup();
        Ok(warnings)
    }

    /// Deletes for the server's own purposes; an object that is gone already is fine.
    pub(crate) async fn delete_quietly(&self, kind: &Arc<KindInfo>, key: &Key) -> ApiResult<()> {
        let view = View::new(kind, &self.registry().snapshot());
        match self.delete(&view, key, &DeleteOptions::background()).await {
            Ok(_) => Ok(()),
            Err(error) if error.reason == Reason::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Decides what deleting means for `object` now, and brings it to the state it is stored in.
fn plan(kind: &KindInfo, object: &mut Value, options: &DeleteOptions, now: Timestamp) -> Effect {
    let before = object.clone();
    let finalizers = options.finalizers(kind, object);
    let grace = grace_period(kind, object, options);
    let dying = object::is_being_deleted(object);
    if dying {
        let current = object::metadata(object)
            .and_then(|metadata| metadata.get("deletionGracePeriodSeconds"))
            .and_then(Value::as_i64)
            .unwrap_or(0);
        // A later deletion may only shorten the time left.
        if grace < current {
            object::set_meta(object, "deletionGracePeriodSeconds", Some(json!(grace)));
        }
        object::set_finalizers(object, &finalizers);
        if finalizers.is_empty() && grace == 0 && !is_held_by_namespace(kind, object) {
            return Effect::Remove;
        }
        return if *object == before {
            Effect::Nothing
        } else {
            Effect::Put
        };
    }
    let mut finalizers = finalizers;
    if custom::is_definition(kind) {
        custom::hold(&mut finalizers);
    }
    object::set_finalizers(object, &finalizers);
    let held = is_held_by_namespace(kind, object);
    if finalizers.is_empty() && grace == 0 && !held {
        if kind.storage_resource == "/pods" {
            // What ends with a grace period is marked even if none is left.
            object::set_meta(object, "deletionTimestamp", Some(json!(object::format_time(now))));
            object::set_meta(object, "deletionGracePeriodSeconds", Some(json!(0)));
        }
        return Effect::Remove;
    }
    let deadline = now
        .saturating_add(SignedDuration::from_secs(grace))
        .unwrap_or(now);
    object::set_meta(
        object,
        "deletionTimestamp",
        Some(json!(object::format_time(deadline))),
    );
    if kind.storage_resource != "/namespaces" {
        object::set_meta(object, "deletionGracePeriodSeconds", Some(json!(grace)));
    }
    let generation = object::generation(object);
    if generation > 0 {
        object::set_meta(object, "generation", Some(json!(generation + 1)));
    }
    if held && let Some(fields) = object.as_object_mut() {
        let status = fields.entry("status").or_insert_with(|| json!({}));
        if let Some(status) = status.as_object_mut() {
            status.insert("phase".to_owned(), json!("Terminating"));
        }
    }
    if custom::is_definition(kind) {
        custom::mark_terminating(object, &object::format_time(now));
    }
    Effect::Put
}

fn is_held_by_namespace(kind: &KindInfo, object: &Value) -> bool {
    kind.storage_resource == "/namespaces"
        && object
            .pointer("/spec/finalizers")
            .and_then(Value::as_array)
            .is_some_and(|list| !list.is_empty())
}

/// How long a Pod gets to stop, in seconds; 0 for everything else, and for a Pod that runs nowhere.
fn grace_period(kind: &KindInfo, object: &Value, options: &DeleteOptions) -> i64 {
    if kind.storage_resource != "/pods" {
        return 0;
    }
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or("");
    if text("/spec/nodeName").is_empty() || matches!(text("/status/phase"), "Succeeded" | "Failed") {
        return 0;
    }
    let asked = options
        .grace_period_seconds
        .or_else(|| {
            object
                .pointer("/spec/terminationGracePeriodSeconds")
                .and_then(Value::as_i64)
        })
        .unwrap_or(30);
    // A negative period means "as short as possible" on the reference.
    if asked < 0 { 1 } else { asked }
}

/// The answer to a deletion: the object while it waits, else a `Status`, but for the few kinds whose object is returned.
pub(crate) fn answer(kind: &KindInfo, deleted: Deleted, options: &DeleteOptions) -> (StatusCode, Value) {
    let status = if !deleted.gone && options.orphan_dependents == Some(false) {
        StatusCode::ACCEPTED
    } else {
        StatusCode::OK
    };
    if !deleted.gone || returns_object(kind) {
        return (status, deleted.object);
    }
    let mut details = json!({
        "name": object::name(&deleted.object), "kind": kind.plural, "uid": object::uid(&deleted.object),
    });
    if let (false, Some(details)) = (kind.group.is_empty(), details.as_object_mut()) {
        details.insert("group".to_owned(), json!(kind.group));
    }
    (
        status,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}),
    )
}

fn returns_object(kind: &KindInfo) -> bool {
    matches!(
        kind.storage_resource.as_str(),
        "/pods"
            | "/services"
            | "/serviceaccounts"
            | "/persistentvolumeclaims"
            | "/podtemplates"
            | "/resourcequotas"
    )
}
