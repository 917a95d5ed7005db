use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{JobStatus, UncountedTerminatedPods};
use serde_json::{Value, json};

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn job(spec: Value, status: Value) -> Job {
    let mut whole = json!({
        "parallelism": 1, "completions": 1, "backoffLimit": 6, "completionMode": "NonIndexed",
        "template": { "metadata": { "labels": { "job-name": "once" } },
            "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "mainstay" }] } },
    });
    for (name, value) in spec.as_object().unwrap() {
        whole[name] = value.clone();
    }
    serde_json::from_value(json!({
        "metadata": { "name": "once", "namespace": "default", "uid": "j" }, "spec": whole, "status": status,
    }))
    .unwrap()
}

/// A Pod that the Job has not counted yet.
fn pod(name: &str, phase: &str, more: Value) -> Pod {
    let mut pod = json!({
        "metadata": { "name": name, "namespace": "default", "uid": name, "finalizers": [pods::TRACKING],
            "creationTimestamp": "1970-01-01T00:00:10Z" },
        "status": { "phase": phase },
    });
    merge(&mut pod, &more);
    serde_json::from_value(pod).unwrap()
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

fn indexed(index: i32, failures: i32) -> Value {
    json!({ "metadata": { "annotations": {
        pods::INDEX: index.to_string(), pods::INDEX_FAILURES: failures.to_string(),
    } } })
}

fn ended(second: i64, exit_code: i32) -> Value {
    json!({ "status": { "containerStatuses": [{
        "name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": { "terminated": { "exitCode": exit_code, "finishedAt": at(second).to_string() } },
    }] } })
}

fn round(job: &Job, pods: &[Pod], second: i64) -> Plan {
    let seen = Seen {
        job,
        pods,
        now: at(second),
        back_off: JobBackOffOptions::default(),
    };
    plan::plan(&seen).unwrap()
}

fn with_status(mut job: Job, status: JobStatus) -> Job {
    job.status = Some(status);
    job
}

/// Rounds until nothing happens any more, with what a round does done to the Pods.
fn settle(mut job: Job, mut pods: Vec<Pod>, second: i64) -> (Job, Plan) {
    for _ in 0..10 {
        let plan = round(&job, &pods, second);
        let settled =
            job.status.as_ref() == Some(&plan.status) && plan.release.is_empty() && plan.delete.is_empty();
        job = with_status(job, plan.status.clone());
        if settled {
            return (job, plan);
        }
        for pod in &mut pods {
            if plan.release.iter().any(|target| target.name == pod.name_any()) {
                pod.metadata.finalizers = None;
            }
        }
        pods.retain(|pod| plan.delete.iter().all(|target| target.name != pod.name_any()));
    }
    panic!("the rounds do not end");
}

fn holding(status: &JobStatus) -> Vec<String> {
    let conditions = status.conditions.iter().flatten();
    let holding = conditions.filter(|condition| condition.status == "True");
    holding
        .map(|condition| {
            format!(
                "{}: {}",
                condition.type_,
                condition.reason.clone().unwrap_or_default()
            )
        })
        .collect()
}

#[test]
fn a_job_makes_as_many_pods_as_it_needs_and_may() {
    // KA-050
    for (completions, parallelism, succeeded, running, made) in [
        (json!(5), 2, 0, 0, 2),
        (json!(5), 2, 4, 0, 1),
        (json!(5), 2, 0, 1, 1),
        (json!(5), 0, 0, 0, 0),
        (json!(null), 3, 0, 1, 2),
        (json!(null), 3, 1, 1, 0),
    ] {
        let spec = json!({ "completions": completions, "parallelism": parallelism });
        let status = json!({ "startTime": at(10), "succeeded": succeeded });
        let pods: Vec<Pod> = (0..running)
            .map(|n| pod(&n.to_string(), "Running", json!({})))
            .collect();
        let plan = round(&job(spec.clone(), status), &pods, 20);
        assert_eq!(plan.create.len(), made, "{spec} {succeeded} {running}");
        assert_eq!(plan.status.active.unwrap_or(0), running, "{spec}");
    }
    let spec = json!({ "parallelism": 1, "completions": 9 });
    let pods: Vec<Pod> = (0..3)
        .map(|n| pod(&n.to_string(), "Running", json!({})))
        .collect();
    let plan = round(&job(spec, json!({ "startTime": at(10) })), &pods, 20);
    assert_eq!(plan.delete.len(), 2, "too many for a parallelism that sank");
    assert!(
        plan.delete.iter().all(|target| target.finalizers.is_some()),
        "they do not count"
    );
}

#[test]
fn each_pod_is_counted_once_in_three_steps() {
    // KA-050
    let first = round(
        &job(json!({ "completions": 2 }), json!({})),
        &[pod("a", "Succeeded", json!({}))],
        20,
    );
    assert_eq!(first.status.start_time.as_ref().unwrap().0, at(20));
    let uncounted = first.status.uncounted_terminated_pods.clone().unwrap();
    assert_eq!(uncounted.succeeded, Some(vec!["a".to_owned()]));
    assert_eq!(first.status.succeeded, None);
    assert_eq!(first.release[0].finalizers, Some(vec![]));
    // As long as the finalizer is there, it is not counted again.
    let same = with_status(job(json!({ "completions": 2 }), json!({})), first.status.clone());
    assert_eq!(
        round(&same, &[pod("a", "Succeeded", json!({}))], 21).status,
        first.status
    );
    // The finalizer is gone, or somebody removed the Pod.
    let then = round(&same, &[], 22);
    assert_eq!(then.status.succeeded, Some(1));
    assert_eq!(
        then.status.uncounted_terminated_pods,
        Some(UncountedTerminatedPods::default())
    );
    assert!(!holds(&then.status, "Complete"));
}

#[test]
fn a_pod_that_was_counted_as_failed_and_then_succeeds_is_only_let_go() {
    // KA-050
    for completion_mode in ["NonIndexed", "Indexed"] {
        let spec = json!({ "completions": 2, "completionMode": completion_mode });
        let status = json!({ "uncountedTerminatedPods": { "failed": ["a"] } });
        let seen = [pod("a", "Succeeded", indexed(0, 0))];
        let plan = round(&job(spec, status), &seen, 20);
        let uncounted = plan.status.uncounted_terminated_pods.clone().unwrap();
        assert_eq!(
            (uncounted.failed, uncounted.succeeded),
            (Some(vec!["a".to_owned()]), None)
        );
        assert_eq!(plan.status.completed_indexes, None);
        assert_eq!(plan.release.len(), 1);
    }
}

#[test]
fn pods_that_fill_the_list_of_the_uncounted_are_let_go() {
    // KA-050
    let names: Vec<String> = (0..500).map(|number| format!("p{number}")).collect();
    let seen: Vec<Pod> = names.iter().map(|name| pod(name, "Failed", json!({}))).collect();
    let status = json!({ "uncountedTerminatedPods": { "failed": names } });
    let plan = round(&job(json!({ "backoffLimit": 1000 }), status), &seen, 20);
    assert_eq!(plan.release.len(), 500);
}

#[test]
fn a_job_is_complete_when_its_pods_are_counted() {
    // KA-050
    let (job, plan) = settle(
        job(json!({ "ttlSecondsAfterFinished": 30 }), json!({})),
        vec![pod("a", "Succeeded", json!({})), pod("b", "Running", json!({}))],
        20,
    );
    let status = job.status.as_ref().unwrap();
    assert_eq!(
        holding(status),
        [
            "SuccessCriteriaMet: CompletionsReached",
            "Complete: CompletionsReached"
        ]
    );
    assert_eq!(status.completion_time.as_ref().unwrap().0, at(20));
    assert_eq!((status.succeeded, status.active), (Some(1), None));
    assert_eq!(plan.again_at, Some(at(50)));
    assert!(!round(&job, &[], 49).expired && round(&job, &[], 50).expired);
}

#[test]
fn failures_wait_twice_as_long_each_time_and_too_many_end_the_job() {
    // KA-050
    let spec = json!({ "backoffLimit": 2 });
    let counted = |count: i32| json!({ "startTime": at(10), "failed": count });
    let failed = |name: &str, second| {
        let mut pod = pod(name, "Failed", ended(second, 1));
        pod.metadata.finalizers = None;
        pod
    };
    let one = [failed("a", 100)];
    let plan = round(&job(spec.clone(), counted(1)), &one, 109);
    assert_eq!((plan.create.len(), plan.again_at), (0, Some(at(110))));
    assert_eq!(round(&job(spec.clone(), counted(1)), &one, 110).create.len(), 1);
    let two = [failed("a", 100), failed("b", 120)];
    assert_eq!(
        round(&job(spec.clone(), counted(2)), &two, 139).again_at,
        Some(at(140))
    );
    let running = vec![pod("c", "Failed", ended(150, 1)), pod("d", "Running", json!({}))];
    let (job, _) = settle(job(spec, counted(2)), running, 150);
    let status = job.status.unwrap();
    assert_eq!(
        holding(&status),
        [
            "FailureTarget: BackoffLimitExceeded",
            "Failed: BackoffLimitExceeded"
        ]
    );
    assert_eq!(
        (status.failed, status.active, status.completion_time),
        (Some(3), None, None)
    );
}

#[test]
fn waits_double_up_to_their_limit() {
    let options = JobBackOffOptions::default();
    let waits: Vec<i64> = [1, 2, 3, 7, 100]
        .into_iter()
        .map(|failures| options.after(failures, at(0)).unwrap().as_second())
        .collect();
    assert_eq!(waits, [10, 20, 40, 600, 600]);
    assert_eq!(options.after(0, at(0)), None);
}

#[test]
fn restarts_in_place_count_where_pods_restart_on_failure() {
    // KA-050
    let spec = json!({ "backoffLimit": 2, "template": {
        "spec": { "restartPolicy": "OnFailure", "containers": [{ "name": "c" }] } } });
    for (restarts, ends) in [(1, false), (2, true)] {
        let running = pod(
            "a",
            "Running",
            json!({ "status": { "containerStatuses": [{
            "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": restarts }] } }),
        );
        let plan = round(&job(spec.clone(), json!({ "startTime": at(10) })), &[running], 20);
        assert_eq!(holds(&plan.status, "FailureTarget"), ends);
        assert_eq!(plan.delete.len(), usize::from(ends));
    }
}

#[test]
fn a_job_that_takes_too_long_fails() {
    // KA-050
    let spec = json!({ "activeDeadlineSeconds": 30 });
    let running = [pod("a", "Running", json!({}))];
    let in_time = round(&job(spec.clone(), json!({ "startTime": at(10) })), &running, 39);
    assert_eq!(in_time.again_at, Some(at(40)));
    assert!(in_time.delete.is_empty());
    let late = round(&job(spec, json!({ "startTime": at(10) })), &running, 40);
    assert_eq!(holding(&late.status), ["FailureTarget: DeadlineExceeded"]);
    assert_eq!(late.delete[0].finalizers, None, "it counts as failed");
}

#[test]
fn a_suspended_job_has_no_pods_and_its_time_begins_anew() {
    // KA-050
    let running = [pod("a", "Running", json!({}))];
    let suspended = round(
        &job(json!({ "suspend": true }), json!({ "startTime": at(10) })),
        &running,
        20,
    );
    assert_eq!(holding(&suspended.status), ["Suspended: JobSuspended"]);
    assert_eq!((suspended.delete.len(), suspended.create.len()), (1, 0));
    assert_eq!(suspended.status.start_time, None);
    let resumed = round(&with_status(job(json!({}), json!({})), suspended.status), &[], 30);
    assert_eq!(
        resumed.notes,
        [conditions::Note::normal("Resumed", "Job resumed")]
    );
    assert_eq!(resumed.status.start_time.unwrap().0, at(30));
    assert_eq!(resumed.create.len(), 1);
}

#[test]
fn an_indexed_job_has_one_pod_for_each_index() {
    // KA-050
    let spec = json!({ "completionMode": "Indexed", "completions": 4, "parallelism": 2 });
    let status = json!({ "startTime": at(10), "completedIndexes": "0" });
    let pods = [
        pod("one", "Running", indexed(1, 0)),
        pod("again", "Running", indexed(1, 0)),
        pod("done", "Succeeded", indexed(2, 0)),
        pod("gone", "Running", indexed(9, 0)),
    ];
    let job = job(spec, status);
    let plan = round(&job, &pods, 20);
    assert_eq!(plan.status.completed_indexes.as_deref(), Some("0,2"));
    assert_eq!(plan.status.succeeded, Some(2));
    let deleted: Vec<&str> = plan.delete.iter().map(|target| target.name.as_str()).collect();
    assert_eq!(deleted, ["again", "gone"]);
    assert_eq!(
        plan.create,
        [pods::NewPod {
            index: Some(3),
            failures: None
        }]
    );
    let made = pods::make(&job, plan.create[0]).unwrap();
    assert_eq!(made.metadata.generate_name.as_deref(), Some("once-3-"));
    assert_eq!(made.labels()[pods::INDEX], "3");
    let spec = made.spec.unwrap();
    assert_eq!(spec.hostname.as_deref(), Some("once-3"));
    assert_eq!(
        spec.containers[0].env.as_ref().unwrap()[0].name,
        "JOB_COMPLETION_INDEX"
    );
}

#[test]
fn an_index_that_failed_too_often_is_given_up_alone() {
    // KA-050
    let spec = json!({ "completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimitPerIndex": 1,
        "backoffLimit": i32::MAX });
    let status = json!({ "startTime": at(10) });
    let mut first = indexed(0, 0);
    merge(&mut first, &ended(100, 1));
    let once = [
        pod("a", "Failed", first.clone()),
        pod("b", "Running", indexed(1, 0)),
    ];
    let waits = round(&job(spec.clone(), status.clone()), &once, 105);
    assert_eq!((waits.create.len(), waits.again_at), (0, Some(at(110))));
    let again = round(&job(spec.clone(), status.clone()), &once, 110);
    assert_eq!(
        again.create,
        [pods::NewPod {
            index: Some(0),
            failures: Some(1)
        }]
    );
    let mut second = indexed(0, 1);
    merge(&mut second, &ended(200, 1));
    let twice = vec![pod("c", "Failed", second), pod("b", "Succeeded", indexed(1, 0))];
    let (job, _) = settle(job(spec, status), twice, 300);
    let status = job.status.unwrap();
    assert_eq!(status.failed_indexes.as_deref(), Some("0"));
    assert_eq!(
        holding(&status),
        ["FailureTarget: FailedIndexes", "Failed: FailedIndexes"]
    );
}

#[test]
fn rules_decide_what_a_failure_means() {
    // KA-050
    let with_rule = |action: &str| {
        json!({ "podFailurePolicy": { "rules": [
            { "action": action, "onExitCodes": { "operator": "In", "values": [42] } },
        ] } })
    };
    let status = json!({ "startTime": at(10) });
    let failed = |code| [pod("a", "Failed", ended(100, code))];
    let stop = round(&job(with_rule("FailJob"), status.clone()), &failed(42), 200);
    let condition = conditions::find(&stop.status, "FailureTarget").unwrap();
    assert_eq!(
        condition.message.as_deref(),
        Some("Container c for pod default/a failed with exit code 42 matching FailJob rule at index 0")
    );
    assert!(!holds(
        &round(&job(with_rule("FailJob"), status.clone()), &failed(1), 200).status,
        "FailureTarget"
    ));
    let ignored = round(&job(with_rule("Ignore"), status), &failed(42), 200);
    assert_eq!(
        ignored.status.uncounted_terminated_pods,
        Some(UncountedTerminatedPods::default())
    );
    assert_eq!((ignored.release.len(), ignored.create.len()), (1, 1));
}

#[test]
fn a_job_may_succeed_before_all_its_indexes_do() {
    // KA-050
    let spec = json!({ "completionMode": "Indexed", "completions": 3, "parallelism": 3,
        "successPolicy": { "rules": [{ "succeededIndexes": "0,2", "succeededCount": 1 }] } });
    let pods = [
        pod("a", "Running", indexed(0, 0)),
        pod("c", "Succeeded", indexed(2, 0)),
    ];
    let plan = round(&job(spec, json!({ "startTime": at(10) })), &pods, 20);
    assert_eq!(holding(&plan.status), ["SuccessCriteriaMet: SuccessPolicy"]);
    assert_eq!(plan.delete.len(), 1);
}

#[test]
fn a_pod_that_ends_is_replaced_at_once_or_after_its_end() {
    // KA-050
    let dying = json!({ "metadata": { "deletionTimestamp": at(15).to_string() } });
    let pods = [pod("a", "Running", dying)];
    for (policy, made) in [("TerminatingOrFailed", 1), ("Failed", 0)] {
        let spec = json!({ "podReplacementPolicy": policy, "backoffLimit": 6 });
        let plan = round(&job(spec, json!({ "startTime": at(10) })), &pods, 60);
        assert_eq!(plan.create.len(), made, "{policy}");
        assert_eq!(plan.status.terminating, Some(1));
    }
}

#[test]
fn a_job_of_another_manager_is_left_alone_until_it_ended() {
    let seen_by = |status: Value| {
        let job = job(json!({ "managedBy": "example.com/other" }), status);
        let seen = Seen {
            job: &job,
            pods: &[],
            now: at(20),
            back_off: JobBackOffOptions::default(),
        };
        plan::plan(&seen).is_some()
    };
    assert!(!seen_by(json!({})));
    assert!(seen_by(
        json!({ "conditions": [{ "type": "Complete", "status": "True" }] })
    ));
    assert_eq!(LONGEST_WAIT, Duration::from_secs(60));
}
