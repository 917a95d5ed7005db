//! The ConfigMap `kube-root-ca.crt` of every namespace: by what programs in it trust the API. Source: what
//! kube-controller-manager's root-ca-certificate-publisher does. Requirement KA-010.

use std::{fmt, sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::runtime::{Controller, controller::Action, reflector::ObjectRef, watcher};
use kube::{Api, Client, ResourceExt, api::Patch};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{error::ReconcileError, writing};

const NAME: &str = "kube-root-ca.crt";
const KEY: &str = "ca.crt";
const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";

/// How long a ConfigMap that could not be written waits for the next attempt.
const RETRY: Duration = Duration::from_secs(1);

struct Publisher {
    client: Client,
    certificate: String,
}

/// Runs until it is cancelled. `certificate` is the API's certificate authority in PEM.
pub(crate) async fn run(client: Client, certificate: String, cancellation: CancellationToken) {
    let publisher = Arc::new(Publisher {
        client: client.clone(),
        certificate,
    });
    let published = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
    Controller::new(Api::<Namespace>::all(client.clone()), watcher::Config::default())
        .watches(
            Api::<ConfigMap>::all(client),
            published,
            |config_map: ConfigMap| config_map.namespace().map(|namespace| ObjectRef::new(&namespace)),
        )
        .graceful_shutdown_on(cancellation.cancelled_owned())
        .run(publish, retry, publisher)
        .for_each(|_| futures::future::ready(()))
        .await;
}

async fn publish(namespace: Arc<Namespace>, publisher: Arc<Publisher>) -> Result<Action, ReconcileError> {
    // Nothing is made in a namespace that goes.
    if namespace.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let config_maps = Api::<ConfigMap>::namespaced(publisher.client.clone(), &namespace.name_any());
    let present = config_maps.get_opt(NAME).await?;
    let is_current = present.and_then(|found| found.data).is_some_and(|data| {
        data.len() == 1 && data.get(KEY).is_some_and(|found| *found == publisher.certificate)
    });
    if !is_current {
        let wanted = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": NAME, "annotations": {"kubernetes.io/description": DESCRIPTION}},
            "data": {KEY: publisher.certificate},
        });
        config_maps
            .patch(NAME, &writing::apply(), &Patch::Apply(wanted))
            .await?;
    }
    Ok(Action::await_change())
}

fn retry<E: fmt::Display>(namespace: Arc<Namespace>, error: &E, _: Arc<Publisher>) -> Action {
    tracing::warn!(namespace = %namespace.name_any(), %error, "the certificate authority was not published");
    Action::requeue(RETRY)
}
