//! `mainstay delete`

use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, PropagationPolicy},
};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    applying,
    arguments::{Cascade, DeleteArguments},
    cluster,
    kinds::{Kinds, Served},
    manifests,
    requests::{self, Form},
    targets,
    terminal::{self, Failure},
    waiting::{self, Unmet, Watched},
};

/// An object that is to go.
struct Condemned {
    kind: Served,
    namespace: String,
    name: String,
}

impl Condemned {
    fn title(&self) -> String {
        let namespace = self.kind.namespaced.then_some(self.namespace.as_str());
        applying::title(&self.kind.resource(), namespace, &self.name)
    }

    fn api(&self, client: &Client) -> Api<DynamicObject> {
        if self.kind.namespaced {
            Api::namespaced_with(client.clone(), &self.namespace, &self.kind.resource())
        } else {
            Api::all_with(client.clone(), &self.kind.resource())
        }
    }
}

/// Deletes objects, and waits until they are gone.
pub(crate) async fn run(arguments: &DeleteArguments) -> Result<(), Failure> {
    let client = cluster::client(&arguments.cluster).await?;
    let kinds = Kinds::discover(&client).await?;
    let condemned = if arguments.paths.is_empty() {
        named(&client, &kinds, arguments).await?
    } else {
        written(&client, &kinds, arguments)?
    };
    let ends = Instant::now() + arguments.timeout;
    let mut failures = Vec::new();
    let mut going = Vec::new();
    for object in &condemned {
        match delete(&client, object, arguments).await {
            Ok(Some(uid)) => going.push((object, uid)),
            Ok(None) => {}
            Err(failure) => failures.push(failure),
        }
    }
    if !arguments.no_wait {
        let gone =
            futures::future::join_all(going.iter().map(|(object, uid)| gone(&client, object, uid, ends)));
        failures.extend(gone.await.into_iter().filter_map(Result::err));
    }
    terminal::all(failures)
}

async fn named(
    client: &Client,
    kinds: &Kinds,
    arguments: &DeleteArguments,
) -> Result<Vec<Condemned>, Failure> {
    let query = targets::query(&arguments.place, client.default_namespace());
    let mut condemned = Vec::new();
    for target in targets::parse(kinds, &arguments.words, "delete")? {
        match target.name.clone() {
            Some(name) => {
                let namespace = query.namespace.clone().ok_or_else(|| {
                    Failure::new("an object that is named is in one namespace; leave out `--all-namespaces`")
                })?;
                condemned.push(Condemned {
                    kind: target.kind,
                    namespace,
                    name,
                });
            }
            None if arguments.all || query.labels.is_some() => {
                for object in requests::list(client, &target.kind, &query, Form::Object)
                    .await?
                    .items()
                {
                    let text = |pointer: &str| {
                        object
                            .pointer(pointer)
                            .and_then(Value::as_str)
                            .unwrap_or_default()
                    };
                    condemned.push(Condemned {
                        kind: target.kind.clone(),
                        namespace: text("/metadata/namespace").to_owned(),
                        name: text("/metadata/name").to_owned(),
                    });
                }
            }
            None => {
                return Err(Failure::new(format!("no object of {} is named", target.title()))
                    .with_hint("name them, or choose them with `-l LABELS` or `--all`"));
            }
        }
    }
    if condemned.is_empty() {
        terminal::message("nothing to delete");
    }
    Ok(condemned)
}

/// The objects of manifests, in the opposite of the order in which they are applied.
fn written(client: &Client, kinds: &Kinds, arguments: &DeleteArguments) -> Result<Vec<Condemned>, Failure> {
    let read = manifests::read(&arguments.paths);
    terminal::all(read.failures)?;
    let namespace = arguments
        .place
        .namespace
        .as_deref()
        .unwrap_or_else(|| client.default_namespace());
    let mut condemned = Vec::new();
    for manifest in read.manifests.iter().rev() {
        let group = manifest
            .api_version()
            .split_once('/')
            .map_or("", |(group, _)| group);
        match kinds.of(group, manifest.kind()) {
            Some(kind) => condemned.push(Condemned {
                kind: kind.clone(),
                namespace: manifest.namespace().unwrap_or(namespace).to_owned(),
                name: manifest.name().to_owned(),
            }),
            None if arguments.ignore_not_found => {}
            None => {
                return Err(Failure::new(format!(
                    "{}: kind {} of {} is not served",
                    manifest.place("kind"),
                    manifest.kind(),
                    manifest.api_version()
                )));
            }
        }
    }
    Ok(condemned)
}

/// Asks for the deletion. Gives the identity of what has to go, or nothing where there was nothing.
async fn delete(
    client: &Client,
    object: &Condemned,
    arguments: &DeleteArguments,
) -> Result<Option<String>, Failure> {
    let parameters = DeleteParams {
        propagation_policy: Some(match arguments.cascade {
            Cascade::Background => PropagationPolicy::Background,
            Cascade::Foreground => PropagationPolicy::Foreground,
            Cascade::Orphan => PropagationPolicy::Orphan,
        }),
        ..DeleteParams::default()
    };
    match object.api(client).delete(&object.name, &parameters).await {
        Ok(answer) => {
            terminal::data(format!("{} deleted", object.title()));
            Ok(answer.either(
                |left| left.metadata.uid,
                |status| {
                    let uid = status.details.map(|details| details.uid);
                    uid.filter(|uid| !uid.is_empty())
                },
            ))
        }
        Err(kube::Error::Api(status)) if status.code == 404 && arguments.ignore_not_found => Ok(None),
        Err(error) => Err(requests::refused(&object.kind, &error)),
    }
}

async fn gone(client: &Client, object: &Condemned, uid: &str, ends: Instant) -> Result<(), Failure> {
    let watched = Watched {
        api: object.api(client),
        name: &object.name,
        uid: Some(uid),
    };
    let gone = waiting::until(watched, ends, |found| Ok(found.is_none().then_some(())));
    let (held, interruption) = match gone.await {
        Ok(()) => return Ok(()),
        Err(Unmet::Failed(failure)) => {
            return Err(Failure::new(format!("{}: {}", object.title(), failure.text)));
        }
        Err(Unmet::TimeUp { last, interruption }) => (last, interruption),
    };
    if let Some(why) = interruption {
        let title = object.title();
        return Err(Failure::new(format!(
            "whether {title} is gone is not known: {why}"
        )));
    }
    let failure = Failure::new(format!("{} is still there", object.title()));
    let finalizers = held.and_then(|held| held.metadata.finalizers).unwrap_or_default();
    Err(if finalizers.is_empty() {
        failure.with_hint("give it longer with `--timeout`, or do not wait with `--no-wait`")
    } else {
        failure.with_hint(format!(
            "it waits for whoever removes its finalizers: {}",
            finalizers.join(", ")
        ))
    })
}
