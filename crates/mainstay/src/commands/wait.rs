//! `mainstay wait`

use kube::{Api, Client, api::DynamicObject};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    arguments::WaitArguments,
    cluster,
    kinds::Kinds,
    requests::{self, Form},
    targets::{self, Target},
    terminal::{self, Failure},
    waiting::{self, Unmet, Wanted, Watched},
};

/// Waits until every object is in the state, all of them within one deadline.
pub(crate) async fn run(arguments: &WaitArguments) -> Result<(), Failure> {
    let ends = Instant::now() + arguments.timeout;
    let client = cluster::client(&arguments.cluster).await?;
    let kinds = Kinds::discover(&client).await?;
    let query = targets::query(&arguments.place, client.default_namespace());
    let mut waits = Vec::new();
    for target in targets::parse(&kinds, &arguments.words, "watch")? {
        if let Some(name) = target.name.clone() {
            let namespace = query.namespace.clone().ok_or_else(|| {
                Failure::new("an object that is named is in one namespace; leave out `--all-namespaces`")
            })?;
            waits.push((target, namespace, name));
            continue;
        }
        if !arguments.all && query.labels.is_none() {
            return Err(Failure::new(format!("no object of {} is named", target.title()))
                .with_hint("name them, or choose them with `-l LABELS` or `--all`"));
        }
        for object in requests::list(&client, &target.kind, &query, Form::Object)
            .await?
            .items()
        {
            let text = |pointer: &str| {
                object
                    .pointer(pointer)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
            };
            waits.push((
                target.clone(),
                text("/metadata/namespace").to_owned(),
                text("/metadata/name").to_owned(),
            ));
        }
    }
    if waits.is_empty() && arguments.state != Wanted::Deleted {
        return Err(Failure::new("there is nothing to wait for: no object matches"));
    }
    let ended = futures::future::join_all(
        waits
            .iter()
            .map(|(target, namespace, name)| one(&client, target, namespace, name, &arguments.state, ends)),
    )
    .await;
    terminal::all(ended.into_iter().filter_map(Result::err).collect())
}

async fn one(
    client: &Client,
    target: &Target,
    namespace: &str,
    name: &str,
    wanted: &Wanted,
    ends: Instant,
) -> Result<(), Failure> {
    let kind = &target.kind;
    let title = format!("{}/{name}", kind.title());
    let must_exist = !matches!(wanted, Wanted::Created | Wanted::Deleted);
    let found = requests::find(client, kind, Some(namespace), name, Form::Object).await?;
    if found.is_none() && must_exist {
        return Err(Failure::new(format!("{} \"{name}\" not found", kind.title())));
    }
    let uid = found
        .as_ref()
        .and_then(|found| found.pointer("/metadata/uid"))
        .and_then(Value::as_str);
    if uid.is_none() && *wanted == Wanted::Deleted {
        terminal::data(format!("{title} deleted"));
        return Ok(());
    }
    let resource = kind.resource();
    let api: Api<DynamicObject> = if kind.namespaced {
        Api::namespaced_with(client.clone(), namespace, &resource)
    } else {
        Api::all_with(client.clone(), &resource)
    };
    let watched = Watched { api, name, uid };
    let met = waiting::until(watched, ends, |object| {
        let value = object
            .map(serde_json::to_value)
            .transpose()
            .map_err(|error| Failure::new(format!("{title}: {error}")))?;
        if value.is_none() && must_exist {
            return Err(Failure::new(format!("{title} was deleted meanwhile")));
        }
        let met = wanted.is_met(value.as_ref()).map_err(Failure::new)?;
        Ok(met.then_some(()))
    });
    match met.await {
        Ok(()) => {
            terminal::data(match wanted {
                Wanted::Created => format!("{title} created"),
                Wanted::Deleted => format!("{title} deleted"),
                _ => format!("{title} condition met"),
            });
            Ok(())
        }
        Err(Unmet::Failed(failure)) => Err(failure),
        Err(Unmet::TimeUp { last, interruption }) => {
            let failure = Failure::new(format!("{title} did not reach {wanted} in time"));
            let state = last
                .and_then(|last| serde_json::to_value(last).ok())
                .as_ref()
                .and_then(super::describe::state);
            Err(match (interruption, state) {
                (Some(why), _) => failure.with_hint(format!("the server could not be asked: {why}")),
                (None, Some(state)) => failure.with_hint(format!("it is {state}")),
                (None, None) => failure.with_hint(format!("`mainstay describe {title}` says more")),
            })
        }
    }
}
