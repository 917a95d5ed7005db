//! Kubernetes Events about the objects that the local node works on.

use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{Api, Client, Resource, ResourceExt};
use mainstay_telemetry::{clock::SharedClock, random::SharedRandom};

use crate::{FIELD_MANAGER, writing};

/// Who reports.
const COMPONENT: &str = FIELD_MANAGER;

/// Writes Events. A lost Event is logged and loses nothing else.
#[derive(Clone)]
pub(crate) struct Events {
    client: Client,
    clock: SharedClock,
    random: SharedRandom,
}

impl Events {
    /// A writer of Events.
    pub(crate) fn new(client: Client, clock: SharedClock, random: SharedRandom) -> Self {
        Self {
            client,
            clock,
            random,
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

    async fn write<K: Resource<DynamicType = ()>>(&self, about: &K, type_: &str, reason: &str, note: &str) {
        let namespace = about.namespace().unwrap_or_else(|| "default".to_owned());
        let now = Time(self.clock.now());
        let reference: ObjectReference = about.object_ref(&());
        let event = Event {
            metadata: ObjectMeta {
                name: Some(format!("{}.{}", about.name_any(), self.random.suffix(16))),
                namespace: Some(namespace.clone()),
                ..ObjectMeta::default()
            },
            involved_object: reference,
            reason: Some(reason.to_owned()),
            message: Some(note.to_owned()),
            type_: Some(type_.to_owned()),
            count: Some(1),
            first_timestamp: Some(now.clone()),
            last_timestamp: Some(now),
            source: Some(EventSource {
                component: Some(COMPONENT.to_owned()),
                host: None,
            }),
            reporting_component: Some(COMPONENT.to_owned()),
            ..Event::default()
        };
        let events: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        if let Err(error) = events.create(&writing::post(), &event).await {
            tracing::warn!(object = about.name_any(), namespace, reason, %error, "an Event could not be written");
        }
    }
}
