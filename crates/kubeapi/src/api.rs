//! The embedded API as a component: [`ApiOptions`] → [`Api`], a cheap handle whose clones are one server.

mod bootstrap;

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use mainstay_store::kube::KubeStore;
use mainstay_telemetry::{clock::SharedClock, metrics::Metrics, random::SharedRandom};
use secrecy::SecretString;
use tokio::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::{
    admission::Policies,
    aftermath::Aftermath,
    authorization::Authorizer,
    dialing::Dialer,
    logs::LogSource,
    measure::Measures,
    registry::Registry,
    status::ApiError,
    tokens::{KeyError, SigningKey},
};

/// What bounds the server. Requirement KA-008.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The largest request body, in bytes.
    pub body_bytes: usize,
    /// The largest object that is stored, in bytes.
    pub object_bytes: usize,
    /// How many requests other than watches are worked on at a time; further ones wait.
    pub requests: usize,
    /// How many watches and log streams may be open.
    pub watches: usize,
    /// How many port-forwards may be open; each may hold some megabytes of what is on its way.
    pub forwards: usize,
    /// How long a request may wait to be worked on before it is answered with 429.
    pub queue: Duration,
    /// How long a client may take to send a body.
    pub body: Duration,
    /// How long a request other than a watch may take.
    pub request: Duration,
    /// How long a watch lasts whose client gave no `timeoutSeconds`.
    pub watch: Duration,
    /// Time between two bookmarks of a watch.
    pub bookmark: Duration,
    /// How long an Event is kept. Requirement KA-031.
    pub event_age: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 3 * 1024 * 1024,
            object_bytes: 1024 * 1024 * 3 / 2,
            requests: 512,
            watches: 16_384,
            forwards: 256,
            queue: Duration::from_secs(10),
            body: Duration::from_secs(30),
            request: Duration::from_secs(60),
            watch: Duration::from_secs(45 * 60),
            bookmark: Duration::from_secs(60),
            event_age: Duration::from_secs(60 * 60),
        }
    }
}

/// What the API is built from.
pub struct ApiOptions {
    /// Where objects are kept.
    pub store: KubeStore,
    /// The time of creation timestamps and deadlines.
    pub clock: SharedClock,
    /// Where uids and generated names come from.
    pub random: SharedRandom,
    /// Where the server's figures are registered, and what `/metrics` shows.
    pub metrics: Metrics,
    /// Where the key that signs tokens is kept, with mode 0600; made at the first start. Without a directory there is a
    /// key for the life of the process, and its tokens end with it. Requirement KA-040.
    pub keys: Option<PathBuf>,
    /// Where `pods/log` reads; without one a log request is answered with 404.
    pub logs: Option<Arc<dyn LogSource>>,
    /// How `pods/portforward` and the proxies reach a workload; without one they are answered with 404.
    pub dialer: Option<Arc<dyn Dialer>>,
    /// Bounds.
    pub limits: Limits,
}

impl ApiOptions {
    /// The usual bounds, fresh metrics, keys that are not kept, no log source, and no way to a workload.
    pub fn new(store: KubeStore, clock: SharedClock, random: SharedRandom) -> Self {
        Self {
            store,
            clock,
            random,
            metrics: Metrics::new(),
            keys: None,
            logs: None,
            dialer: None,
            limits: Limits::default(),
        }
    }
}

/// Why the API could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A stored CustomResourceDefinition or other object cannot be read.
    #[error("stored object {resource} {name:?} cannot be read: {source}")]
    Stored {
        /// `GROUP/PLURAL`
        resource: String,
        /// The object's name.
        name: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The key that signs tokens cannot be made or read.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// An object that is always there could not be made.
    #[error("cannot create the {kind} {name:?}: {source}")]
    Bootstrap {
        /// The kind of the object.
        kind: &'static str,
        /// Its name.
        name: String,
        /// Why not.
        source: Box<ApiError>,
    },
}

struct Inner {
    store: KubeStore,
    clock: SharedClock,
    random: SharedRandom,
    metrics: Metrics,
    logs: Option<Arc<dyn LogSource>>,
    dialer: Option<Arc<dyn Dialer>>,
    limits: Limits,
    registry: Registry,
    aftermath: Aftermath,
    measures: Measures,
    authorizer: Authorizer,
    policies: Policies,
    signing_key: SigningKey,
    /// The token of the owner, once a socket is served.
    admin_token: OnceLock<SecretString>,
    /// Where a socket is served.
    address: OnceLock<SocketAddr>,
    /// Held shared while an object is created, alone while a namespace is found empty and removed: an async lock,
    /// because both sides wait for the store while they hold it.
    namespace_gate: RwLock<()>,
    /// Held while a CustomResourceDefinition is planned and stored.
    definition_gate: Mutex<()>,
    /// Held while a Service is planned and stored.
    address_gate: Mutex<()>,
    requests: Semaphore,
    watches: Arc<Semaphore>,
    forwards: Arc<Semaphore>,
    /// Ends watches, log streams and port-forwards, which have no end of their own.
    closing: CancellationToken,
}

/// The embedded Kubernetes API. Clones are handles of the same server.
#[derive(Clone)]
pub struct Api {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Api")
            .field("limits", &self.inner.limits)
            .finish_non_exhaustive()
    }
}

impl Api {
    /// Serves what `options.store` holds: reads the CustomResourceDefinitions, rebuilds the index of owners, and makes
    /// the namespaces that are always there. Background work starts with [`Api::run`].
    ///
    /// # Errors
    /// [`OpenError`] when a stored object cannot be read or a namespace cannot be made. Not worth a retry.
    pub async fn open(options: ApiOptions) -> Result<Self, OpenError> {
        let ApiOptions {
            store,
            clock,
            random,
            metrics,
            keys,
            logs,
            dialer,
            limits,
        } = options;
        let signing_key = match &keys {
            Some(directory) => SigningKey::load_or_make(directory)?,
            None => SigningKey::ephemeral()?,
        };
        let inner = Inner {
            signing_key,
            admin_token: OnceLock::new(),
            address: OnceLock::new(),
            registry: Registry::new(),
            aftermath: Aftermath::new(Arc::clone(&clock)),
            measures: Measures::new(&metrics),
            authorizer: Authorizer::new(),
            policies: Policies::new(),
            namespace_gate: RwLock::new(()),
            definition_gate: Mutex::new(()),
            address_gate: Mutex::new(()),
            requests: Semaphore::new(limits.requests),
            watches: Arc::new(Semaphore::new(limits.watches)),
            forwards: Arc::new(Semaphore::new(limits.forwards)),
            closing: CancellationToken::new(),
            store,
            clock,
            random,
            metrics,
            logs,
            dialer,
            limits,
        };
        let api = Self {
            inner: Arc::new(inner),
        };
        api.load()?;
        api.ensure_namespaces().await?;
        api.ensure_roles().await?;
        Ok(api)
    }

    pub(crate) fn store(&self) -> &KubeStore {
        &self.inner.store
    }

    pub(crate) fn clock(&self) -> &SharedClock {
        &self.inner.clock
    }

    pub(crate) fn random(&self) -> &SharedRandom {
        &self.inner.random
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }

    pub(crate) fn measures(&self) -> &Measures {
        &self.inner.measures
    }

    pub(crate) fn signing_key(&self) -> &SigningKey {
        &self.inner.signing_key
    }

    pub(crate) fn admin_token(&self) -> Option<&SecretString> {
        self.inner.admin_token.get()
    }

    /// The address of the socket; `None` until one is served.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.inner.address.get().copied()
    }

    /// Notes the socket that is served, and the token of the owner. The first socket is the one that is told to others.
    pub(crate) fn serves_at(&self, address: SocketAddr, token: &SecretString) {
        self.inner.address.get_or_init(|| address);
        self.inner.admin_token.get_or_init(|| token.clone());
    }

    pub(crate) fn authorizer(&self) -> &Authorizer {
        &self.inner.authorizer
    }

    pub(crate) fn policies(&self) -> &Policies {
        &self.inner.policies
    }

    pub(crate) fn logs(&self) -> Option<&Arc<dyn LogSource>> {
        self.inner.logs.as_ref()
    }

    pub(crate) fn dialer(&self) -> Option<&Arc<dyn Dialer>> {
        self.inner.dialer.as_ref()
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.inner.limits
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.inner.registry
    }

    pub(crate) fn aftermath(&self) -> &Aftermath {
        &self.inner.aftermath
    }

    pub(crate) fn namespace_gate(&self) -> NamespaceGate<'_> {
        NamespaceGate(&self.inner.namespace_gate)
    }

    pub(crate) fn definition_gate(&self) -> &Mutex<()> {
        &self.inner.definition_gate
    }

    pub(crate) fn address_gate(&self) -> &Mutex<()> {
        &self.inner.address_gate
    }

    pub(crate) fn requests(&self) -> &Semaphore {
        &self.inner.requests
    }

    pub(crate) fn closing(&self) -> &CancellationToken {
        &self.inner.closing
    }

    pub(crate) fn watches(&self) -> &Arc<Semaphore> {
        &self.inner.watches
    }

    pub(crate) fn forwards(&self) -> &Arc<Semaphore> {
        &self.inner.forwards
    }
}

/// Access to the lock between creations and the removal of namespaces.
pub(crate) struct NamespaceGate<'a>(&'a RwLock<()>);

impl<'a> NamespaceGate<'a> {
    pub(crate) async fn read(self) -> RwLockReadGuard<'a, ()> {
        self.0.read().await
    }

    pub(crate) async fn write(self) -> RwLockWriteGuard<'a, ()> {
        self.0.write().await
    }
}
