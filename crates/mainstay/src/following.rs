//! Following the objects of a kind: what there is, and then every change, for as long as the reader wants.

use std::time::Duration;

use futures::TryStreamExt;
use kube::{Client, core::WatchEvent};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    applying::cause,
    kinds::Served,
    requests::{self, Form, Listed, Query},
    terminal::Failure,
};

/// Says that a version is too old to be watched from.
const GONE: u16 = 410;
/// How often a watch is begun at most: one that a server ends at once is not asked for all the time.
const BEGINS_EVERY: Duration = Duration::from_secs(1);

/// What a reader is told.
#[derive(Debug)]
pub(crate) enum News {
    /// Everything that there is: at first, and again where changes may have been missed.
    Listed(Listed),
    /// An object, or the row of one, that is new or another.
    Changed(Value),
    /// An object, or the row of one, that is gone.
    Gone(Value),
}

/// Tells what there is and then every change. A watch ends after some minutes and is taken up where it ended; one whose
/// start is too old begins anew.
///
/// # Errors
///
/// What the server answers or the reader fails with, and a connection that breaks.
pub(crate) async fn follow(
    client: &Client,
    kind: &Served,
    query: &Query,
    form: Form,
    mut tell: impl FnMut(News) -> Result<(), Failure>,
) -> Result<(), Failure> {
    loop {
        let listed = requests::list(client, kind, query, form).await?;
        let mut version = listed.version.clone();
        tell(News::Listed(listed))?;
        loop {
            let began = Instant::now();
            let ended = watch(client, kind, query, form, &mut version, &mut tell).await?;
            tokio::time::sleep_until(began + BEGINS_EVERY).await;
            if ended == Ended::Elsewhere {
                break;
            }
        }
    }
}

/// Where a watch ended.
#[derive(PartialEq, Eq)]
enum Ended {
    /// Where the next one begins.
    Here,
    /// Nobody knows what came behind it.
    Elsewhere,
}

async fn watch(
    client: &Client,
    kind: &Served,
    query: &Query,
    form: Form,
    version: &mut String,
    tell: &mut impl FnMut(News) -> Result<(), Failure>,
) -> Result<Ended, Failure> {
    let events = match requests::watch(client, kind, query, version, form).await {
        Ok(events) => events,
        Err(kube::Error::Api(status)) if status.code == GONE => return Ok(Ended::Elsewhere),
        Err(error) => return Err(requests::refused(kind, &error)),
    };
    let mut events = std::pin::pin!(events);
    while let Some(event) = events
        .try_next()
        .await
        .map_err(|error| Failure::new(format!("{}: {}", kind.title(), cause(&error))))?
    {
        match event {
            WatchEvent::Added(value) | WatchEvent::Modified(value) => {
                advance(version, version_of(&value));
                tell(News::Changed(value))?;
            }
            WatchEvent::Deleted(value) => {
                advance(version, version_of(&value));
                tell(News::Gone(value))?;
            }
            WatchEvent::Bookmark(bookmark) => advance(version, Some(&bookmark.metadata.resource_version)),
            WatchEvent::Error(status) if status.code == GONE => return Ok(Ended::Elsewhere),
            WatchEvent::Error(status) => return Err(Failure::new(status.message)),
        }
    }
    Ok(Ended::Here)
}

fn advance(version: &mut String, seen: Option<&str>) {
    if let Some(seen) = seen.filter(|seen| !seen.is_empty()) {
        seen.clone_into(version);
    }
}

/// The version of an object, or of the one whose row it is.
fn version_of(value: &Value) -> Option<&str> {
    value
        .pointer("/rows/0/object/metadata/resourceVersion")
        .or_else(|| value.pointer("/metadata/resourceVersion"))
        .and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::{Arc, Mutex};

    use serde_json::json;

    use super::*;

    /// A server that gives these answers in turn, and what it was asked for.
    fn server(answers: Vec<(u16, String)>) -> (Client, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        let answers = Mutex::new(answers.into_iter());
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let words = url::form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes());
            let version = words
                .filter(|(name, _)| name == "resourceVersion")
                .map(|(_, value)| value.into_owned())
                .next();
            seen.lock()
                .unwrap()
                .push(version.unwrap_or_else(|| "list".to_owned()));
            let (code, body) = answers.lock().unwrap().next().unwrap();
            let answer = http::Response::builder().status(code);
            let answer = answer.body(kube::client::Body::from(body.into_bytes())).unwrap();
            std::future::ready(Ok::<_, std::convert::Infallible>(answer))
        });
        (Client::new(service, "default"), asked)
    }

    fn lines(events: &[Value]) -> String {
        events.iter().map(|event| format!("{event}\n")).collect()
    }

    fn object(name: &str, version: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "resourceVersion": version}})
    }

    #[tokio::test(start_paused = true)]
    async fn a_bookmark_moves_the_version_on_and_one_that_is_too_old_begins_anew() {
        let gone = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"});
        let list = |version: &str, items: &[Value]| {
            json!({"apiVersion": "v1", "kind": "EventList", "metadata": {"resourceVersion": version}, "items": items}).to_string()
        };
        let bookmark = json!({"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "Event", "metadata": {"resourceVersion": "20"}}});
        let forbidden = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "not you"});
        let (client, asked) = server(vec![
            (200, list("10", &[object("a", "9")])),
            (
                200,
                lines(&[json!({"type": "ADDED", "object": object("b", "11")}), bookmark]),
            ),
            (200, lines(&[json!({"type": "ERROR", "object": gone})])),
            (200, list("30", &[object("a", "9"), object("c", "25")])),
            (
                200,
                lines(&[json!({"type": "DELETED", "object": object("a", "31")})]),
            ),
            // As an answer, where the watch does not even begin.
            (410, gone.to_string()),
            (200, list("40", &[])),
            (403, forbidden.to_string()),
        ]);
        let kind = Served::of_test("events", "Event");
        let (query, mut told) = (Query::default(), Vec::new());
        let ended = follow(&client, &kind, &query, Form::Object, |news| {
            let name = |value: &Value| {
                value
                    .pointer("/metadata/name")
                    .unwrap()
                    .as_str()
                    .unwrap()
                    .to_owned()
            };
            told.push(match news {
                News::Listed(listed) => listed.items().iter().map(name).collect::<Vec<_>>().join("+"),
                News::Changed(value) => format!("changed {}", name(&value)),
                News::Gone(value) => format!("gone {}", name(&value)),
            });
            Ok(())
        });
        assert_eq!(ended.await.unwrap_err().text, "not you");
        assert_eq!(told, ["a", "changed b", "a+c", "gone a", ""]);
        assert_eq!(
            *asked.lock().unwrap(),
            ["list", "10", "20", "list", "30", "31", "list", "40"]
        );
    }
}
