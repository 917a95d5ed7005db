#![allow(clippy::unwrap_used, clippy::expect_used)]

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn now() -> Timestamp {
    "2026-01-02T00:00:00Z".parse().unwrap()
}

fn column(name: &str, column_type: &str, source: ColumnSource) -> Column {
    Column {
        name: name.to_owned(),
        type_: column_type.to_owned(),
        format: if name == "Name" {
            "name".to_owned()
        } else {
            String::new()
        },
        description: format!("what {name} is"),
        priority: 0,
        source,
    }
}

/// Columns of a built-in kind; only their number matters to the cells.
fn built_in(names: &[&str]) -> Vec<Column> {
    names
        .iter()
        .map(|name| column(name, "string", ColumnSource::Builtin))
        .collect()
}

fn path_column(name: &str, column_type: &str, path: &str) -> Column {
    column(name, column_type, ColumnSource::JsonPath(path.to_owned()))
}

fn cells(group: &str, kind: &str, object: &Value) -> Vec<Value> {
    builtin::cells(group, kind, object, now()).unwrap()
}

fn pod_status(pod: Value) -> (String, String, String) {
    let cells = cells("", "Pod", &pod);
    let text = |index: usize| cells[index].as_str().unwrap().to_owned();
    (text(1), text(2), text(3))
}

#[test]
fn ka_028_ages_have_two_or_three_figures() {
    for (seconds, text) in [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (599, "9m59s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 61, "3h1m"),
        (8 * 3600, "8h"),
        (47 * 3600, "47h"),
        (48 * 3600, "2d"),
        (52 * 3600, "2d4h"),
        (8 * 86400, "8d"),
        (729 * 86400, "729d"),
        (730 * 86400, "2y"),
        (760 * 86400, "2y30d"),
        (365 * 9 * 86400, "9y"),
    ] {
        assert_eq!(human_duration(seconds), text, "{seconds}");
    }
}

#[test]
fn ka_028_om_011_custom_columns_follow_their_paths_and_types() {
    let columns = vec![
        column("Name", "string", ColumnSource::Builtin),
        path_column("Phase", "string", ".status.phase"),
        path_column("Replicas", "integer", ".spec.replicas"),
        path_column("Ratio", "number", ".spec.ratio"),
        path_column("On", "boolean", ".spec.on"),
        path_column(
            "Ready",
            "string",
            ".status.conditions[?(@.type==\"Ready\")].status",
        ),
        path_column("Started", "date", ".status.startedAt"),
        path_column("Broken", "date", ".status.phase"),
        path_column("Hosts", "string", ".spec.hosts"),
        path_column("Absent", "string", ".spec.nothing"),
        path_column("Null", "string", ".spec.none"),
        path_column("Beyond", "string", ".spec.hosts[7]"),
        path_column("Wrong", "integer", ".status.phase"),
        path_column("Malformed", "string", ".spec[x]"),
    ];
    let object = json!({
        "metadata": {"name": "a", "namespace": "n"},
        "spec": {"replicas": 2, "ratio": 1, "on": true, "none": null, "hosts": ["x", "y"]},
        "status": {
            "phase": "Running", "startedAt": "2026-01-01T23:54:30Z",
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    });
    let layout = Layout::new("example.com", "Widget", &columns, now());
    assert_eq!(
        layout.cells(&object),
        [
            json!("a"),
            json!("Running"),
            json!(2),
            json!(1),
            json!(true),
            json!("True"),
            json!("5m30s"),
            json!("<invalid>"),
            json!("[\"x\",\"y\"]"),
            Value::Null,
            json!("<no value>"),
            Value::Null,
            Value::Null,
            Value::Null,
        ]
    );
}

#[test]
fn ka_007_a_table_carries_list_metadata_columns_and_what_was_asked_of_each_object() {
    let columns = built_in(&["Name", "Age"]);
    let layout = Layout::new("", "ServiceAccount", &columns, now());
    let object = json!({
        "kind": "ServiceAccount",
        "metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"},
    });
    let metadata = json!({"resourceVersion": "7", "continue": "token", "remainingItemCount": 3});
    let table = render(&layout, [&object], metadata.clone(), "");
    assert_eq!(
        table,
        json!({
            "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
            "columnDefinitions": [
                {"name": "Name", "type": "string", "format": "name", "description": "what Name is", "priority": 0},
                {"name": "Age", "type": "string", "format": "", "description": "what Age is", "priority": 0},
            ],
            "rows": [{
                "cells": ["a", "24h"],
                "object": {
                    "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
                },
            }],
        })
    );
    assert_eq!(
        render(&layout, [&object], json!({}), "Object")["rows"][0]["object"],
        object
    );
    assert_eq!(
        render(&layout, [&object], json!({}), "None")["rows"][0]["object"],
        Value::Null
    );
    assert_eq!(render(&layout, [], json!({}), "")["rows"], json!([]));
    assert_eq!(without_headers(table)["columnDefinitions"], Value::Null);
}

#[test]
fn ka_028_kinds_without_a_function_show_name_and_time() {
    let columns = built_in(&["Name", "Created At", "Odd"]);
    let layout = Layout::new("rbac.authorization.k8s.io", "ClusterRole", &columns, now());
    let object = json!({"metadata": {"name": "r", "creationTimestamp": "2026-01-01T00:00:00Z"}});
    assert_eq!(
        layout.cells(&object),
        [json!("r"), json!("2026-01-01T00:00:00Z"), Value::Null]
    );
    // A function whose cells do not fit the columns is not trusted to be in order.
    let layout = Layout::new("", "Secret", &columns[..2], now());
    assert_eq!(layout.cells(&object)[1], "2026-01-01T00:00:00Z");
}

#[test]
fn ka_028_the_status_of_a_pod_is_its_most_telling_state() {
    let with = |status: Value| json!({"metadata": {"name": "p"}, "spec": {"containers": [{}, {}]}, "status": status});
    let (ready, status, restarts) = pod_status(with(json!({
        "phase": "Running",
        "containerStatuses": [
            {"ready": true, "state": {"running": {}}, "restartCount": 0},
            {"ready": false, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 3,
             "lastState": {"terminated": {"finishedAt": "2026-01-01T23:58:00Z"}}},
        ],
    })));
    assert_eq!(
        (ready.as_str(), status.as_str(), restarts.as_str()),
        ("1/2", "CrashLoopBackOff", "3 (2m ago)")
    );

    let status_of = |status: Value| pod_status(with(status)).1;
    assert_eq!(status_of(json!({"phase": "Pending"})), "Pending");
    assert_eq!(
        status_of(json!({"phase": "Failed", "reason": "Evicted"})),
        "Evicted"
    );
    assert_eq!(
        status_of(
            json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]})
        ),
        "SchedulingGated"
    );
    let ended = |state: Value| {
        status_of(json!({"phase": "Failed", "containerStatuses": [{"state": {"terminated": state}}]}))
    };
    assert_eq!(ended(json!({"exitCode": 1, "reason": "Error"})), "Error");
    assert_eq!(ended(json!({"exitCode": 3})), "ExitCode:3");
    assert_eq!(ended(json!({"signal": 9, "exitCode": 137})), "Signal:9");
    assert_eq!(ended(json!({"exitCode": 0, "reason": "Completed"})), "Completed");
    let mixed = |ready: &str| {
        status_of(json!({
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": ready}],
            "containerStatuses": [
                {"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
                {"ready": true, "state": {"running": {}}},
            ],
        }))
    };
    assert_eq!(
        (mixed("True").as_str(), mixed("False").as_str()),
        ("Running", "NotReady")
    );
}

#[test]
fn ka_028_init_containers_and_sidecars_count() {
    let with = |statuses: Value| {
        json!({
            "metadata": {"name": "p"},
            "spec": {
                "containers": [{"name": "c"}],
                "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}],
            },
            "status": {"phase": "Pending", "initContainerStatuses": statuses},
        })
    };
    let done = json!({"name": "i", "state": {"terminated": {"exitCode": 0}}});
    assert_eq!(
        pod_status(with(json!([{"name": "i", "state": {"running": {}}}]))).1,
        "Init:0/2"
    );
    assert_eq!(
        pod_status(with(
            json!([{"name": "i", "state": {"waiting": {"reason": "ImagePullBackOff"}}}])
        ))
        .1,
        "Init:ImagePullBackOff"
    );
    assert_eq!(
        pod_status(with(
            json!([{"name": "i", "state": {"terminated": {"exitCode": 2}}}])
        ))
        .1,
        "Init:ExitCode:2"
    );
    let sidecar =
        json!({"name": "s", "started": true, "ready": true, "restartCount": 4, "state": {"running": {}}});
    assert_eq!(
        pod_status(with(json!([done, sidecar]))),
        ("1/2".to_owned(), "Pending".to_owned(), "4".to_owned())
    );
}

#[test]
fn ka_028_a_pod_that_is_deleted_is_terminating_until_it_is_done() {
    let deleted = |phase: &str, reason: &str| {
        pod_status(json!({
            "metadata": {"name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"containers": []},
            "status": {"phase": phase, "reason": reason},
        }))
        .1
    };
    assert_eq!(deleted("Running", ""), "Terminating");
    assert_eq!(deleted("Succeeded", ""), "Succeeded");
    assert_eq!(deleted("Running", "NodeLost"), "Unknown");
    let done = json!({"status": {"phase": "Succeeded"}});
    assert_eq!(
        builtin::conditions("", "Pod", &done).unwrap(),
        json!([{
            "type": "Completed", "status": "True", "reason": "Succeeded",
            "message": "The pod has completed successfully.",
        }])
    );
    assert_eq!(
        builtin::conditions("", "Pod", &json!({"status": {"phase": "Running"}})),
        None
    );
}

#[test]
fn ka_028_wide_columns_of_a_pod_are_filled() {
    let pod = json!({
        "metadata": {"name": "p"},
        "spec": {"containers": [], "nodeName": "n", "readinessGates": [{"conditionType": "a"}, {"conditionType": "b"}]},
        "status": {"podIPs": [{"ip": "10.0.0.1"}], "conditions": [{"type": "a", "status": "True"}]},
    });
    assert_eq!(
        cells("", "Pod", &pod)[4..],
        [
            json!("<unknown>"),
            json!("10.0.0.1"),
            json!("n"),
            json!("<none>"),
            json!("1/2")
        ]
    );
}

#[test]
fn ka_028_workloads_show_their_replicas_images_and_selectors() {
    let template =
        json!({"spec": {"containers": [{"name": "a", "image": "i:1"}, {"name": "b", "image": "j:2"}]}});
    let selector = json!({"matchLabels": {"app": "web"}});
    let object = json!({
        "metadata": {"name": "d", "creationTimestamp": "2026-01-01T21:00:00Z"},
        "spec": {"replicas": 3, "selector": selector, "template": template},
        "status": {"readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1, "replicas": 3},
    });
    assert_eq!(
        cells("apps", "Deployment", &object),
        [
            json!("d"),
            json!("1/3"),
            json!(2),
            json!(1),
            json!("3h"),
            json!("a,b"),
            json!("i:1,j:2"),
            json!("app=web")
        ]
    );
    assert_eq!(
        cells("apps", "ReplicaSet", &object),
        [
            json!("d"),
            json!(3),
            json!(3),
            json!(1),
            json!("3h"),
            json!("a,b"),
            json!("i:1,j:2"),
            json!("app=web")
        ]
    );
    let job = json!({
        "metadata": {"name": "j"},
        "spec": {"completions": 2, "template": template},
        "status": {
            "succeeded": 1, "startTime": "2026-01-01T23:59:00Z",
            "conditions": [{"type": "Suspended", "status": "True"}],
        },
    });
    assert_eq!(
        cells("batch", "Job", &job)[1..4],
        [json!("Suspended"), json!("1/2"), json!("60s")]
    );
    let cron = json!({"metadata": {"name": "c"}, "spec": {"schedule": "* * * * *", "suspend": false}, "status": {"active": [{}]}});
    assert_eq!(
        cells("batch", "CronJob", &cron)[1..6],
        [
            json!("* * * * *"),
            json!("<none>"),
            json!("False"),
            json!(1),
            json!("<none>")
        ]
    );
    let scaler = json!({
        "metadata": {"name": "h"},
        "spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": "d"}, "maxReplicas": 5,
            "metrics": [
                {"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}},
                {"type": "Pods", "pods": {"target": {"averageValue": "10"}}},
                {"type": "External", "external": {"target": {"value": "3"}}},
            ],
        },
        "status": {"currentMetrics": [{"resource": {"current": {"averageUtilization": 20}}}], "currentReplicas": 1},
    });
    assert_eq!(
        cells("autoscaling", "HorizontalPodAutoscaler", &scaler)[1..6],
        [
            json!("Deployment/d"),
            json!("cpu: 20%/80%, <unknown>/10 + 1 more..."),
            json!("<unset>"),
            json!(5),
            json!(1)
        ]
    );
}

#[test]
fn ka_028_services_and_endpoints_show_addresses_and_ports() {
    let service = |spec: Value, status: Value| {
        cells(
            "",
            "Service",
            &json!({"metadata": {"name": "s"}, "spec": spec, "status": status}),
        )[1..5]
            .to_vec()
    };
    assert_eq!(
        service(
            json!({"type": "ClusterIP", "clusterIPs": ["10.0.0.1"], "ports": [{"port": 80, "protocol": "TCP"}]}),
            json!({})
        ),
        [
            json!("ClusterIP"),
            json!("10.0.0.1"),
            json!("<none>"),
            json!("80/TCP")
        ]
    );
    assert_eq!(
        service(
            json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30000, "protocol": "TCP"}]}),
            json!({})
        )[3],
        "80:30000/TCP"
    );
    assert_eq!(
        service(json!({"type": "LoadBalancer"}), json!({}))[2],
        "<pending>"
    );
    assert_eq!(
        service(
            json!({"type": "LoadBalancer", "externalIPs": ["9.9.9.9"]}),
            json!({"loadBalancer": {"ingress": [{"hostname": "b"}, {"ip": "1.1.1.1"}]}})
        )[2],
        "1.1.1.1,b,9.9.9.9"
    );
    assert_eq!(
        service(json!({"type": "ExternalName", "externalName": "x.y"}), json!({}))[2],
        "x.y"
    );
    let endpoints = json!({
        "metadata": {"name": "e"},
        "subsets": [{"addresses": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}], "ports": [{"port": 80}, {"port": 81}]}],
    });
    assert_eq!(
        cells("", "Endpoints", &endpoints)[1],
        "10.0.0.1:80,10.0.0.2:80,10.0.0.1:81 + 1 more..."
    );
    let slice = json!({
        "metadata": {"name": "x"}, "addressType": "IPv4",
        "ports": [{"port": 80}], "endpoints": [{"addresses": ["10.0.0.1"]}],
    });
    assert_eq!(
        cells("discovery.k8s.io", "EndpointSlice", &slice)[1..4],
        [json!("IPv4"), json!("80"), json!("10.0.0.1")]
    );
}

#[test]
fn ka_028_events_show_either_generation_of_fields() {
    let core = json!({
        "metadata": {"name": "e"}, "type": "Normal", "reason": "Started", "message": " it runs \n", "count": 4,
        "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec.containers{c}"},
        "source": {"component": "kubelet", "host": "n"},
        "firstTimestamp": "2026-01-01T23:00:00Z", "lastTimestamp": "2026-01-01T23:59:00Z",
    });
    assert_eq!(
        cells("", "Event", &core),
        [
            json!("60s"),
            json!("Normal"),
            json!("Started"),
            json!("pod/p"),
            json!("spec.containers{c}"),
            json!("kubelet, n"),
            json!("it runs"),
            json!("60m"),
            json!(4),
            json!("e"),
        ]
    );
    let newer = json!({
        "metadata": {"name": "e"}, "type": "Warning", "reason": "Odd", "note": "n",
        "regarding": {"kind": "Agent"}, "reportingController": "c", "reportingInstance": "i",
        "eventTime": "2026-01-01T23:59:50.000000Z",
    });
    let cells = cells("events.k8s.io", "Event", &newer);
    assert_eq!(
        (&cells[0], &cells[3], &cells[5], &cells[8]),
        (&json!("10s"), &json!("agent"), &json!("c, i"), &json!(1))
    );
}

#[test]
fn ka_028_cluster_kinds_show_what_kubectl_shows() {
    let node = json!({
        "metadata": {"name": "n", "labels": {"node-role.kubernetes.io/control-plane": "", "kubernetes.io/role": "x"}},
        "spec": {"unschedulable": true},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"kubeletVersion": "v1.37.0", "kernelVersion": "6.1", "architecture": "amd64"},
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        },
    });
    assert_eq!(
        cells("", "Node", &node)[1..],
        [
            json!("Ready,SchedulingDisabled"),
            json!("control-plane,x"),
            json!("<unknown>"),
            json!("v1.37.0"),
            json!("127.0.0.1"),
            json!("<none>"),
            json!("<unknown>"),
            json!("6.1 (amd64)"),
            json!("<unknown>"),
        ]
    );
    let secret = json!({"metadata": {"name": "s"}, "type": "Opaque", "data": {"a": "c2VjcmV0", "b": ""}});
    assert_eq!(cells("", "Secret", &secret)[1..3], [json!("Opaque"), json!(2)]);
    assert!(!format!("{:?}", cells("", "Secret", &secret)).contains("c2VjcmV0"));
    let claim = json!({
        "metadata": {"name": "c"}, "spec": {"volumeName": "v", "storageClassName": "fast"},
        "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"]},
    });
    assert_eq!(
        cells("", "PersistentVolumeClaim", &claim)[1..7],
        [
            json!("Bound"),
            json!("v"),
            json!("1Gi"),
            json!("RWO,RWX"),
            json!("fast"),
            json!("<unset>")
        ]
    );
    let binding = json!({
        "metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s", "namespace": "n"}],
    });
    assert_eq!(
        cells("rbac.authorization.k8s.io", "RoleBinding", &binding)[1..],
        [
            json!("ClusterRole/view"),
            json!("<unknown>"),
            json!("u"),
            json!(""),
            json!("n/s")
        ]
    );
}

proptest! {
    #[test]
    fn ka_028_no_object_breaks_a_table(phase in "[a-z]{0,5}", restarts in any::<i64>(), time in "[0-9T:Z-]{0,20}") {
        let object = json!({
            "metadata": {"name": 3, "creationTimestamp": time},
            "spec": {"containers": {"not": "a list"}, "ports": [null, 1]},
            "status": {"phase": phase, "containerStatuses": [{"restartCount": restarts}], "conditions": "x"},
        });
        for (group, kind) in [
            ("", "Pod"), ("apps", "Deployment"), ("", "Service"), ("", "Event"), ("", "Node"), ("batch", "Job"),
            ("batch", "CronJob"), ("", "Endpoints"), ("networking.k8s.io", "Ingress"),
        ] {
            prop_assert!(!cells(group, kind, &object).is_empty());
        }
    }
}
