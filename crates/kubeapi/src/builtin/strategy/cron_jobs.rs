//! CronJobs. Requirements KA-010, KA-011.

mod schedule;

use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::jobs;
use crate::field::{FieldError, FieldPath};

/// The longest name: a Job made at a time has 11 characters more than its CronJob, and may have 63.
const NAME_LENGTH: usize = 52;
const POLICIES: [&str; 3] = ["Allow", "Forbid", "Replace"];
/// The longest part of a time zone's name.
const ZONE_PART_LENGTH: usize = 14;

pub(super) fn default(object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    for (name, value) in [
        ("concurrencyPolicy", json!("Allow")),
        ("suspend", json!(false)),
        ("successfulJobsHistoryLimit", json!(3)),
        ("failedJobsHistoryLimit", json!(1)),
    ] {
        let is_empty = |value: &Value| value.is_null() || *value == json!("");
        if spec.get(name).is_none_or(is_empty) {
            spec.insert(name.to_owned(), value);
        }
    }
    if let Some(job) = spec
        .get_mut("jobTemplate")
        .and_then(|template| template.get_mut("spec"))
        .and_then(Value::as_object_mut)
    {
        jobs::default_spec(job);
    }
}

/// A new CronJob has no status yet.
pub(super) fn prepare(object: &mut Value, old: Option<&Value>) {
    const JOB: &str = "/spec/jobTemplate/spec";
    jobs::drop_disabled(object.pointer_mut(JOB), old.and_then(|old| old.pointer(JOB)));
    if let (None, Some(fields)) = (old, object.as_object_mut()) {
        fields.insert("status".to_owned(), json!({}));
    }
}

pub(super) fn validate(object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let path = FieldPath::of("spec");
    let spec = object.get("spec").unwrap_or(&Value::Null);
    let old_spec = old.map(|old| old.get("spec").unwrap_or(&Value::Null));
    let text = |spec: &Value, name: &str| spec.get(name).and_then(Value::as_str).map(str::to_owned);
    let (written, zone) = (text(spec, "schedule").unwrap_or_default(), text(spec, "timeZone"));
    // An empty one is reported last: that it has to be there is declared.
    if !written.is_empty() {
        let had_zone = old_spec.is_some_and(|old| text(old, "schedule").unwrap_or_default().contains("TZ"));
        let mut refuse = |detail: String| {
            errors.push(FieldError::invalid(
                &path.child("schedule"),
                json!(written),
                detail,
            ));
        };
        if let Err(detail) = schedule::check(&written) {
            refuse(detail);
        }
        match (written.contains("TZ"), had_zone) {
            (true, true) if zone.is_some() => {
                refuse("cannot use both timeZone field and TZ or CRON_TZ in schedule".to_owned());
            }
            (true, false) => {
                refuse("cannot use TZ or CRON_TZ in schedule, use timeZone field instead".to_owned());
            }
            _ => {}
        }
    }
    jobs::not_negative(spec, "startingDeadlineSeconds", &path, errors);
    if let Some(zone) = &zone
        && old_spec.is_none_or(|old| text(old, "timeZone").as_ref() != Some(zone))
    {
        for detail in time_zone_faults(zone) {
            errors.push(FieldError::invalid(&path.child("timeZone"), json!(zone), detail));
        }
    }
    let policy = text(spec, "concurrencyPolicy").unwrap_or_default();
    if !POLICIES.contains(&policy.as_str()) {
        let at = path.child("concurrencyPolicy");
        errors.push(FieldError::not_supported(&at, json!(policy), &POLICIES));
    }
    validate_template(spec, &path.child("jobTemplate").child("spec"), errors);
    for name in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        jobs::not_negative(spec, name, &path, errors);
    }
    let name = object
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if old.is_none() && name.len() > NAME_LENGTH {
        errors.push(FieldError::invalid(
            &FieldPath::of("metadata.name"),
            json!(name),
            format!("must be no more than {NAME_LENGTH} characters"),
        ));
    }
    if written.is_empty() {
        errors.push(FieldError::required(&path.child("schedule"), ""));
    }
}

fn validate_template(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let job = spec.pointer("/jobTemplate/spec").unwrap_or(&Value::Null);
    jobs::validate_spec(job, path, errors);
    if let Some(selector) = job.get("selector").filter(|selector| !selector.is_null()) {
        let detail = "`selector` will be auto-generated";
        errors.push(FieldError::invalid(
            &path.child("selector"),
            selector.clone(),
            detail,
        ));
    }
    if job.get("manualSelector") == Some(&Value::Bool(true)) {
        let at = path.child("manualSelector");
        errors.push(FieldError::not_supported(&at, json!(true), &["nil", "false"]));
    }
}

fn time_zone_faults(zone: &str) -> Vec<String> {
    if zone.is_empty() {
        return vec!["timeZone must be nil or non-empty string".to_owned()];
    }
    let is_part = |part: &str| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '+');
        (1..=ZONE_PART_LENGTH).contains(&part.len())
            && part.chars().all(allowed)
            && !matches!(part, "." | "..")
            && !part.starts_with('-')
    };
    let unknown = format!("unknown time zone {zone}");
    if !zone.split('/').all(is_part) {
        return vec![unknown];
    }
    let mut faults = Vec::new();
    if zone.eq_ignore_ascii_case("local") {
        let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        faults.push(detail.to_owned());
    }
    // The reference reads a file of that name, so upper and lower case matter, but for the one that is its own.
    let is_known = TimeZone::get(zone).is_ok_and(|found| found.iana_name() == Some(zone));
    if !is_known && !matches!(zone, "UTC" | "Local") {
        faults.push(unknown);
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_zones_are_those_of_iana() {
        // KA-010
        for zone in [
            "UTC",
            "Etc/UTC",
            "Europe/Berlin",
            "America/Argentina/Buenos_Aires",
            "Etc/GMT+5",
        ] {
            assert!(time_zone_faults(zone).is_empty(), "{zone}");
        }
        for zone in [
            "",
            "Mars/X",
            "europe/berlin",
            "../UTC",
            "Europe//Berlin",
            "/UTC",
            "+05:00",
        ] {
            assert!(!time_zone_faults(zone).is_empty(), "{zone}");
        }
        assert_eq!(
            time_zone_faults("Local"),
            ["timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"]
        );
    }
}
