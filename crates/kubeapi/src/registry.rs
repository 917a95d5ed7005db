//! The kinds that are served right now. Requirement KA-012.
//!
//! A snapshot is replaced as a whole when a CustomResourceDefinition changes; readers never wait and never see half of
//! a change. Every served resource has a token that is cancelled when it is served no longer, which ends its watches.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;
use mainstay_store::kube::KubeStore;
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
    /// Name and revision of each definition that this was made from.
    sources: Vec<(String, u64)>,
}

impl Snapshot {
    /// Objects of `kind` older than this revision were stored under another schema.
    pub(crate) fn defaults_before(&self, kind: &KindInfo) -> u64 {
        self.defaults_before
            .get(&kind.storage_resource)
            .copied()
            .unwrap_or(0)
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
            sources: Vec::new(),
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
        let sources: Vec<(String, u64)> = stored
            .iter()
            .map(|stored| (stored.key.name.to_string(), stored.revision))
            .collect();
        let before = self.snapshot();
        if before.sources == sources {
            return Ok(());
        }
        let mut definitions = Vec::with_capacity(stored.len());
        for stored in &stored {
            let definition: Value = serde_json::from_slice(&stored.value)
                .map_err(|error| (stored.key.name.to_string(), error))?;
            definitions.push(definition);
        }
        let kinds = Kinds::with_custom(&definitions);
        let mut defaults_before = HashMap::new();
        for (definition, (_, revision)) in definitions.iter().zip(&sources) {
            let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or("");
            let resource = format!("{}/{}", text("/spec/group"), text("/spec/names/plural"));
            defaults_before.insert(resource, *revision);
        }
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
            sources,
        }));
        for token in gone {
            token.cancel();
        }
        Ok(())
    }
}
