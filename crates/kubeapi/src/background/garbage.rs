//! Garbage collection by owner references, as the reference's collector decides it. Requirement KA-023.

use std::sync::Arc;

use mainstay_store::kube::Key;
use serde_json::{Value, json};

use crate::{
    aftermath::Work,
    api::Api,
    builtin::KindInfo,
    commit,
    delete::{DeleteOptions, Propagation},
    object::{self, FOREGROUND, ORPHAN, OwnerReference},
    present::{View, split_api_version},
    status::{ApiResult, Reason},
};

/// What is known of an owner that an object names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// It is there, or its kind is not served, so nothing is known.
    Solid,
    /// It is gone.
    Absent,
    /// It is being deleted and waits for its dependents.
    Waiting,
}

impl Api {
    /// Decides what becomes of the object at `key`: as an owner that is going, and as a dependent.
    pub(super) async fn collect(&self, key: &Key) -> ApiResult<()> {
        let Some((kind, object)) = self.stored_object(key)? else {
            return Ok(());
        };
        let finalizers = object::finalizers(&object);
        let has = |name: &str| finalizers.iter().any(|finalizer| finalizer == name);
        if object::is_being_deleted(&object) {
            if has(ORPHAN) {
                return self.orphan_dependents(&kind, key, &object).await;
            }
            if has(FOREGROUND) {
                return self.delete_dependents_first(&kind, key, &object).await;
            }
            return Ok(());
        }
        let owners = object::owner_references(&object);
        if owners.is_empty() {
            return Ok(());
        }
        let states: Vec<(OwnerReference, Owner)> = owners
            .into_iter()
            .map(|owner| {
                let state = self.owner_state(&kind, key, &owner);
                (owner, state)
            })
            .collect();
        let uids = |wanted: &[Owner]| -> Vec<String> {
            states
                .iter()
                .filter(|(_, state)| wanted.contains(state))
                .map(|(owner, _)| owner.uid.clone())
                .collect()
        };
        let gone = uids(&[Owner::Absent, Owner::Waiting]);
        if gone.is_empty() {
            return Ok(());
        }
        if states.iter().any(|(_, state)| *state == Owner::Solid) {
            // Another owner keeps it; it only forgets those that are going.
            return self.forget_owners(&kind, key, &object, gone).await;
        }
        let waiting = states.iter().any(|(_, state)| *state == Owner::Waiting);
        let dependents = self.aftermath().dependents(object::uid(&object));
        let propagation = if waiting && !dependents.is_empty() {
            let blocks = states.iter().any(|(owner, _)| owner.block_owner_deletion);
            if blocks && self.is_any_waiting(&dependents)? {
                // A circle, most likely: each would wait for the next without end. It is looked at again for this write.
                return self.unblock_owners(&kind, key, &object).await;
            }
            Propagation::Foreground
        } else if has(ORPHAN) {
            Propagation::Orphan
        } else if has(FOREGROUND) {
            Propagation::Foreground
        } else {
            Propagation::Background
        };
        self.delete_collected(&kind, key, &object, propagation).await
    }

    fn stored_object(&self, key: &Key) -> ApiResult<Option<(Arc<KindInfo>, Value)>> {
        let snapshot = self.registry().snapshot();
        let Some(stored) = self.store().get(key) else {
            return Ok(None);
        };
        let Some(kind) = snapshot
            .kinds
            .all()
            .iter()
            .find(|kind| *kind.storage_resource == *key.resource)
        else {
            return Ok(None);
        };
        let mut object = View::new(kind, &snapshot).value(&stored.value, stored.revision)?;
        object::set_meta(
            &mut object,
            "resourceVersion",
            Some(json!(stored.revision.to_string())),
        );
        Ok(Some((Arc::clone(kind), object)))
    }

    fn owner_state(&self, dependent: &KindInfo, key: &Key, owner: &OwnerReference) -> Owner {
        let (group, version) = split_api_version(&owner.api_version);
        let snapshot = self.registry().snapshot();
        let Some(kind) = snapshot.kinds.by_kind(group, version, &owner.kind) else {
            return Owner::Solid;
        };
        if kind.namespaced && !dependent.namespaced {
            // Not a valid reference; the reference's collector leaves such objects alone.
            return Owner::Solid;
        }
        let namespace = if kind.namespaced { &*key.namespace } else { "" };
        let owner_key = commit::key(&kind.storage_resource, namespace, &owner.name);
        let Some(stored) = self.store().get(&owner_key) else {
            return Owner::Absent;
        };
        let Ok(object) = serde_json::from_slice::<Value>(&stored.value) else {
            return Owner::Solid;
        };
        if object::uid(&object) != owner.uid {
            return Owner::Absent;
        }
        if is_waiting(&object) {
            Owner::Waiting
        } else {
            Owner::Solid
        }
    }

    /// Whether one of these dependents is being deleted and waits for its own dependents.
    fn is_any_waiting(&self, dependents: &[(Key, OwnerReference)]) -> ApiResult<bool> {
        for (dependent, _) in dependents {
            if let Some((_, object)) = self.stored_object(dependent)?
                && is_waiting(&object)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Lets the owners of an object go before it.
    async fn unblock_owners(&self, kind: &Arc<KindInfo>, key: &Key, object: &Value) -> ApiResult<()> {
        self.change(
            kind,
            &key.namespace,
            &key.name,
            object::uid(object),
            Arc::new(|object: &mut Value| {
                object::unblock_owner_references(object);
                Ok(())
            }),
        )
        .await
        .map(|_| ())
    }

    async fn delete_collected(
        &self,
        kind: &Arc<KindInfo>,
        key: &Key,
        object: &Value,
        propagation: Propagation,
    ) -> ApiResult<()> {
        let options = DeleteOptions {
            uid: Some(object::uid(object).to_owned()),
            // Another write may have added an owner; then it is looked at again.
            resource_version: Some(object::resource_version(object).to_owned()),
            propagation: Some(propagation),
            ..DeleteOptions::default()
        };
        let view = View::new(kind, &self.registry().snapshot());
        match self.delete(&view, key, &options).await {
            Err(error) if error.reason == Reason::Conflict => {
                self.aftermath().put_back(Work::Object(key.clone()));
                Ok(())
            }
            Err(error) if error.reason != Reason::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    async fn forget_owners(
        &self,
        kind: &Arc<KindInfo>,
        key: &Key,
        object: &Value,
        uids: Vec<String>,
    ) -> ApiResult<()> {
        self.change(
            kind,
            &key.namespace,
            &key.name,
            object::uid(object),
            Arc::new(move |object: &mut Value| {
                object::remove_owner_references(object, &uids);
                Ok(())
            }),
        )
        .await
        .map(|_| ())
    }

    async fn orphan_dependents(&self, kind: &Arc<KindInfo>, key: &Key, owner: &Value) -> ApiResult<()> {
        let uid = object::uid(owner).to_owned();
        for (dependent, _) in self.aftermath().dependents(&uid) {
            if let Some((kind, object)) = self.stored_object(&dependent)? {
                self.forget_owners(&kind, &dependent, &object, vec![uid.clone()])
                    .await?;
            }
        }
        self.remove_finalizer(kind, key, &uid, ORPHAN).await
    }

    async fn delete_dependents_first(&self, kind: &Arc<KindInfo>, key: &Key, owner: &Value) -> ApiResult<()> {
        let uid = object::uid(owner).to_owned();
        let mut blocked = false;
        for (dependent, reference) in self.aftermath().dependents(&uid) {
            let Some((_, object)) = self.stored_object(&dependent)? else {
                continue;
            };
            blocked |= reference.block_owner_deletion;
            if !object::is_being_deleted(&object) {
                self.aftermath().put_back(Work::Object(dependent));
            }
        }
        if blocked {
            // The removal of the last dependent brings the owner back here.
            return Ok(());
        }
        self.remove_finalizer(kind, key, &uid, FOREGROUND).await
    }

    async fn remove_finalizer(
        &self,
        kind: &Arc<KindInfo>,
        key: &Key,
        uid: &str,
        finalizer: &'static str,
    ) -> ApiResult<()> {
        let change = self.change(
            kind,
            &key.namespace,
            &key.name,
            uid,
            Arc::new(move |object: &mut Value| {
                let mut finalizers = object::finalizers(object);
                finalizers.retain(|name| name != finalizer);
                object::set_finalizers(object, &finalizers);
                Ok(())
            }),
        );
        change.await.map(|_| ())
    }
}

/// Whether an object is being deleted and waits for its dependents.
fn is_waiting(object: &Value) -> bool {
    object::is_being_deleted(object)
        && object::finalizers(object)
            .iter()
            .any(|finalizer| finalizer == FOREGROUND)
}
