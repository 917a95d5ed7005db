//! `mainstay events`

use std::sync::Arc;

use futures::TryStreamExt;
use jiff::Timestamp;
use kube::{Client, core::WatchEvent};
use mainstay_kubeapi::table::human_duration;
use mainstay_telemetry::clock;
use serde_json::Value;

use crate::{
    applying::cause,
    arguments::EventsArguments,
    cluster,
    kinds::Kinds,
    requests::{self, Form, Query},
    targets,
    terminal::{self, Failure},
};

/// Prints what happened, the newest last.
pub(crate) async fn run(arguments: &EventsArguments) -> Result<(), Failure> {
    let client = cluster::client(&arguments.cluster).await?;
    let kinds = Kinds::discover(&client).await?;
    let about = match &arguments.about {
        None => None,
        Some(word) => {
            let targets = targets::parse(&kinds, std::slice::from_ref(word), "get")?;
            let [target] = targets.as_slice() else {
                return Err(Failure::new(format!("`{word}` is more than one object")));
            };
            let name = target
                .name
                .clone()
                .ok_or_else(|| Failure::new(format!("`{word}` is not of the form TYPE/NAME")))?;
            Some((target.kind.kind.clone(), name))
        }
    };
    let namespace = arguments
        .namespace
        .clone()
        .unwrap_or_else(|| client.default_namespace().to_owned());
    let query = Query {
        namespace: (!arguments.all_namespaces).then_some(namespace),
        labels: None,
        fields: about
            .as_ref()
            .map(|(kind, name)| format!("involvedObject.kind={kind},involvedObject.name={name}")),
    };
    let wanted = |event: &Value| {
        arguments
            .kind
            .as_deref()
            .is_none_or(|kind| text(event, "/type").eq_ignore_ascii_case(kind))
    };
    let (mut events, version) = read(&client, &kinds, &query).await?;
    events.retain(|event| wanted(event));
    if events.is_empty() && !arguments.watch {
        terminal::message(match &query.namespace {
            Some(namespace) => format!("no events in namespace {namespace}"),
            None => "no events".to_owned(),
        });
        return Ok(());
    }
    let now = Arc::clone(&clock::system()).now();
    let rows: Vec<Vec<String>> = events
        .iter()
        .map(|event| row(event, now, query.namespace.is_none()))
        .collect();
    let mut table = vec![heading(query.namespace.is_none())];
    table.extend(rows);
    terminal::data(terminal::printable(&terminal::table(&table)));
    if arguments.watch {
        return follow(&client, &kinds, &query, version, wanted).await;
    }
    Ok(())
}

/// The events that a query selects, the newest last, and the version they were read at.
pub(crate) async fn read(
    client: &Client,
    kinds: &Kinds,
    query: &Query,
) -> Result<(Vec<Value>, String), Failure> {
    let kind = kinds
        .of("", "Event")
        .ok_or_else(|| Failure::new("the server keeps no events"))?;
    let listed = requests::list(client, kind, query, Form::Object).await?;
    let version = listed.version.clone();
    let mut events = listed.items();
    events.sort_by_key(seen);
    Ok((events, version))
}

async fn follow(
    client: &Client,
    kinds: &Kinds,
    query: &Query,
    mut version: String,
    wanted: impl Fn(&Value) -> bool,
) -> Result<(), Failure> {
    let kind = kinds
        .of("", "Event")
        .ok_or_else(|| Failure::new("the server keeps no events"))?;
    loop {
        let events = requests::watch(client, kind, query, &version, Form::Object).await?;
        let mut events = std::pin::pin!(events);
        while let Some(event) = events
            .try_next()
            .await
            .map_err(|error| Failure::new(format!("events: {}", cause(&error))))?
        {
            match event {
                WatchEvent::Added(event) | WatchEvent::Modified(event) => {
                    text(&event, "/metadata/resourceVersion").clone_into(&mut version);
                    if wanted(&event) {
                        let cells = row(&event, clock::system().now(), query.namespace.is_none());
                        terminal::data(terminal::printable(&cells.join("  ")));
                    }
                }
                // An event that has expired is no news.
                WatchEvent::Deleted(event) => {
                    text(&event, "/metadata/resourceVersion").clone_into(&mut version);
                }
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(status) => return Err(Failure::new(status.message)),
            }
        }
    }
}

fn text<'a>(event: &'a Value, pointer: &str) -> &'a str {
    event.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// When it was seen last.
pub(crate) fn seen(event: &Value) -> Option<Timestamp> {
    [
        "/series/lastObservedTime",
        "/lastTimestamp",
        "/eventTime",
        "/metadata/creationTimestamp",
    ]
    .iter()
    .find_map(|pointer| text(event, pointer).parse().ok())
}

/// How long ago a moment was, for people.
pub(crate) fn age(then: Option<Timestamp>, now: Timestamp) -> String {
    then.map_or_else(
        || "unknown".to_owned(),
        |then| human_duration(now.duration_since(then).as_secs()),
    )
}

fn heading(with_namespace: bool) -> Vec<String> {
    let columns = ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"].map(str::to_owned);
    with_namespace
        .then(|| "NAMESPACE".to_owned())
        .into_iter()
        .chain(columns)
        .collect()
}

fn row(event: &Value, now: Timestamp, with_namespace: bool) -> Vec<String> {
    let count = event.pointer("/series/count").or_else(|| event.get("count"));
    let count = count.and_then(Value::as_i64).unwrap_or(1);
    let times = if count > 1 {
        format!(" (x{count})")
    } else {
        String::new()
    };
    let message = text(event, "/message")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    let columns = [
        format!("{}{times}", age(seen(event), now)),
        text(event, "/type").to_owned(),
        text(event, "/reason").to_owned(),
        format!(
            "{}/{}",
            text(event, "/involvedObject/kind").to_lowercase(),
            text(event, "/involvedObject/name")
        ),
        message,
    ];
    with_namespace
        .then(|| text(event, "/metadata/namespace").to_owned())
        .into_iter()
        .chain(columns)
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_says_when_how_often_and_of_what() {
        let event = json!({
            "type": "Warning", "reason": "ProviderNotFound", "message": "entry\n  \"default\"", "count": 3,
            "lastTimestamp": "2026-01-01T00:00:00Z",
            "involvedObject": {"kind": "AgentRuntime", "name": "helpdesk"},
            "metadata": {"namespace": "default"},
        });
        let now: Timestamp = "2026-01-01T00:00:42Z".parse().unwrap();
        assert_eq!(
            row(&event, now, true),
            [
                "default",
                "42s (x3)",
                "Warning",
                "ProviderNotFound",
                "agentruntime/helpdesk",
                "entry \"default\""
            ]
        );
        assert_eq!(heading(true).len(), row(&event, now, true).len());
        assert_eq!(heading(false).len(), row(&event, now, false).len());
    }
}
