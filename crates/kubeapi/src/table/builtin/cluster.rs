//! Configuration, events, and what belongs to the cluster.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::duration::since;
use super::super::object::{at, condition, entries, list, number, plain, text, text_or};
use super::Row;

pub(super) fn namespace(row: &Row<'_>) -> Vec<Value> {
    vec![row.name(), json!(text(row.object, "/status/phase")), row.age()]
}

pub(super) fn secret(row: &Row<'_>) -> Vec<Value> {
    // The number of entries only: a table is shown to whoever may list.
    vec![
        row.name(),
        json!(text(row.object, "/type")),
        json!(entries(row.object, "/data")),
        row.age(),
    ]
}

pub(super) fn config_map(row: &Row<'_>) -> Vec<Value> {
    let count = entries(row.object, "/data") + entries(row.object, "/binaryData");
    vec![row.name(), json!(count), row.age()]
}

pub(super) fn lease(row: &Row<'_>) -> Vec<Value> {
    vec![
        row.name(),
        json!(text(row.object, "/spec/holderIdentity")),
        row.age(),
    ]
}

pub(super) fn runtime_class(row: &Row<'_>) -> Vec<Value> {
    vec![row.name(), json!(text(row.object, "/handler")), row.age()]
}

pub(super) fn node(row: &Row<'_>) -> Vec<Value> {
    let object = row.object;
    let ready = match condition(object, "Ready") {
        None => "Unknown",
        Some(condition) if text(condition, "/status") == "True" => "Ready",
        Some(_) => "NotReady",
    };
    let cordoned = at(object, "/spec/unschedulable") == &Value::Bool(true);
    let status = format!("{ready}{}", if cordoned { ",SchedulingDisabled" } else { "" });
    let roles: BTreeSet<&str> = at(object, "/metadata/labels")
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(
            |(name, value)| match name.strip_prefix("node-role.kubernetes.io/") {
                Some(role) => Some(role),
                None if name == "kubernetes.io/role" => value.as_str(),
                None => None,
            },
        )
        .filter(|role| !role.is_empty())
        .collect();
    let roles = if roles.is_empty() {
        "<none>".to_owned()
    } else {
        roles.into_iter().collect::<Vec<_>>().join(",")
    };
    let mut kernel = text_or(object, "/status/nodeInfo/kernelVersion", "<unknown>").to_owned();
    match text(object, "/status/nodeInfo/architecture") {
        "" => {}
        architecture => kernel.push_str(&format!(" ({architecture})")),
    }
    vec![
        row.name(),
        json!(status),
        json!(roles),
        row.age(),
        json!(text(object, "/status/nodeInfo/kubeletVersion")),
        json!(node_address(object, "InternalIP")),
        json!(node_address(object, "ExternalIP")),
        json!(text_or(object, "/status/nodeInfo/osImage", "<unknown>")),
        json!(kernel),
        json!(text_or(
            object,
            "/status/nodeInfo/containerRuntimeVersion",
            "<unknown>"
        )),
    ]
}

fn node_address<'a>(object: &'a Value, kind: &str) -> &'a str {
    list(object, "/status/addresses")
        .iter()
        .find(|address| text(address, "/type") == kind)
        .map_or("<none>", |address| text(address, "/address"))
}

pub(super) fn persistent_volume_claim(row: &Row<'_>) -> Vec<Value> {
    let object = row.object;
    let phase = if row.is_being_deleted() {
        "Terminating"
    } else {
        text(object, "/status/phase")
    };
    let volume = text(object, "/spec/volumeName");
    let (capacity, modes) = if volume.is_empty() {
        (String::new(), String::new())
    } else {
        (
            plain(at(object, "/status/capacity/storage")),
            access_modes(object),
        )
    };
    let class = text_or(
        object,
        "/metadata/annotations/volume.beta.kubernetes.io~1storage-class",
        text(object, "/spec/storageClassName"),
    );
    vec![
        row.name(),
        json!(phase),
        json!(volume),
        json!(capacity),
        json!(modes),
        json!(class),
        json!(text_or(object, "/spec/volumeAttributesClassName", "<unset>")),
        row.age(),
        json!(text_or(object, "/spec/volumeMode", "<unset>")),
    ]
}

fn access_modes(object: &Value) -> String {
    let modes: Vec<&str> = list(object, "/status/accessModes")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ]
    .into_iter()
    .filter(|(mode, _)| modes.contains(mode))
    .map(|(_, short)| short)
    .collect::<Vec<_>>()
    .join(",")
}

/// An Event, in either of its groups: the newer one renamed the fields.
pub(super) fn event(row: &Row<'_>) -> Vec<Value> {
    let object = row.object;
    let either = |names: [&str; 2]| {
        names
            .into_iter()
            .map(|name| at(object, name))
            .find(|value| !value.is_null())
            .unwrap_or(&Value::Null)
    };
    let time = |names: [&str; 2]| either(names).as_str();
    let event_time = at(object, "/eventTime").as_str();
    let first = since(
        time(["/firstTimestamp", "/deprecatedFirstTimestamp"]).or(event_time),
        row.now,
    );
    let series = at(object, "/series");
    let mut last = match time(["/lastTimestamp", "/deprecatedLastTimestamp"]) {
        Some(time) => since(Some(time), row.now),
        None => first.clone(),
    };
    let mut count = either(["/count", "/deprecatedCount"])
        .as_i64()
        .unwrap_or_default();
    if series.is_object() {
        last = since(at(series, "/lastObservedTime").as_str(), row.now);
        count = number(series, "/count");
    } else if count == 0 {
        count = 1;
    }
    let involved = either(["/involvedObject", "/regarding"]);
    let kind = text(involved, "/kind").to_lowercase();
    let target = match text(involved, "/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let source = either(["/source", "/deprecatedSource"]);
    let component = text_or(
        source,
        "/component",
        either(["/reportingComponent", "/reportingController"])
            .as_str()
            .unwrap_or_default(),
    );
    let source = match text_or(source, "/host", text(object, "/reportingInstance")) {
        "" => component.to_owned(),
        host => format!("{component}, {host}"),
    };
    let message = either(["/message", "/note"]).as_str().unwrap_or_default().trim();
    vec![
        json!(last),
        json!(text(object, "/type")),
        json!(text(object, "/reason")),
        json!(target),
        json!(text(involved, "/fieldPath")),
        json!(source),
        json!(message),
        json!(first),
        json!(count),
        row.name(),
    ]
}

pub(super) fn admission_policy(row: &Row<'_>) -> Vec<Value> {
    let object = row.object;
    let kind = match (
        text(object, "/spec/paramKind/apiVersion"),
        text(object, "/spec/paramKind/kind"),
    ) {
        ("", "") => "<unset>".to_owned(),
        (version, kind) => format!("{version}/{kind}"),
    };
    let validations = list(object, "/spec/validations").len();
    vec![row.name(), json!(validations), json!(kind), row.age()]
}

pub(super) fn admission_policy_binding(row: &Row<'_>) -> Vec<Value> {
    let object = row.object;
    let reference = at(object, "/spec/paramRef");
    let parameters = match (text(reference, "/namespace"), text(reference, "/name")) {
        (_, "") => match reference.get("selector") {
            Some(selector) => shown_selector(selector),
            None if reference.is_null() => "<unset>".to_owned(),
            None => String::new(),
        },
        ("", name) => format!("*/{name}"),
        (namespace, name) => format!("{namespace}/{name}"),
    };
    vec![
        row.name(),
        json!(text(object, "/spec/policyName")),
        json!(parameters),
        row.age(),
    ]
}

/// A selector as the reference prints its structure.
fn shown_selector(selector: &Value) -> String {
    let labels = selector.get("matchLabels").and_then(Value::as_object);
    let labels: String = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}: {},", value.as_str().unwrap_or_default()))
        .collect();
    let expressions: String = list(selector, "/matchExpressions")
        .iter()
        .map(|expression| {
            let values: Vec<&str> = list(expression, "/values")
                .iter()
                .filter_map(Value::as_str)
                .collect();
            format!(
                "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{}],}},",
                text(expression, "/key"),
                text(expression, "/operator"),
                values.join(" ")
            )
        })
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

pub(super) fn role_binding(row: &Row<'_>) -> Vec<Value> {
    let object = row.object;
    let role = format!(
        "{}/{}",
        text(object, "/roleRef/kind"),
        text(object, "/roleRef/name")
    );
    let subjects = |kind: &str| {
        let names: Vec<String> = list(object, "/subjects")
            .iter()
            .filter(|subject| text(subject, "/kind") == kind)
            .map(|subject| match kind {
                "ServiceAccount" => format!("{}/{}", text(subject, "/namespace"), text(subject, "/name")),
                _ => text(subject, "/name").to_owned(),
            })
            .collect();
        json!(names.join(", "))
    };
    vec![
        row.name(),
        json!(role),
        row.age(),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}
