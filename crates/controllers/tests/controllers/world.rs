//! An embedded API with the product's kinds, and the controllers over it.

use std::{collections::BTreeMap, fmt::Debug, sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::{
    api::core::v1::{ConfigMap, Event},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::NamespaceResourceScope,
    runtime::{
        WatchStreamExt,
        wait::{Condition, await_condition, conditions},
        watcher::{self, watcher},
    },
};
use mainstay_controllers::{Controllers, ControllersOptions};
use mainstay_kubeapi::{ApiOptions, Identity};
use mainstay_store::kube::{KubeOptions, KubeStore};
use mainstay_telemetry::{clock, random, task};
use mainstay_workload::{Connector, connector::NoServices};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

/// How long a test waits for something that must happen.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

pub(crate) const NAMESPACE: &str = "default";

pub(crate) trait Object:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Serialize
    + Send
    + Sync
    + 'static
{
}

impl<K> Object for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize
        + Send
        + Sync
        + 'static
{
}

pub(crate) struct World {
    pub(crate) client: Client,
    _running: DropGuard,
}

impl World {
    pub(crate) async fn start() -> World {
        World::with(|_| {}, |_| {}).await
    }

    /// A world whose kinds and options are adjusted first.
    pub(crate) async fn with(
        adjust_kinds: impl Fn(&mut Value),
        adjust_options: impl FnOnce(&mut ControllersOptions),
    ) -> World {
        let store = KubeStore::open(KubeOptions::in_memory()).unwrap();
        let api = mainstay_kubeapi::Api::open(ApiOptions::new(store, clock::system(), random::system()))
            .await
            .unwrap();
        let cancellation = CancellationToken::new();
        let background = (api.clone(), cancellation.clone());
        task::spawn("kubeapi", async move { background.0.run(background.1).await });
        let client = api.client(Identity::component("test"));
        for mut document in mainstay_resources::crd::documents().unwrap() {
            adjust_kinds(&mut document);
            install(&client, document).await;
        }
        let mut options = ControllersOptions {
            image: "mainstay".into(),
            service_endpoint: Some("127.0.0.1:7480".into()),
            policy_engine: true,
            connector: Connector::direct().unwrap(),
            resolver: Arc::new(NoServices),
            environment: BTreeMap::new(),
            clock: clock::system(),
            random: random::system(),
        };
        adjust_options(&mut options);
        task::spawn(
            "controllers",
            Controllers::run(options, client.clone(), cancellation.clone()),
        );
        World {
            client,
            _running: cancellation.drop_guard(),
        }
    }

    pub(crate) fn api<K: Object>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub(crate) async fn create<K: Object>(&self, object: Value) -> K {
        let object: K = serde_json::from_value(object).unwrap();
        self.api().create(&PostParams::default(), &object).await.unwrap()
    }

    pub(crate) async fn get<K: Object>(&self, name: &str) -> K {
        self.api().get(name).await.unwrap()
    }

    pub(crate) async fn merge<K: Object>(&self, name: &str, patch: Value) -> K {
        self.api()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap()
    }

    pub(crate) async fn merge_status<K: Object>(&self, name: &str, patch: Value) -> K {
        self.api()
            .patch_status(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap()
    }

    pub(crate) async fn delete<K: Object>(&self, name: &str) {
        self.api::<K>()
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
        self.until_gone::<K>(name).await;
    }

    /// The object, as soon as it fulfils the condition.
    pub(crate) async fn until<K: Object>(&self, name: &str, condition: impl Fn(&K) -> bool + Send) -> K {
        let wanted = |object: Option<&K>| object.is_some_and(&condition);
        match tokio::time::timeout(DEADLINE, Box::pin(await_condition(self.api::<K>(), name, wanted))).await {
            Ok(object) => object.unwrap().unwrap(),
            Err(_) => {
                let now = self.api::<K>().get_opt(name).await.unwrap();
                panic!(
                    "{} {name} did not get there: {}",
                    K::kind(&()),
                    serde_json::to_string_pretty(&now).unwrap()
                )
            }
        }
    }

    pub(crate) async fn until_gone<K: Object>(&self, name: &str) {
        let gone = |object: Option<&K>| object.is_none();
        tokio::time::timeout(DEADLINE, await_condition(self.api::<K>(), name, gone))
            .await
            .unwrap()
            .unwrap();
    }

    /// Reasons and messages of the Events about an object, in order, as soon as there are this many. An Event follows
    /// the status that it is about.
    pub(crate) async fn events(&self, kind: &str, name: &str, count: usize) -> Vec<(String, String)> {
        let about = |event: &Event| {
            event.involved_object.kind.as_deref() == Some(kind)
                && event.involved_object.name.as_deref() == Some(name)
        };
        let mut changes =
            std::pin::pin!(watcher(self.api::<Event>(), watcher::Config::default()).touched_objects());
        let mut found: BTreeMap<String, Event> = BTreeMap::new();
        let collect = async {
            while found.len() < count {
                let event = changes.next().await.unwrap().unwrap();
                if about(&event) {
                    found.insert(event.name_any(), event);
                }
            }
        };
        if tokio::time::timeout(DEADLINE, collect).await.is_err() {
            panic!("{kind} {name} has fewer than {count} Events");
        }
        let mut events: Vec<Event> = self
            .api::<Event>()
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .into_iter()
            .filter(about)
            .collect();
        events.sort_by_key(|event| {
            event
                .resource_version()
                .and_then(|version| version.parse::<u64>().ok())
        });
        events
            .into_iter()
            .map(|event| {
                (
                    event.reason.unwrap_or_default(),
                    event.message.unwrap_or_default(),
                )
            })
            .collect()
    }

    /// A PromptPack and its ConfigMap, both called `name`.
    pub(crate) async fn publish(&self, name: &str, pack_name: &str, version: &str) {
        self.create::<ConfigMap>(
            json!({ "metadata": { "name": name }, "data": { "pack.json": content(&["get_order"]) } }),
        )
        .await;
        self.create::<mainstay_resources::omnia::PromptPack>(prompt_pack(name, pack_name, version))
            .await;
    }
}

pub(crate) async fn install(client: &Client, document: Value) {
    let kinds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let definition: CustomResourceDefinition = serde_json::from_value(document).unwrap();
    let name = definition.name_any();
    kinds.create(&PostParams::default(), &definition).await.unwrap();
    let established = conditions::is_crd_established();
    let ready = await_condition(kinds, &name, move |object: Option<&CustomResourceDefinition>| {
        established.matches_object(object)
    });
    tokio::time::timeout(DEADLINE, ready).await.unwrap().unwrap();
}

pub(crate) fn prompt_pack(name: &str, pack_name: &str, version: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": {
            "packName": pack_name, "version": version,
            "source": { "type": "configmap", "configMapRef": { "name": name } },
        },
    })
}

/// A `pack.json` whose only prompt lists these tools.
pub(crate) fn content(tools: &[&str]) -> String {
    json!({
        "id": "helpdesk", "name": "Help desk", "version": "1.0.0",
        "template_engine": { "version": "v1", "syntax": "{{variable}}" },
        "prompts": { "default": {
            "id": "default", "name": "Help desk", "version": "1.0.0", "system_template": "You help.", "tools": tools,
        } },
    })
    .to_string()
}

/// `STATUS REASON` of a condition, or empty.
pub(crate) fn condition(
    conditions: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition],
    kind: &str,
) -> String {
    conditions
        .iter()
        .find(|condition| condition.type_ == kind)
        .map(|condition| format!("{} {}", condition.status, condition.reason))
        .unwrap_or_default()
}
