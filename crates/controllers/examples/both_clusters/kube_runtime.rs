//! What controllers are built on, against a cluster: KA-002.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};

use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::ObjectMeta,
    runtime::{
        Controller,
        controller::Action,
        watcher::{self, watcher},
    },
};
use serde_json::json;

use crate::Failure;

/// How long each event may take.
const WITHIN: Duration = Duration::from_secs(20);
const NAMESPACE: &str = "kube-rs-clients";

/// Follows ConfigMaps of a namespace of its own with both strategies, and reconciles them.
pub(crate) async fn check(client: &Client) -> Result<(), Failure> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = Namespace {
        metadata: named(NAMESPACE),
        ..Namespace::default()
    };
    namespaces.create(&PostParams::default(), &namespace).await?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    for name in ["a", "b"] {
        create(&maps, name).await?;
    }
    for config in [
        watcher::Config::default(),
        watcher::Config::default().streaming_lists(),
    ] {
        // One at a time, so that a list has pages.
        follow(&maps, labelled(config.page_size(1))).await?;
    }
    reconcile(&maps).await?;
    namespaces.delete(NAMESPACE, &DeleteParams::default()).await?;
    Ok(())
}

/// Only what this program makes: a cluster may add ConfigMaps of its own.
fn labelled(config: watcher::Config) -> watcher::Config {
    config.labels("kube-rs=watched")
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some(BTreeMap::from([("kube-rs".to_owned(), "watched".to_owned())])),
        ..ObjectMeta::default()
    }
}

async fn create(maps: &Api<ConfigMap>, name: &str) -> Result<(), Failure> {
    let map = ConfigMap {
        metadata: named(name),
        ..ConfigMap::default()
    };
    maps.create(&PostParams::default(), &map).await?;
    Ok(())
}

/// What is there, then a change, an addition, and a deletion, each once.
async fn follow(maps: &Api<ConfigMap>, config: watcher::Config) -> Result<(), Failure> {
    let mut events = Box::pin(watcher(maps.clone(), config).map_ok(word));
    expect(&mut events, &["begin", "has a", "has b", "done"]).await?;
    // A value that it does not have yet.
    let version = maps.get("a").await?.resource_version();
    let patch = Patch::Merge(json!({ "data": { "key": version } }));
    maps.patch("a", &PatchParams::default(), &patch).await?;
    expect(&mut events, &["apply a"]).await?;
    create(maps, "c").await?;
    maps.delete("c", &DeleteParams::default()).await?;
    expect(&mut events, &["apply c", "delete c"]).await
}

fn word(event: watcher::Event<ConfigMap>) -> String {
    match event {
        watcher::Event::Init => "begin".to_owned(),
        watcher::Event::InitApply(map) => format!("has {}", map.name_any()),
        watcher::Event::InitDone => "done".to_owned(),
        watcher::Event::Apply(map) => format!("apply {}", map.name_any()),
        watcher::Event::Delete(map) => format!("delete {}", map.name_any()),
    }
}

async fn expect(
    events: &mut (impl Stream<Item = watcher::Result<String>> + Unpin),
    expected: &[&str],
) -> Result<(), Failure> {
    for expected in expected {
        let event = tokio::time::timeout(WITHIN, events.try_next())
            .await
            .map_err(|_| format!("nothing came in {WITHIN:?}, where {expected:?} was to"))??;
        if event.as_deref() != Some(expected) {
            return Err(format!("{event:?} came, where {expected:?} was to").into());
        }
    }
    Ok(())
}

/// Every object is reconciled, also one that is added meanwhile.
async fn reconcile(maps: &Api<ConfigMap>) -> Result<(), Failure> {
    let controller = Controller::new(maps.clone(), labelled(watcher::Config::default()));
    let mut runs = Box::pin(controller.run(
        |_map: Arc<ConfigMap>, _context: Arc<()>| async { Ok::<_, Infallible>(Action::await_change()) },
        |_map, error, _context| match *error {},
        Arc::new(()),
    ));
    let mut left = vec!["a", "b", "added"];
    create(maps, "added").await?;
    while !left.is_empty() {
        let (object, _action) = tokio::time::timeout(WITHIN, runs.next())
            .await
            .map_err(|_| format!("{left:?} were not reconciled in {WITHIN:?}"))?
            .ok_or("the Controller ended")??;
        left.retain(|name| *name != object.name);
    }
    Ok(())
}
