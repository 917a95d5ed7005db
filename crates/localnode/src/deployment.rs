//! The Deployment controller: Deployment → ReplicaSet.
//!
//! `plan.rs` decides, this file reads what is there and does the steps. Each round reads the API itself, not a cache, so
//! it needs no memory of what earlier rounds asked for.

mod plan;
mod status;
mod template;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
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
use plan::{Action, Plan, Seen};

struct Context {
    client: Client,
    clock: SharedClock,
    events: Events,
    waits: Waits,
}

/// Runs the controller until it is cancelled.
pub(crate) async fn run(client: Client, clock: SharedClock, events: Events, cancellation: CancellationToken) {
    let deployments = Api::<Deployment>::all(client.clone());
    let replica_sets = Api::<ReplicaSet>::all(client.clone());
    let context = Arc::new(Context {
        client: client.clone(),
        clock,
        events,
        waits: Waits::default(),
    });
    let noted = Arc::clone(&context);
    let controller = Controller::new(deployments, watcher::Config::default());
    let store = controller.store();
    let listed = controller.store();
    // An orphan that matches a selector is adopted, and a Pod of an old template that ends lets `Recreate` go on.
    let ended_pods = Api::<Pod>::all(client);
    let running = controller
        .owns(replica_sets, watcher::Config::default())
        .watches(ended_pods, watcher::Config::default(), move |pod: Pod| {
            let affected = store.state().into_iter().filter(|deployment| {
                deployment.spec.as_ref().is_some_and(|spec| {
                    plan::is_recreate(spec) && owner::selects(&spec.selector, pod.labels())
                }) && deployment.namespace() == pod.namespace()
            });
            affected
                .map(|deployment| ObjectRef::from_obj(&*deployment))
                .collect::<Vec<_>>()
        })
        .graceful_shutdown_on(cancellation.clone().cancelled_owned())
        .run(reconcile, retry, context)
        .for_each(move |outcome| {
            noted.waits.note(&outcome);
            if let Err(error) = outcome {
                tracing::debug!(%error, "a Deployment is looked at again");
            }
            futures::future::ready(())
        });
    shutdown::ended(running, listed, cancellation).await;
}

fn retry(deployment: Arc<Deployment>, error: &ReconcileError, context: Arc<Context>) -> Next {
    if !error.is_race() {
        tracing::warn!(deployment = %deployment.name_any(), namespace = ?deployment.namespace(), %error, "a Deployment could not be brought forward");
    }
    Next::requeue(context.waits.after_failure(&*deployment))
}

async fn reconcile(cached: Arc<Deployment>, context: Arc<Context>) -> Result<Next, ReconcileError> {
    let namespace = cached.namespace().unwrap_or_default();
    let deployments = Api::<Deployment>::namespaced(context.client.clone(), &namespace);
    let replica_sets = Api::<ReplicaSet>::namespaced(context.client.clone(), &namespace);
    let Some(mut deployment) = deployments.get_opt(&cached.name_any()).await? else {
        return Ok(Next::await_change());
    };
    if deployment.uid() != cached.uid() {
        return Ok(Next::await_change());
    }
    let owned = owned_replica_sets(&deployment, &replica_sets).await?;
    let now = context.clock.now();
    let old_pods_run = old_pods_run(&deployment, &owned, &context.client, &namespace).await?;
    let seen = Seen {
        deployment: &deployment,
        replica_sets: &owned,
        old_pods_run,
        now,
    };
    let Some(Plan {
        actions,
        mut status,
        again_at,
    }) = plan::plan(&seen)
    else {
        return Ok(Next::await_change());
    };
    for action in actions {
        let scaled = scaling_note(&action, &owned);
        if let Some(changed) = act(action, &deployment, &deployments, &replica_sets).await? {
            match changed {
                Changed::Deployment(new) => deployment = *new,
                Changed::Collision => {
                    status.collision_count = Some(status.collision_count.unwrap_or(0) + 1);
                }
            }
        }
        if let Some(note) = scaled {
            context
                .events
                .normal(&deployment, "ScalingReplicaSet", &note)
                .await;
        }
    }
    if deployment.status.as_ref() != Some(&status) {
        let collided = status.collision_count
            != deployment
                .status
                .as_ref()
                .and_then(|status| status.collision_count);
        deployment.status = Some(status);
        deployments
            .replace_status(&deployment.name_any(), &writing::post(), &deployment)
            .await?;
        if collided {
            return Ok(Next::requeue(Duration::ZERO));
        }
    }
    Ok(match again_at {
        Some(deadline) => Next::requeue(crate::until(now, deadline)),
        None => Next::await_change(),
    })
}

/// The ReplicaSets that the Deployment controls, orphans that it may take included.
async fn owned_replica_sets(
    deployment: &Deployment,
    replica_sets: &Api<ReplicaSet>,
) -> Result<Vec<ReplicaSet>, ReconcileError> {
    let uid = deployment.uid().unwrap_or_default();
    let mut owned = Vec::new();
    // Their labels are those of the template, which the selector matches.
    let Some(parameters) = deployment
        .spec
        .as_ref()
        .and_then(|spec| owner::list_parameters(&spec.selector))
    else {
        return Ok(owned);
    };
    for replica_set in replica_sets.list(&parameters).await? {
        let selected = deployment
            .spec
            .as_ref()
            .is_some_and(|spec| owner::selects(&spec.selector, replica_set.labels()));
        if owner::is_controlled_by(&replica_set, &uid) {
            owned.push(replica_set);
        } else if selected
            && owner::controller_of(&replica_set).is_none()
            && replica_set.metadata.deletion_timestamp.is_none()
            && deployment.metadata.deletion_timestamp.is_none()
            && let Some(reference) = owner::controller_reference(deployment)
        {
            let patch = Patch::Merge(owner::adoption(&replica_set, &reference));
            owned.push(
                replica_sets
                    .patch(&replica_set.name_any(), &writing::patch(), &patch)
                    .await?,
            );
        }
    }
    Ok(owned)
}

/// For `Recreate`: whether Pods that are not of the new ReplicaSet still run.
async fn old_pods_run(
    deployment: &Deployment,
    owned: &[ReplicaSet],
    client: &Client,
    namespace: &str,
) -> Result<bool, ReconcileError> {
    let Some(spec) = deployment.spec.as_ref().filter(|spec| plan::is_recreate(spec)) else {
        return Ok(false);
    };
    let Some(parameters) = owner::list_parameters(&spec.selector) else {
        return Ok(false);
    };
    let pods = Api::<Pod>::namespaced(client.clone(), namespace)
        .list(&parameters)
        .await?;
    let old: Vec<String> = owned
        .iter()
        .filter(|replica_set| !template::is_for(replica_set, &spec.template))
        .filter_map(ResourceExt::uid)
        .collect();
    Ok(pods.iter().any(|pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        !matches!(phase, Some("Succeeded" | "Failed"))
            && old.iter().any(|uid| owner::is_controlled_by(pod, uid))
    }))
}

/// What `kubectl describe` says about a step.
fn scaling_note(action: &Action, owned: &[ReplicaSet]) -> Option<String> {
    let (name, from, to) = match action {
        Action::Create(new) => (new.name_any(), 0, plan::size(new)),
        Action::Update { name, replicas, .. } => {
            let before = owned
                .iter()
                .find(|replica_set| replica_set.name_any() == *name)
                .map(plan::size)?;
            (name.clone(), before, *replicas)
        }
        Action::SetRevision(_) | Action::Delete(_) => return None,
    };
    let direction = if to > from { "up" } else { "down" };
    (from != to).then(|| format!("Scaled {direction} replica set {name} from {from} to {to}"))
}

enum Changed {
    Deployment(Box<Deployment>),
    /// The name of the new ReplicaSet is taken by another template.
    Collision,
}

async fn act(
    action: Action,
    deployment: &Deployment,
    deployments: &Api<Deployment>,
    replica_sets: &Api<ReplicaSet>,
) -> Result<Option<Changed>, ReconcileError> {
    match action {
        Action::Create(replica_set) => match replica_sets.create(&writing::post(), &replica_set).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {
                let uid = deployment.uid().unwrap_or_default();
                let existing = replica_sets.get_opt(&replica_set.name_any()).await?;
                let ours = existing.is_some_and(|existing| {
                    owner::is_controlled_by(&existing, &uid)
                        && deployment
                            .spec
                            .as_ref()
                            .is_some_and(|spec| template::is_for(&existing, &spec.template))
                });
                if !ours {
                    return Ok(Some(Changed::Collision));
                }
            }
            Err(error) => return Err(error.into()),
        },
        Action::Update {
            name,
            replicas,
            annotations,
        } => {
            let patch =
                json!({ "metadata": { "annotations": annotations }, "spec": { "replicas": replicas } });
            replica_sets
                .patch(&name, &writing::patch(), &Patch::Merge(patch))
                .await?;
        }
        Action::SetRevision(revision) => {
            let patch = json!({ "metadata": {
                "uid": deployment.uid(),
                "annotations": { template::REVISION: revision.to_string() },
            } });
            let patched = deployments
                .patch(&deployment.name_any(), &writing::patch(), &Patch::Merge(patch))
                .await?;
            return Ok(Some(Changed::Deployment(Box::new(patched))));
        }
        Action::Delete(name) => {
            let Some(old) = replica_sets.get_opt(&name).await? else {
                return Ok(None);
            };
            let parameters = DeleteParams {
                preconditions: Some(Preconditions {
                    uid: old.uid(),
                    resource_version: old.resource_version(),
                }),
                ..DeleteParams::background()
            };
            replica_sets.delete(&name, &parameters).await?;
        }
    }
    Ok(None)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;
