//! The local node over the embedded API, in one process: what a user sees through `kubectl`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod cluster {
    mod containers;
    mod endpoints;
    pub(crate) mod engine;
    mod foreign;
    mod jobs;
    pub(crate) mod world;
}

use std::collections::BTreeMap;

use cluster::world::{CERTIFICATE, World, container_status, is_ready, waiting_reason};
use futures::StreamExt;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::authentication::v1::TokenReview;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Node, Pod, Secret, Service};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use mainstay_localnode::pods::Facade;
use mainstay_localnode::{BackOffOptions, FIELD_MANAGER, Parts};
use mainstay_workload::{Resolution, ServiceResolver};
use serde_json::{Value, json};
use tower::ServiceExt;

fn container(role: &str) -> Value {
    json!({ "name": "main", "image": "mainstay:test", "args": [role], "ports": [{ "name": "http", "containerPort": 8080 }] })
}

fn pod(name: &str, container: Value) -> Value {
    json!({ "metadata": { "name": name, "namespace": "default", "labels": { "app": name } }, "spec": { "containers": [container] } })
}

fn deployment(name: &str, replicas: i32, container: Value) -> Value {
    json!({
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": name } },
            "template": { "metadata": { "labels": { "app": name } }, "spec": { "containers": [container] } },
        },
    })
}

fn is_complete(deployment: &Deployment) -> bool {
    let (Some(spec), Some(status)) = (&deployment.spec, &deployment.status) else {
        return false;
    };
    status.observed_generation == deployment.metadata.generation
        && status.updated_replicas == spec.replicas
        && status.replicas == spec.replicas
        && status.available_replicas == spec.replicas
}

#[tokio::test]
async fn a_deployment_becomes_a_pod_that_its_service_leads_to_and_scales_and_restarts() {
    let world = World::start().await;
    world
        .create::<Service>(json!({
            "metadata": { "name": "orders", "namespace": "default" },
            "spec": { "selector": { "app": "orders" }, "ports": [{ "port": 80, "targetPort": "http" }] },
        }))
        .await;
    world
        .create::<Deployment>(deployment("orders", 1, container("echo")))
        .await;
    world.until::<Deployment>("orders", is_complete).await;
    assert_eq!(
        world.get("http://orders/pod").await,
        world.pods("orders").await[0].name_any()
    );

    let api = world.api::<Deployment>();
    let scale = json!({ "spec": { "replicas": 2 } });
    api.patch("orders", &PatchParams::default(), &Patch::Merge(scale))
        .await
        .unwrap();
    world.until::<Deployment>("orders", is_complete).await;
    let before: Vec<String> = world
        .pods("orders")
        .await
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    assert_eq!(before.len(), 2);
    let answers = [
        world.get("http://orders.default.svc/pod").await,
        world.get("http://orders/pod").await,
    ];
    assert_ne!(answers[0], answers[1], "the Pods take no turns");

    // What `kubectl rollout restart` does.
    let restart = json!({ "spec": { "template": { "metadata": { "annotations": { "kubectl.kubernetes.io/restartedAt": "now" } } } } });
    api.patch("orders", &PatchParams::default(), &Patch::Strategic(restart))
        .await
        .unwrap();
    world.until::<Deployment>("orders", is_complete).await;
    world
        .until_list::<Pod>(&ListParams::default().labels("app=orders"), move |pods| {
            pods.len() == 2 && pods.iter().all(|pod| !before.contains(&pod.name_any()))
        })
        .await;
    let replica_sets = world
        .api::<ReplicaSet>()
        .list(&ListParams::default())
        .await
        .unwrap();
    let mut sizes: Vec<Option<i32>> = replica_sets
        .iter()
        .map(|one| one.spec.as_ref().unwrap().replicas)
        .collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [Some(0), Some(2)]);

    api.delete("orders", &DeleteParams::background()).await.unwrap();
    world
        .until_list::<Pod>(&ListParams::default(), |pods| pods.is_empty())
        .await;
    world.stop().await;
}

#[tokio::test]
async fn a_pod_that_is_deleted_is_replaced_and_one_that_leaves_the_selector_is_let_go() {
    let world = World::start().await;
    world
        .create::<Deployment>(deployment("web", 1, container("echo")))
        .await;
    world.until::<Deployment>("web", is_complete).await;
    let first = world.pods("web").await.remove(0);
    world
        .api::<Pod>()
        .delete(&first.name_any(), &DeleteParams::default())
        .await
        .unwrap();
    let gone = first.name_any();
    world
        .until_list::<Pod>(&ListParams::default(), move |pods| {
            pods.len() == 1 && pods[0].name_any() != gone && is_ready(&pods[0])
        })
        .await;
    let second = world.pods("web").await.remove(0);
    let label = json!({ "metadata": { "labels": { "app": "debug" } } });
    world
        .api::<Pod>()
        .patch(&second.name_any(), &PatchParams::default(), &Patch::Merge(label))
        .await
        .unwrap();
    world
        .until::<Pod>(&second.name_any(), |pod| pod.owner_references().is_empty())
        .await;
    world
        .until_list::<Pod>(&ListParams::default().labels("app=web"), |pods| {
            pods.len() == 1 && is_ready(&pods[0])
        })
        .await;
    world.stop().await;
}

#[tokio::test]
async fn a_projected_token_is_for_its_audience_and_its_pod_om_400_om_405() {
    let world = World::start().await;
    let mut container = container("echo");
    container["volumeMounts"] = json!([{ "name": "tokens", "mountPath": "/tokens" }]);
    let mut spec = pod("caller", container);
    let source =
        json!({ "serviceAccountToken": { "audience": "crm", "expirationSeconds": 3600, "path": "crm" } });
    spec["spec"]["volumes"] = json!([{ "name": "tokens", "projected": { "sources": [source] } }]);
    world.create::<Pod>(spec).await;
    world.until::<Pod>("caller", is_ready).await;
    world.service("caller").await;
    let token = world.get("http://caller/file/tokens/crm").await;
    // The backend asks the API who that is, and whether it was meant.
    let reviewed = async |audience: &str| {
        let review = json!({ "metadata": {}, "spec": { "token": token, "audiences": [audience] } });
        let reviews = world.cluster_api::<TokenReview>();
        let review = serde_json::from_value(review).unwrap();
        let answered = reviews.create(&PostParams::default(), &review).await.unwrap();
        answered.status.unwrap()
    };
    let status = reviewed("crm").await;
    assert_eq!(status.authenticated, Some(true), "{:?}", status.error);
    let user = status.user.unwrap();
    assert_eq!(
        user.username.as_deref(),
        Some("system:serviceaccount:default:default")
    );
    let pod_name = &user.extra.unwrap()["authentication.kubernetes.io/pod-name"];
    assert_eq!(pod_name, &["caller"]);
    assert_ne!(reviewed("erp").await.authenticated, Some(true));
    world.stop().await;
}

#[tokio::test]
async fn a_pod_waits_for_what_it_mounts_says_what_is_missing_and_follows_changes() {
    let world = World::start().await;
    let mut container = container("echo");
    container["env"] = json!([
        { "name": "TOKEN", "valueFrom": { "secretKeyRef": { "name": "token", "key": "value" } } },
        { "name": "SELF", "value": "$(NAME)" },
    ]);
    container["volumeMounts"] = json!([{ "name": "pack", "mountPath": "/etc/pack" }]);
    let mut spec = pod("reader", container);
    spec["spec"]["volumes"] = json!([{ "name": "pack", "configMap": { "name": "pack" } }]);
    world.create::<Pod>(spec).await;
    let waits = |text: &'static str| {
        move |pod: &Pod| {
            waiting_reason(pod) == Some(("CreateContainerConfigError".to_owned(), text.to_owned()))
        }
    };
    world
        .until::<Pod>("reader", waits("configmap \"pack\" not found"))
        .await;
    let map = |text: &str| json!({ "metadata": { "name": "pack", "namespace": "default" }, "data": { "pack.json": text } });
    world.create::<ConfigMap>(map("one")).await;
    world
        .until::<Pod>("reader", waits("secret \"token\" not found"))
        .await;
    let secret = |key: &str| json!({ "metadata": { "name": "token", "namespace": "default" }, "stringData": { key: "s3cret" } });
    world.create::<Secret>(secret("other")).await;
    world
        .until::<Pod>("reader", waits("couldn't find key value in Secret default/token"))
        .await;
    let pod = world.api::<Pod>().get("reader").await.unwrap();
    assert_eq!(pod.status.unwrap().phase.as_deref(), Some("Pending"));
    let patch = json!({ "stringData": { "value": "s3cret" } });
    world
        .api::<Secret>()
        .patch("token", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    world.until::<Pod>("reader", is_ready).await;

    world.service("reader").await;
    assert_eq!(world.get("http://reader/env/TOKEN").await, "s3cret");
    assert_eq!(world.get("http://reader/env/SELF").await, "$(NAME)");
    assert_eq!(world.get("http://reader/env/LENT").await, "by the host");
    assert_eq!(world.get("http://reader/file/etc/pack/pack.json").await, "one");
    let patch = json!({ "data": { "pack.json": "two" } });
    world
        .api::<ConfigMap>()
        .patch("pack", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    world
        .until_answer("http://reader/file/etc/pack/pack.json", "two")
        .await;
    // A ConfigMap that goes away takes nothing from a Pod that runs.
    world
        .api::<ConfigMap>()
        .delete("pack", &DeleteParams::default())
        .await
        .unwrap();
    assert_eq!(world.get("http://reader/file/etc/pack/pack.json").await, "two");
    world.stop().await;
}

#[tokio::test]
async fn pods_that_cannot_run_here_stay_pending_and_say_why() {
    let world = World::start().await;
    let mut foreign = container("echo");
    foreign["image"] = json!("nginx:1.29");
    world.create::<Pod>(pod("foreign", foreign)).await;
    world.create::<Pod>(pod("unknown", container("juggle"))).await;
    let has = |reason: &'static str, part: &'static str| {
        move |pod: &Pod| {
            waiting_reason(pod).is_some_and(|(found, message)| found == reason && message.contains(part))
        }
    };
    world
        .until::<Pod>(
            "foreign",
            has("NoContainerEngine", "no container engine is configured"),
        )
        .await;
    world
        .until_list::<Event>(&ListParams::default(), |events| {
            events.iter().any(|event| {
                event.reason.as_deref() == Some("NoContainerEngine")
                    && event
                        .message
                        .as_deref()
                        .unwrap_or("")
                        .contains("mainstay.dev/local-address")
            })
        })
        .await;
    let unknown = world
        .until::<Pod>("unknown", has("UnknownRole", "\"juggle\""))
        .await;
    assert_eq!(unknown.status.unwrap().phase.as_deref(), Some("Pending"));
    // An image changed in place runs.
    let patch = json!({ "spec": { "containers": [{ "name": "main", "image": "mainstay" }] } });
    world
        .api::<Pod>()
        .patch("foreign", &PatchParams::default(), &Patch::Strategic(patch))
        .await
        .unwrap();
    world.until::<Pod>("foreign", is_ready).await;
    world.stop().await;
}

#[tokio::test]
async fn a_deleted_pod_may_finish_within_its_grace_period_and_is_then_gone() {
    let world = World::start().await;
    world.create::<Pod>(pod("polite", container("echo"))).await;
    let mut stubborn = pod("stubborn", container("stubborn"));
    stubborn["spec"]["terminationGracePeriodSeconds"] = json!(1);
    world.create::<Pod>(stubborn).await;
    let polite = world.until::<Pod>("polite", is_ready).await;
    world.until::<Pod>("stubborn", is_ready).await;
    for name in ["polite", "stubborn"] {
        world
            .api::<Pod>()
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
    }
    world
        .until_list::<Pod>(&ListParams::default(), |pods| pods.is_empty())
        .await;
    assert!(
        world.events().contains(&"polite cancelled".to_owned()),
        "{:?}",
        world.events()
    );
    assert!(
        !world.folder().join("pods").join(polite.uid().unwrap()).exists(),
        "its files were left"
    );
    world.stop().await;
}

#[tokio::test]
async fn a_pod_that_is_not_ready_serves_nobody() {
    let world = World::start().await;
    world.service("gate").await;
    world.create::<Pod>(pod("gate", container("gate"))).await;
    let waits = |pod: &Pod| {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().any(|condition| {
            condition.type_ == "Ready"
                && condition.status == "False"
                && condition
                    .message
                    .as_deref()
                    .is_some_and(|message| message.contains("main: gate is closed"))
        })
    };
    world.until::<Pod>("gate", waits).await;
    let none = Resolution::NoEndpoint {
        service: "default/gate".to_owned(),
    };
    let resolver = world.handle.services.clone();
    assert_eq!(resolver.resolve("gate", 80, "default"), none);
    world.open_gate();
    world.until::<Pod>("gate", is_ready).await;
    assert!(matches!(
        resolver.resolve("gate", 80, "default"),
        Resolution::Endpoint(_)
    ));
    world.stop().await;
}

#[tokio::test]
async fn the_front_door_finds_the_router_of_a_ready_pod_by_its_labels() {
    let world = World::start().await;
    let table = world.handle.pods.clone();
    let labels = BTreeMap::from([("app".to_owned(), "agent".to_owned())]);
    assert!(matches!(table.facade("default", &labels, "http"), Facade::Absent));
    let mut changes = table.changes();
    world.create::<Pod>(pod("agent", container("facade"))).await;
    let router = world
        .within(async {
            loop {
                changes.borrow_and_update();
                match table.facade("default", &labels, "http") {
                    Facade::Ready(router) => return router,
                    Facade::NotReady { reason } => assert!(reason.starts_with("Pod agent: "), "{reason}"),
                    Facade::Absent => {}
                }
                changes.changed().await.unwrap();
            }
        })
        .await;
    let request = axum::http::Request::builder()
        .uri("/hello")
        .body(axum::body::Body::empty())
        .unwrap();
    let response = router.oneshot(request).await.unwrap();
    let body = axum::body::to_bytes(response.into_body(), 1024).await.unwrap();
    assert_eq!(body, "hello from agent");
    world.stop().await;
    assert!(matches!(table.facade("default", &labels, "http"), Facade::Absent));
}

#[tokio::test]
async fn a_new_process_goes_on_with_the_pods_of_the_former_one() {
    let world = World::start().await;
    world
        .create::<Deployment>(deployment("web", 1, container("echo")))
        .await;
    world.until::<Deployment>("web", is_complete).await;
    let before = world.pods("web").await.remove(0);
    let world = world.restart().await;
    let uid = before.uid();
    let after = world
        .until::<Pod>(&before.name_any(), |pod| restarts(pod) == 1 && is_ready(pod))
        .await;
    assert_eq!(after.uid(), uid);
    let status = container_status(&after);
    let lost = status.last_state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!(lost.message.as_deref(), Some("the process that ran it ended"));
    assert_eq!(world.pods("web").await.len(), 1);
    world.stop().await;
}

#[tokio::test]
async fn files_of_pods_that_went_away_meanwhile_are_removed() {
    let world = World::start().await;
    world.create::<Pod>(pod("stays", container("echo"))).await;
    let stays = world.until::<Pod>("stays", is_ready).await.uid().unwrap();
    let former = [
        world.folder().join("pods/gone"),
        world.folder().join("logs/default_web_gone"),
    ];
    for folder in &former {
        std::fs::create_dir_all(folder).unwrap();
    }
    let world = world.restart().await;
    world
        .until::<Pod>("stays", |pod| restarts(pod) == 1 && is_ready(pod))
        .await;
    world
        .within(async {
            while former.iter().any(|folder| folder.exists()) {
                tokio::task::yield_now().await
            }
        })
        .await;
    assert!(
        world
            .folder()
            .join("logs")
            .join(format!("default_stays_{stays}"))
            .exists()
    );
    world.stop().await;
}

#[tokio::test]
async fn parts_can_be_switched_off() {
    let world = World::start_with(
        Parts {
            binding: false,
            ..Parts::default()
        },
        BackOffOptions::default(),
    )
    .await;
    world
        .create::<Deployment>(deployment("web", 1, container("echo")))
        .await;
    world
        .until_list::<Pod>(&ListParams::default(), |pods| pods.len() == 1)
        .await;
    let pod = world.pods("web").await.remove(0);
    assert_eq!(pod.spec.unwrap().node_name, None);
    world.stop().await;
}

#[tokio::test]
async fn many_agents_come_up_together() {
    let world = World::start().await;
    let names: Vec<String> = (0..30).map(|number| format!("agent-{number}")).collect();
    for name in &names {
        world
            .create::<Deployment>(deployment(name, 1, container("echo")))
            .await;
    }
    for name in &names {
        world.until::<Deployment>(name, is_complete).await;
    }
    let pods = world.api::<Pod>().list(&ListParams::default()).await.unwrap();
    let by_app: BTreeMap<&String, usize> = pods.iter().fold(BTreeMap::new(), |mut counts, pod| {
        *counts.entry(&pod.labels()["app"]).or_default() += 1;
        counts
    });
    assert!(
        by_app.values().all(|count| *count == 1) && by_app.len() == 30,
        "{by_app:?}"
    );
    world.stop().await;
}

fn restarts(pod: &Pod) -> i32 {
    let statuses = pod
        .status
        .as_ref()
        .and_then(|status| status.container_statuses.as_ref());
    statuses
        .into_iter()
        .flatten()
        .map(|status| status.restart_count)
        .max()
        .unwrap_or(0)
}

/// The Node as soon as it is as it should be.
async fn node_that(world: &World, holds: impl Fn(&Node) -> bool) -> Node {
    let stream = watcher(world.cluster_api::<Node>(), watcher::Config::default()).applied_objects();
    let mut stream = Box::pin(stream);
    world
        .within(async {
            loop {
                let node = stream.next().await.unwrap().unwrap();
                if holds(&node) {
                    return node;
                }
            }
        })
        .await
}

#[tokio::test]
async fn the_node_is_there_and_comes_back_when_it_is_deleted_or_spoiled() {
    let is_whole = |node: &Node| {
        let status = node.status.clone().unwrap_or_default();
        let ready = status.conditions.iter().flatten();
        let mut ready = ready.filter(|condition| condition.type_ == "Ready" && condition.status == "True");
        ready.next().is_some()
            && status
                .capacity
                .is_some_and(|capacity| capacity.contains_key("cpu"))
    };
    let world = World::start().await;
    let node = node_that(&world, is_whole).await;
    assert_eq!(node.name_any(), "mainstay");
    let status = node.status.clone().unwrap();
    assert_eq!(status.allocatable, status.capacity);
    let addresses = status.addresses.unwrap();
    assert_eq!(
        (addresses[0].type_.as_str(), addresses[0].address.as_str()),
        ("InternalIP", "127.0.0.1")
    );
    let nodes = world.cluster_api::<Node>();
    nodes.delete("mainstay", &DeleteParams::default()).await.unwrap();
    let again = node_that(&world, is_whole).await;
    assert_ne!(again.uid(), node.uid());
    let spoil = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } });
    nodes
        .patch_status("mainstay", &PatchParams::default(), &Patch::Strategic(spoil))
        .await
        .unwrap();
    node_that(&world, is_whole).await;
    world.stop().await;
}

#[tokio::test]
async fn whatever_is_written_here_is_signed() {
    let world = World::start().await;
    node_that(&world, |node| node.status.is_some()).await;
    world
        .create::<Deployment>(deployment("orders", 1, container("echo")))
        .await;
    let complete = world.until::<Deployment>("orders", is_complete).await;
    let of = |metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| -> Vec<String> {
        let fields = metadata.managed_fields.iter().flatten();
        fields.filter_map(|entry| entry.manager.clone()).collect()
    };
    let replica_sets = world
        .api::<ReplicaSet>()
        .list(&ListParams::default())
        .await
        .unwrap();
    let events = world.api::<Event>().list(&ListParams::default()).await.unwrap();
    let node = world.cluster_api::<Node>().get("mainstay").await.unwrap();
    let written = [
        of(&replica_sets.items[0].metadata),
        of(&node.metadata),
        of(&events.items[0].metadata),
        of(&world.pods("orders").await[0].metadata),
    ];
    for managers in written {
        assert!(
            !managers.is_empty() && managers.iter().all(|name| name == FIELD_MANAGER),
            "{managers:?}"
        );
    }
    // The test's own creation is not signed; the status is.
    assert!(of(&complete.metadata).contains(&FIELD_MANAGER.to_owned()));
    world.stop().await;
}

/// SIGTERM in the first moments of a process: the API has not answered a single list, and never will.
#[tokio::test]
async fn a_node_that_is_told_to_end_before_its_first_list_ends() {
    let silent = tower::service_fn(|_: axum::http::Request<kube::client::Body>| {
        std::future::pending::<Result<axum::http::Response<kube::client::Body>, std::convert::Infallible>>()
    });
    cluster::world::ends_when_cancelled(kube::Client::new(silent, "default")).await;
}

#[tokio::test]
async fn the_certificate_authority_is_in_every_namespace_and_comes_back_ka_010() {
    let world = World::start().await;
    let is_there = |config_map: &ConfigMap| {
        let data = config_map.data.as_ref();
        data.is_some_and(|data| data.get("ca.crt").map(String::as_str) == Some(CERTIFICATE))
    };
    let first = world.until::<ConfigMap>("kube-root-ca.crt", is_there).await;
    let api = world.api::<ConfigMap>();
    api.delete("kube-root-ca.crt", &DeleteParams::default())
        .await
        .unwrap();
    let second = world
        .until::<ConfigMap>("kube-root-ca.crt", |config_map| {
            is_there(config_map) && config_map.uid() != first.uid()
        })
        .await;
    let tampered = json!({"data": {"ca.crt": "another"}});
    api.patch(
        "kube-root-ca.crt",
        &PatchParams::default(),
        &Patch::Merge(tampered),
    )
    .await
    .unwrap();
    world
        .until::<ConfigMap>("kube-root-ca.crt", |config_map| {
            is_there(config_map) && config_map.resource_version() != second.resource_version()
        })
        .await;
    world.stop().await;
}
