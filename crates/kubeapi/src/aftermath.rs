//! What follows from a commit: work for garbage collection, namespace removal, CRD removal and the expiry of Events.
//! Requirements KA-023, KA-031.
//!
//! Every write of the process passes [`Aftermath::observe`], so the index of owners is complete without watching each
//! resource. Commits of one object may be observed out of order; each entry keeps the revision it was made from and an
//! older one never overwrites it. The queues are sets of names, so their size is bounded by the number of objects.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;
use mainstay_store::kube::Key;
use mainstay_telemetry::clock::SharedClock;
use serde_json::Value;
use tokio::sync::Notify;

use crate::{
    admission,
    authorization::CLUSTER_ROLES,
    object::{self, OwnerReference},
};

/// An owner as one of its dependents names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OwnerName {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    /// The dependent's namespace, where a namespaced owner must be too.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// A dependent, as the index keeps it.
#[derive(Clone, Debug)]
struct Dependent {
    revision: u64,
    owners: Vec<OwnerReference>,
}

#[derive(Default)]
struct State {
    /// By the dependent's key.
    dependents: HashMap<Key, Dependent>,
    /// Dependents by their owner's uid.
    by_owner: HashMap<String, HashSet<Key>>,
    /// Revisions at which dependents were removed, so that a late observation does not bring them back. Emptied
    /// whenever the queue runs dry.
    removed: HashMap<Key, u64>,
    objects: BTreeSet<Key>,
    owners: BTreeSet<OwnerName>,
    namespaces: BTreeSet<String>,
    definitions: BTreeSet<String>,
    terminating: HashSet<String>,
    /// Definitions that are being removed, as `PLURAL.GROUP`.
    dying_definitions: HashSet<String>,
    roles: bool,
    /// Admission policies whose types are to be checked.
    policies: BTreeSet<String>,
    /// When each Event was written last, the oldest first.
    events: BTreeSet<(Timestamp, Key, u64)>,
}

/// The work that commits leave behind.
pub(crate) struct Aftermath {
    state: Mutex<State>,
    clock: SharedClock,
    /// Told when there is work.
    changed: Notify,
}

/// Work taken from the queue.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Look at this object's owners and dependents.
    Object(Key),
    /// A dependent of this owner is gone or going: the owner may have been waiting for it.
    Owner(OwnerName),
    /// Complete this Namespace, or go on removing it.
    Namespace(String),
    /// Go on removing this CustomResourceDefinition.
    Definition(String),
    /// Make the aggregated ClusterRoles anew.
    Roles,
    /// Check the types of this ValidatingAdmissionPolicy.
    Policy(String),
}

impl Aftermath {
    pub(crate) fn new(clock: SharedClock) -> Self {
        Self {
            state: Mutex::new(State::default()),
            clock,
            changed: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while the lock was held leaves at worst an entry that the next observation repairs.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a commit.
    pub(crate) fn observe(&self, key: &Key, object: &Value, revision: u64, removed: bool) {
        self.note(key, object, revision, removed, self.clock.now());
    }

    /// Notes at start an object that was already stored: an Event is as old then as it says itself.
    pub(crate) fn recall(&self, key: &Key, object: &Value, revision: u64) {
        let now = self.clock.now();
        let written = last_written(object).map_or(now, |written| written.min(now));
        self.note(key, object, revision, false, written);
    }

    fn note(&self, key: &Key, object: &Value, revision: u64, removed: bool, written: Timestamp) {
        let mut state = self.state();
        let owners = object::owner_references(object);
        state.index(key, &owners, revision, removed);
        let uid = object::uid(object);
        let dying = object::is_being_deleted(object);
        if removed {
            if let Some(dependents) = state.by_owner.get(uid).cloned() {
                state.objects.extend(dependents);
            }
            // An owner may be waiting for this one.
            state.queue_owners(key, &owners);
        } else if !owners.is_empty() || (dying && is_held_for_dependents(object)) {
            state.objects.insert(key.clone());
            if dying {
                state.queue_owners(key, &owners);
            }
        }
        match &*key.resource {
            "/namespaces" => {
                if removed {
                    state.terminating.remove(&*key.name);
                } else {
                    if dying {
                        state.terminating.insert(key.name.to_string());
                    }
                    state.namespaces.insert(key.name.to_string());
                }
            }
            // The default account of a namespace is made again.
            "/serviceaccounts" if removed && &*key.name == "default" => {
                state.namespaces.insert(key.namespace.to_string());
            }
            "apiextensions.k8s.io/customresourcedefinitions" => {
                if removed {
                    state.dying_definitions.remove(&*key.name);
                } else if dying {
                    state.dying_definitions.insert(key.name.to_string());
                    state.definitions.insert(key.name.to_string());
                }
            }
            CLUSTER_ROLES => state.roles = true,
            admission::POLICIES if !removed && admission::unobserved(object).is_some() => {
                state.policies.insert(key.name.to_string());
            }
            "/events" if !removed => {
                state.events.insert((written, key.clone(), revision));
            }
            _ => {}
        }
        // An object that a finalizer held may have been the last that its definition waited for.
        if removed
            && !state.dying_definitions.is_empty()
            && let Some((group, plural)) = key.resource.split_once('/')
        {
            let definition = format!("{plural}.{group}");
            if state.dying_definitions.contains(&definition) {
                state.definitions.insert(definition);
            }
        }
        if removed && state.terminating.contains(&*key.namespace) {
            state.namespaces.insert(key.namespace.to_string());
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Takes the next piece of work.
    pub(crate) fn take(&self) -> Option<Work> {
        let mut state = self.state();
        if let Some(key) = state.objects.pop_first() {
            return Some(Work::Object(key));
        }
        if let Some(owner) = state.owners.pop_first() {
            return Some(Work::Owner(owner));
        }
        if let Some(name) = state.namespaces.pop_first() {
            return Some(Work::Namespace(name));
        }
        if let Some(name) = state.definitions.pop_first() {
            return Some(Work::Definition(name));
        }
        if std::mem::take(&mut state.roles) {
            return Some(Work::Roles);
        }
        if let Some(name) = state.policies.pop_first() {
            return Some(Work::Policy(name));
        }
        state.removed.clear();
        None
    }

    /// Puts work back that could not be finished.
    pub(crate) fn put_back(&self, work: Work) {
        let mut state = self.state();
        match work {
            Work::Object(key) => {
                state.objects.insert(key);
            }
            Work::Owner(owner) => {
                state.owners.insert(owner);
            }
            Work::Namespace(name) => {
                state.namespaces.insert(name);
            }
            Work::Definition(name) => {
                state.definitions.insert(name);
            }
            Work::Roles => state.roles = true,
            Work::Policy(name) => {
                state.policies.insert(name);
            }
        }
    }

    /// Waits until something was observed since the last wait.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The objects that name `uid` as an owner, with that reference.
    pub(crate) fn dependents(&self, uid: &str) -> Vec<(Key, OwnerReference)> {
        let state = self.state();
        let Some(keys) = state.by_owner.get(uid) else {
            return Vec::new();
        };
        keys.iter()
            .filter_map(|key| {
                let dependent = state.dependents.get(key)?;
                let owner = dependent.owners.iter().find(|owner| owner.uid == uid)?;
                Some((key.clone(), owner.clone()))
            })
            .collect()
    }

    /// Takes the Events that were last written before `deadline`.
    pub(crate) fn expired_events(&self, deadline: Timestamp) -> Vec<(Key, u64)> {
        let mut state = self.state();
        let mut expired = Vec::new();
        while state
            .events
            .first()
            .is_some_and(|(written, _, _)| *written <= deadline)
        {
            if let Some((_, key, revision)) = state.events.pop_first() {
                expired.push((key, revision));
            }
        }
        expired
    }

    /// When the oldest Event was written.
    pub(crate) fn oldest_event(&self) -> Option<Timestamp> {
        self.state().events.first().map(|(written, _, _)| *written)
    }
}

impl State {
    fn index(&mut self, key: &Key, owners: &[OwnerReference], revision: u64, removed: bool) {
        let newest = self.dependents.get(key).map_or(0, |dependent| dependent.revision);
        if newest > revision || self.removed.get(key).is_some_and(|at| *at > revision) {
            return;
        }
        if let Some(before) = self.dependents.remove(key) {
            for owner in before.owners {
                if let Some(keys) = self.by_owner.get_mut(&owner.uid) {
                    keys.remove(key);
                    if keys.is_empty() {
                        self.by_owner.remove(&owner.uid);
                    }
                }
            }
        }
        if removed {
            self.removed.insert(key.clone(), revision);
            return;
        }
        if owners.is_empty() {
            return;
        }
        for owner in owners {
            self.by_owner
                .entry(owner.uid.clone())
                .or_default()
                .insert(key.clone());
        }
        self.dependents.insert(
            key.clone(),
            Dependent {
                revision,
                owners: owners.to_vec(),
            },
        );
    }

    fn queue_owners(&mut self, key: &Key, owners: &[OwnerReference]) {
        self.owners.extend(owners.iter().map(|owner| OwnerName {
            api_version: owner.api_version.clone(),
            kind: owner.kind.clone(),
            namespace: key.namespace.to_string(),
            name: owner.name.clone(),
        }));
    }
}

/// The latest time that an Event or its record of writers tells; none in an object that tells none.
fn last_written(object: &Value) -> Option<Timestamp> {
    let own = [
        "/metadata/creationTimestamp",
        "/lastTimestamp",
        "/eventTime",
        "/series/lastObservedTime",
    ]
    .into_iter()
    .filter_map(|place| object.pointer(place));
    let writers = object
        .pointer("/metadata/managedFields")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.get("time"));
    own.chain(writers)
        .filter_map(|time| time.as_str()?.parse().ok())
        .max()
}

fn is_held_for_dependents(object: &Value) -> bool {
    object::finalizers(object)
        .iter()
        .any(|finalizer| finalizer == object::FOREGROUND || finalizer == object::ORPHAN)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use serde_json::json;

    use super::last_written;

    #[test]
    fn an_event_is_as_old_as_its_latest_stamp_ka_031() {
        let event = json!({
            "metadata": {"creationTimestamp": "2026-05-01T10:00:00Z", "managedFields": [
                {"time": "2026-05-01T10:20:00Z"}, {"time": "2026-05-01T10:10:00Z"}]},
            "lastTimestamp": "2026-05-01T10:05:00Z", "eventTime": null,
        });
        assert_eq!(
            last_written(&event),
            Some("2026-05-01T10:20:00Z".parse().unwrap())
        );
        assert_eq!(last_written(&json!({"metadata": {}})), None);
    }
}
