//! `mainstay events`

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::Client;
use mainstay_kubeapi::table::human_duration;
use mainstay_telemetry::clock;
use serde_json::Value;

use crate::{
    arguments::EventsArguments,
    cluster,
    following::{self, News},
    kinds::{Kinds, Served},
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
    let with_namespace = query.namespace.is_none();
    let show = |events: &[Value]| {
        let now = clock::system().now();
        let mut table = vec![heading(with_namespace)];
        table.extend(events.iter().map(|event| row(event, now, with_namespace)));
        terminal::data(terminal::printable(&terminal::table(&table)));
    };
    if arguments.watch {
        let mut shown = Shown::default();
        let mut first = true;
        return following::follow(&client, event_kind(&kinds)?, &query, Form::Object, |news| {
            let fresh = match news {
                News::Listed(listed) => {
                    let mut events = shown.listed(listed.items());
                    events.retain(|event| wanted(event));
                    if std::mem::take(&mut first) {
                        show(&events);
                        return Ok(());
                    }
                    events
                }
                News::Changed(event) => shown.changed(event).into_iter().collect(),
                // An event that has expired is no news.
                News::Gone(event) => {
                    shown.gone(&event);
                    Vec::new()
                }
            };
            for event in fresh.iter().filter(|event| wanted(event)) {
                let cells = row(event, clock::system().now(), with_namespace);
                terminal::data(terminal::printable(&cells.join("  ")));
            }
            Ok(())
        })
        .await;
    }
    let mut events = read(&client, &kinds, &query).await?;
    events.retain(|event| wanted(event));
    if events.is_empty() {
        terminal::message(match &query.namespace {
            Some(namespace) => format!("no events in namespace {namespace}"),
            None => "no events".to_owned(),
        });
        return Ok(());
    }
    show(&events);
    Ok(())
}

/// The events that a query selects, the newest last.
pub(crate) async fn read(client: &Client, kinds: &Kinds, query: &Query) -> Result<Vec<Value>, Failure> {
    let listed = requests::list(client, event_kind(kinds)?, query, Form::Object).await?;
    let mut events = listed.items();
    events.sort_by_key(seen);
    Ok(events)
}

fn event_kind(kinds: &Kinds) -> Result<&Served, Failure> {
    kinds
        .of("", "Event")
        .ok_or_else(|| Failure::new("the server keeps no events"))
}

/// Which events were shown, so that those of a list that is read again are not shown again. It holds as many as the server.
#[derive(Debug, Default)]
struct Shown {
    /// The version of each, by its UID.
    versions: BTreeMap<String, String>,
}

impl Shown {
    /// Of everything that there is, what is new, the newest last.
    fn listed(&mut self, events: Vec<Value>) -> Vec<Value> {
        let before = std::mem::take(&mut self.versions);
        let mut fresh = Vec::new();
        for event in events {
            let (uid, version) = identity(&event);
            if before.get(&uid) != Some(&version) {
                fresh.push(event);
            }
            self.versions.insert(uid, version);
        }
        fresh.sort_by_key(seen);
        fresh
    }

    fn changed(&mut self, event: Value) -> Option<Value> {
        let (uid, version) = identity(&event);
        let before = self.versions.insert(uid, version.clone());
        (before != Some(version)).then_some(event)
    }

    fn gone(&mut self, event: &Value) {
        self.versions.remove(&identity(event).0);
    }
}

fn identity(event: &Value) -> (String, String) {
    let text = |pointer| text(event, pointer).to_owned();
    (text("/metadata/uid"), text("/metadata/resourceVersion"))
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
    fn what_a_list_that_is_read_again_repeats_is_not_shown_again() {
        let event = |uid: &str, version: &str| json!({"metadata": {"uid": uid, "resourceVersion": version, "creationTimestamp": "2026-01-01T00:00:00Z"}});
        let mut shown = Shown::default();
        let all = vec![event("a", "1"), event("b", "2")];
        assert_eq!(shown.listed(all.clone()), all);
        assert_eq!(shown.changed(event("b", "3")), Some(event("b", "3")));
        shown.gone(&event("a", "4"));
        // `b` is as it was, `c` came while nobody watched, `a` is there again.
        let again = vec![event("b", "3"), event("c", "5"), event("a", "6")];
        assert_eq!(shown.listed(again), [event("c", "5"), event("a", "6")]);
        assert_eq!(shown.changed(event("c", "5")), None);
        assert_eq!(shown.versions.len(), 3);
    }

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
