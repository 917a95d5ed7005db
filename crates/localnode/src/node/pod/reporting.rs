//! Saying how a Pod is: its status, its Events, and what the front door and the connector know of it.

use k8s_openapi::api::core::v1::Pod;
use kube::api::Patch;
use kube::{Api, ResourceExt};
use mainstay_workload::ReadinessState;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Notice, RETRY, Worker};
use crate::node::status::{self, ContainerView, State};
use crate::pods::PodDescription;
use crate::writing;

impl Worker {
    /// Tells others what the Pod is and whether it serves.
    pub(super) fn describe(&self) {
        let dying = self.pod.metadata.deletion_timestamp.is_some();
        let mut waits = String::new();
        for container in &self.containers {
            if container.init && container.is_complete() {
                continue;
            }
            let why = match &container.state {
                State::Running {
                    readiness: ReadinessState::Ready,
                    ..
                } => continue,
                State::Running {
                    readiness: ReadinessState::NotReady(why),
                    ..
                } => why.clone(),
                State::Waiting { reason, message } => message.clone().unwrap_or_else(|| reason.clone()),
                State::Terminated(ended) => ended.message.clone().unwrap_or_else(|| ended.reason.clone()),
            };
            waits = format!("container {}: {why}", container.name);
            if container.init {
                // The others wait for this one.
                break;
            }
        }
        if dying {
            waits = "it is about to end".to_owned();
        }
        let described = PodDescription {
            namespace: self.namespace.clone(),
            pod: self.pod.name_any(),
            labels: self.pod.labels().clone(),
            created: self.pod.creation_timestamp().map(|time| time.0),
            serves: !self.containers.is_empty() && waits.is_empty(),
            waits,
            declared: self.declared.clone(),
        };
        self.shared.pods.describe(&self.uid, described);
    }

    pub(super) fn note(&mut self, warning: bool, reason: &'static str, message: String) {
        self.notices.push(Notice {
            warning,
            reason,
            message,
        });
    }

    /// Writes the Events about what happened since the last time.
    pub(super) async fn report(&mut self) {
        for Notice {
            warning,
            reason,
            message,
        } in std::mem::take(&mut self.notices)
        {
            if warning {
                self.shared.events.warning(&*self.pod, reason, &message).await;
            } else {
                self.shared.events.normal(&*self.pod, reason, &message).await;
            }
        }
    }

    pub(super) fn api(&self) -> Api<Pod> {
        Api::namespaced(self.shared.client.clone(), &self.namespace)
    }

    /// Writes the status if it says something new.
    pub(super) async fn publish(&mut self) {
        let views: Vec<ContainerView<'_>> = self
            .containers
            .iter()
            .map(|container| ContainerView {
                name: &container.name,
                image: &container.image,
                init: container.init,
                state: &container.state,
                last: container.last.as_ref(),
                restarts: container.restarts,
                identity: container.identity.as_ref(),
            })
            .collect();
        let status = status::status(&self.pod, &views, self.blocked.as_ref(), self.shared.clock.now());
        // Times that only say when it was computed do not make it new.
        if self
            .published
            .as_ref()
            .is_some_and(|published| without_times(published) == without_times(&status))
        {
            return;
        }
        // Names the UID, so that a successor of the same name is not touched.
        let patch = json!({ "metadata": { "uid": self.uid }, "status": status });
        match self
            .api()
            .patch_status(&self.pod.name_any(), &writing::patch(), &Patch::Strategic(patch))
            .await
        {
            Ok(_) => self.published = Some(status),
            // Gone or replaced: the watch will say so.
            Err(kube::Error::Api(answer)) if matches!(answer.reason.as_str(), "NotFound" | "Conflict") => {}
            Err(error) => {
                tracing::warn!(pod = %self.pod.name_any(), namespace = %self.namespace, %error, "a Pod's status could not be written");
                self.retry_at = Some(Instant::now() + RETRY);
            }
        }
    }
}

/// The status without the times that change with each computation.
fn without_times(status: &Value) -> Value {
    let mut status = status.clone();
    if let Some(fields) = status.as_object_mut() {
        fields.remove("startTime");
    }
    for condition in status
        .get_mut("conditions")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if let Some(fields) = condition.as_object_mut() {
            fields.remove("lastTransitionTime");
        }
    }
    status
}
