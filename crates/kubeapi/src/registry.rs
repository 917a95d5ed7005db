//! The kinds that are served right now. Requirement KA-012.
//!
//! A snapshot is replaced as a whole when a CustomResourceDefinition changes; readers never wait and never see half of
//! a change. Every served resource has a token that is cancelled when it is served no longer, which ends its watches.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;
use mainstay_store::kube::{KubeStore, Stored};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    builtin::{KindInfo, Kinds},
    custom::DEFINITIONS,
};

/// Group, version and plural name.
type Served = (String, String, String);

/// The kinds at one moment.
#[derive(Clone)]
pub(crate) struct Snapshot {
    pub(crate) kinds: Kinds,
    /// Where a kind's schema came after some of its objects, those older than this revision get today's defaults when
    /// they are read.
    defaults_before: HashMap<String, u64>,
    tokens: HashMap<Served, CancellationToken>,
    /// What this was made from, in the order of the store.
    definitions: Vec<Definition>,
}

/// A stored definition and what was made of it.
#[derive(Clone)]
struct Definition {
    name: String,
    revision: u64,
    /// Where its objects are stored, `GROUP/PLURAL`.
    resource: String,
    /// Empty while its names are not accepted, and when its schema cannot be used.
    kinds: Vec<Arc<KindInfo>>,
}

impl Definition {
    fn read(stored: &Stored) -> Result<Self, (String, serde_json::Error)> {
        let name = stored.key.name.to_string();
        let definition: Value = match serde_json::from_slice(&stored.value) {
            Ok(definition) => definition,
            Err(error) => return Err((name, error)),
        };
        let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or("");
        Ok(Self {
            name,
            revision: stored.revision,
            resource: format!("{}/{}", text("/spec/group"), text("/spec/names/plural")),
            kinds: Kinds::of_definition(&definition),
        })
    }
}

impl Snapshot {
    /// Objects of `kind` older than this revision were stored under another schema.
    pub(crate) fn defaults_before(&self, kind: &KindInfo) -> u64 {
        self.defaults_before
            .get(&kind.storage_resource)
            .copied()
            .unwrap_or(0)
    }

    /// The kind in the version that its objects are stored in; the kind itself where that version is not served.
    pub(crate) fn in_storage_version(&self, kind: &Arc<KindInfo>) -> Arc<KindInfo> {
        if !kind.custom || kind.version == kind.storage_version {
            return Arc::clone(kind);
        }
        self.kinds
            .lookup(&kind.group, &kind.storage_version, &kind.plural)
            .unwrap_or_else(|| Arc::clone(kind))
    }

    /// The places of the store for objects of definitions, of those too that make no kinds at present.
    pub(crate) fn defined_resources(&self) -> impl Iterator<Item = &str> {
        self.definitions
            .iter()
            .map(|definition| definition.resource.as_str())
    }

    /// Cancelled once `kind` is no longer served.
    pub(crate) fn served(&self, kind: &KindInfo) -> CancellationToken {
        let key = (kind.group.clone(), kind.version.clone(), kind.plural.clone());
        self.tokens.get(&key).cloned().unwrap_or_default()
    }
}

/// Holds the current [`Snapshot`].
pub(crate) struct Registry {
    current: ArcSwap<Snapshot>,
    /// Held while the definitions are read and a snapshot is made of them, so that a later one is never replaced by an
    /// earlier one. Never held across a wait.
    replacing: Mutex<()>,
}

impl Registry {
    /// The built-in kinds alone.
    pub(crate) fn new() -> Self {
        let snapshot = Snapshot {
            kinds: Kinds::builtin(),
            defaults_before: HashMap::new(),
            tokens: HashMap::new(),
            definitions: Vec::new(),
        };
        Self {
            current: ArcSwap::from_pointee(snapshot),
            replacing: Mutex::new(()),
        }
    }

    /// The kinds at this moment.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// Serves the built-in kinds and those of the definitions that the store holds now. Makes nothing anew when it holds
    /// the same as before.
    ///
    /// # Errors
    /// The name of a definition that cannot be read, and why.
    pub(crate) fn refresh(&self, store: &KubeStore) -> Result<(), (String, serde_json::Error)> {
        let _alone = self.replacing.lock().unwrap_or_else(PoisonError::into_inner);
        let stored = store.list(DEFINITIONS, None).items;
        let before = self.snapshot();
        let is_same = |(known, stored): (&Definition, &Stored)| {
            known.name == *stored.key.name && known.revision == stored.revision
        };
        if before.definitions.len() == stored.len() && before.definitions.iter().zip(&stored).all(is_same) {
            return Ok(());
        }
        let mut definitions = Vec::with_capacity(stored.len());
        for stored in &stored {
            // Compiling schemas and rules is what takes the time: what did not change is not compiled again.
            let known = before.definitions.iter().find(|known| is_same((known, stored)));
            definitions.push(match known {
                Some(known) => known.clone(),
                None => Definition::read(stored)?,
            });
        }
        let kinds = Kinds::with(definitions.iter().flat_map(|definition| definition.kinds.clone()));
        let defaults_before = definitions
            .iter()
            .map(|definition| (definition.resource.clone(), definition.revision))
            .collect();
        let mut tokens = HashMap::new();
        for kind in kinds.all().iter().filter(|kind| kind.custom) {
            let key = (kind.group.clone(), kind.version.clone(), kind.plural.clone());
            let token = before.tokens.get(&key).cloned().unwrap_or_default();
            tokens.insert(key, token);
        }
        let gone: Vec<CancellationToken> = before
            .tokens
            .iter()
            .filter(|(key, _)| !tokens.contains_key(*key))
            .map(|(_, token)| token.clone())
            .collect();
        self.current.store(Arc::new(Snapshot {
            kinds,
            defaults_before,
            tokens,
            definitions,
        }));
        for token in gone {
            token.cancel();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use mainstay_store::kube::{Change, Expect, KubeOptions};
    use serde_json::json;

    use super::*;
    use crate::{commit::key, object};

    fn definition(plural: &str, kind: &str) -> Change {
        let name = format!("{plural}.example.com");
        let body = json!({"metadata": {"name": name},
            "spec": {"group": "example.com", "scope": "Namespaced",
                "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}}}]},
            "status": {"conditions": [{"type": "Established", "status": "True"}]}});
        Change::Put {
            key: key(DEFINITIONS, "", &name),
            body: object::encode(&body),
            expect: Expect::Absent,
        }
    }

    #[tokio::test]
    async fn a_new_definition_leaves_the_kinds_of_the_others_as_they_are_ka_012() {
        let store = KubeStore::open(KubeOptions::in_memory()).unwrap();
        let registry = Registry::new();
        let kind = |plural| registry.snapshot().kinds.lookup("example.com", "v1", plural);
        store.commit(vec![definition("boxes", "Box")]).await.unwrap();
        registry.refresh(&store).unwrap();
        let before = kind("boxes").unwrap();
        store.commit(vec![definition("ants", "Ant")]).await.unwrap();
        registry.refresh(&store).unwrap();
        assert!(Arc::ptr_eq(&before, &kind("boxes").unwrap()));
        assert!(kind("ants").is_some());
    }
}
