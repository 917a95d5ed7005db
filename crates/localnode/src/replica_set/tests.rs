use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::new(1_000_000 + seconds, 0).unwrap()
}

fn replica_set(replicas: i32, wait: i32) -> ReplicaSet {
    serde_json::from_value(json!({
        "metadata": { "name": "r", "namespace": "ns", "uid": "uid-r", "generation": 4 },
        "spec": {
            "replicas": replicas, "minReadySeconds": wait, "selector": { "matchLabels": { "app": "x" } },
            "template": {
                "metadata": { "labels": { "app": "x", "extra": "y" } },
                "spec": { "containers": [{ "name": "c", "image": "mainstay" }] },
            },
        },
    }))
    .unwrap()
}

fn pod(name: &str, change: impl FnOnce(&mut Value)) -> Pod {
    let mut pod = json!({
        "metadata": {
            "name": name, "uid": format!("uid-{name}"), "labels": { "app": "x", "extra": "y" },
            "creationTimestamp": at(0).to_string(),
        },
        "spec": { "containers": [], "nodeName": "mainstay" },
        "status": { "phase": "Running", "conditions": [
            { "type": "Ready", "status": "True", "lastTransitionTime": at(10).to_string() },
        ] },
    });
    change(&mut pod);
    serde_json::from_value(pod).unwrap()
}

fn names(plan: &plan::Plan) -> Vec<&str> {
    plan.delete.iter().map(|(name, _)| name.as_str()).collect()
}

#[test]
fn missing_pods_are_made_and_ended_ones_do_not_count() {
    let pods = [
        pod("good", |_| {}),
        pod("ended", |pod| pod["status"]["phase"] = json!("Failed")),
        pod("ending", |pod| {
            pod["metadata"]["deletionTimestamp"] = json!(at(1).to_string())
        }),
    ];
    let plan = plan::plan(&replica_set(3, 0), &pods, at(20));
    assert_eq!((plan.create, plan.delete.len()), (2, 0));
    let status = &plan.status;
    assert_eq!(
        (status.replicas, status.ready_replicas, status.available_replicas),
        (1, Some(1), Some(1))
    );
    assert_eq!(
        (status.fully_labeled_replicas, status.observed_generation),
        (Some(1), Some(4))
    );
}

#[test]
fn the_pods_that_serve_least_go_first() {
    let pods = [
        pod("ready-long", |_| {}),
        pod("ready-short", |pod| {
            pod["status"]["conditions"][0]["lastTransitionTime"] = json!(at(15).to_string())
        }),
        pod("unready", |pod| {
            pod["status"]["conditions"][0]["status"] = json!("False")
        }),
        pod("pending", |pod| pod["status"] = json!({ "phase": "Pending" })),
        pod("unbound", |pod| pod["spec"] = json!({ "containers": [] })),
        pod("costly", |pod| {
            pod["metadata"]["annotations"] = json!({ "controller.kubernetes.io/pod-deletion-cost": "100" });
        }),
    ];
    let order = names(&plan::plan(&replica_set(0, 0), &pods, at(20)))
        .into_iter()
        .map(str::to_owned)
        .collect::<Vec<_>>();
    assert_eq!(
        order,
        [
            "unbound",
            "pending",
            "unready",
            "ready-short",
            "ready-long",
            "costly"
        ]
    );
    assert_eq!(
        names(&plan::plan(&replica_set(4, 0), &pods, at(20))),
        ["unbound", "pending"]
    );
}

#[test]
fn a_pod_is_available_when_it_was_ready_for_long_enough() {
    let pods = [pod("a", |_| {})];
    let early = plan::plan(&replica_set(1, 30), &pods, at(20));
    assert_eq!(
        (early.status.ready_replicas, early.status.available_replicas),
        (Some(1), None)
    );
    assert_eq!(early.again_in, Some(Duration::from_secs(20)));
    let late = plan::plan(&replica_set(1, 30), &pods, at(40));
    assert_eq!((late.status.available_replicas, late.again_in), (Some(1), None));
}

#[test]
fn a_replica_set_that_is_being_deleted_neither_makes_nor_removes_pods() {
    let mut dying = replica_set(5, 0);
    dying.metadata.deletion_timestamp = Some(Time(at(1)));
    let plan = plan::plan(&dying, &[pod("a", |_| {})], at(20));
    assert_eq!((plan.create, plan.delete.len()), (0, 0));
}

#[test]
fn a_pod_of_the_template_is_named_by_the_api_and_owned_by_its_replica_set() {
    let pod = plan::pod_of(&replica_set(1, 0)).unwrap();
    assert_eq!(pod.metadata.generate_name.as_deref(), Some("r-"));
    assert!(owner::is_controlled_by(&pod, "uid-r"));
    assert_eq!(pod.labels()["extra"], "y");
}

#[test]
fn a_failure_is_shown_until_it_passes_and_races_are_none() {
    let api = |reason: &str| {
        let status = json!({ "status": "Failure", "message": "no room", "reason": reason, "code": 403 });
        ReconcileError::from(kube::Error::Api(Box::new(
            serde_json::from_value(status).unwrap(),
        )))
    };
    let mut conditions = None;
    set_failure(&mut conditions, Some(&api("Conflict")), at(0));
    assert_eq!(conditions, None);
    set_failure(&mut conditions, Some(&api("Forbidden")), at(0));
    let shown = conditions.clone().unwrap();
    assert_eq!(
        (shown[0].type_.as_str(), shown[0].reason.as_deref()),
        ("ReplicaFailure", Some("FailedCreate"))
    );
    assert!(shown[0].message.as_ref().unwrap().contains("no room"));
    set_failure(&mut conditions, None, at(1));
    assert_eq!(conditions, None);
}
