//! Jobs and CronJobs.

use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use mainstay_localnode::logs::LogQuery;
use mainstay_localnode::{BackOffOptions, Parts};
use mainstay_telemetry::clock::ManualClock;
use serde_json::{Value, json};

use super::world::World;

fn job(name: &str, role: &str, spec: Value) -> Value {
    let mut whole = job_spec(role);
    for (name, value) in spec.as_object().unwrap() {
        whole[name] = value.clone();
    }
    json!({ "metadata": { "name": name, "namespace": "default" }, "spec": whole })
}

fn job_spec(role: &str) -> Value {
    json!({ "template": { "metadata": { "labels": { "app": role } }, "spec": { "restartPolicy": "Never", "containers": [{
        "name": "main", "image": "mainstay:test", "args": [role, "$(JOB_COMPLETION_INDEX)"],
        "ports": [{ "name": "http", "containerPort": 8080 }],
    }] } } })
}

/// The conditions that hold, with their reasons.
fn conditions(job: &Job) -> Vec<String> {
    let conditions = job
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .filter(|condition| condition.status == "True")
        .map(|condition| {
            format!(
                "{}: {}",
                condition.type_,
                condition.reason.clone().unwrap_or_default()
            )
        })
        .collect()
}

fn holds(job: &Job, type_: &str) -> bool {
    conditions(job)
        .iter()
        .any(|condition| condition.starts_with(&format!("{type_}:")))
}

fn everything() -> ListParams {
    ListParams::default()
}

#[tokio::test]
async fn a_job_runs_its_pods_to_their_end_and_keeps_them_with_their_logs() {
    // KA-050
    let world = World::start().await;
    world
        .create::<Job>(job(
            "count",
            "complete",
            json!({ "completions": 3, "parallelism": 2 }),
        ))
        .await;
    let done = world.until::<Job>("count", |job| holds(job, "Complete")).await;
    assert_eq!(
        conditions(&done),
        [
            "SuccessCriteriaMet: CompletionsReached",
            "Complete: CompletionsReached"
        ]
    );
    let status = done.status.unwrap();
    assert_eq!(
        (status.succeeded, status.active, status.failed),
        (Some(3), None, None)
    );
    assert!(status.completion_time.is_some());
    assert_eq!(world.events().len(), 3, "{:?}", world.events());
    let pods = world.pods("complete").await;
    assert!(
        pods.iter().all(|pod| pod.finalizers().is_empty()),
        "they are counted"
    );
    assert!(
        pods.iter()
            .all(|pod| pod.status.as_ref().unwrap().phase.as_deref() == Some("Succeeded"))
    );

    // Of a process that ended, too.
    let world = world.restart().await;
    let query = LogQuery {
        namespace: "default".to_owned(),
        pod: pods[0].name_any(),
        uid: pods[0].uid().unwrap(),
        container: "main".to_owned(),
        ..LogQuery::default()
    };
    world
        .within(async {
            while world.handle.logs.open(query.clone()).await.is_err() {
                tokio::task::yield_now().await
            }
        })
        .await;
    world
        .api::<Job>()
        .delete("count", &DeleteParams::background())
        .await
        .unwrap();
    world
        .until_list::<Pod>(&everything(), |pods| pods.is_empty())
        .await;
    world.stop().await;
}

#[tokio::test]
async fn an_indexed_job_gives_each_pod_its_index() {
    // KA-050
    let world = World::start().await;
    let spec = json!({ "completions": 3, "parallelism": 3, "completionMode": "Indexed" });
    world.create::<Job>(job("indexed", "complete", spec)).await;
    let done = world.until::<Job>("indexed", |job| holds(job, "Complete")).await;
    assert_eq!(done.status.unwrap().completed_indexes.as_deref(), Some("0-2"));
    let mut indexes: Vec<String> = world
        .events()
        .iter()
        .filter_map(|event| event.rsplit_once(' ').map(|(_, index)| index.to_owned()))
        .collect();
    indexes.sort();
    assert_eq!(indexes, ["0", "1", "2"]);
    world.stop().await;
}

#[tokio::test]
async fn a_job_whose_pods_fail_too_often_fails_and_says_so() {
    // KA-050
    let world = World::start().await;
    world
        .create::<Job>(job("broken", "fail", json!({ "backoffLimit": 1 })))
        .await;
    let failed = world.until::<Job>("broken", |job| holds(job, "Failed")).await;
    assert_eq!(
        conditions(&failed),
        [
            "FailureTarget: BackoffLimitExceeded",
            "Failed: BackoffLimitExceeded"
        ]
    );
    assert_eq!(failed.status.unwrap().failed, Some(2));
    world
        .until_list::<Event>(&everything(), |events| {
            events.iter().any(|event| {
                event.reason.as_deref() == Some("BackoffLimitExceeded")
                    && event.involved_object.kind.as_deref() == Some("Job")
            })
        })
        .await;

    // Where the Pod stays, the restarts of its container count.
    let mut in_place = job("in-place", "fail", json!({ "backoffLimit": 1 }));
    in_place["spec"]["template"]["spec"]["restartPolicy"] = json!("OnFailure");
    world.create::<Job>(in_place).await;
    let failed = world.until::<Job>("in-place", |job| holds(job, "Failed")).await;
    assert_eq!(failed.status.unwrap().failed, Some(1));
    world.stop().await;
}

#[tokio::test]
async fn a_suspended_job_has_no_pods_and_one_that_is_removed_is_replaced() {
    // KA-050
    let world = World::start().await;
    // It does not end by itself when it is told to: one that ends well succeeded.
    let mut long = job("long", "stubborn", json!({ "backoffLimit": 5 }));
    long["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(1);
    world.create::<Job>(long).await;
    let is_ready = |job: &Job| job.status.as_ref().is_some_and(|status| status.ready == Some(1));
    world.until::<Job>("long", is_ready).await;
    let set = |suspend: bool| Patch::Merge(json!({ "spec": { "suspend": suspend } }));
    let jobs = world.api::<Job>();
    jobs.patch("long", &PatchParams::default(), &set(true))
        .await
        .unwrap();
    let suspended = world.until::<Job>("long", |job| holds(job, "Suspended")).await;
    assert_eq!(suspended.status.unwrap().start_time, None);
    world
        .until_list::<Pod>(&everything(), |pods| pods.is_empty())
        .await;
    jobs.patch("long", &PatchParams::default(), &set(false))
        .await
        .unwrap();
    let resumed = world.until::<Job>("long", is_ready).await;
    assert_eq!(
        resumed.status.unwrap().failed,
        None,
        "what was suspended did not fail"
    );

    let pod = world.pods("stubborn").await.remove(0);
    world
        .api::<Pod>()
        .delete(&pod.name_any(), &DeleteParams::default())
        .await
        .unwrap();
    let failed = |job: &Job| {
        job.status
            .as_ref()
            .is_some_and(|status| status.failed == Some(1) && status.ready == Some(1))
    };
    world.until::<Job>("long", failed).await;
    assert_ne!(world.pods("stubborn").await[0].name_any(), pod.name_any());
    // Its Pods go with it, whatever finalizers they have.
    jobs.delete("long", &DeleteParams::background()).await.unwrap();
    world
        .until_list::<Pod>(&everything(), |pods| pods.is_empty())
        .await;
    world.stop().await;
}

#[tokio::test]
async fn a_job_goes_when_its_time_after_its_end_is_over() {
    // KA-050
    let world = World::start().await;
    world
        .create::<Job>(job("brief", "complete", json!({ "ttlSecondsAfterFinished": 0 })))
        .await;
    world
        .until_list::<Pod>(&everything(), |pods| !pods.is_empty())
        .await;
    world
        .until_list::<Job>(&everything(), |jobs| jobs.is_empty())
        .await;
    world
        .until_list::<Pod>(&everything(), |pods| pods.is_empty())
        .await;
    world.stop().await;
}

#[tokio::test]
async fn a_cron_job_makes_a_job_at_each_of_its_times() {
    // KA-050
    let clock = ManualClock::at("2026-03-01T07:59:50Z".parse().unwrap());
    let world = World::start_at(clock.clone(), Parts::default(), BackOffOptions::default()).await;
    world
        .create::<CronJob>(json!({
            "metadata": { "name": "morning", "namespace": "default" },
            "spec": { "schedule": "0 9 * * *", "timeZone": "Europe/Berlin", "successfulJobsHistoryLimit": 1,
                "jobTemplate": { "spec": job_spec("complete") } },
        }))
        .await;
    // A change has it looked at, as its timer would.
    let touch = |count: u32| {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { "touched": count.to_string() } } }));
        let cron_jobs = world.api::<CronJob>();
        async move {
            cron_jobs
                .patch("morning", &PatchParams::default(), &patch)
                .await
                .unwrap()
        }
    };
    let names = |jobs: &[Job]| jobs.iter().map(ResourceExt::name_any).collect::<Vec<_>>();
    for (day, minute) in [(1u32, 29_539_200_i64), (2, 29_540_640)] {
        clock.set(jiff::Timestamp::from_second(minute * 60 + 5).unwrap());
        touch(day).await;
        let expected = format!("morning-{minute}");
        world.until::<Job>(&expected, |job| holds(job, "Complete")).await;
        // The one before is one too many.
        world
            .until_list::<Job>(&everything(), move |jobs| names(jobs) == [expected.clone()])
            .await;
    }
    let found = world
        .until::<CronJob>("morning", |found| {
            found
                .status
                .as_ref()
                .is_some_and(|status| status.active.is_none() && status.last_successful_time.is_some())
        })
        .await;
    let status = found.status.unwrap();
    assert_eq!(
        status.last_schedule_time.unwrap().0,
        "2026-03-02T08:00:00Z".parse().unwrap()
    );
    world.stop().await;
}
