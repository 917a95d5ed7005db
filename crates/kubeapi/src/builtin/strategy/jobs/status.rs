//! What a status may say about a Job. A rule is asked only when what it is about changed, so that a change of the spec
//! does not make a status invalid that was valid.

use serde_json::{Value, json};

use super::{is_set, not_negative, number, text};
use crate::{
    builtin::strategy::templates,
    field::{FieldError, FieldErrorKind, FieldPath},
};

/// Whether a condition is true.
pub(super) fn holds(status: &Value, condition: &str) -> bool {
    has(status, condition, "True")
}

fn has(status: &Value, condition: &str, value: &str) -> bool {
    templates::list(status, "conditions")
        .any(|found| text(found, "type") == condition && text(found, "status") == value)
}

struct Change<'a> {
    spec: &'a Value,
    new: &'a Value,
    old: &'a Value,
}

impl Change<'_> {
    fn of(&self, fields: &[&str]) -> bool {
        fields
            .iter()
            .any(|field| self.new.get(*field) != self.old.get(*field))
    }

    fn of_condition(&self, conditions: &[&str]) -> bool {
        let any = |status: &Value| conditions.iter().any(|condition| holds(status, condition));
        any(self.new) != any(self.old)
    }

    fn is_finished(&self) -> bool {
        holds(self.new, "Complete") || holds(self.new, "Failed")
    }

    fn is_indexed(&self) -> bool {
        text(self.spec, "completionMode") == "Indexed"
    }
}

pub(super) fn validate(object: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let (Some(new), Some(previous)) = (object.get("status"), old.get("status")) else {
        return;
    };
    if new == previous {
        return;
    }
    let change = Change {
        spec: object.get("spec").unwrap_or(&Value::Null),
        new,
        old: previous,
    };
    let path = FieldPath::of("status");
    for name in ["active", "succeeded", "failed", "ready", "terminating"] {
        not_negative(new, name, &path, errors);
    }
    validate_uncounted(new, &path, errors);
    let mut conditions = Vec::new();
    validate_conditions(&change, &mut conditions);
    errors.extend(conditions.into_iter().map(|detail| FieldError {
        kind: FieldErrorKind::Invalid,
        path: path.child("conditions"),
        value: None,
        detail,
    }));
    validate_times(&change, &path, errors);
    validate_counts(&change, &path, errors);
    validate_indexes(&change, &path, errors);
}

fn validate_uncounted(status: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let uncounted = status.get("uncountedTerminatedPods").unwrap_or(&Value::Null);
    for list in ["succeeded", "failed"] {
        let at = path.child("uncountedTerminatedPods").child(list);
        let uids: Vec<&str> = templates::list(uncounted, list)
            .filter_map(Value::as_str)
            .collect();
        for (index, uid) in uids.iter().enumerate() {
            if uid.is_empty() {
                errors.push(FieldError::invalid(
                    &at.index(index),
                    json!(uid),
                    "must not be empty",
                ));
            } else if uids[..index].contains(uid) {
                errors.push(FieldError::duplicate(&at.index(index), json!(uid)));
            }
        }
    }
}

fn validate_conditions(change: &Change<'_>, errors: &mut Vec<String>) {
    let (new, old) = (change.new, change.old);
    let mut refuse = |refused: bool, detail: &str| {
        if refused {
            errors.push(detail.to_owned());
        }
    };
    let (complete, failed) = (holds(new, "Complete"), holds(new, "Failed"));
    let (target, met) = (holds(new, "FailureTarget"), holds(new, "SuccessCriteriaMet"));
    refuse(
        (change.of_condition(&["Complete"]) || change.of_condition(&["Failed"])) && complete && failed,
        "cannot set Complete=True and Failed=true conditions",
    );
    refuse(
        (change.of_condition(&["Complete"]) || change.of_condition(&["FailureTarget"])) && complete && target,
        "cannot set Complete=True and FailureTarget=true conditions",
    );
    refuse(
        (change.of_condition(&["Failed"]) || change.of(&["failedIndexes"])) && failed && !target,
        "cannot set Failed=True condition without the FailureTarget=true condition",
    );
    refuse(
        (change.of_condition(&["Complete"]) || change.of_condition(&["SuccessCriteriaMet"]))
            && complete
            && !met,
        "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
    );
    refuse(
        met && failed,
        "cannot set SuccessCriteriaMet=True and Failed=true conditions",
    );
    refuse(
        met && target,
        "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
    );
    for condition in ["Failed", "Complete", "FailureTarget"] {
        let detail = format!("cannot disable the terminal {condition}=True condition");
        refuse(holds(old, condition) && !holds(new, condition), &detail);
    }
    refuse(
        holds(old, "SuccessCriteriaMet") && !met,
        "cannot disable the SuccessCriteriaMet=True condition",
    );
    refuse(
        holds(old, "Complete") && !holds(old, "SuccessCriteriaMet") && met,
        "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions",
    );
}

fn validate_times(change: &Change<'_>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let (new, old) = (change.new, change.old);
    let complete = holds(new, "Complete");
    let at = path.child("completionTime");
    let shown = || new.get("completionTime").cloned().unwrap_or_default();
    let is_set = |name: &str| is_set(new, name);
    if change.of_condition(&["Complete"]) || change.of(&["completionTime"]) {
        if is_set("completionTime") && !complete {
            let detail = "cannot set completionTime when there is no Complete=True condition";
            errors.push(FieldError::invalid(&at, shown(), detail));
        }
        if !is_set("completionTime") && complete {
            let detail = "completionTime is required for Complete jobs";
            errors.push(FieldError::required(&at, detail));
        }
    }
    // What is no time has been refused by its type; what is absent cannot be compared.
    let time = |name: &str| text(new, name).parse::<jiff::Timestamp>().ok();
    if change.of(&["startTime", "completionTime"])
        && let (Some(start), Some(end)) = (time("startTime"), time("completionTime"))
        && end < start
    {
        let detail = "must be equal to or after `startTime`";
        errors.push(FieldError::invalid(&at, shown(), detail));
    }
    if is_set("completionTime") && old.get("completionTime").is_some() && change.of(&["completionTime"]) {
        errors.push(FieldError::invalid(&at, shown(), "field is immutable"));
    }
    let at = path.child("startTime");
    let suspended = change.spec.get("suspend") == Some(&Value::Bool(true));
    let empty_and_suspended = suspended && number(change.spec, "completions") == Some(0);
    if (change.of_condition(&["Complete", "Failed"]) || change.of(&["startTime"]))
        && change.is_finished()
        && !is_set("startTime")
        && !empty_and_suspended
    {
        errors.push(FieldError::required(
            &at,
            "startTime is required for finished job",
        ));
    }
    let resumes = has(old, "Suspended", "True") && has(new, "Suspended", "False");
    if change.of(&["startTime"]) && !resumes && old.get("startTime").is_some() && !suspended {
        let value = new.get("startTime").cloned().unwrap_or_default();
        let detail = "field is immutable for unsuspended job once set";
        errors.push(FieldError::invalid(&at, value, detail));
    }
}

fn validate_counts(change: &Change<'_>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let count = |status: &Value, name: &str| number(status, name).unwrap_or_default();
    let mut refuse = |refused: bool, name: &str, detail: &str| {
        if refused {
            let value = change.new.get(name).cloned().unwrap_or_else(|| json!(0));
            errors.push(FieldError::invalid(&path.child(name), value, detail));
        }
    };
    let finishes = change.of_condition(&["Complete", "Failed"]);
    let active = count(change.new, "active");
    refuse(
        (finishes || change.of(&["active"])) && active > 0 && change.is_finished(),
        "active",
        "active>0 is invalid for finished job",
    );
    refuse(
        (finishes || change.of(&["terminating"]))
            && count(change.new, "terminating") > 0
            && change.is_finished(),
        "terminating",
        "terminating>0 is invalid for finished job",
    );
    refuse(
        change.of(&["ready", "active"]) && count(change.new, "ready") > active,
        "ready",
        "cannot set more ready pods than active",
    );
    let uncounted = change.new.get("uncountedTerminatedPods").unwrap_or(&Value::Null);
    let any = ["succeeded", "failed"]
        .iter()
        .any(|list| templates::list(uncounted, list).next().is_some());
    refuse(
        (finishes || change.of(&["uncountedTerminatedPods"])) && change.is_finished() && any,
        "uncountedTerminatedPods",
        "must be empty for finished job",
    );
    refuse(
        count(change.new, "failed") < count(change.old, "failed"),
        "failed",
        "cannot decrease the failed counter",
    );
    // An indexed Job whose parallelism is that of its completions can become smaller.
    let elastic = change.is_indexed() && change.spec.get("completions") == change.spec.get("parallelism");
    refuse(
        !elastic && count(change.new, "succeeded") < count(change.old, "succeeded"),
        "succeeded",
        "cannot decrease the succeeded counter",
    );
}

fn validate_indexes(change: &Change<'_>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let completions = number(change.spec, "completions");
    let completed = text(change.new, "completedIndexes");
    let failed = change.new.get("failedIndexes").and_then(Value::as_str);
    if change.of(&["completedIndexes"]) {
        let at = path.child("completedIndexes");
        if let Some(detail) = completions.and_then(|count| parse_indexes(completed, count).err()) {
            let detail = format!("error parsing completedIndexes: {detail}");
            errors.push(FieldError::invalid(&at, json!(completed), detail));
        }
        if !completed.is_empty() && !change.is_indexed() {
            let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
            errors.push(FieldError::invalid(&at, json!(completed), detail));
        }
    }
    let (Some(failed), true) = (failed, change.of(&["failedIndexes"])) else {
        return;
    };
    let at = path.child("failedIndexes");
    if !is_set(change.spec, "backoffLimitPerIndex") {
        let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        errors.push(FieldError::invalid(&at, json!(failed), detail));
    } else if let Some(detail) = completions.and_then(|count| parse_indexes(failed, count).err()) {
        let detail = format!("error parsing failedIndexes: {detail}");
        errors.push(FieldError::invalid(&at, json!(failed), detail));
    } else if let Some(index) = intervals(failed).into_iter().find_map(|(first, last)| {
        let other = intervals(completed)
            .into_iter()
            .find(|(start, end)| first <= *end && *start <= last);
        other.map(|(start, _)| start.max(first))
    }) {
        let detail = format!("failedIndexes and completedIndexes overlap at index: {index}");
        errors.push(FieldError::invalid(&at, json!(failed), detail));
    }
}

/// How many indexes a text such as `1,3-5` names, all below `completions`; what is wrong with it otherwise.
pub(super) fn parse_indexes(text: &str, completions: i64) -> Result<i64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    let number = |part: &str| -> Result<i64, String> {
        let index: i64 = part
            .parse()
            .map_err(|_| format!("cannot convert string to integer for index: {part:?}"))?;
        if index >= completions {
            return Err(format!("too large index: {part:?}"));
        }
        Ok(index)
    };
    let (mut total, mut before) = (0, None);
    for fragment in text.split(',') {
        let parts: Vec<&str> = fragment.split('-').collect();
        let (first, last) = match parts.as_slice() {
            [only] => (number(only)?, number(only)?),
            [first, last] => {
                let (first, last) = (number(first)?, number(last)?);
                if first >= last {
                    return Err(format!(
                        "non-increasing order, previous: {first}, current: {last}"
                    ));
                }
                (first, last)
            }
            _ => {
                return Err(format!(
                    "the fragment {fragment:?} violates the requirement that an index interval can have at most two parts \
                     separated by '-'"
                ));
            }
        };
        if let Some(before) = before.filter(|before| *before >= first) {
            return Err(format!(
                "non-increasing order, previous: {before}, current: {first}"
            ));
        }
        total += last - first + 1;
        before = Some(last);
    }
    Ok(total)
}

/// The intervals of a text that is known to be right.
fn intervals(text: &str) -> Vec<(i64, i64)> {
    text.split(',')
        .filter_map(|fragment| {
            let (first, last) = fragment.split_once('-').unwrap_or((fragment, fragment));
            Some((first.parse().ok()?, last.parse().ok()?))
        })
        .collect()
}
