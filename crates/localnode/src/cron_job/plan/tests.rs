use serde_json::{Value, json};

use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn cron_job(spec: Value, status: Value) -> CronJob {
    let mut whole = json!({
        "schedule": "0 * * * *", "concurrencyPolicy": "Allow",
        "jobTemplate": { "metadata": { "labels": { "a": "b" } }, "spec": { "template": {} } },
    });
    for (name, value) in spec.as_object().unwrap() {
        whole[name] = value.clone();
    }
    serde_json::from_value(json!({
        "metadata": { "name": "hourly", "namespace": "default", "uid": "c", "creationTimestamp": "2026-01-01T00:30:00Z" },
        "spec": whole, "status": status,
    }))
    .unwrap()
}

fn job(name: &str, end: Option<&str>, started: &str) -> Job {
    let conditions: Vec<Value> = end
        .iter()
        .map(|type_| json!({ "type": type_, "status": "True" }))
        .collect();
    serde_json::from_value(json!({
        "metadata": { "name": name, "namespace": "default", "uid": name },
        "spec": { "template": {} },
        "status": { "startTime": started, "completionTime": end.map(|_| started), "conditions": conditions },
    }))
    .unwrap()
}

fn reasons(plan: &Plan) -> Vec<&str> {
    plan.notes.iter().map(|note| note.reason).collect()
}

fn made(plan: &Plan) -> Option<(String, Timestamp)> {
    plan.create.as_ref().map(|(job, time)| (job.name_any(), *time))
}

#[test]
fn a_job_is_made_when_its_time_has_come() {
    // KA-050
    let early = plan(&cron_job(json!({}), json!({})), &[], at("2026-01-01T00:59:59Z"));
    assert_eq!(
        (made(&early), early.again_at),
        (None, Some(at("2026-01-01T01:00:00Z")))
    );
    let due = plan(&cron_job(json!({}), json!({})), &[], at("2026-01-01T01:00:00Z"));
    assert_eq!(due.again_at, Some(at("2026-01-01T02:00:00Z")));
    let (job, time) = due.create.unwrap();
    assert_eq!(time, at("2026-01-01T01:00:00Z"));
    assert_eq!(job.name_any(), format!("hourly-{}", time.as_second() / 60));
    assert_eq!(job.annotations()[SCHEDULED], "2026-01-01T01:00:00Z");
    assert_eq!(job.labels()["a"], "b");
    assert_eq!(owner::controller_of(&*job).unwrap().uid, "c");
    // Made once, also if the note of it was lost.
    let again = plan(
        &cron_job(json!({}), json!({})),
        std::slice::from_ref(&job),
        at("2026-01-01T01:00:05Z"),
    );
    assert_eq!(made(&again), None);
    assert_eq!(again.status.last_schedule_time, Some(Time(time)));
    let noted = json!({ "lastScheduleTime": "2026-01-01T01:00:00Z" });
    assert_eq!(
        made(&plan(
            &cron_job(json!({}), noted),
            &[],
            at("2026-01-01T01:59:00Z")
        )),
        None
    );
}

#[test]
fn of_several_missed_times_the_last_one_counts() {
    // KA-050
    let status = json!({ "lastScheduleTime": "2026-01-01T01:00:00Z" });
    let late = plan(
        &cron_job(json!({}), status.clone()),
        &[],
        at("2026-01-01T07:20:00Z"),
    );
    assert_eq!(late.create.as_ref().unwrap().1, at("2026-01-01T07:00:00Z"));
    let much_later = plan(
        &cron_job(json!({}), status.clone()),
        &[],
        at("2026-01-20T07:20:00Z"),
    );
    assert_eq!(reasons(&much_later), ["TooManyMissedTimes"]);
    assert!(much_later.create.is_some());
    let bounded = cron_job(json!({ "startingDeadlineSeconds": 600 }), status);
    assert!(plan(&bounded, &[], at("2026-01-20T07:05:00Z")).create.is_some());
    let too_late = plan(&bounded, &[], at("2026-01-20T07:20:00Z"));
    assert_eq!(
        (made(&too_late), reasons(&too_late)),
        (None, vec!["MissSchedule"])
    );
}

#[test]
fn the_policy_says_what_happens_to_a_job_that_still_runs() {
    // KA-050
    let running = [job("hourly-1", None, "2026-01-01T01:00:00Z")];
    let status = json!({ "lastScheduleTime": "2026-01-01T01:00:00Z" });
    for (policy, makes, removes, reason) in [
        ("Allow", true, 0, vec![]),
        ("Forbid", false, 0, vec!["JobAlreadyActive"]),
        ("Replace", true, 1, vec![]),
    ] {
        let of = cron_job(json!({ "concurrencyPolicy": policy }), status.clone());
        let plan = plan(&of, &running, at("2026-01-01T02:00:00Z"));
        assert_eq!(plan.create.is_some(), makes, "{policy}");
        assert_eq!(plan.delete.len(), removes, "{policy}");
        assert_eq!(reasons(&plan), reason, "{policy}");
    }
}

#[test]
fn the_status_follows_the_jobs_and_the_oldest_are_removed() {
    // KA-050
    let jobs = [
        job("1", Some("Complete"), "2026-01-01T01:00:00Z"),
        job("2", Some("Complete"), "2026-01-01T02:00:00Z"),
        job("3", Some("Complete"), "2026-01-01T03:00:00Z"),
        job("4", Some("Failed"), "2026-01-01T04:00:00Z"),
        job("5", Some("Failed"), "2026-01-01T05:00:00Z"),
        job("6", None, "2026-01-01T06:00:00Z"),
    ];
    let active =
        json!([{ "uid": "5", "name": "5" }, { "uid": "0", "name": "0" }, { "uid": "6", "name": "6" }]);
    let spec = json!({ "suspend": true, "successfulJobsHistoryLimit": 2, "failedJobsHistoryLimit": 1 });
    let plan = plan(
        &cron_job(spec, json!({ "active": active })),
        &jobs,
        at("2026-01-01T06:30:00Z"),
    );
    let deleted: Vec<&str> = plan.delete.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(deleted, ["1", "4"]);
    assert_eq!(reasons(&plan), ["SawCompletedJob", "MissingJob"]);
    assert_eq!(plan.notes[0].message, "Saw completed job: 5, condition: Failed");
    let names: Vec<Option<String>> = plan
        .status
        .active
        .unwrap()
        .into_iter()
        .map(|one| one.name)
        .collect();
    assert_eq!(names, [Some("6".to_owned())]);
    assert_eq!(
        plan.status.last_successful_time.unwrap().0,
        at("2026-01-01T03:00:00Z")
    );
    assert!(plan.create.is_none(), "it is suspended");
}

#[test]
fn a_schedule_without_meaning_is_reported() {
    // KA-050
    for (spec, reason) in [
        (json!({ "timeZone": "Mars/X" }), "UnknownTimeZone"),
        (json!({ "schedule": "x" }), "UnparseableSchedule"),
    ] {
        let plan = plan(&cron_job(spec, json!({})), &[], at("2026-01-01T02:00:00Z"));
        assert_eq!((reasons(&plan), plan.again_at), (vec![reason], None));
    }
}

#[test]
fn every_so_often_counts_from_the_last_time_whenever_it_is_looked_at() {
    // KA-050
    let every = json!({ "schedule": "@every 90s" });
    let status = json!({ "lastScheduleTime": "2026-01-01T01:00:00Z" });
    // Looked at a minute after the last time, as it is at the latest.
    let early = plan(
        &cron_job(every.clone(), status.clone()),
        &[],
        at("2026-01-01T01:01:00Z"),
    );
    assert_eq!(
        (made(&early), early.again_at),
        (None, Some(at("2026-01-01T01:01:30Z")))
    );
    // A deadline that is shorter than the distance moves no time.
    let tolerant = json!({ "schedule": "@every 90s", "startingDeadlineSeconds": 10 });
    for spec in [every, tolerant] {
        let due = plan(&cron_job(spec, status.clone()), &[], at("2026-01-01T01:01:31Z"));
        assert_eq!(made(&due).unwrap().1, at("2026-01-01T01:01:30Z"));
        assert_eq!(due.again_at, Some(at("2026-01-01T01:03:00Z")));
    }
}
