//! HorizontalPodAutoscalers: nothing here measures Pods, so each is told that it is not acted upon.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::runtime::controller::{Action as Next, Controller};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use mainstay_telemetry::clock::SharedClock;
use tokio_util::sync::CancellationToken;

use crate::error::ReconcileError;
use crate::{shutdown, writing};

/// How long after a failure an autoscaler is looked at again.
const RETRY: Duration = Duration::from_secs(1);
/// The condition that says whether an autoscaler can work.
const CONDITION: &str = "ScalingActive";
const REASON: &str = "NotActedUpon";
const MESSAGE: &str =
    "the local node measures no resources and scales nothing by itself; set the size with `kubectl scale`";

struct Context {
    client: Client,
    clock: SharedClock,
}

/// Runs the controller until it is cancelled.
pub(crate) async fn run(client: Client, clock: SharedClock, cancellation: CancellationToken) {
    let autoscalers = Api::<HorizontalPodAutoscaler>::all(client.clone());
    let controller = Controller::new(autoscalers, watcher::Config::default());
    let listed = controller.store();
    let running = controller
        .graceful_shutdown_on(cancellation.clone().cancelled_owned())
        .run(reconcile, retry, Arc::new(Context { client, clock }))
        .for_each(|outcome| {
            if let Err(error) = outcome {
                tracing::debug!(%error, "an autoscaler is looked at again");
            }
            futures::future::ready(())
        });
    shutdown::ended(running, listed, cancellation).await;
}

fn retry(_autoscaler: Arc<HorizontalPodAutoscaler>, _error: &ReconcileError, _context: Arc<Context>) -> Next {
    Next::requeue(RETRY)
}

async fn reconcile(
    cached: Arc<HorizontalPodAutoscaler>,
    context: Arc<Context>,
) -> Result<Next, ReconcileError> {
    let namespace = cached.namespace().unwrap_or_default();
    let autoscalers = Api::<HorizontalPodAutoscaler>::namespaced(context.client.clone(), &namespace);
    let Some(mut autoscaler) = autoscalers.get_opt(&cached.name_any()).await? else {
        return Ok(Next::await_change());
    };
    let mut status = autoscaler.status.clone().unwrap_or_default();
    let told = status.conditions.iter().flatten().any(|condition| {
        condition.type_ == CONDITION
            && condition.status == "False"
            && condition.reason.as_deref() == Some(REASON)
    });
    if told && status.observed_generation == autoscaler.metadata.generation {
        return Ok(Next::await_change());
    }
    let conditions = status.conditions.get_or_insert_default();
    if !told {
        conditions.retain(|condition| condition.type_ != CONDITION);
        conditions.push(HorizontalPodAutoscalerCondition {
            type_: CONDITION.to_owned(),
            status: "False".to_owned(),
            reason: Some(REASON.to_owned()),
            message: Some(MESSAGE.to_owned()),
            last_transition_time: Some(Time(context.clock.now())),
        });
    }
    autoscaler.status = Some(HorizontalPodAutoscalerStatus {
        observed_generation: autoscaler.metadata.generation,
        ..status
    });
    autoscalers
        .replace_status(&autoscaler.name_any(), &writing::post(), &autoscaler)
        .await?;
    Ok(Next::await_change())
}
