//! The ConfigMap `kube-root-ca.crt` of every namespace: by what programs in it trust the API. Source: what
//! kube-controller-manager's root-ca-certificate-publisher does. Requirement KA-010.

use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::runtime::{Controller, controller::Action, reflector::ObjectRef, watcher};
use kube::{Api, Client, ResourceExt, api::Patch};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{error::ReconcileError, shutdown, waits::Waits, writing};

const NAME: &str = "kube-root-ca.crt";
const KEY: &str = "ca.crt";
const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";

struct Publisher {
    client: Client,
    waits: Waits,
    certificate: String,
}

/// Runs until it is cancelled. `certificate` is the API's certificate authority in PEM.
pub(crate) async fn run(client: Client, certificate: String, cancellation: CancellationToken) {
    let publisher = Arc::new(Publisher {
        client: client.clone(),
        waits: Waits::default(),
        certificate,
    });
    let published = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
    let noted = Arc::clone(&publisher);
    let controller = Controller::new(Api::<Namespace>::all(client.clone()), watcher::Config::default());
    let listed = controller.store();
    let running = controller
        .watches(
            Api::<ConfigMap>::all(client),
            published,
            |config_map: ConfigMap| config_map.namespace().map(|namespace| ObjectRef::new(&namespace)),
        )
        .graceful_shutdown_on(cancellation.clone().cancelled_owned())
        .run(publish, retry, publisher)
        .for_each(move |outcome| {
            noted.waits.note(&outcome);
            futures::future::ready(())
        });
    shutdown::ended(running, listed, cancellation).await;
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

fn retry(namespace: Arc<Namespace>, error: &ReconcileError, publisher: Arc<Publisher>) -> Action {
    tracing::warn!(namespace = %namespace.name_any(), %error, "the certificate authority was not published");
    Action::requeue(publisher.waits.after_failure(&*namespace))
}
