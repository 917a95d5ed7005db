//! Whether the ToolPolicy kind is there (OM-012, OM-483): it is optional, and may come and go while we run.

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event},
    },
};
use mainstay_resources::crd::TOOL_POLICY_CRD;
use mainstay_telemetry::task;
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::work::WatchBackoff;

/// `None` until the first answer.
pub(crate) type Presence = watch::Receiver<Option<bool>>;

/// Never there: the policy engine is switched off.
pub(crate) fn absent() -> Presence {
    watch::channel(Some(false)).1
}

/// Watches for the kind.
pub(crate) fn follow(client: Client, cancellation: CancellationToken) -> (Presence, JoinHandle<()>) {
    let (sender, receiver) = watch::channel(None);
    let api: Api<CustomResourceDefinition> = Api::all(client);
    let config = watcher::Config::default().fields(&format!("metadata.name={TOOL_POLICY_CRD}"));
    let follow = async move {
        let mut events = std::pin::pin!(
            watcher::watcher(api, config)
                .backoff(WatchBackoff::default())
                .inspect_err(|error| tracing::warn!(%error, "watch of the ToolPolicy kind interrupted"))
                .filter_map(|event| std::future::ready(event.ok()))
        );
        let mut listed = false;
        while let Some(event) = events.next().await {
            let present = match event {
                Event::Init => {
                    listed = false;
                    continue;
                }
                Event::InitApply(crd) => {
                    listed |= is_served(&crd);
                    continue;
                }
                Event::InitDone => listed,
                Event::Apply(crd) => is_served(&crd),
                Event::Delete(_) => false,
            };
            sender.send_if_modified(|current| {
                let changed = *current != Some(present);
                *current = Some(present);
                changed
            });
        }
    };
    let handle = task::spawn("tool-policy-presence", async move {
        cancellation.run_until_cancelled(follow).await;
    });
    (receiver, handle)
}

fn is_served(crd: &CustomResourceDefinition) -> bool {
    crd.metadata.deletion_timestamp.is_none()
        && crd.metadata.name.as_deref() == Some(TOOL_POLICY_CRD)
        && crd
            .status
            .as_ref()
            .and_then(|status| status.conditions.as_ref())
            .is_some_and(|conditions| {
                conditions
                    .iter()
                    .any(|condition| condition.type_ == "Established" && condition.status == "True")
            })
}
