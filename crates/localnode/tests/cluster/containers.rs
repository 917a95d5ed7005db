//! How the containers of a Pod run, fail, are restarted and end.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use mainstay_localnode::logs::LogQuery;
use mainstay_localnode::{BackOffOptions, Parts};
use serde_json::json;

use super::world::{World, container_status, has_failed, is_ready, waiting_reason};
use crate::{container, pod, restarts};

#[tokio::test]
async fn a_role_that_fails_is_restarted_with_its_message_in_the_status_and_its_log_kept() {
    let quick = BackOffOptions {
        initial: Duration::from_millis(5),
        limit: Duration::from_millis(5),
        ..BackOffOptions::default()
    };
    let world = World::start_with(Parts::default(), quick).await;
    world.create::<Pod>(pod("failing", container("fail"))).await;
    world.until::<Pod>("failing", |pod| restarts(pod) >= 2).await;
    let pod = world.api::<Pod>().get("failing").await.unwrap();
    let status = container_status(&pod);
    let ended = status.last_state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!((ended.exit_code, ended.reason.as_deref()), (1, Some("Error")));
    assert_eq!(ended.message.as_deref(), Some("file /etc/x has no field y"));
    assert_eq!(pod.status.as_ref().unwrap().phase.as_deref(), Some("Running"));
    let query = LogQuery {
        namespace: "default".into(),
        pod: "failing".into(),
        container: "main".into(),
        previous: true,
        ..LogQuery::default()
    };
    let lines: Vec<_> = world
        .handle
        .logs
        .open(query)
        .await
        .unwrap()
        .map(Result::unwrap)
        .collect()
        .await;
    let text = String::from_utf8(lines.concat()).unwrap();
    assert_eq!(text, "about to fail\nerror: file /etc/x has no field y\n");
    world.stop().await;
}

#[tokio::test]
async fn a_role_that_keeps_failing_waits_longer_each_time() {
    let world = World::start().await;
    world.create::<Pod>(pod("failing", container("fail"))).await;
    world
        .until::<Pod>("failing", |pod| {
            restarts(pod) == 1
                && waiting_reason(pod).is_some_and(|(reason, message)| {
                    reason == "CrashLoopBackOff"
                        && message.starts_with("back-off 10s restarting failed container=main")
                })
        })
        .await;
    world.stop().await;
}

#[tokio::test]
async fn a_panic_ends_its_own_pod_only() {
    let world = World::start().await;
    world.create::<Pod>(pod("steady", container("echo"))).await;
    world.until::<Pod>("steady", is_ready).await;
    let mut panicking = pod("panicking", container("panic"));
    panicking["spec"]["restartPolicy"] = json!("Never");
    world.create::<Pod>(panicking).await;
    let failed = world.until::<Pod>("panicking", has_failed).await;
    let status = container_status(&failed);
    let ended = status.state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!(
        (ended.exit_code, ended.message.as_deref()),
        (101, Some("panicked: on purpose"))
    );
    assert!(is_ready(&world.api::<Pod>().get("steady").await.unwrap()));
    world.stop().await;
}

#[tokio::test]
async fn a_role_that_completes_ends_its_pod_unless_it_is_always_restarted() {
    let world = World::start().await;
    let mut once = pod("once", container("complete"));
    once["spec"]["restartPolicy"] = json!("OnFailure");
    world.create::<Pod>(once).await;
    world
        .until::<Pod>("once", |pod| {
            pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Succeeded")
        })
        .await;
    world.stop().await;
}

#[tokio::test]
async fn init_containers_run_to_completion_in_order_and_then_the_pod_starts() {
    let world = World::start().await;
    let init = |name: &str| json!({ "name": name, "image": "mainstay", "args": ["complete", "$(STEP)"], "env": [{ "name": "STEP", "value": name }] });
    let mut prepared = pod("prepared", container("echo"));
    prepared["spec"]["initContainers"] = json!([init("first"), init("second")]);
    world.create::<Pod>(prepared).await;
    let ready = world.until::<Pod>("prepared", is_ready).await;
    assert_eq!(
        world.events(),
        ["prepared completed first", "prepared completed second"]
    );
    let statuses = ready.status.unwrap().init_container_statuses.unwrap();
    let codes: Vec<i32> = statuses
        .iter()
        .map(|status| status.state.clone().unwrap().terminated.unwrap().exit_code)
        .collect();
    assert_eq!(codes, [0, 0]);
    // The next process does not run them again.
    let world = world.restart().await;
    world
        .until::<Pod>("prepared", |pod| {
            let statuses = pod
                .status
                .as_ref()
                .and_then(|status| status.container_statuses.clone());
            is_ready(pod) && statuses.is_some_and(|statuses| statuses[0].restart_count == 1)
        })
        .await;
    let completed = world
        .events()
        .iter()
        .filter(|event| event.contains("completed"))
        .count();
    assert_eq!(completed, 2);
    world.stop().await;
}

#[tokio::test]
async fn an_init_container_that_fails_keeps_the_pod_from_starting_and_sidecars_are_refused_with_a_reason() {
    let world = World::start().await;
    let mut failing = pod("failing", container("complete"));
    failing["spec"]["initContainers"] = json!([{ "name": "first", "image": "mainstay", "args": ["fail"] }]);
    let mut final_failure = failing.clone();
    final_failure["metadata"]["name"] = json!("final");
    final_failure["spec"]["restartPolicy"] = json!("Never");
    let mut sidecar = failing.clone();
    sidecar["metadata"]["name"] = json!("sidecar");
    sidecar["spec"]["initContainers"][0]["restartPolicy"] = json!("Always");
    for object in [failing, final_failure, sidecar] {
        world.create::<Pod>(object).await;
    }
    let failing = world
        .until::<Pod>("failing", |pod| {
            let statuses = pod
                .status
                .as_ref()
                .and_then(|status| status.init_container_statuses.clone());
            statuses.is_some_and(|statuses| statuses[0].restart_count > 0)
        })
        .await;
    assert_eq!(failing.status.unwrap().phase.as_deref(), Some("Pending"));
    world.until::<Pod>("final", has_failed).await;
    world
        .until::<Pod>("sidecar", |pod| {
            waiting_reason(pod).is_some_and(|(reason, message)| {
                reason == "SidecarNotSupported" && message.contains("\"first\"")
            })
        })
        .await;
    assert!(
        world.events().is_empty(),
        "the main container ran: {:?}",
        world.events()
    );
    world.stop().await;
}
