//! The embedded API on threads of its own: a busy or broken agent cannot starve `kubectl`.

use std::{path::PathBuf, sync::Arc};

use kube::Client;
use mainstay_kubeapi::{Api, ApiOptions, Identity, ServeError, ServeOptions, Serving};
use mainstay_localnode::Clients;
use mainstay_store::kube::KubeStore;
use mainstay_telemetry::{clock::SharedClock, metrics::Metrics, random::SharedRandom};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::pod_access::PodAccess;
use crate::terminal::Failure;

/// Threads that the API works on.
const THREADS: usize = 2;

/// The API and its threads. Cloning shares them.
#[derive(Clone)]
pub(super) struct ApiThreads {
    api: Api,
    handle: Handle,
    shared: Arc<Shared>,
}

struct Shared {
    // Taken out when the API ends; a runtime cannot be dropped where async code runs.
    runtime: std::sync::Mutex<Option<Runtime>>,
    background: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // A start that failed half-way drops this inside async code, where a runtime must not wait for its threads.
        let runtime = self
            .runtime
            .get_mut()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .take();
        if let Some(runtime) = runtime {
            runtime.shutdown_background();
        }
    }
}

impl ApiThreads {
    /// Opens the API over `kube`, which reaches Pods through `pods` and keeps its signing keys in `keys`, and starts its background work, until `cancellation`.
    pub(super) async fn start(
        kube: KubeStore,
        clock: &SharedClock,
        random: &SharedRandom,
        metrics: &Metrics,
        (pods, keys): (PodAccess, PathBuf),
        cancellation: CancellationToken,
    ) -> Result<Self, Failure> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("kubeapi")
            .enable_all()
            .build()
            .map_err(|error| Failure::new(format!("the API's threads cannot be started: {error}")))?;
        let handle = runtime.handle().clone();
        let options = ApiOptions {
            metrics: metrics.clone(),
            logs: Some(Arc::new(pods.clone())),
            dialer: Some(Arc::new(pods)),
            keys: Some(keys),
            ..ApiOptions::new(kube, Arc::clone(clock), Arc::clone(random))
        };
        let opening = handle.spawn(Api::open(options));
        let shared = Arc::new(Shared {
            runtime: std::sync::Mutex::new(Some(runtime)),
            background: tokio::sync::Mutex::new(None),
        });
        let api = opening
            .await
            .map_err(|error| Failure::new(format!("opening the Kubernetes API failed: {error}")))?
            .map_err(|error| Failure::new(format!("the Kubernetes API cannot be opened: {error}")))?;
        let running = api.clone();
        *shared.background.lock().await = Some(handle.spawn(async move { running.run(cancellation).await }));
        Ok(Self { api, handle, shared })
    }

    /// Serves over TLS until `cancellation`.
    pub(super) async fn serve_tls(
        &self,
        options: ServeOptions,
        cancellation: CancellationToken,
    ) -> Result<Serving, ServeError> {
        let api = self.api.clone();
        match self
            .handle
            .spawn(async move { api.serve_tls(options, cancellation).await })
            .await
        {
            Ok(served) => served,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    /// A client in this process that speaks as `identity`. Its requests are worked on by the API's threads.
    pub(super) fn client(&self, identity: Identity) -> Client {
        let (router, handle) = (self.api.router(), self.handle.clone());
        let service = tower::service_fn(move |mut request: http::Request<kube::client::Body>| {
            // Set here and never taken from the request: whoever holds the client is this identity.
            request.extensions_mut().insert(identity.clone());
            let answering = handle.spawn(router.clone().oneshot(request.map(axum::body::Body::new)));
            async move {
                match answering.await {
                    Ok(answered) => answered.map_err(|never| match never {}),
                    // The API ends, or a panic got past its own catching.
                    Err(error) => Err(Box::new(error) as Box<dyn std::error::Error + Send + Sync>),
                }
            }
        });
        Client::new(service, "default")
    }

    /// Waits for the background work to end, and ends the threads.
    pub(super) async fn end(&self) {
        if let Some(background) = self.shared.background.lock().await.take()
            && let Err(error) = background.await
        {
            tracing::error!(%error, "the background work of the API failed");
        }
        let runtime = self
            .shared
            .runtime
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .take();
        if let Some(runtime) = runtime {
            runtime.shutdown_background();
        }
    }
}

impl Clients for ApiThreads {
    fn client(&self, namespace: &str, service_account: &str) -> Client {
        Self::client(self, Identity::service_account(namespace, service_account))
    }
}
