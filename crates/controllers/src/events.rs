//! Kubernetes Events: what happened to an object, for `kubectl describe` (OM-295, OM-300, OM-301).

use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{Api, Client, Resource, api::PostParams};
use mainstay_resources::conditions::cut;
use mainstay_telemetry::{clock::SharedClock, random::SharedRandom};

/// Longest message of an Event, in bytes.
const MESSAGE_LIMIT: usize = 1024;

/// Severity of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// For the record.
    Normal,
    /// Somebody may want to look.
    Warning,
}

/// An Event as a controller decides it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) severity: Severity,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Notice {
    pub(crate) fn warning(reason: &'static str, message: impl Into<String>) -> Notice {
        Notice {
            severity: Severity::Warning,
            reason,
            message: message.into(),
        }
    }

    pub(crate) fn normal(reason: &'static str, message: impl Into<String>) -> Notice {
        Notice {
            severity: Severity::Normal,
            reason,
            message: message.into(),
        }
    }
}

/// Publishes Events. Controllers publish on transitions only, so each is an Event of its own; the recorder of
/// kube-runtime would fold a repeated reason into the first one's text.
#[derive(Clone)]
pub(crate) struct Publisher {
    client: Client,
    clock: SharedClock,
    random: SharedRandom,
    component: &'static str,
}

impl Publisher {
    pub(crate) fn new(
        client: Client,
        clock: SharedClock,
        random: SharedRandom,
        component: &'static str,
    ) -> Self {
        Self {
            client,
            clock,
            random,
            component,
        }
    }

    /// Publishes an Event about an object. An Event that cannot be written is logged: it must not keep the object
    /// from its state.
    pub(crate) async fn publish<K: Resource<DynamicType = ()>>(&self, object: &K, notice: Notice) {
        self.publish_about(&K::api_version(&()), &K::kind(&()), object.meta(), notice)
            .await;
    }

    /// Publishes an Event about an object of which only this is known.
    pub(crate) async fn publish_about(
        &self,
        api_version: &str,
        kind: &str,
        meta: &ObjectMeta,
        notice: Notice,
    ) {
        let Some(namespace) = meta.namespace.as_deref() else {
            return;
        };
        let name = meta.name.clone().unwrap_or_default();
        let now = Time(self.clock.now());
        let event = Event {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{}", self.random.suffix(12))),
                namespace: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                api_version: Some(api_version.to_owned()),
                kind: Some(kind.to_owned()),
                name: Some(name.clone()),
                namespace: Some(namespace.to_owned()),
                uid: meta.uid.clone(),
                resource_version: meta.resource_version.clone(),
                ..ObjectReference::default()
            },
            type_: Some(match notice.severity {
                Severity::Normal => "Normal".to_owned(),
                Severity::Warning => "Warning".to_owned(),
            }),
            reason: Some(notice.reason.to_owned()),
            message: Some(cut(notice.message, MESSAGE_LIMIT)),
            count: Some(1),
            first_timestamp: Some(now.clone()),
            last_timestamp: Some(now),
            source: Some(EventSource {
                component: Some(self.component.to_owned()),
                host: None,
            }),
            reporting_component: Some(self.component.to_owned()),
            ..Event::default()
        };
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        if let Err(error) = api.create(&PostParams::default(), &event).await {
            tracing::warn!(object = %name, reason = notice.reason, %error, "event not published");
        }
    }
}
