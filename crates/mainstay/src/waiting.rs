//! Waiting for an object: the states that it is to reach (`--for`), and the one wait of all verbs.

use std::str::FromStr;

use futures::StreamExt;
use kube::{
    Api,
    api::DynamicObject,
    runtime::{WatchStreamExt, watcher},
};
use mainstay_kubeapi::table::jsonpath::{JsonPath, print};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::{
    applying::{cause, condition},
    terminal::Failure,
};

/// Which object is looked at.
pub(crate) struct Watched<'a> {
    /// Where it is.
    pub(crate) api: Api<DynamicObject>,
    /// Its name.
    pub(crate) name: &'a str,
    /// Its identity, where one of the same name that comes after it is not meant: to the wait that one is not there.
    pub(crate) uid: Option<&'a str>,
}

/// Why a wait ended without what was waited for.
#[derive(Debug)]
pub(crate) enum Unmet {
    /// The time was up.
    TimeUp {
        /// As the object was last; `None` where it was not there or not seen.
        last: Option<Box<DynamicObject>>,
        /// What kept it from being seen, if something did to the end.
        interruption: Option<String>,
    },
    /// Going on would change nothing.
    Failed(Failure),
}

/// Looks at an object now and after each change, until `judge` finds what is waited for; `None` stands for an object that
/// is not there. A watch that breaks is taken up again, later each time, for as long as there is time.
///
/// # Errors
///
/// When the time is up, when the server refuses the watch, and what `judge` fails with.
pub(crate) async fn until<T>(
    watched: Watched<'_>,
    ends: Instant,
    mut judge: impl FnMut(Option<&DynamicObject>) -> Result<Option<T>, Failure>,
) -> Result<T, Unmet> {
    let Watched { api, name, uid } = watched;
    let mut changes = Box::pin(watcher::watch_object(api, name).default_backoff());
    let (mut last, mut interruption) = (None, None);
    while let Ok(Some(change)) = timeout_at(ends, changes.next()).await {
        match change {
            Ok(object) => {
                let object = object.filter(|object| uid.is_none() || object.metadata.uid.as_deref() == uid);
                if let Some(found) = judge(object.as_ref()).map_err(Unmet::Failed)? {
                    return Ok(found);
                }
                (last, interruption) = (object.map(Box::new), None);
            }
            Err(error) if is_refused(&error) => return Err(Unmet::Failed(Failure::new(cause(&error)))),
            Err(error) => interruption = Some(cause(&error)),
        }
    }
    Err(Unmet::TimeUp { last, interruption })
}

/// Whether the server will not let this object be watched, however often it is asked.
fn is_refused(error: &watcher::Error) -> bool {
    let code = match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status)) => status.code,
        watcher::Error::WatchError(status) => status.code,
        _ => return false,
    };
    matches!(code, 400 | 401 | 403 | 404 | 405)
}

/// A state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Wanted {
    /// A condition has this status. Statuses are compared without regard to case.
    Condition {
        /// Its type.
        name: String,
        /// Its status.
        status: String,
    },
    /// A field has this value, or any.
    Field {
        /// Where the field is.
        path: JsonPath,
        /// As it was written.
        shown: String,
        /// The value as text.
        value: Option<String>,
    },
    /// It is there.
    Created,
    /// It is not there.
    Deleted,
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            None if text == "create" => Ok(Wanted::Created),
            None if text == "delete" => Ok(Wanted::Deleted),
            Some(("condition", rest)) => {
                let (name, status) = rest.split_once('=').unwrap_or((rest, "True"));
                if name.is_empty() || status.is_empty() {
                    return Err("a condition has a name, and a status behind `=`".to_owned());
                }
                Ok(Wanted::Condition {
                    name: name.to_owned(),
                    status: status.to_owned(),
                })
            }
            Some(("jsonpath", rest)) => {
                // A filter holds `=` too: the value stands behind the braces, where there are any.
                let (path, value) = match rest.rfind('}') {
                    Some(end) => {
                        let (path, behind) = rest.split_at(end + 1);
                        match behind.strip_prefix('=') {
                            Some(value) => (path, Some(value)),
                            None if behind.is_empty() => (path, None),
                            None => return Err(format!("`{behind}` behind the path is not `=VALUE`")),
                        }
                    }
                    None => match rest.split_once('=') {
                        Some((path, value)) => (path, Some(value)),
                        None => (rest, None),
                    },
                };
                let parsed = JsonPath::parse(path).map_err(|error| format!("`{path}`: {error}"))?;
                if path.trim_matches(['{', '}', ' ']).is_empty() {
                    return Err("the path is empty".to_owned());
                }
                Ok(Wanted::Field {
                    path: parsed,
                    shown: path.to_owned(),
                    value: value.map(str::to_owned),
                })
            }
            _ => Err("one of condition=NAME[=VALUE], jsonpath=PATH[=VALUE], create and delete".to_owned()),
        }
    }
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Wanted::Condition { name, status } => write!(formatter, "condition {name}={status}"),
            Wanted::Field { shown, value, .. } => match value {
                Some(value) => write!(formatter, "{shown}={value}"),
                None => write!(formatter, "{shown}"),
            },
            Wanted::Created => formatter.write_str("creation"),
            Wanted::Deleted => formatter.write_str("deletion"),
        }
    }
}

impl Wanted {
    /// Whether an object is in the state; `None` stands for one that is not there.
    ///
    /// # Errors
    ///
    /// When the path leads to several values.
    pub(crate) fn is_met(&self, object: Option<&Value>) -> Result<bool, String> {
        let Some(object) = object else {
            return Ok(*self == Wanted::Deleted);
        };
        match self {
            Wanted::Created => Ok(true),
            Wanted::Deleted => Ok(false),
            Wanted::Condition { name, status } => {
                let Some(found) = condition(object, name) else {
                    return Ok(false);
                };
                // What was said of a former spec does not count.
                let generation = |value: Option<&Value>| value.and_then(Value::as_i64).unwrap_or_default();
                let current = generation(object.pointer("/metadata/generation"));
                let observed = found
                    .get("observedGeneration")
                    .or_else(|| object.pointer("/status/observedGeneration"));
                if observed.is_some() && generation(observed) < current {
                    return Ok(false);
                }
                let held = found.get("status").and_then(Value::as_str).unwrap_or_default();
                Ok(held.eq_ignore_ascii_case(status))
            }
            Wanted::Field { path, shown, value } => {
                let Ok(found) = path.find(object) else {
                    // What the path needs may come yet.
                    return Ok(false);
                };
                match (found.as_slice(), value) {
                    ([], _) => Ok(false),
                    ([one], Some(value)) => Ok(print(one) == *value),
                    ([one], None) => Ok(!one.is_null() && one.as_str() != Some("")),
                    (several, _) => Err(format!(
                        "{shown} leads to {} values and not to one",
                        several.len()
                    )),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        time::Duration,
    };

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::{ApiResource, DeleteParams, PostParams};
    use mainstay_kubeapi::{ApiOptions, Identity};
    use mainstay_store::kube::{KubeOptions, KubeStore};
    use mainstay_telemetry::{clock, random};
    use serde_json::json;

    use super::*;

    fn met(state: &str, object: &Value) -> bool {
        state.parse::<Wanted>().unwrap().is_met(Some(object)).unwrap()
    }

    #[test]
    fn a_state_is_met_by_what_the_object_says() {
        let object = json!({
            "metadata": {"generation": 2},
            "status": {"phase": "Running", "replicas": 3, "empty": "", "conditions": [
                {"type": "Ready", "status": "True", "observedGeneration": 2},
                {"type": "Old", "status": "True", "observedGeneration": 1},
            ]},
        });
        for (state, expected) in [
            ("condition=Ready", true),
            ("condition=Ready=true", true),
            ("condition=Ready=False", false),
            ("condition=Old", false),
            ("condition=Absent", false),
            ("jsonpath={.status.phase}=Running", true),
            ("jsonpath=.status.phase=Running", true),
            ("jsonpath={.status.replicas}=3", true),
            ("jsonpath={.status.phase}", true),
            ("jsonpath={.status.empty}", false),
            ("jsonpath={.status.absent}", false),
            (
                "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}=True",
                true,
            ),
            ("create", true),
            ("delete", false),
        ] {
            assert_eq!(met(state, &object), expected, "{state}");
        }
        assert_eq!(Wanted::Deleted.is_met(None), Ok(true));
        assert_eq!(Wanted::Created.is_met(None), Ok(false));
        let several = "jsonpath={.status.conditions[*].type}=Ready"
            .parse::<Wanted>()
            .unwrap();
        assert!(several.is_met(Some(&object)).unwrap_err().contains("2 values"));
    }

    async fn config_maps() -> Api<DynamicObject> {
        let store = KubeStore::open(KubeOptions::in_memory()).unwrap();
        let options = ApiOptions::new(store, clock::system(), random::system());
        let api = mainstay_kubeapi::Api::open(options).await.unwrap();
        let client = api.client(Identity::component("test"));
        Api::namespaced_with(client, "default", &ApiResource::erase::<ConfigMap>(&()))
    }

    async fn create(api: &Api<DynamicObject>, text: &str) -> String {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"text": text}});
        let made = api
            .create(&PostParams::default(), &serde_json::from_value(object).unwrap())
            .await;
        made.unwrap().metadata.uid.unwrap()
    }

    fn absent(object: Option<&DynamicObject>) -> Result<Option<()>, Failure> {
        Ok(object.is_none().then_some(()))
    }

    #[tokio::test]
    async fn an_object_that_was_made_anew_counts_as_deleted_to_who_waits_for_the_first() {
        let api = config_maps().await;
        let first = create(&api, "first").await;
        api.delete("a", &DeleteParams::default()).await.unwrap();
        let second = create(&api, "second").await;
        let watched = |uid| Watched {
            api: api.clone(),
            name: "a",
            uid,
        };
        let soon = || Instant::now() + Duration::from_secs(20);
        until(watched(Some(first.as_str())), soon(), absent)
            .await
            .unwrap();
        let text = until(watched(None), soon(), |object| {
            Ok(object.map(|object| object.data["data"]["text"].clone()))
        });
        assert_eq!(text.await.unwrap(), "second");
        // The one that is there is waited for, and is known when the time is up.
        let ended = until(
            watched(Some(second.as_str())),
            Instant::now() + Duration::from_millis(300),
            absent,
        )
        .await;
        match ended.unwrap_err() {
            Unmet::TimeUp { last, interruption } => {
                assert_eq!(last.unwrap().metadata.uid, Some(second));
                assert_eq!(interruption, None);
            }
            Unmet::Failed(failure) => panic!("{failure}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_breaks_is_taken_up_again_and_one_that_is_refused_is_not() {
        let asked = Arc::new(AtomicUsize::new(0));
        let server = |code: u16| {
            let asked = Arc::clone(&asked);
            asked.store(0, Ordering::Relaxed);
            let service = tower::service_fn(move |_request: http::Request<kube::client::Body>| {
                let number = asked.fetch_add(1, Ordering::Relaxed);
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": "R", "message": "no"});
                let list = json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []});
                // The third question is answered.
                let (code, body) = if number < 2 { (code, status) } else { (200, list) };
                let answer = http::Response::builder()
                    .status(code)
                    .body(kube::client::Body::from(body.to_string().into_bytes()));
                std::future::ready(Ok::<_, std::convert::Infallible>(answer.unwrap()))
            });
            Api::<DynamicObject>::namespaced_with(
                kube::Client::new(service, "default"),
                "default",
                &ApiResource::erase::<ConfigMap>(&()),
            )
        };
        for (code, met) in [(503, true), (403, false)] {
            let watched = Watched {
                api: server(code),
                name: "a",
                uid: None,
            };
            let ended = until(watched, Instant::now() + Duration::from_secs(120), absent).await;
            assert_eq!(ended.is_ok(), met, "{code}: {ended:?}");
            let questions = asked.load(Ordering::Relaxed);
            assert_eq!(questions, if met { 3 } else { 1 }, "{code}");
        }
    }

    #[test]
    fn a_state_that_cannot_be_read_says_what_can() {
        for text in [
            "ready",
            "condition=",
            "jsonpath=",
            "jsonpath={}",
            "jsonpath={.a}b",
            "jsonpath={.a[}",
        ] {
            assert!(text.parse::<Wanted>().is_err(), "{text}");
        }
    }
}
