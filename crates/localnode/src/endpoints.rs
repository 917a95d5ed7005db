//! EndpointSlices and Endpoints: which Pods a Service with a selector leads to. Requirement KA-050.
//!
//! For programs that read them. Workloads here do not need them: their connector asks `services`. A Pod of this process
//! listens on free loopback ports, so those are what its endpoints name; Pods that differ in their ports have slices of
//! their own.

mod plan;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Endpoints, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams};
use kube::runtime::controller::{Action as Next, Controller};
use kube::runtime::{reflector::ObjectRef, reflector::Store, watcher};
use kube::{Api, Client, ResourceExt};
use tokio_util::sync::CancellationToken;

use crate::error::ReconcileError;
use crate::pods::PodTable;
use crate::{shutdown, writing};
use plan::Wanted;

/// How long after a failure a Service is looked at again.
const RETRY: Duration = Duration::from_secs(1);

struct Context {
    client: Client,
    pods: PodTable,
}

/// The Services that lead or led to a Pod, by its UID: one that it no longer belongs to must forget it. A std mutex:
/// never held across an await.
type Led = Arc<Mutex<BTreeMap<String, Vec<ObjectRef<Service>>>>>;

/// Runs the controller until it is cancelled.
pub(crate) async fn run(client: Client, pods: PodTable, cancellation: CancellationToken) {
    let services = Api::<Service>::all(client.clone());
    let all_pods = Api::<Pod>::all(client.clone());
    let controller = Controller::new(services, watcher::Config::default());
    let (store, listed) = (controller.store(), controller.store());
    let led = Led::default();
    let running = controller
        .watches(all_pods, watcher::Config::default(), move |pod: Pod| {
            concerned(&store, &led, &pod)
        })
        .graceful_shutdown_on(cancellation.clone().cancelled_owned())
        .run(reconcile, retry, Arc::new(Context { client, pods }))
        .for_each(|outcome| {
            if let Err(error) = outcome {
                tracing::debug!(%error, "the endpoints of a Service are looked at again");
            }
            futures::future::ready(())
        });
    shutdown::ended(running, listed, cancellation).await;
}

fn concerned(store: &Store<Service>, led: &Led, pod: &Pod) -> Vec<ObjectRef<Service>> {
    let selecting = store.state_filter(|service: &Service| {
        service.namespace() == pod.namespace()
            && plan::selector(service).is_some_and(|selector| plan::selects(selector, pod.labels()))
    });
    let now: Vec<ObjectRef<Service>> = selecting
        .iter()
        .map(|service| ObjectRef::from_obj(&**service))
        .collect();
    let mut led = led.lock().unwrap_or_else(PoisonError::into_inner);
    let mut concerned = led.remove(&pod.uid().unwrap_or_default()).unwrap_or_default();
    if pod.metadata.deletion_timestamp.is_none() && !now.is_empty() {
        led.insert(pod.uid().unwrap_or_default(), now.clone());
    }
    concerned.retain(|service| !now.contains(service));
    concerned.extend(now);
    concerned
}

fn retry(service: Arc<Service>, error: &ReconcileError, _context: Arc<Context>) -> Next {
    if !error.is_race() {
        tracing::warn!(service = %service.name_any(), namespace = ?service.namespace(), %error, "the endpoints of a Service could not be written");
    }
    Next::requeue(RETRY)
}

async fn reconcile(cached: Arc<Service>, context: Arc<Context>) -> Result<Next, ReconcileError> {
    let namespace = cached.namespace().unwrap_or_default();
    let client = &context.client;
    let name = cached.name_any();
    let Some(service) = Api::<Service>::namespaced(client.clone(), &namespace)
        .get_opt(&name)
        .await?
    else {
        // What it owned goes with it.
        return Ok(Next::await_change());
    };
    if service.metadata.deletion_timestamp.is_some() {
        return Ok(Next::await_change());
    }
    let slices = Api::<EndpointSlice>::namespaced(client.clone(), &namespace);
    let ours = ListParams::default().labels(&plan::slice_selector(&name));
    let Some(selector) = plan::selector(&service) else {
        // The selector may have been taken away; what others wrote stays.
        write_slices(&slices, &ours, Vec::new()).await?;
        return Ok(Next::await_change());
    };
    let labels: Vec<String> = selector
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let parameters = ListParams::default().labels(&labels.join(","));
    let pods = Api::<Pod>::namespaced(client.clone(), &namespace)
        .list(&parameters)
        .await?;
    let Wanted {
        slices: wanted,
        endpoints,
    } = plan::plan(&service, &pods.items, &context.pods);
    write_slices(&slices, &ours, wanted).await?;
    write_endpoints(&Api::namespaced(client.clone(), &namespace), endpoints).await?;
    Ok(Next::await_change())
}

async fn write_slices(
    slices: &Api<EndpointSlice>,
    ours: &ListParams,
    wanted: Vec<EndpointSlice>,
) -> Result<(), ReconcileError> {
    let mut there: BTreeMap<String, EndpointSlice> = slices
        .list(ours)
        .await?
        .into_iter()
        .map(|slice| (slice.name_any(), slice))
        .collect();
    for mut slice in wanted {
        match there.remove(&slice.name_any()) {
            None => {
                slices.create(&writing::post(), &slice).await?;
            }
            Some(old) if old.endpoints == slice.endpoints && old.ports == slice.ports => {}
            Some(old) => {
                slice.metadata.resource_version = old.resource_version();
                slices
                    .replace(&slice.name_any(), &writing::post(), &slice)
                    .await?;
            }
        }
    }
    for name in there.into_keys() {
        match slices.delete(&name, &DeleteParams::background()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.reason == "NotFound" => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

async fn write_endpoints(api: &Api<Endpoints>, mut wanted: Endpoints) -> Result<(), ReconcileError> {
    let name = wanted.name_any();
    match api.get_opt(&name).await? {
        None => {
            api.create(&writing::post(), &wanted).await?;
        }
        // Somebody's own, as for a program outside.
        Some(old) if !plan::is_ours(&old) => {}
        Some(old) if old.subsets == wanted.subsets => {}
        Some(old) => {
            wanted.metadata.resource_version = old.resource_version();
            api.replace(&name, &writing::post(), &wanted).await?;
        }
    }
    Ok(())
}
