//! The policies that are in force, compiled.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use arc_swap::ArcSwap;
use mainstay_store::kube::{KubeStore, Stored};
use serde_json::Value;

use super::{
    BINDINGS, POLICIES,
    compile::Programs,
    model::{self, BindingSpec, PolicySpec},
};
use crate::api::Api;

/// A policy with the bindings that put it in force.
#[derive(Debug)]
pub(super) struct InForce {
    pub(super) policy: Arc<Policy>,
    pub(super) bindings: Vec<Binding>,
}

/// A compiled policy.
#[derive(Debug)]
pub(super) struct Policy {
    pub(super) name: String,
    revision: u64,
    pub(super) spec: PolicySpec,
    pub(super) programs: Programs,
}

#[derive(Debug)]
pub(super) struct Binding {
    pub(super) name: String,
    pub(super) spec: BindingSpec,
}

/// What was in force at the last look, and whether policies or bindings have changed since.
pub(crate) struct Policies {
    current: ArcSwap<Set>,
    /// Counts writes of policies and bindings.
    written: AtomicU64,
}

/// What is in force at one moment, by the names of policies.
#[derive(Debug, Default)]
pub(super) struct Set {
    made_at: u64,
    pub(super) in_force: Vec<InForce>,
}

impl Policies {
    pub(crate) fn new() -> Self {
        Self {
            current: ArcSwap::from_pointee(Set::default()),
            written: AtomicU64::new(1),
        }
    }

    /// Notes that a policy or binding was stored or removed. Called before the write is answered, so that whoever was
    /// answered finds it in force.
    pub(crate) fn changed(&self) {
        self.written.fetch_add(1, Ordering::SeqCst);
    }
}

impl Api {
    /// What is in force now.
    pub(super) fn policies_in_force(&self) -> Arc<Set> {
        let policies = self.policies();
        let current = policies.current.load_full();
        // Read before the store is: a write that comes between the two makes the next caller look again.
        let written = policies.written.load(Ordering::SeqCst);
        if current.made_at == written {
            return current;
        }
        let fresh = Arc::new(Set::read(self.store(), written, &current));
        // Two callers may have made one each; the one from the later state stays.
        policies.current.rcu(|present| {
            if present.made_at > fresh.made_at {
                Arc::clone(present)
            } else {
                Arc::clone(&fresh)
            }
        });
        fresh
    }
}

impl Set {
    /// Reads policies and bindings; what did not change is not compiled again. One that cannot be read is left out, and
    /// the log says so: a stored object was checked when it was written.
    fn read(store: &KubeStore, made_at: u64, before: &Self) -> Self {
        let mut bindings: BTreeMap<String, Vec<Binding>> = BTreeMap::new();
        for stored in store.list(BINDINGS, None).items {
            if let Some(spec) = read::<BindingSpec>(&stored) {
                let name = stored.key.name.to_string();
                bindings
                    .entry(spec.policy_name.clone())
                    .or_default()
                    .push(Binding { name, spec });
            }
        }
        let in_force = store
            .list(POLICIES, None)
            .items
            .into_iter()
            .filter_map(|stored| {
                // A policy that nothing binds is in no force.
                let bindings = bindings.remove(&*stored.key.name)?;
                let policy = before.known(&stored).or_else(|| Policy::read(&stored))?;
                Some(InForce { policy, bindings })
            })
            .collect();
        Self { made_at, in_force }
    }

    fn known(&self, stored: &Stored) -> Option<Arc<Policy>> {
        self.in_force
            .iter()
            .map(|in_force| &in_force.policy)
            .find(|policy| policy.name == *stored.key.name && policy.revision == stored.revision)
            .map(Arc::clone)
    }
}

impl Policy {
    fn read(stored: &Stored) -> Option<Arc<Self>> {
        let spec = read::<PolicySpec>(stored)?;
        Some(Arc::new(Self {
            name: stored.key.name.to_string(),
            revision: stored.revision,
            programs: Programs::compile(&spec),
            spec,
        }))
    }
}

fn read<T: serde::de::DeserializeOwned + Default>(stored: &Stored) -> Option<T> {
    let spec = serde_json::from_slice::<Value>(&stored.value).and_then(|object| model::spec::<T>(&object));
    match spec {
        Ok(spec) => Some(spec),
        Err(error) => {
            tracing::error!(
                reason = "PolicyUnreadable", resource = %stored.key.resource, name = %stored.key.name, %error,
                "a stored admission policy or binding cannot be read and is not in force"
            );
            None
        }
    }
}
