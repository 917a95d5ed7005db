//! The one way to the store: every change of an object passes here, and what follows from it is noted here.

use std::sync::Arc;

use mainstay_store::kube::{Body, Change, CommitError, Expect, Key};
use serde_json::{Value, json};
use tokio::task::JoinError;

use crate::{
    admission,
    api::Api,
    builtin::conversion,
    custom::DEFINITIONS,
    object,
    status::{ApiError, ApiResult, Reason},
};

/// How a commit that did not fail ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Committed {
    /// At this revision.
    At(u64),
    /// Somebody else changed the object first.
    LostRace,
}

/// The key of an object in the store.
pub(crate) fn key(storage_resource: &str, namespace: &str, name: &str) -> Key {
    Key {
        resource: Arc::from(storage_resource),
        namespace: Arc::from(namespace),
        name: Arc::from(name),
    }
}

/// Encodes an object in the form in which it is stored.
fn encode(object: &Value) -> Body {
    match conversion::to_stored(object) {
        Some(stored) => object::encode(&stored),
        None => object::encode(object),
    }
}

impl Api {
    // The callers run in tasks of their own: a client that goes away drops its request, and what follows from a commit
    // that is under way must be noted all the same.

    /// Stores `object` if the stored state is still what `expect` says, and sets its `resourceVersion`.
    pub(crate) async fn put(&self, key: Key, object: &mut Value, expect: Expect) -> ApiResult<Committed> {
        let body = encode(object);
        let limit = self.limits().object_bytes;
        if body.bytes.len() > limit {
            return Err(ApiError::new(
                Reason::RequestEntityTooLarge,
                format!("Request entity too large: limit is {limit}"),
            ));
        }
        let change = Change::Put {
            key: key.clone(),
            body,
            expect,
        };
        self.finish(change, key, object, false).await
    }

    /// Removes the object stored at `revision`; `object` is its last state.
    pub(crate) async fn remove(&self, key: Key, object: &mut Value, revision: u64) -> ApiResult<Committed> {
        let change = Change::Delete {
            key: key.clone(),
            expect: revision,
            last: encode(object),
        };
        self.finish(change, key, object, true).await
    }

    async fn finish(
        &self,
        change: Change,
        key: Key,
        object: &mut Value,
        removed: bool,
    ) -> ApiResult<Committed> {
        match self.store().commit(vec![change]).await {
            Ok(revisions) => {
                let Some(revision) = revisions.first().copied() else {
                    return Err(ApiError::new(
                        Reason::InternalError,
                        "the store answered a commit without a revision",
                    ));
                };
                object::set_meta(object, "resourceVersion", Some(json!(revision.to_string())));
                self.aftermath().observe(&key, object, revision, removed);
                if key.resource.starts_with("rbac.authorization.k8s.io/") {
                    self.authorizer().changed();
                }
                if matches!(&*key.resource, admission::POLICIES | admission::BINDINGS) {
                    self.policies().changed();
                }
                if &*key.resource == DEFINITIONS {
                    self.follow_definitions().await;
                }
                Ok(Committed::At(revision))
            }
            Err(CommitError::Conflict { .. }) => Ok(Committed::LostRace),
            Err(error) => {
                tracing::error!(resource = %key.resource, namespace = %key.namespace, name = %key.name, %error, "a write could not be stored");
                Err(store_failure(&error))
            }
        }
    }

    /// Serves what the definitions say now, before the write that changed them is answered.
    async fn follow_definitions(&self) {
        let api = self.clone();
        // Reading schemas and compiling rules takes long enough to hold up others.
        let refreshed = tokio::task::spawn_blocking(move || api.registry().refresh(api.store())).await;
        match refreshed {
            Ok(Ok(())) => {}
            Ok(Err((name, error))) => {
                tracing::error!(%name, %error, "a stored CustomResourceDefinition cannot be read");
            }
            Err(error) => tracing::error!(%error, "the kinds were not read again"),
        }
    }
}

/// What a client hears whose write or deletion panicked.
pub(crate) fn unfinished(error: &JoinError) -> Box<ApiError> {
    tracing::error!(%error, "a write was not finished");
    ApiError::new(
        Reason::InternalError,
        "This request caused apiserver to panic. Look in the logs for details.",
    )
}

/// What a client hears of a store that does not write.
fn store_failure(error: &CommitError) -> Box<ApiError> {
    let mut refusal = ApiError::new(Reason::InternalError, format!("Internal error occurred: {error}"));
    if matches!(error, CommitError::Closed) {
        refusal.reason = Reason::ServiceUnavailable;
        refusal.retry_after_seconds = Some(1);
    }
    refusal
}
