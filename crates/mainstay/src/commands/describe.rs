//! `mainstay describe`

mod children;
mod references;
mod remedies;

use jiff::Timestamp;
use kube::Client;
use mainstay_telemetry::clock;
use serde_json::Value;

use crate::{
    arguments::DescribeArguments,
    cluster,
    commands::{events, up},
    kinds::{Kinds, Served},
    output,
    requests::{self, Form, Query},
    targets,
    terminal::{self, Failure},
};

/// Events of one object that are shown, the newest.
const MOST_EVENTS: usize = 20;

/// Prints what an object is, what blocks it and what would mend that.
pub(crate) async fn run(arguments: &DescribeArguments) -> Result<(), Failure> {
    let client = cluster::client(&arguments.cluster).await?;
    let kinds = Kinds::discover(&client).await?;
    let query = targets::query(&arguments.place, client.default_namespace());
    let mut objects = Vec::new();
    for target in targets::parse(&kinds, &arguments.words, "get")? {
        match &target.name {
            Some(name) => {
                let object = requests::get(
                    &client,
                    &target.kind,
                    query.namespace.as_deref(),
                    name,
                    Form::Object,
                )
                .await?;
                objects.push((target.kind.clone(), object));
            }
            None => {
                let items = requests::list(&client, &target.kind, &query, Form::Object)
                    .await?
                    .items();
                objects.extend(items.into_iter().map(|object| (target.kind.clone(), object)));
            }
        }
    }
    if objects.is_empty() {
        terminal::message("nothing to describe");
    }
    let now = clock::system().now();
    for (position, (kind, object)) in objects.iter().enumerate() {
        if position > 0 {
            terminal::data("\n---\n");
        }
        let text = describe(&client, &kinds, kind, object, now).await?;
        terminal::data(terminal::printable(text.trim_end()));
    }
    Ok(())
}

async fn describe(
    client: &Client,
    kinds: &Kinds,
    kind: &Served,
    object: &Value,
    now: Timestamp,
) -> Result<String, Failure> {
    let looked = references::look(client, kinds, &kind.group, object).await;
    let children = children::find(client, kinds, object).await;
    let mut text = head(kind, object, now);
    section(&mut text, "State", &state_lines(kind, object, &looked));
    section(&mut text, "Conditions", &condition_rows(object, now));
    let rows: Vec<Vec<String>> = looked
        .iter()
        .map(|one| {
            let state = match &one.missing {
                Some(why) => format!("✗ {why}"),
                None => one.state.clone(),
            };
            vec![one.field.clone(), one.title.clone(), state]
        })
        .collect();
    section(&mut text, "References", &rows);
    let rows: Vec<Vec<String>> = children
        .into_iter()
        .map(|child| vec![child.title, child.state])
        .collect();
    section(&mut text, "What comes of it", &rows);
    section(
        &mut text,
        "Events",
        &event_rows(client, kinds, object, now).await?,
    );
    if let Some(spec) = object.get("spec") {
        // The values of a Secret or ConfigMap are no spec and are not shown.
        let spec = output::yaml(spec)?;
        let lines: Vec<Vec<String>> = spec
            .trim_end()
            .lines()
            .map(|line| vec![line.to_owned()])
            .collect();
        section(&mut text, "Spec", &lines);
    }
    let keys = ["data", "binaryData"]
        .iter()
        .filter_map(|part| object.get(part).and_then(Value::as_object))
        .flatten();
    let rows: Vec<Vec<String>> = keys
        .map(|(key, value)| {
            let length = value.as_str().unwrap_or_default().len();
            vec![key.clone(), format!("{length} bytes as stored")]
        })
        .collect();
    section(&mut text, "Keys", &rows);
    Ok(text)
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// A time, if there is one that can be read: what is not is shown as unknown.
fn time(object: &Value, pointer: &str) -> Option<Timestamp> {
    text(object, pointer).parse().ok()
}

fn head(kind: &Served, object: &Value, now: Timestamp) -> String {
    let mut head = format!("{} {}", kind.kind, text(object, "/metadata/name"));
    let namespace = text(object, "/metadata/namespace");
    if !namespace.is_empty() {
        head.push_str(&format!(" in namespace {namespace}"));
    }
    head.push_str(&format!(
        "\n{}, {} old, generation {}\n",
        kind.title(),
        events::age(time(object, "/metadata/creationTimestamp"), now),
        object
            .pointer("/metadata/generation")
            .and_then(Value::as_i64)
            .unwrap_or_default()
    ));
    for name in ["labels", "annotations"] {
        let pairs: Vec<String> = object
            .pointer(&format!("/metadata/{name}"))
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            // The whole former manifest in one line helps nobody.
            .filter(|(key, _)| *key != "kubectl.kubernetes.io/last-applied-configuration")
            .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
            .collect();
        if !pairs.is_empty() {
            head.push_str(&format!("{name}: {}\n", pairs.join(", ")));
        }
    }
    head
}

/// Adds a heading and lines below it; nothing where there are no lines.
fn section(text: &mut String, heading: &str, rows: &[Vec<String>]) {
    if rows.is_empty() {
        return;
    }
    text.push_str(&format!("\n{heading}\n"));
    for line in terminal::table(rows).lines() {
        text.push_str(&format!("  {line}\n"));
    }
}

/// How an object is, in one line, and what blocks it: `Failed: ProviderReady is False (ProviderNotFound): …`. Nothing where the
/// object does not say.
pub(crate) fn state(object: &Value) -> Option<String> {
    if object.pointer("/status/containerStatuses").is_some() {
        return Some(children::pod_state(object));
    }
    let status = object.get("status").and_then(Value::as_object)?;
    let conditions = status.get("conditions").and_then(Value::as_array);
    if status.contains_key("phase") {
        return Some(up::blocked(object));
    }
    let conditions = conditions?;
    match blocking(conditions) {
        Some(condition) => Some(condition_line(condition)),
        None => {
            let held: Vec<&str> = conditions
                .iter()
                .filter(|condition| text(condition, "/status") == "True")
                .map(|condition| text(condition, "/type"))
                .collect();
            (!held.is_empty()).then(|| held.join(", "))
        }
    }
}

/// Types of conditions that are bad when they are True.
const BAD_WHEN_TRUE: &[&str] = &[
    "Degraded",
    "Failed",
    "ReplicaFailure",
    "Stalled",
    "Terminating",
    "NonStructuralSchema",
];

fn blocking(conditions: &[Value]) -> Option<&Value> {
    conditions
        .iter()
        .find(|condition| match text(condition, "/status") {
            "True" => BAD_WHEN_TRUE.contains(&text(condition, "/type")),
            "False" => !BAD_WHEN_TRUE.contains(&text(condition, "/type")),
            _ => false,
        })
}

fn condition_line(condition: &Value) -> String {
    let message = text(condition, "/message")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    let behind = if message.is_empty() {
        String::new()
    } else {
        format!(": {message}")
    };
    format!(
        "{} is {} ({}){behind}",
        text(condition, "/type"),
        text(condition, "/status"),
        text(condition, "/reason")
    )
}

/// What blocks the object, and what would mend that.
fn state_lines(kind: &Served, object: &Value, looked: &[references::Looked]) -> Vec<Vec<String>> {
    let mut lines = Vec::new();
    if let Some(state) = state(object) {
        lines.push(state);
    }
    if !text(object, "/metadata/deletionTimestamp").is_empty() {
        let finalizers: Vec<&str> = object
            .pointer("/metadata/finalizers")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        lines.push(if finalizers.is_empty() {
            "it is being deleted".to_owned()
        } else {
            format!(
                "it is being deleted and waits for whoever removes {}",
                finalizers.join(", ")
            )
        });
    }
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64);
    if let (Some(observed), Some(generation)) = (
        number("/status/observedGeneration"),
        number("/metadata/generation"),
    ) && observed < generation
    {
        lines.push(format!(
            "generation {generation} has not been looked at yet; the state is that of generation {observed}"
        ));
    }
    if kind.group == mainstay_resources::kourier::GROUP
        && kind.kind == "Binding"
        && object.pointer("/status/conditions").is_none()
    {
        lines.push("no broker serves the connection that it names: nothing has looked at it".to_owned());
    }
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    for condition in conditions.into_iter().flatten() {
        let bad = blocking(std::slice::from_ref(condition)).is_some();
        let (named, reason) = (text(condition, "/type"), text(condition, "/reason"));
        // `Ready` repeats what another one says.
        if !bad || named == "Ready" {
            continue;
        }
        if let Some(remedy) = remedies::remedy(&kind.kind, named, reason) {
            lines.push(format!("to do about {named} ({reason}): {remedy}"));
        }
    }
    for one in looked {
        if let Some(why) = &one.missing {
            lines.push(format!("to do: `{}` names {}, which {why}", one.field, one.title));
        }
    }
    lines.into_iter().map(|line| vec![line]).collect()
}

fn condition_rows(object: &Value, now: Timestamp) -> Vec<Vec<String>> {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let mut rows: Vec<Vec<String>> = conditions
        .into_iter()
        .flatten()
        .map(|condition| {
            let since = time(condition, "/lastTransitionTime");
            let message = text(condition, "/message")
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ");
            vec![
                text(condition, "/type").to_owned(),
                text(condition, "/status").to_owned(),
                text(condition, "/reason").to_owned(),
                events::age(since, now),
                message,
            ]
        })
        .collect();
    if !rows.is_empty() {
        rows.insert(
            0,
            ["TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"]
                .map(str::to_owned)
                .to_vec(),
        );
    }
    rows
}

async fn event_rows(
    client: &Client,
    kinds: &Kinds,
    object: &Value,
    now: Timestamp,
) -> Result<Vec<Vec<String>>, Failure> {
    let namespace = text(object, "/metadata/namespace");
    let query = Query {
        // Events of objects outside namespaces are kept in `default`.
        namespace: Some(
            if namespace.is_empty() {
                "default"
            } else {
                namespace
            }
            .to_owned(),
        ),
        labels: None,
        fields: Some(format!("involvedObject.uid={}", text(object, "/metadata/uid"))),
    };
    let found = events::read(client, kinds, &query).await?;
    Ok(found
        .iter()
        .skip(found.len().saturating_sub(MOST_EVENTS))
        .map(|event| {
            let message = text(event, "/message")
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ");
            vec![
                events::age(events::seen(event), now),
                text(event, "/type").to_owned(),
                text(event, "/reason").to_owned(),
                message,
            ]
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_state_of_any_kind_is_one_line() {
        let failed = json!({"status": {"phase": "Failed", "conditions": [
            {"type": "ProviderReady", "status": "False", "reason": "ProviderNotFound", "message": "gone"},
        ]}});
        assert_eq!(
            state(&failed).as_deref(),
            Some("Failed: ProviderReady is False (ProviderNotFound): gone")
        );
        let deployment = json!({"status": {"conditions": [
            {"type": "Progressing", "status": "True", "reason": "x"},
            {"type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable", "message": "a\n b"},
        ]}});
        assert_eq!(
            state(&deployment).as_deref(),
            Some("Available is False (MinimumReplicasUnavailable): a b")
        );
        let failure = json!({"status": {"conditions": [
            {"type": "Available", "status": "True", "reason": "x"},
            {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"},
        ]}});
        assert_eq!(
            state(&failure).as_deref(),
            Some("ReplicaFailure is True (FailedCreate)")
        );
        let well = json!({"status": {"conditions": [{"type": "Established", "status": "True"}]}});
        assert_eq!(state(&well).as_deref(), Some("Established"));
        assert_eq!(state(&json!({"data": {}})), None);
    }
}
