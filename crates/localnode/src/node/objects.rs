//! The ConfigMaps and Secrets that Pods use: kept in memory by watches, and asked for when the watch is behind.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::image;
use super::tokens::{Token, TokenKey};

/// Names an object that a Pod refers to, in the Pod's namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reference {
    ConfigMap(String),
    Secret(String),
}

/// What was found of what a Pod refers to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects {
    pub(crate) config_maps: BTreeMap<String, Arc<ConfigMap>>,
    pub(crate) secrets: BTreeMap<String, Arc<Secret>>,
    /// The Pod's own tokens.
    pub(crate) tokens: BTreeMap<TokenKey, Token>,
}

impl Objects {
    /// The versions of what was found: equal sets mean equal content.
    pub(crate) fn versions(&self) -> Vec<String> {
        let version = |kind: &str, name: &str, uid: Option<String>, version: Option<String>| {
            format!(
                "{kind} {name} {} {}",
                uid.unwrap_or_default(),
                version.unwrap_or_default()
            )
        };
        let maps = self
            .config_maps
            .iter()
            .map(|(name, map)| version("c", name, map.uid(), map.resource_version()));
        let secrets = self
            .secrets
            .iter()
            .map(|(name, secret)| version("s", name, secret.uid(), secret.resource_version()));
        let tokens = self
            .tokens
            .iter()
            .map(|(key, token)| format!("t {key:?} {}", token.serial));
        maps.chain(secrets).chain(tokens).collect()
    }
}

/// All objects a Pod's environment and volumes name.
pub(crate) fn references(pod: &Pod) -> BTreeSet<Reference> {
    let mut found = BTreeSet::new();
    let Some(spec) = &pod.spec else { return found };
    let mut map = |name: &str| {
        found.insert(Reference::ConfigMap(name.to_owned()));
    };
    for container in image::containers(spec) {
        for source in container.env_from.iter().flatten() {
            if let Some(reference) = &source.config_map_ref {
                map(&reference.name);
            }
        }
        for variable in container.env.iter().flatten() {
            if let Some(reference) = variable
                .value_from
                .as_ref()
                .and_then(|from| from.config_map_key_ref.as_ref())
            {
                map(&reference.name);
            }
        }
    }
    for volume in spec.volumes.iter().flatten() {
        if let Some(source) = &volume.config_map {
            map(&source.name);
        }
        for projection in volume
            .projected
            .iter()
            .flat_map(|projected| projected.sources.iter().flatten())
        {
            if let Some(source) = &projection.config_map {
                map(&source.name);
            }
        }
    }
    let mut secret = |name: &str| {
        found.insert(Reference::Secret(name.to_owned()));
    };
    for reference in spec.image_pull_secrets.iter().flatten() {
        secret(&reference.name);
    }
    for container in image::containers(spec) {
        for source in container.env_from.iter().flatten() {
            if let Some(reference) = &source.secret_ref {
                secret(&reference.name);
            }
        }
        for variable in container.env.iter().flatten() {
            if let Some(reference) = variable
                .value_from
                .as_ref()
                .and_then(|from| from.secret_key_ref.as_ref())
            {
                secret(&reference.name);
            }
        }
    }
    for volume in spec.volumes.iter().flatten() {
        if let Some(name) = volume
            .secret
            .as_ref()
            .and_then(|source| source.secret_name.as_ref())
        {
            secret(name);
        }
        for projection in volume
            .projected
            .iter()
            .flat_map(|projected| projected.sources.iter().flatten())
        {
            if let Some(source) = &projection.secret {
                secret(&source.name);
            }
        }
    }
    found
}

/// Finds objects. Clones share the memory.
#[derive(Clone)]
pub(crate) struct ObjectSource {
    client: Client,
    config_maps: Store<ConfigMap>,
    secrets: Store<Secret>,
    changes: watch::Receiver<u64>,
}

/// Keeps the memory up to date.
pub(crate) struct ObjectWatch {
    client: Client,
    config_maps: reflector::store::Writer<ConfigMap>,
    secrets: reflector::store::Writer<Secret>,
    changes: watch::Sender<u64>,
}

pub(crate) fn new(client: Client) -> (ObjectWatch, ObjectSource) {
    let (config_maps, config_map_writer) = reflector::store();
    let (secrets, secret_writer) = reflector::store();
    let (sender, changes) = watch::channel(0);
    let source = ObjectSource {
        client: client.clone(),
        config_maps,
        secrets,
        changes,
    };
    let watch = ObjectWatch {
        client,
        config_maps: config_map_writer,
        secrets: secret_writer,
        changes: sender,
    };
    (watch, source)
}

impl ObjectWatch {
    pub(crate) async fn run(self, cancellation: CancellationToken) {
        let config_maps = follow(self.client.clone(), self.config_maps, &self.changes);
        let secrets = follow(self.client, self.secrets, &self.changes);
        cancellation
            .run_until_cancelled(futures::future::join(config_maps, secrets))
            .await;
    }
}

async fn follow<K>(client: Client, writer: reflector::store::Writer<K>, changes: &watch::Sender<u64>)
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    watcher(Api::<K>::all(client), watcher::Config::default())
        .default_backoff()
        .reflect(writer)
        .for_each(|event| {
            match event {
                Ok(watcher::Event::Apply(_) | watcher::Event::Delete(_) | watcher::Event::InitDone) => {
                    changes.send_modify(|count| *count += 1);
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, kind = %K::kind(&()), "a watch for what Pods mount was interrupted"),
            }
            futures::future::ready(())
        })
        .await;
}

impl ObjectSource {
    /// Changes whenever some ConfigMap or Secret may have changed.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }

    /// What there is of `references`. What memory does not have is asked for: a Pod is often made right after its
    /// ConfigMap, and then the watch may be a moment behind.
    pub(crate) async fn find(
        &self,
        namespace: &str,
        references: &BTreeSet<Reference>,
    ) -> kube::Result<Objects> {
        let mut objects = Objects::default();
        for reference in references {
            match reference {
                Reference::ConfigMap(name) => {
                    if let Some(found) = find(&self.client, &self.config_maps, namespace, name).await? {
                        objects.config_maps.insert(name.clone(), found);
                    }
                }
                Reference::Secret(name) => {
                    if let Some(found) = find(&self.client, &self.secrets, namespace, name).await? {
                        objects.secrets.insert(name.clone(), found);
                    }
                }
            }
        }
        Ok(objects)
    }
}

async fn find<K>(
    client: &Client,
    store: &Store<K>,
    namespace: &str,
    name: &str,
) -> kube::Result<Option<Arc<K>>>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + 'static,
{
    if let Some(found) = store.get(&ObjectRef::new(name).within(namespace)) {
        return Ok(Some(found));
    }
    Ok(Api::<K>::namespaced(client.clone(), namespace)
        .get_opt(name)
        .await?
        .map(Arc::new))
}
