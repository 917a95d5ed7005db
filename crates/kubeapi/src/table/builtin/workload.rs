//! Kinds that make Pods, and those that scale or guard them.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::duration::{human_duration, seconds_between, since};
use super::super::object::{at, has_condition, list, number, plain, text, text_or};
use super::{Row, some_of};
use crate::selector::format_label_selector;

pub(super) fn deployment(row: &Row<'_>) -> Vec<Value> {
    let object = row.object;
    let selector =
        format_label_selector(at(object, "/spec/selector")).unwrap_or_else(|| "<invalid>".to_owned());
    let mut cells = vec![
        row.name(),
        json!(ready(object)),
        json!(number(object, "/status/updatedReplicas")),
        json!(number(object, "/status/availableReplicas")),
        row.age(),
    ];
    cells.extend(containers(object, "/spec/template/spec/containers"));
    cells.push(json!(selector));
    cells
}

pub(super) fn replica_set(row: &Row<'_>) -> Vec<Value> {
    let object = row.object;
    let mut cells = vec![
        row.name(),
        json!(number(object, "/spec/replicas")),
        json!(number(object, "/status/replicas")),
        json!(number(object, "/status/readyReplicas")),
        row.age(),
    ];
    cells.extend(containers(object, "/spec/template/spec/containers"));
    cells.push(json!(selector_text(at(object, "/spec/selector"))));
    cells
}

pub(super) fn pod_template(row: &Row<'_>) -> Vec<Value> {
    let mut cells = vec![row.name()];
    cells.extend(containers(row.object, "/template/spec/containers"));
    cells.push(json!(labels_text(at(row.object, "/template/metadata/labels"))));
    cells
}

pub(super) fn stateful_set(row: &Row<'_>) -> Vec<Value> {
    let mut cells = vec![row.name(), json!(ready(row.object)), row.age()];
    cells.extend(containers(row.object, "/spec/template/spec/containers"));
    cells
}

pub(super) fn daemon_set(row: &Row<'_>) -> Vec<Value> {
    let object = row.object;
    let mut cells = vec![row.name()];
    for field in [
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    ] {
        cells.push(json!(number(object, &format!("/status/{field}"))));
    }
    cells.push(json!(labels_text(at(object, "/spec/template/spec/nodeSelector"))));
    cells.push(row.age());
    cells.extend(containers(object, "/spec/template/spec/containers"));
    cells.push(json!(selector_text(at(object, "/spec/selector"))));
    cells
}

pub(super) fn job(row: &Row<'_>) -> Vec<Value> {
    let object = row.object;
    let succeeded = number(object, "/status/succeeded");
    let parallelism = number(object, "/spec/parallelism");
    let completions = match at(object, "/spec/completions").as_i64() {
        Some(wanted) => format!("{succeeded}/{wanted}"),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    };
    let time = |pointer: &str| text(object, pointer).parse::<Timestamp>().ok();
    let duration = match (time("/status/startTime"), time("/status/completionTime")) {
        (None, _) => String::new(),
        (Some(start), end) => human_duration(seconds_between(start, end.unwrap_or(row.now))),
    };
    let status = if has_condition(object, "Complete") {
        "Complete"
    } else if has_condition(object, "Failed") {
        "Failed"
    } else if row.is_being_deleted() {
        "Terminating"
    } else {
        ["Suspended", "FailureTarget", "SuccessCriteriaMet"]
            .into_iter()
            .find(|condition| has_condition(object, condition))
            .unwrap_or("Running")
    };
    let mut cells = vec![
        row.name(),
        json!(status),
        json!(completions),
        json!(duration),
        row.age(),
    ];
    cells.extend(containers(object, "/spec/template/spec/containers"));
    cells.push(json!(selector_text(at(object, "/spec/selector"))));
    cells
}

pub(super) fn cron_job(row: &Row<'_>) -> Vec<Value> {
    let object = row.object;
    let suspend = match at(object, "/spec/suspend") {
        Value::Bool(true) => "True",
        Value::Bool(false) => "False",
        _ => "<unset>",
    };
    let last = match at(object, "/status/lastScheduleTime").as_str() {
        Some(time) => since(Some(time), row.now),
        None => "<none>".to_owned(),
    };
    let mut cells = vec![
        row.name(),
        json!(text(object, "/spec/schedule")),
        json!(text_or(object, "/spec/timeZone", "<none>")),
        json!(suspend),
        json!(list(object, "/status/active").len()),
        json!(last),
        row.age(),
    ];
    cells.extend(containers(
        object,
        "/spec/jobTemplate/spec/template/spec/containers",
    ));
    cells.push(json!(selector_text(at(
        object,
        "/spec/jobTemplate/spec/selector"
    ))));
    cells
}

pub(super) fn pod_disruption_budget(row: &Row<'_>) -> Vec<Value> {
    let bound = |field: &str| match at(row.object, &format!("/spec/{field}")) {
        Value::Null => "N/A".to_owned(),
        value => plain(value),
    };
    vec![
        row.name(),
        json!(bound("minAvailable")),
        json!(bound("maxUnavailable")),
        json!(number(row.object, "/status/disruptionsAllowed")),
        row.age(),
    ]
}

pub(super) fn horizontal_pod_autoscaler(row: &Row<'_>) -> Vec<Value> {
    let object = row.object;
    let minimum = match at(object, "/spec/minReplicas").as_i64() {
        Some(minimum) => minimum.to_string(),
        None => "<unset>".to_owned(),
    };
    let reference = format!(
        "{}/{}",
        text(object, "/spec/scaleTargetRef/kind"),
        text(object, "/spec/scaleTargetRef/name")
    );
    vec![
        row.name(),
        json!(reference),
        json!(metrics(object)),
        json!(minimum),
        json!(number(object, "/spec/maxReplicas")),
        json!(number(object, "/status/currentReplicas")),
        row.age(),
    ]
}

/// Current and target value of each metric.
fn metrics(object: &Value) -> String {
    let current = list(object, "/status/currentMetrics");
    let texts: Vec<String> = list(object, "/spec/metrics")
        .iter()
        .enumerate()
        .map(|(position, metric)| metric_text(metric, current.get(position).unwrap_or(&Value::Null)))
        .collect();
    if texts.is_empty() {
        "<none>".to_owned()
    } else {
        some_of(&texts, 2, ", ")
    }
}

fn metric_text(metric: &Value, current: &Value) -> String {
    let (field, is_resource) = match text(metric, "/type") {
        "External" => ("external", false),
        "Pods" => ("pods", false),
        "Object" => ("object", false),
        "Resource" => ("resource", true),
        "ContainerResource" => ("containerResource", true),
        _ => return "<unknown type>".to_owned(),
    };
    let target = at(metric, &format!("/{field}/target"));
    let current = at(current, &format!("/{field}/current"));
    let shown = |value: &Value, unit: &str, otherwise: &str| match value {
        Value::Null => otherwise.to_owned(),
        value => format!("{}{unit}", plain(value)),
    };
    let average = at(target, "/averageValue");
    if is_resource {
        let name = text(metric, &format!("/{field}/name"));
        return if average.is_null() {
            let now = shown(at(current, "/averageUtilization"), "%", "<unknown>");
            format!(
                "{name}: {now}/{}",
                shown(at(target, "/averageUtilization"), "%", "<auto>")
            )
        } else {
            format!(
                "{name}: {}/{}",
                shown(at(current, "/averageValue"), "", "<unknown>"),
                plain(average)
            )
        };
    }
    if field == "pods" || average.is_null() {
        let key = if field == "pods" {
            "/averageValue"
        } else {
            "/value"
        };
        return format!(
            "{}/{}",
            shown(at(current, key), "", "<unknown>"),
            plain(at(target, key))
        );
    }
    format!(
        "{}/{} (avg)",
        shown(at(current, "/averageValue"), "", "<unknown>"),
        plain(average)
    )
}

fn ready(object: &Value) -> String {
    format!(
        "{}/{}",
        number(object, "/status/readyReplicas"),
        number(object, "/spec/replicas")
    )
}

/// The names and the images of containers.
fn containers(object: &Value, pointer: &str) -> [Value; 2] {
    ["/name", "/image"].map(|field| {
        let texts: Vec<&str> = list(object, pointer)
            .iter()
            .map(|container| text(container, field))
            .collect();
        json!(texts.join(","))
    })
}

/// A selector object as text.
pub(super) fn selector_text(selector: &Value) -> String {
    match format_label_selector(selector) {
        None => "<error>".to_owned(),
        Some(text) if text.is_empty() => "<none>".to_owned(),
        Some(text) => text,
    }
}

/// A map of labels as text.
pub(super) fn labels_text(labels: &Value) -> String {
    let texts: Vec<String> = labels
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| format!("{name}={}", plain(value)))
        .collect();
    if texts.is_empty() {
        "<none>".to_owned()
    } else {
        texts.join(",")
    }
}
