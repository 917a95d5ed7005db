//! `mainstay logs`

use futures::{AsyncBufReadExt, StreamExt, TryStreamExt, stream::BoxStream};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, LogParams},
};
use serde_json::Value;

use crate::{
    applying::cause,
    arguments::LogsArguments,
    cluster,
    kinds::Kinds,
    requests::{self, Form, Query},
    targets::{self, Target},
    terminal::{self, Failure},
};

/// The most Pods whose lines are printed together.
const MOST_PODS: usize = 20;

/// Prints the lines of one or more Pods.
pub(crate) async fn run(arguments: &LogsArguments) -> Result<(), Failure> {
    let client = cluster::client(&arguments.cluster).await?;
    let namespace = arguments
        .namespace
        .clone()
        .unwrap_or_else(|| client.default_namespace().to_owned());
    let pods = match (&arguments.object, &arguments.selector) {
        (_, Some(labels)) => labelled(&client, &namespace, labels, labels).await?,
        (Some(word), None) if !word.contains('/') => vec![word.clone()],
        (Some(word), None) => {
            let kinds = Kinds::discover(&client).await?;
            let targets = targets::parse(&kinds, std::slice::from_ref(word), "get")?;
            let [target] = targets.as_slice() else {
                return Err(Failure::new(format!("`{word}` is more than one object")));
            };
            pods_of(&client, &kinds, &namespace, target).await?
        }
        (None, None) => return Err(Failure::new("neither an object nor labels are given")),
    };
    let api: Api<Pod> = Api::namespaced(client, &namespace);
    let several = pods.len() > 1;
    let mut streams: Vec<BoxStream<'_, Result<String, Failure>>> = Vec::new();
    for pod in &pods {
        let lines = api
            .log_stream(pod, &parameters(arguments))
            .await
            .map_err(|error| match &error {
                kube::Error::Api(status) => Failure::new(status.message.clone()),
                other => Failure::new(format!("the log of Pod {pod} cannot be read: {}", cause(other))),
            })?
            .lines();
        let prefix = if several {
            format!("[{pod}] ")
        } else {
            String::new()
        };
        streams.push(
            lines
                .map_ok(move |line| format!("{prefix}{line}"))
                .map_err(move |error| Failure::new(format!("the log of Pod {pod} broke off: {error}")))
                .boxed(),
        );
    }
    if arguments.follow {
        let mut lines = futures::stream::select_all(streams);
        while let Some(line) = lines.try_next().await? {
            terminal::data(terminal::printable(&line));
        }
        return Ok(());
    }
    // One after the other: lines of different Pods would mix without an order.
    for mut lines in streams {
        while let Some(line) = lines.try_next().await? {
            terminal::data(terminal::printable(&line));
        }
    }
    Ok(())
}

fn parameters(arguments: &LogsArguments) -> LogParams {
    LogParams {
        container: arguments.container.clone(),
        follow: arguments.follow,
        previous: arguments.previous,
        tail_lines: arguments.tail,
        timestamps: arguments.timestamps,
        since_seconds: arguments
            .since
            .map(|since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX)),
        ..LogParams::default()
    }
}

async fn labelled(
    client: &Client,
    namespace: &str,
    labels: &str,
    whose: &str,
) -> Result<Vec<String>, Failure> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let found = api
        .list(&ListParams::default().labels(labels))
        .await
        .map_err(|error| Failure::new(format!("pods: {}", cause(&error))))?;
    let names: Vec<String> = found.items.iter().map(ResourceExt::name_any).collect();
    match names.len() {
        0 => Err(Failure::new(format!(
            "{whose} has no Pods in namespace {namespace}"
        ))),
        many if many > MOST_PODS => Err(Failure::new(format!(
            "{whose} has {many} Pods, and the lines of {MOST_PODS} can be printed together"
        ))
        .with_hint("name one of them")),
        _ => Ok(names),
    }
}

/// The Pods of an object: it is one, it selects them, or it owns a Deployment that does.
async fn pods_of(
    client: &Client,
    kinds: &Kinds,
    namespace: &str,
    target: &Target,
) -> Result<Vec<String>, Failure> {
    let name = target.name.as_deref().unwrap_or_default();
    if target.kind.group.is_empty() && target.kind.kind == "Pod" {
        return Ok(vec![name.to_owned()]);
    }
    let title = target.title();
    let object = requests::get(client, &target.kind, Some(namespace), name, Form::Object).await?;
    if let Some(labels) = labels_of(&object) {
        return labelled(client, namespace, &labels, &title).await;
    }
    let uid = object
        .pointer("/metadata/uid")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let deployments = kinds
        .of("apps", "Deployment")
        .ok_or_else(|| Failure::new("the server has no Deployments"))?;
    let query = Query {
        namespace: Some(namespace.to_owned()),
        ..Query::default()
    };
    let mut pods = Vec::new();
    for deployment in requests::list(client, deployments, &query, Form::Object)
        .await?
        .items()
    {
        let owners = deployment
            .pointer("/metadata/ownerReferences")
            .and_then(Value::as_array);
        let owned = owners
            .into_iter()
            .flatten()
            .any(|owner| owner.get("uid").and_then(Value::as_str) == Some(uid));
        if let (true, Some(labels)) = (owned, labels_of(&deployment)) {
            pods.extend(labelled(client, namespace, &labels, &title).await?);
        }
    }
    if pods.is_empty() {
        return Err(
            Failure::new(format!("{title} has no Pods in namespace {namespace}"))
                .with_hint(format!("`mainstay describe {title}` says what blocks it")),
        );
    }
    Ok(pods)
}

/// The selector of an object's Pods as text.
fn labels_of(object: &Value) -> Option<String> {
    let selector = object.pointer("/spec/selector")?;
    // A Service's selector has the labels at its top.
    let labels = selector.get("matchLabels").unwrap_or(selector).as_object()?;
    let pairs: Vec<String> = labels
        .iter()
        .filter_map(|(name, value)| Some(format!("{name}={}", value.as_str()?)))
        .collect();
    (!pairs.is_empty()).then(|| pairs.join(","))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_pods_of_workloads_and_services_are_found_by_their_labels() {
        let deployment = json!({"spec": {"selector": {"matchLabels": {"app": "a", "tier": "b"}}}});
        assert_eq!(labels_of(&deployment).as_deref(), Some("app=a,tier=b"));
        let service = json!({"spec": {"selector": {"app": "a"}}});
        assert_eq!(labels_of(&service).as_deref(), Some("app=a"));
        assert_eq!(
            labels_of(&json!({"spec": {"selector": {"registry": {"x": 1}}}})),
            None
        );
        assert_eq!(labels_of(&json!({"spec": {}})), None);
    }
}
