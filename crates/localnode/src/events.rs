//! Kubernetes Events about the objects that the local node works on.

mod known;

use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{Api, Client, Resource, ResourceExt, api::Patch};
use mainstay_telemetry::{clock::SharedClock, random::SharedRandom};
use serde_json::json;

use crate::{FIELD_MANAGER, writing};
use known::{Key, Known, Written};

/// Who reports.
const COMPONENT: &str = FIELD_MANAGER;

/// Writes Events. What is said again raises the count of the Event that said it first, so whoever sees the same in each
/// round may say so. A lost Event is logged and loses nothing else.
#[derive(Clone)]
pub(crate) struct Events {
    client: Client,
    clock: SharedClock,
    random: SharedRandom,
    // A std mutex: never held across an await.
    known: Arc<Mutex<Known>>,
}

impl Events {
    /// A writer of Events.
    pub(crate) fn new(client: Client, clock: SharedClock, random: SharedRandom) -> Self {
        Self {
            client,
            clock,
            random,
            known: Arc::default(),
        }
    }

    /// Something that is as it should be.
    pub(crate) async fn normal<K: Resource<DynamicType = ()>>(&self, about: &K, reason: &str, note: &str) {
        self.write(about, "Normal", reason, note).await;
    }

    /// Something that somebody should look at.
    pub(crate) async fn warning<K: Resource<DynamicType = ()>>(&self, about: &K, reason: &str, note: &str) {
        self.write(about, "Warning", reason, note).await;
    }

    async fn write<K: Resource<DynamicType = ()>>(
        &self,
        about: &K,
        type_: &'static str,
        reason: &str,
        note: &str,
    ) {
        let namespace = about.namespace().unwrap_or_else(|| "default".to_owned());
        let events: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        let key = Key {
            uid: about.meta().uid.clone().unwrap_or_default(),
            type_,
            reason: reason.to_owned(),
            message: note.to_owned(),
        };
        let again = self.known().again(&key);
        let written = match again {
            Some(written) => self.count(&written, &events).await,
            None => Ok(false),
        };
        let written = match written {
            Ok(true) => return,
            // Nobody said it yet, or the Event is gone: they are removed after a while.
            Ok(false) => {
                let event = self.event(about, &namespace, &key);
                let name = event.name_any();
                let created = events.create(&writing::post(), &event).await;
                created.map(|_| self.known().insert(key, name))
            }
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            tracing::warn!(object = about.name_any(), namespace, reason, %error, "an Event could not be written");
        }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Raises the count of an Event; whether there is such an Event.
    async fn count(&self, written: &Written, events: &Api<Event>) -> kube::Result<bool> {
        let patch = json!({ "count": written.count, "lastTimestamp": Time(self.clock.now()) });
        match events
            .patch(&written.name, &writing::patch(), &Patch::Merge(patch))
            .await
        {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.reason == "NotFound" => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn event<K: Resource<DynamicType = ()>>(&self, about: &K, namespace: &str, key: &Key) -> Event {
        let now = Time(self.clock.now());
        let reference: ObjectReference = about.object_ref(&());
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{}.{}", about.name_any(), self.random.suffix(16))),
                namespace: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            involved_object: reference,
            reason: Some(key.reason.clone()),
            message: Some(key.message.clone()),
            type_: Some(key.type_.to_owned()),
            count: Some(1),
            first_timestamp: Some(now.clone()),
            last_timestamp: Some(now),
            source: Some(EventSource {
                component: Some(COMPONENT.to_owned()),
                host: None,
            }),
            reporting_component: Some(COMPONENT.to_owned()),
            ..Event::default()
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::{DeleteParams, ListParams};
    use mainstay_kubeapi::{Api as KubeApi, ApiOptions, Identity};
    use mainstay_store::kube::{KubeOptions, KubeStore};
    use mainstay_telemetry::{clock::ManualClock, random};

    use super::*;

    #[tokio::test]
    async fn what_is_said_again_raises_the_count_until_the_event_is_gone() {
        let clock = ManualClock::at("2026-03-01T08:00:00Z".parse().unwrap());
        let store = KubeStore::open(KubeOptions::in_memory()).unwrap();
        let options = ApiOptions::new(store, clock.clone(), random::system());
        let client = KubeApi::open(options)
            .await
            .unwrap()
            .client(Identity::component("localnode"));
        let events = Events::new(client.clone(), clock.clone(), random::system());
        let about: ConfigMap = serde_json::from_value(
            json!({ "metadata": { "name": "a", "namespace": "default", "uid": "u" } }),
        )
        .unwrap();
        let api: Api<Event> = Api::namespaced(client, "default");
        let written = || async {
            let mut written = api.list(&ListParams::default()).await.unwrap().items;
            written.sort_by_key(|event| event.message.clone());
            let shown = written.iter().map(|event| {
                let times = [&event.first_timestamp, &event.last_timestamp];
                let seconds = times.map(|time| time.as_ref().unwrap().0.as_second() % 60);
                (event.message.clone().unwrap(), event.count.unwrap(), seconds)
            });
            shown.collect::<Vec<_>>()
        };
        for second in 0..3 {
            clock.set(format!("2026-03-01T08:00:0{second}Z").parse().unwrap());
            events.warning(&about, "FailedCreate", "no quota").await;
        }
        events.warning(&about, "FailedCreate", "something else").await;
        assert_eq!(
            written().await,
            [
                ("no quota".to_owned(), 3, [0, 2]),
                ("something else".to_owned(), 1, [2, 2])
            ]
        );
        for event in api.list(&ListParams::default()).await.unwrap() {
            api.delete(&event.name_any(), &DeleteParams::default())
                .await
                .unwrap();
        }
        events.warning(&about, "FailedCreate", "no quota").await;
        assert_eq!(written().await, [("no quota".to_owned(), 1, [2, 2])]);
    }
}
