//! The ReplicaSet controller: ReplicaSet → Pods.
//!
//! `plan.rs` decides, this file reads what is there and does the steps. Each round lists the Pods itself, not from a
//! cache, so it never makes a Pod twice because it has not seen the first one yet.

mod plan;

use std::sync::{Arc, Mutex, PoisonError};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, Patch, Preconditions};
use kube::runtime::controller::{Action as Next, Controller};
use kube::runtime::{reflector::ObjectRef, watcher};
use kube::{Api, Client, ResourceExt};
use mainstay_telemetry::clock::SharedClock;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::error::ReconcileError;
use crate::events::Events;
use crate::waits::Waits;
use crate::{owner, shutdown, writing};

pub(crate) use plan::{first_to_go, ready_since};

/// Pods made or removed at the same time.
const PARALLEL: usize = 16;

struct Context {
    client: Client,
    clock: SharedClock,
    events: Events,
    waits: Waits,
    strays: Strays,
}

/// Pods whose labels no longer match the ReplicaSet that controls them: (ReplicaSet's UID, Pod's name). Found by the
/// watch, since a list by selector does not bring them. A std mutex: never held across an await.
type Strays = Arc<Mutex<Vec<(String, String)>>>;

/// Runs the controller until it is cancelled.
pub(crate) async fn run(client: Client, clock: SharedClock, events: Events, cancellation: CancellationToken) {
    let replica_sets = Api::<ReplicaSet>::all(client.clone());
    let pods = Api::<Pod>::all(client.clone());
    let controller = Controller::new(replica_sets, watcher::Config::default());
    let store = controller.store();
    let listed = controller.store();
    let strays = Strays::default();
    let found = Arc::clone(&strays);
    let context = Arc::new(Context {
        client,
        clock,
        events,
        waits: Waits::default(),
        strays,
    });
    let noted = Arc::clone(&context);
    let running = controller
        .watches(pods, watcher::Config::default(), move |pod: Pod| {
            // A Pod concerns its controller; an orphan, whoever selects it.
            if let Some(reference) = owner::controller_of(&pod) {
                if reference.kind != "ReplicaSet" {
                    return Vec::new();
                }
                let namespace = pod.namespace().unwrap_or_default();
                let controller = ObjectRef::<ReplicaSet>::new(&reference.name).within(&namespace);
                let is_stray = store
                    .get(&controller)
                    .and_then(|replica_set| replica_set.spec.clone())
                    .is_some_and(|spec| !owner::selects(&spec.selector, pod.labels()));
                if is_stray {
                    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                    found.push((reference.uid.clone(), pod.name_any()));
                }
                return vec![controller];
            }
            let selecting = store.state_filter(|replica_set: &ReplicaSet| {
                replica_set.namespace() == pod.namespace()
                    && replica_set
                        .spec
                        .as_ref()
                        .is_some_and(|spec| owner::selects(&spec.selector, pod.labels()))
            });
            selecting
                .iter()
                .map(|replica_set| ObjectRef::from_obj(&**replica_set))
                .collect()
        })
        .graceful_shutdown_on(cancellation.clone().cancelled_owned())
        .run(reconcile, retry, context)
        .for_each(move |outcome| {
            noted.waits.note(&outcome);
            if let Err(error) = outcome {
                tracing::debug!(%error, "a ReplicaSet is looked at again");
            }
            futures::future::ready(())
        });
    shutdown::ended(running, listed, cancellation).await;
}

fn retry(replica_set: Arc<ReplicaSet>, error: &ReconcileError, context: Arc<Context>) -> Next {
    if !error.is_race() {
        tracing::warn!(replica_set = %replica_set.name_any(), namespace = ?replica_set.namespace(), %error, "a ReplicaSet could not be brought forward");
    }
    Next::requeue(context.waits.after_failure(&*replica_set))
}

async fn reconcile(cached: Arc<ReplicaSet>, context: Arc<Context>) -> Result<Next, ReconcileError> {
    let namespace = cached.namespace().unwrap_or_default();
    let replica_sets = Api::<ReplicaSet>::namespaced(context.client.clone(), &namespace);
    let pods = Api::<Pod>::namespaced(context.client.clone(), &namespace);
    let Some(mut replica_set) = replica_sets.get_opt(&cached.name_any()).await? else {
        return Ok(Next::await_change());
    };
    if replica_set.uid() != cached.uid() {
        return Ok(Next::await_change());
    }
    release_strays(&replica_set, &pods, &context.strays).await?;
    let owned = owned_pods(&replica_set, &pods).await?;
    let now = context.clock.now();
    let mut plan = plan::plan(&replica_set, &owned, now);
    let failure = carry_out(&plan, &replica_set, &pods, &context.events).await;
    set_failure(&mut plan.status.conditions, failure.as_ref().err(), now);
    if replica_set.status.as_ref() != Some(&plan.status) {
        replica_set.status = Some(plan.status);
        replica_sets
            .replace_status(&replica_set.name_any(), &writing::post(), &replica_set)
            .await?;
    }
    failure?;
    Ok(plan.again_in.map_or_else(Next::await_change, Next::requeue))
}

/// Lets Pods go that match no more; they live on without a controller.
async fn release_strays(
    replica_set: &ReplicaSet,
    pods: &Api<Pod>,
    strays: &Strays,
) -> Result<(), ReconcileError> {
    let uid = replica_set.uid().unwrap_or_default();
    let mine: Vec<String> = {
        let mut strays = strays.lock().unwrap_or_else(PoisonError::into_inner);
        let (mine, others) = std::mem::take(&mut *strays)
            .into_iter()
            .partition(|(owner, _)| *owner == uid);
        *strays = others;
        let mine: Vec<(String, String)> = mine;
        mine.into_iter().map(|(_, name)| name).collect()
    };
    for name in mine {
        // Looked at again: its labels may match by now, or it may be gone.
        let Some(pod) = pods.get_opt(&name).await? else {
            continue;
        };
        let selected = replica_set
            .spec
            .as_ref()
            .is_some_and(|spec| owner::selects(&spec.selector, pod.labels()));
        if !selected && owner::is_controlled_by(&pod, &uid) {
            let mut references = pod.owner_references().to_vec();
            references.retain(|reference| reference.uid != uid);
            let patch = json!({ "metadata": { "uid": pod.uid(), "ownerReferences": references } });
            pods.patch(&name, &writing::patch(), &Patch::Merge(patch)).await?;
        }
    }
    Ok(())
}

/// The Pods that the ReplicaSet controls; orphans that match are taken.
async fn owned_pods(replica_set: &ReplicaSet, pods: &Api<Pod>) -> Result<Vec<Pod>, ReconcileError> {
    let Some(spec) = &replica_set.spec else {
        return Ok(Vec::new());
    };
    let uid = replica_set.uid().unwrap_or_default();
    let Some(parameters) = owner::list_parameters(&spec.selector) else {
        return Ok(Vec::new());
    };
    let mut owned = Vec::new();
    for pod in pods.list(&parameters).await? {
        if !owner::selects(&spec.selector, pod.labels()) {
            continue;
        }
        if owner::is_controlled_by(&pod, &uid) {
            owned.push(pod);
        } else if owner::controller_of(&pod).is_none()
            && plan::is_active(&pod)
            && replica_set.metadata.deletion_timestamp.is_none()
            && let Some(reference) = owner::controller_reference(replica_set)
        {
            let patch = Patch::Merge(owner::adoption(&pod, &reference));
            owned.push(pods.patch(&pod.name_any(), &writing::patch(), &patch).await?);
        }
    }
    Ok(owned)
}

async fn carry_out(
    plan: &plan::Plan,
    replica_set: &ReplicaSet,
    pods: &Api<Pod>,
    events: &Events,
) -> Result<(), ReconcileError> {
    if plan.create > 0
        && let Some(pod) = plan::pod_of(replica_set)
    {
        let make = || async {
            let made = pods.create(&writing::post(), &pod).await?;
            events
                .normal(
                    replica_set,
                    "SuccessfulCreate",
                    &format!("Created pod: {}", made.name_any()),
                )
                .await;
            Ok::<(), kube::Error>(())
        };
        // One first: if it is refused, the others would be too.
        if let Err(error) = make().await {
            events
                .warning(replica_set, "FailedCreate", &format!("Error creating: {error}"))
                .await;
            return Err(error.into());
        }
        let others = (1..plan.create).map(|_| make());
        futures::stream::iter(others)
            .buffer_unordered(PARALLEL)
            .try_for_each(futures::future::ok)
            .await?;
    }
    let removals = plan.delete.clone().into_iter().map(|(name, uid)| async move {
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(uid),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match pods.delete(&name, &parameters).await {
            Ok(_) => {
                events
                    .normal(replica_set, "SuccessfulDelete", &format!("Deleted pod: {name}"))
                    .await;
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.reason == "NotFound" => Ok(()),
            Err(error) => Err(error),
        }
    });
    futures::stream::iter(removals)
        .buffer_unordered(PARALLEL)
        .try_for_each(futures::future::ok)
        .await?;
    Ok(())
}

/// Says in the status that Pods cannot be made or removed, or no longer says so.
fn set_failure(
    conditions: &mut Option<Vec<ReplicaSetCondition>>,
    failure: Option<&ReconcileError>,
    now: jiff::Timestamp,
) {
    let Some(error) = failure.filter(|error| !error.is_race()) else {
        if let Some(list) = conditions {
            list.retain(|condition| condition.type_ != "ReplicaFailure");
        }
        if conditions.as_ref().is_some_and(Vec::is_empty) {
            *conditions = None;
        }
        return;
    };
    let list = conditions.get_or_insert_default();
    if list.iter().any(|condition| condition.type_ == "ReplicaFailure") {
        return;
    }
    list.push(ReplicaSetCondition {
        type_: "ReplicaFailure".to_owned(),
        status: "True".to_owned(),
        reason: Some("FailedCreate".to_owned()),
        message: Some(error.to_string()),
        last_transition_time: Some(Time(now)),
    });
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;
