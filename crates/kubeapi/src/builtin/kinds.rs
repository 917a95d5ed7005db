//! The set of kinds served at one moment.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use serde_json::Value;

use super::{
    definitions::Reader,
    kind::{KindData, KindInfo},
};
use crate::{crd, object, openapi::Documents};

const KINDS: &str = include_str!("../../data/kinds.json");

/// The kinds served at one moment: the built-in ones and those of established custom resource definitions. Cheap to
/// clone; a change of the definitions makes a new set.
#[derive(Clone, Debug)]
pub struct Kinds {
    table: Arc<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// In the order in which discovery lists them.
    all: Vec<Arc<KindInfo>>,
    by_resource: BTreeMap<(String, String, String), Arc<KindInfo>>,
    by_kind: BTreeMap<(String, String, String), Arc<KindInfo>>,
    documents: Documents,
}

impl Table {
    fn of(all: Vec<Arc<KindInfo>>) -> Self {
        let mut table = Self::default();
        for info in all {
            let key = |name: &str| (info.group.clone(), info.version.clone(), name.to_owned());
            table.by_kind.insert(key(&info.kind), Arc::clone(&info));
            table.by_resource.insert(key(&info.plural), Arc::clone(&info));
            table.all.push(info);
        }
        table
    }
}

impl Kinds {
    /// The built-in kinds. They are read once for the process.
    pub fn builtin() -> Self {
        static BUILTIN: OnceLock<Kinds> = OnceLock::new();
        BUILTIN
            .get_or_init(|| {
                let mut reader = Reader::default();
                let data: Vec<KindData> = serde_json::from_str(KINDS).unwrap_or_default();
                let all = data
                    .into_iter()
                    .map(|kind| Arc::new(kind.build(&mut reader)))
                    .collect();
                Self {
                    table: Arc::new(Table::of(all)),
                }
            })
            .clone()
    }

    /// The built-in kinds and those of the definitions given, see [`Kinds::of_definition`].
    pub fn with_custom(crds: &[Value]) -> Self {
        Self::with(crds.iter().flat_map(Self::of_definition))
    }

    /// The kinds of a definition whose names are accepted and established. One that was stored and whose schema cannot be
    /// used any more, as after a change of the program, has none; the log says so.
    pub(crate) fn of_definition(definition: &Value) -> Vec<Arc<KindInfo>> {
        if !crd::is_established(definition) {
            return Vec::new();
        }
        match crd::kinds_of(definition) {
            Ok(kinds) => kinds.into_iter().map(Arc::new).collect(),
            Err(faults) => {
                let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
                tracing::error!(
                    reason = "DefinitionUnusable",
                    name = object::name(definition),
                    faults = faults.join("; "),
                    "a stored CustomResourceDefinition cannot be used: its kinds are not served until it is corrected"
                );
                Vec::new()
            }
        }
    }

    /// The built-in kinds and those given.
    pub(crate) fn with(custom: impl IntoIterator<Item = Arc<KindInfo>>) -> Self {
        let mut all = Self::builtin().table.all.clone();
        all.extend(custom);
        Self {
            table: Arc::new(Table::of(all)),
        }
    }

    /// The kind of a resource path.
    pub fn lookup(&self, group: &str, version: &str, plural: &str) -> Option<Arc<KindInfo>> {
        self.table
            .by_resource
            .get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
            .cloned()
    }

    /// The kind of that name.
    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<Arc<KindInfo>> {
        self.table
            .by_kind
            .get(&(group.to_owned(), version.to_owned(), kind.to_owned()))
            .cloned()
    }

    /// The OpenAPI documents of these kinds, as far as they were asked for.
    pub(crate) fn documents(&self) -> &Documents {
        &self.table.documents
    }

    /// Every kind in every version, built-in ones first.
    pub fn all(&self) -> &[Arc<KindInfo>] {
        &self.table.all
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn the_built_in_kinds_of_the_data_are_served() {
        // KA-010
        let kinds = Kinds::builtin();
        let data: Vec<KindData> = serde_json::from_str(KINDS).expect("the data is readable");
        assert_eq!(kinds.all().len(), data.len());
        for (group, version, plural, kind) in [
            ("", "v1", "namespaces", "Namespace"),
            ("", "v1", "configmaps", "ConfigMap"),
            ("", "v1", "secrets", "Secret"),
            ("", "v1", "serviceaccounts", "ServiceAccount"),
            ("", "v1", "services", "Service"),
            ("", "v1", "events", "Event"),
            ("", "v1", "pods", "Pod"),
            ("apps", "v1", "deployments", "Deployment"),
            ("apps", "v1", "replicasets", "ReplicaSet"),
            ("coordination.k8s.io", "v1", "leases", "Lease"),
            (
                "apiextensions.k8s.io",
                "v1",
                "customresourcedefinitions",
                "CustomResourceDefinition",
            ),
        ] {
            let info = kinds
                .lookup(group, version, plural)
                .unwrap_or_else(|| panic!("{plural} is missing"));
            assert_eq!(info.kind, kind);
            assert_eq!(info.storage_resource, format!("{group}/{plural}"));
            assert!(info.node.property("metadata").is_some());
            assert!(
                info.columns.iter().all(|column| !column.description.is_empty()),
                "{kind}"
            );
            assert!(kinds.by_kind(group, version, kind).is_some());
        }
    }
}
