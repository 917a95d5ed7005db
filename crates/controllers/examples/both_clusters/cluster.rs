//! One of the two clusters: what is applied to it, and what it has then, without what must differ.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    future::Future,
    path::Path,
    sync::Arc,
};

use futures::{StreamExt, stream::BoxStream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, Config, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::GroupVersionKind,
    discovery::{ApiResource, Discovery, Scope, pinned_kind, verbs},
    runtime::{
        WatchStreamExt,
        wait::{await_condition, conditions},
        watcher::{self, watcher},
    },
};
use mainstay_controllers::{Controllers, ControllersOptions};
use mainstay_telemetry::{clock, random};
use mainstay_workload::{Connector, connector::NoServices};
use serde::Deserialize as _;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::Failure;

const NAMESPACE: &str = "default";
/// The groups whose objects are compared: those that manifests and controllers make.
const GROUPS: [&str; 8] = [
    "",
    "apps",
    "autoscaling",
    "batch",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    OUR_GROUP,
];
const OUR_GROUP: &str = "omnia.altairalabs.ai";
/// What a cluster has of its own in every namespace, and what it adds for itself.
const OF_THE_CLUSTER: [&str; 3] = [
    "Service/kubernetes",
    "ServiceAccount/default",
    "ConfigMap/kube-root-ca.crt",
];

pub(crate) struct Cluster {
    pub(crate) name: &'static str,
    pub(crate) client: Client,
}

impl Cluster {
    pub(crate) async fn open(name: &'static str, kubeconfig: &Path) -> Result<Self, Failure> {
        let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Self {
            name,
            client: Client::try_from(config)?,
        })
    }

    /// Applies the definitions of our kinds and waits until they are served.
    pub(crate) async fn install_definitions(&self) -> Result<(), Failure> {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        for definition in mainstay_resources::crd::crds()? {
            let name = definition.name_any();
            definitions
                .patch(&name, &applying(), &Patch::Apply(&definition))
                .await?;
            await_condition(definitions.clone(), &name, conditions::is_crd_established()).await?;
        }
        Ok(())
    }

    /// Our controllers, until they are cancelled.
    pub(crate) fn control(
        &self,
        cancellation: CancellationToken,
    ) -> Result<impl Future<Output = ()> + Send + use<>, Failure> {
        let options = ControllersOptions {
            image: ControllersOptions::DEFAULT_IMAGE.to_owned(),
            service_endpoint: None,
            policy_engine: true,
            connector: Connector::direct()?,
            resolver: Arc::new(NoServices),
            environment: BTreeMap::new(),
            clock: clock::system(),
            random: random::system(),
        };
        Ok(Controllers::run(options, self.client.clone(), cancellation))
    }

    pub(crate) async fn apply(&self, manifests: &[DynamicObject]) -> Result<(), Failure> {
        for manifest in manifests {
            let api = self.api_of(manifest).await?;
            api.patch(&manifest.name_any(), &applying(), &Patch::Apply(manifest))
                .await
                .map_err(|error| format!("{}: {}: {error}", self.name, manifest.name_any()))?;
        }
        Ok(())
    }

    pub(crate) async fn delete(&self, manifests: &[DynamicObject]) -> Result<(), Failure> {
        for manifest in manifests {
            let api = self.api_of(manifest).await?;
            match api.delete(&manifest.name_any(), &DeleteParams::default()).await {
                // Two folders may have one object.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                deleted => {
                    deleted?;
                }
            }
        }
        Ok(())
    }

    async fn api_of(&self, manifest: &DynamicObject) -> Result<Api<DynamicObject>, Failure> {
        let types = manifest.types.as_ref().ok_or("a manifest without a kind")?;
        let kind = GroupVersionKind::try_from(types)?;
        let (resource, capabilities) = pinned_kind(&self.client, &kind).await?;
        let client = self.client.clone();
        Ok(match capabilities.scope {
            Scope::Cluster => Api::all_with(client, &resource),
            Scope::Namespaced => Api::namespaced_with(client, NAMESPACE, &resource),
        })
    }

    /// The namespaced kinds of [`GROUPS`] that can be listed and watched.
    async fn resources(&self) -> Result<Vec<ApiResource>, Failure> {
        let discovery = Discovery::new(self.client.clone()).filter(&GROUPS).run().await?;
        Ok(discovery
            .groups()
            .flat_map(|group| group.recommended_resources())
            .filter(|(resource, capabilities)| {
                capabilities.scope == Scope::Namespaced
                    && capabilities.supports_operation(verbs::LIST)
                    && capabilities.supports_operation(verbs::WATCH)
                    // Events tell of the way, which depends on what is seen first; Endpoints are a cluster's own work.
                    && !matches!(&*resource.kind, "Event" | "Endpoints")
            })
            .map(|(resource, _)| resource)
            .collect())
    }

    /// What the namespace has now.
    pub(crate) async fn objects(&self) -> Result<Objects, Failure> {
        let mut objects = BTreeMap::new();
        for resource in self.resources().await? {
            let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), NAMESPACE, &resource);
            for object in api.list(&ListParams::default()).await? {
                let key = format!("{}/{}", resource.kind, object.name_any());
                if !OF_THE_CLUSTER.contains(&&*key) {
                    let mut value = serde_json::to_value(&object)?;
                    if resource.group != OUR_GROUP {
                        // How often a controller wrote it on the way.
                        value["metadata"]["generation"] = Value::Null;
                    }
                    comparable(&mut value);
                    objects.insert(key, value);
                }
            }
        }
        Ok(Objects(objects))
    }
}

fn applying() -> PatchParams {
    PatchParams::apply("both-clusters").force()
}

/// The manifests of a folder, in the order of the files' names.
pub(crate) fn manifests(folder: &Path) -> Result<Vec<DynamicObject>, Failure> {
    let mut files: Vec<_> = std::fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    let mut manifests = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file)?;
        for document in serde_saphyr::from_multiple::<Value>(&text)
            .map_err(|error| format!("{}: {error}", file.display()))?
        {
            manifests.push(
                DynamicObject::deserialize(document)
                    .map_err(|error| format!("{}: {error}", file.display()))?,
            );
        }
    }
    Ok(manifests)
}

/// Leaves out what two clusters cannot have in common: identities, versions, times, addresses.
fn comparable(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for name in [
                "uid",
                "resourceVersion",
                "creationTimestamp",
                "time",
                "lastTransitionTime",
                "lastUpdateTime",
                "clusterIP",
                "clusterIPs",
            ] {
                fields.remove(name);
            }
            // An owner is known by its uid.
            fields.retain(|name, _| !name.starts_with("k:{\"uid\""));
            sort_by(fields, "managedFields", &["manager", "operation", "subresource"]);
            sort_by(fields, "conditions", &["type"]);
            fields.values_mut().for_each(comparable);
        }
        Value::Array(items) => items.iter_mut().for_each(comparable),
        Value::String(text) if is_time(text) => *value = Value::String("TIME".to_owned()),
        _ => {}
    }
}

/// Managers and conditions are in the order in which they first came.
fn sort_by(fields: &mut Map<String, Value>, list: &str, names: &[&str]) {
    if let Some(Value::Array(items)) = fields.get_mut(list) {
        let key = |item: &Value| -> Vec<String> {
            let text = |name: &&str| item[*name].as_str().unwrap_or_default().to_owned();
            names.iter().map(text).collect()
        };
        items.sort_by_key(key);
    }
}

fn is_time(text: &str) -> bool {
    text.parse::<jiff::Timestamp>().is_ok()
}

/// The objects of a namespace by `KIND/NAME`.
pub(crate) struct Objects(BTreeMap<String, Value>);

impl Objects {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn kinds(&self) -> usize {
        let kinds: BTreeSet<_> = self.0.keys().filter_map(|key| key.split('/').next()).collect();
        kinds.len()
    }

    /// An object of ours whose controller has not said what it makes of it, or whose children are not there.
    pub(crate) fn unsettled(&self) -> Option<String> {
        for (key, object) in &self.0 {
            let ours = object["apiVersion"]
                .as_str()
                .is_some_and(|version| version.starts_with(OUR_GROUP));
            let generation = &object["metadata"]["generation"];
            if ours && object["status"]["observedGeneration"] != *generation {
                return Some(format!(
                    "{key}: its status is about another generation: {}",
                    object["status"]
                ));
            }
            // Models that run beside an agent do not run here; an agent is right to wait for one.
            let waits = object["status"].to_string().contains("does not answer");
            if let Some(name) = key.strip_prefix("AgentRuntime/")
                && !waits
                && !self.0.contains_key(&format!("Deployment/{name}"))
            {
                return Some(format!("{key} has no Deployment: {}", object["status"]));
            }
        }
        self.0.is_empty().then(|| "there are no objects".to_owned())
    }

    /// An object that is still there.
    pub(crate) fn left_behind(&self) -> Option<String> {
        self.0.keys().next().map(|key| format!("{key} is left"))
    }

    /// What `other` has otherwise.
    pub(crate) fn difference(&self, other: &Self) -> Option<String> {
        let mut text = String::new();
        let keys: BTreeSet<_> = self.0.keys().chain(other.0.keys()).collect();
        for key in keys {
            match (self.0.get(key), other.0.get(key)) {
                (Some(one), Some(other)) => differences(key, one, other, &mut text),
                (Some(_), None) => text.push_str(&format!("only the reference has {key}\n")),
                (None, _) => text.push_str(&format!("only the embedded API has {key}\n")),
            }
        }
        (!text.is_empty()).then_some(text)
    }
}

/// Writes the paths at which two values differ.
fn differences(path: &str, one: &Value, other: &Value, text: &mut String) {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let names: BTreeSet<_> = one.keys().chain(other.keys()).collect();
            for name in names {
                let of = |fields: &Map<String, Value>| fields.get(name).cloned().unwrap_or_default();
                differences(&format!("{path}.{name}"), &of(one), &of(other), text);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (index, (one, other)) in one.iter().zip(other).enumerate() {
                differences(&format!("{path}[{index}]"), one, other, text);
            }
        }
        _ if one == other => {}
        _ => {
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "{path}: {one} on the reference, {other} on the embedded API"
            );
        }
    }
}

/// Changes of any of our objects, or of what they are made into, on either cluster.
pub(crate) struct Changes(BoxStream<'static, ()>);

impl Changes {
    pub(crate) async fn next_change(&mut self) {
        // A stream of watches does not end.
        self.0.next().await;
    }
}

pub(crate) fn changes(clusters: &[Cluster; 2]) -> Changes {
    use k8s_openapi::api::{
        apps::v1::Deployment,
        core::v1::{ConfigMap, Secret, Service},
    };
    use mainstay_resources::omnia::{AgentRuntime, PromptPack, Provider, ToolPolicy, ToolRegistry};

    fn of<K>(client: &Client) -> BoxStream<'static, ()>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned
            + Send
            + 'static,
    {
        let api: Api<K> = Api::namespaced(client.clone(), NAMESPACE);
        watcher(api, watcher::Config::default())
            .default_backoff()
            .touched_objects()
            .map(|_| ())
            .boxed()
    }
    let streams = clusters.iter().flat_map(|cluster| {
        let client = &cluster.client;
        [
            of::<AgentRuntime>(client),
            of::<PromptPack>(client),
            of::<Provider>(client),
            of::<ToolPolicy>(client),
            of::<ToolRegistry>(client),
            of::<Deployment>(client),
            of::<ConfigMap>(client),
            of::<Secret>(client),
            of::<Service>(client),
        ]
    });
    Changes(futures::stream::select_all(streams).boxed())
}
