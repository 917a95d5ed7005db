//! How triggers reach a reconcile.
//!
//! Each controller has one queue of references to its own objects. The watch of its own kind fills it, and so does a
//! watch of every kind that its decisions depend on, through a function from the changed object to the objects that
//! refer to it **by name**, so that an object that is created later wakes those that wait for it (OM-240, OM-254).
//! kube's applier takes it from there: one reconcile at a time per object, a change during a reconcile runs it again
//! afterwards, no more than the given number at once (OM-247, OM-248).
//!
//! Objects that cannot be read (they bypassed admission) do not disturb the others: they are reported and skipped.

mod guarded;

use std::{convert::Infallible, fmt::Debug, hash::Hash, sync::Arc, time::Duration};

use futures::{Stream, StreamExt, TryStreamExt};
use kube::{
    Api, Resource, ResourceExt,
    core::NamespaceResourceScope,
    runtime::{
        WatchStreamExt,
        controller::{Action, Config, Error as ControllerError, applier},
        reflector::{ObjectRef, Store, store},
        watcher::{self, Event},
    },
};
use mainstay_telemetry::task;
use serde::de::DeserializeOwned;
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

use crate::{
    backoff::Backoff,
    error::ReconcileError,
    events::{Notice, Publisher},
};
pub(crate) use guarded::Guarded;

/// References that wait to be scheduled. A full queue makes the watches wait, which loses nothing.
const QUEUE: usize = 1024;

/// A kind that a controller owns or watches.
pub(crate) trait Watched:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + DeserializeOwned
    + Debug
    + Send
    + Sync
    + 'static
{
}

impl<K> Watched for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + Debug
        + Send
        + Sync
        + 'static
{
}

/// A reference to an object of a controller's own kind.
pub(crate) type Reference<K> = ObjectRef<Guarded<K>>;

/// When an object is reconciled again without a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Never (OM-241).
    AwaitChange,
    /// After this time: only what no watch can tell (OM-242).
    After(Duration),
}

/// One kind's reconcile.
pub(crate) trait Reconciler<K>: Send + Sync + 'static {
    /// Brings one object to the state it should be in.
    fn reconcile(&self, object: &K) -> impl Future<Output = Result<Next, ReconcileError>> + Send;

    /// Where Events go.
    fn publisher(&self) -> &Publisher;
}

/// What happened to a watched object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It is there, new or changed.
    Applied,
    /// It is gone.
    Deleted,
}

/// A controller's queue and the watches that fill it.
pub(crate) struct Work<K: Watched> {
    name: &'static str,
    client: kube::Client,
    store: Store<Guarded<K>>,
    writer: Option<kube::runtime::reflector::store::Writer<Guarded<K>>>,
    sender: mpsc::Sender<Reference<K>>,
    receiver: mpsc::Receiver<Reference<K>>,
    watches: Vec<JoinHandle<()>>,
    cancellation: CancellationToken,
}

impl<K: Watched> Work<K> {
    /// A queue without watches. `cancellation` ends the watches and then the queue.
    pub(crate) fn new(name: &'static str, client: kube::Client, cancellation: CancellationToken) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let (store, writer) = store();
        Self {
            name,
            client,
            store,
            writer: Some(writer),
            sender,
            receiver,
            watches: Vec::new(),
            cancellation,
        }
    }

    /// The controller's own objects, as last seen.
    pub(crate) fn store(&self) -> Store<Guarded<K>> {
        self.store.clone()
    }

    /// Watches the controller's own kind. `select` says which objects a change concerns: usually the changed one.
    pub(crate) fn own(
        &mut self,
        mut select: impl FnMut(&Guarded<K>, Change) -> Vec<Reference<K>> + Send + 'static,
    ) {
        let Some(mut writer) = self.writer.take() else {
            return;
        };
        let sender = self.sender.clone();
        let events = watch::<K>(&self.client);
        self.spawn(async move {
            let mut events = std::pin::pin!(events);
            while let Some(event) = events.next().await {
                // The store comes first: a reference is looked up in it.
                writer.apply_watcher_event(&event);
                let references = match &event {
                    Event::Apply(object) | Event::InitApply(object) => select(object, Change::Applied),
                    Event::Delete(object) => select(object, Change::Deleted),
                    Event::Init => Vec::new(),
                    // Objects of a list are in the store only when the list is complete.
                    Event::InitDone => everything(&writer.as_reader()),
                };
                if !send(&sender, references).await {
                    return;
                }
            }
        });
    }

    /// Watches another kind. `affected` names the controller's objects that refer to a changed one.
    pub(crate) fn also<Other: Watched>(
        &mut self,
        mut affected: impl FnMut(&Guarded<Other>, Change) -> Vec<Reference<K>> + Send + 'static,
    ) {
        let sender = self.sender.clone();
        let store = self.store.clone();
        let client = self.client.clone();
        self.spawn(async move { forward(&client, &sender, &store, &mut affected).await });
    }

    /// Watches another kind while it is there, and looks at every object when it comes or goes.
    pub(crate) fn also_while<Other: Watched>(
        &mut self,
        mut presence: crate::presence::Presence,
        mut affected: impl FnMut(&Guarded<Other>, Change) -> Vec<Reference<K>> + Send + 'static,
    ) {
        let sender = self.sender.clone();
        let store = self.store.clone();
        let client = self.client.clone();
        self.spawn(async move {
            let mut before = *presence.borrow_and_update();
            loop {
                let present = *presence.borrow_and_update();
                if present != before && !send(&sender, everything(&store)).await {
                    return;
                }
                before = present;
                let mut changes = presence.clone();
                let changed = async { changes.wait_for(|now| *now != present).await.map(|_| ()) };
                if present == Some(true) {
                    tokio::select! {
                        () = forward(&client, &sender, &store, &mut affected) => return,
                        changed = changed => if changed.is_err() { return },
                    }
                } else if changed.await.is_err() {
                    return;
                }
            }
        });
    }

    fn spawn(&mut self, watch: impl Future<Output = ()> + Send + 'static) {
        let cancellation = self.cancellation.clone();
        self.watches.push(task::spawn(self.name, async move {
            cancellation.run_until_cancelled(watch).await;
        }));
    }

    /// Reconciles until cancelled, then waits for the reconciles that are under way.
    pub(crate) async fn run<R: Reconciler<K>>(self, concurrency: u16, reconciler: R) {
        let Self {
            name,
            store,
            sender,
            receiver,
            watches,
            cancellation,
            ..
        } = self;
        drop(sender);
        let context = Arc::new(Context {
            reconciler,
            backoff: Backoff::new(),
        });
        let queue = ReceiverStream::new(receiver)
            .map(Ok::<_, Infallible>)
            .take_until(cancellation.clone().cancelled_owned());
        let outcomes = applier(
            |object: Arc<Guarded<K>>, context: Arc<Context<K, R>>| {
                Box::pin(async move { reconcile(&object, &context).await })
            },
            |object, error, context: Arc<Context<K, R>>| {
                let delay = context.backoff.next(reference(object.as_ref()));
                tracing::warn!(
                    controller = name,
                    object = %reference::<K>(object.as_ref()),
                    error = error.chain(),
                    retry_in_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX),
                    "reconcile failed"
                );
                Action::requeue(delay)
            },
            Arc::clone(&context),
            store,
            queue,
            Config::default().concurrency(concurrency),
        );
        outcomes
            .for_each(|outcome| {
                match outcome {
                    // Failures were logged with their delay already.
                    Ok(_) | Err(ControllerError::ReconcilerFailed(..)) => {}
                    // The object was deleted while its trigger waited.
                    Err(ControllerError::ObjectNotFound(_)) => {}
                    Err(error) => tracing::warn!(controller = name, %error, "queue failed"),
                }
                std::future::ready(())
            })
            .await;
        for watch in watches {
            if let Err(error) = watch.await {
                tracing::warn!(controller = name, %error, "watch ended abnormally");
            }
        }
    }
}

struct Context<K: Watched, R> {
    reconciler: R,
    backoff: Backoff<Reference<K>>,
}

async fn reconcile<K: Watched, R: Reconciler<K>>(
    object: &Guarded<K>,
    context: &Context<K, R>,
) -> Result<Action, ReconcileError> {
    let next = match &object.0 {
        Ok(object) => context.reconciler.reconcile(object).await?,
        Err(invalid) => {
            // Only its metadata can be read.
            let kind = K::kind(&());
            let name = invalid.metadata.name.as_deref().unwrap_or_default();
            tracing::warn!(%kind, name, error = invalid.error, "object cannot be read");
            let message = format!("the object does not have the form of its kind: {}", invalid.error);
            let notice = Notice::warning(mainstay_resources::reasons::INVALID_SPEC, message);
            context
                .reconciler
                .publisher()
                .publish_about(&K::api_version(&()), &kind, &invalid.metadata, notice)
                .await;
            Next::AwaitChange
        }
    };
    context.backoff.reset(&reference(object));
    Ok(match next {
        Next::AwaitChange => Action::await_change(),
        Next::After(delay) => Action::requeue(delay),
    })
}

/// Turns the changes of another kind into references until the queue closes.
async fn forward<K: Watched, Other: Watched>(
    client: &kube::Client,
    sender: &mpsc::Sender<Reference<K>>,
    store: &Store<Guarded<K>>,
    affected: &mut (impl FnMut(&Guarded<Other>, Change) -> Vec<Reference<K>> + Send),
) {
    let mut events = std::pin::pin!(watch::<Other>(client));
    let mut listed_before = false;
    while let Some(event) = events.next().await {
        let references = match &event {
            Event::Apply(object) | Event::InitApply(object) => affected(object, Change::Applied),
            Event::Delete(object) => affected(object, Change::Deleted),
            Event::Init => Vec::new(),
            // A list after a gap does not say what was deleted in the gap, so everything is looked at.
            Event::InitDone if listed_before => everything(store),
            Event::InitDone => {
                listed_before = true;
                Vec::new()
            }
        };
        if !send(sender, references).await {
            return;
        }
    }
}

fn everything<K: Watched>(store: &Store<Guarded<K>>) -> Vec<Reference<K>> {
    store
        .state()
        .iter()
        .map(|object| reference(object.as_ref()))
        .collect()
}

/// A watch that never ends: it relists and backs off by itself.
fn watch<K: Watched>(client: &kube::Client) -> impl Stream<Item = Event<Guarded<K>>> + Send + 'static {
    let api: Api<Guarded<K>> = Api::all(client.clone());
    watcher::watcher(api, watcher::Config::default())
        .backoff(WatchBackoff::default())
        .inspect_err(|error| tracing::warn!(kind = %K::kind(&()), %error, "watch interrupted"))
        .filter_map(|event| std::future::ready(event.ok()))
}

/// Gaps between two attempts to watch. They start small: at the start of the product the kinds are served a moment
/// later than the first attempt may come.
#[derive(Debug, Default)]
pub(crate) struct WatchBackoff {
    failures: u32,
}

impl WatchBackoff {
    const FIRST: Duration = Duration::from_millis(50);
    const LONGEST: Duration = Duration::from_secs(10);
}

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let delay = Self::FIRST.saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        Some(delay.min(Self::LONGEST))
    }
}

impl kube::runtime::utils::Backoff for WatchBackoff {
    fn reset(&mut self) {
        self.failures = 0;
    }
}

async fn send<T>(sender: &mpsc::Sender<T>, items: Vec<T>) -> bool {
    for item in items {
        if sender.send(item).await.is_err() {
            return false;
        }
    }
    true
}

/// The reference of an object.
pub(crate) fn reference<K: Watched>(object: &Guarded<K>) -> Reference<K> {
    named(
        &object.name_any(),
        object.meta().namespace.as_deref().unwrap_or_default(),
    )
}

/// The reference of an object that has a name and a namespace.
pub(crate) fn named<K: Watched>(name: &str, namespace: &str) -> Reference<K> {
    ObjectRef::new(name).within(namespace)
}

/// The controller's objects of one namespace that fulfil a condition.
pub(crate) fn matching<K: Watched>(
    store: &Store<Guarded<K>>,
    namespace: Option<&str>,
    condition: impl Fn(&K) -> bool,
) -> Vec<Reference<K>> {
    store
        .state()
        .iter()
        .filter(|object| object.meta().namespace.as_deref() == namespace)
        .filter(|object| object.0.as_ref().is_ok_and(&condition))
        .map(|object| reference(object.as_ref()))
        .collect()
}

/// The last value seen of each object, to tell a change that matters from one that does not.
#[derive(Debug)]
pub(crate) struct Seen<Value> {
    values: std::collections::HashMap<(String, String), Value>,
}

impl<Value: PartialEq + Clone> Seen<Value> {
    pub(crate) fn new() -> Self {
        Self {
            values: std::collections::HashMap::new(),
        }
    }

    /// Notes the value of an object, `None` for a deleted one, and returns the one before.
    pub(crate) fn replace<K: Resource>(&mut self, object: &K, value: Option<Value>) -> Option<Value> {
        let meta = object.meta();
        let key = (
            meta.namespace.clone().unwrap_or_default(),
            meta.name.clone().unwrap_or_default(),
        );
        match value {
            Some(value) => self.values.insert(key, value),
            None => self.values.remove(&key),
        }
    }

    /// Like [`Seen::replace`], and says whether the value changed.
    pub(crate) fn changed<K: Resource>(&mut self, object: &K, value: Option<Value>) -> bool {
        self.replace(object, value.clone()) != value
    }
}

/// What of an object is not its status: a change of anything else is a controller's own write, which need not wake it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Revision {
    generation: Option<i64>,
    uid: Option<String>,
    deleting: bool,
    finalizers: Option<Vec<String>>,
    annotations: Option<std::collections::BTreeMap<String, String>>,
}

impl Revision {
    /// The revision of an object, `None` for a deleted one.
    pub(crate) fn of<K: Watched>(object: &Guarded<K>, change: Change) -> Option<Revision> {
        let meta = object.meta();
        (change == Change::Applied).then(|| Revision {
            generation: meta.generation,
            uid: meta.uid.clone(),
            deleting: meta.deletion_timestamp.is_some(),
            finalizers: meta.finalizers.clone(),
            annotations: meta.annotations.clone(),
        })
    }
}

/// A hashable pair of kind and name, in one namespace.
pub(crate) type Dependency = (&'static str, String);

/// Which objects an object's last reconcile looked at, by name. References that are only known after other objects
/// were read (the Secrets of a registry's handlers) are mapped back through this.
#[derive(Debug)]
pub(crate) struct Dependencies<Key> {
    of: std::sync::Mutex<std::collections::HashMap<Key, std::collections::BTreeSet<Dependency>>>,
}

impl<Key: Eq + Hash + Clone> Dependencies<Key> {
    pub(crate) fn new() -> Self {
        Self {
            of: std::sync::Mutex::new(std::collections::HashMap::new()),
        }
    }

    /// Notes what an object depends on. Called **before** the dependencies are read, so that a change between the
    /// two is not missed.
    pub(crate) fn record(&self, key: Key, dependencies: std::collections::BTreeSet<Dependency>) {
        let mut of = self.of.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        of.entry(key).or_default().extend(dependencies);
    }

    /// Forgets what an object depended on, at the start of its reconcile and when it is gone.
    pub(crate) fn forget(&self, key: &Key) {
        self.of
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .remove(key);
    }

    /// The objects that depend on this one.
    pub(crate) fn dependents(
        &self,
        kind: &'static str,
        name: &str,
        within: impl Fn(&Key) -> bool,
    ) -> Vec<Key> {
        let of = self.of.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        of.iter()
            .filter(|(key, dependencies)| {
                within(key)
                    && dependencies
                        .iter()
                        .any(|(other, wanted)| *other == kind && wanted == name)
            })
            .map(|(key, _)| key.clone())
            .collect()
    }
}
