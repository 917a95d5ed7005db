//! The conditions of a Job, and the Events that go with them.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{JobCondition, JobStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// An Event to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) warning: bool,
    pub(super) reason: String,
    pub(super) message: String,
}

impl Note {
    pub(super) fn normal(reason: &str, message: &str) -> Self {
        Self {
            warning: false,
            reason: reason.to_owned(),
            message: message.to_owned(),
        }
    }

    pub(super) fn warning(reason: &str, message: &str) -> Self {
        Self {
            warning: true,
            ..Self::normal(reason, message)
        }
    }
}

/// The condition of that type, if it is true.
pub(super) fn find<'a>(status: &'a JobStatus, type_: &str) -> Option<&'a JobCondition> {
    let mut conditions = status.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == type_ && condition.status == "True")
}

/// Whether the condition of that type is true.
pub(crate) fn holds(status: &JobStatus, type_: &str) -> bool {
    find(status, type_).is_some()
}

/// When the Job ended.
pub(super) fn ended_at(status: &JobStatus) -> Option<Timestamp> {
    let condition = find(status, "Complete").or_else(|| find(status, "Failed"))?;
    condition.last_transition_time.as_ref().map(|time| time.0)
}

/// Makes a condition true; whether it was not.
pub(super) fn set(status: &mut JobStatus, type_: &str, reason: &str, message: &str, now: Timestamp) -> bool {
    if holds(status, type_) {
        return false;
    }
    write(status, type_, "True", reason, message, now);
    true
}

/// Makes a condition false; whether it was true.
pub(super) fn clear(
    status: &mut JobStatus,
    type_: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> bool {
    if !holds(status, type_) {
        return false;
    }
    write(status, type_, "False", reason, message, now);
    true
}

fn write(status: &mut JobStatus, type_: &str, value: &str, reason: &str, message: &str, now: Timestamp) {
    let conditions = status.conditions.get_or_insert_default();
    conditions.retain(|condition| condition.type_ != type_);
    conditions.push(JobCondition {
        type_: type_.to_owned(),
        status: value.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_probe_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    });
}
