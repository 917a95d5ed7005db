//! What is written about Services and autoscalers.

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Endpoints, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;

use super::world::World;

fn ready(slices: &[EndpointSlice]) -> Vec<(String, Option<i32>)> {
    let endpoints = slices.iter().flat_map(|slice| {
        let port = slice.ports.as_ref().and_then(|ports| ports.first()?.port);
        slice.endpoints.iter().map(move |endpoint| (endpoint, port))
    });
    endpoints
        .filter(|(endpoint, _)| {
            endpoint
                .conditions
                .as_ref()
                .and_then(|conditions| conditions.ready)
                == Some(true)
        })
        .map(|(endpoint, port)| {
            let pod = endpoint
                .target_ref
                .as_ref()
                .and_then(|target| target.name.clone());
            (pod.unwrap_or_default(), port)
        })
        .collect()
}

#[tokio::test]
async fn slices_and_endpoints_of_a_service_name_its_ready_pods_and_their_ports() {
    // KA-050
    let world = World::start().await;
    world.service("web").await;
    for name in ["a", "b"] {
        world
            .create::<Pod>(json!({
                "metadata": { "name": name, "namespace": "default", "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "main", "image": "mainstay", "args": ["echo"],
                    "ports": [{ "name": "http", "containerPort": 8080 }] }] },
            }))
            .await;
    }
    let of_service = ListParams::default().labels("kubernetes.io/service-name=web");
    world
        .until_list::<EndpointSlice>(&of_service, |slices| ready(slices).len() == 2)
        .await;
    let slices = world
        .api::<EndpointSlice>()
        .list(&of_service)
        .await
        .unwrap()
        .items;
    for (pod, port) in ready(&slices) {
        let answer = world
            .get(&format!("http://127.0.0.1:{}/pod", port.unwrap()))
            .await;
        assert_eq!(answer, pod, "the slice names the port on which the Pod answers");
    }
    let both = |endpoints: &Endpoints| {
        let subsets = endpoints.subsets.iter().flatten();
        subsets
            .filter_map(|subset| subset.addresses.as_ref())
            .flatten()
            .count()
            == 2
    };
    world.until::<Endpoints>("web", both).await;
    world
        .api::<Pod>()
        .delete("a", &DeleteParams::default())
        .await
        .unwrap();
    world
        .until_list::<EndpointSlice>(&of_service, |slices| {
            ready(slices)
                .iter()
                .map(|(pod, _)| pod.as_str())
                .collect::<Vec<_>>()
                == ["b"]
        })
        .await;
    world
        .api::<Service>()
        .delete("web", &DeleteParams::background())
        .await
        .unwrap();
    world
        .until_list::<EndpointSlice>(&of_service, |slices| slices.is_empty())
        .await;
    world
        .until_list::<Endpoints>(&ListParams::default(), |all| {
            all.iter().all(|one| one.name_any() != "web")
        })
        .await;
    world.stop().await;
}

#[tokio::test]
async fn an_autoscaler_is_told_that_nobody_acts_on_it() {
    // KA-010
    let world = World::start().await;
    world
        .create::<HorizontalPodAutoscaler>(json!({
            "metadata": { "name": "web", "namespace": "default" },
            "spec": { "maxReplicas": 3, "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" } },
        }))
        .await;
    let told = |autoscaler: &HorizontalPodAutoscaler| {
        let conditions = autoscaler
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|condition| {
            condition.type_ == "ScalingActive"
                && condition.status == "False"
                && condition.reason.as_deref() == Some("NotActedUpon")
        })
    };
    world.until::<HorizontalPodAutoscaler>("web", told).await;
    world.stop().await;
}
