//! The containers of a Pod whose images are by others: whether there is an engine for them, their runs in it, and how they
//! depend on each other there.

use std::sync::Arc;

use futures::FutureExt;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;
use mainstay_workload::{Readiness, ReadinessState};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Start, Worker};
use crate::node::container::{ContainerPorts, Run};
use crate::node::engine::plan::{self, Given};
use crate::node::engine::reference::Keyring;
use crate::node::engine::run::{ForeignRun, LogPlace, Report};
use crate::node::environment::{self, ConfigError};
use crate::node::objects::Objects;
use crate::node::process::api_variables;
use crate::node::status::State;
use crate::node::{Shared, image};

/// Whether a Pod has a container for an engine.
pub(super) fn is_foreign(pod: &Pod) -> bool {
    pod.spec.iter().flat_map(image::containers).any(plan::is_foreign)
}

/// Whether a Pod has a container in an engine that may speak to the API, and so needs a token.
pub(super) fn wants_access(pod: &Pod, shared: &Shared) -> bool {
    let automount = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.automount_service_account_token);
    shared.engines.is_some() && automount != Some(false) && is_foreign(pod)
}

impl Worker {
    /// Looks whether the Pod can run here, for which a container that is to start may need an engine.
    pub(super) async fn check(&mut self) {
        let starts =
            |container: &super::ContainerRuntime| container.run.is_none() && container.start.is_some();
        let wants_engine = is_foreign(&self.pod) && self.containers.iter().any(starts);
        let engine = match &self.shared.engines {
            None => Err("no container engine is configured".to_owned()),
            Some(engines) if wants_engine => match engines.find().await {
                Ok(_) => Ok(()),
                Err(nowhere) => {
                    self.retry_at = Some(nowhere.again);
                    Err(nowhere.why)
                }
            },
            Some(_) => Ok(()),
        };
        let blocked = image::check(&self.pod, &self.shared.roles, engine.as_ref().err()).err();
        if self.blocked != blocked {
            self.objects_changed = true;
            self.blocked = blocked;
        }
    }

    /// Starts a container in the engine.
    pub(super) fn start_foreign(
        &mut self,
        index: usize,
        container: &Container,
        found: &Objects,
    ) -> Result<(), ConfigError> {
        let Some(engines) = self.shared.engines.clone() else {
            return Ok(());
        };
        let pod = Arc::clone(&self.pod);
        // What the host lends to agents, such as keys of model providers, is not for programs by others.
        let mut environment =
            environment::environment(&pod, container, found, &std::collections::BTreeMap::new())?;
        if plan::uses_host_network(&pod) {
            for (name, value) in api_variables(&engines.options.kubernetes) {
                environment.entry(name).or_insert(value);
            }
        }
        let mut keyring = Keyring::default();
        let secrets = pod
            .spec
            .iter()
            .flat_map(|spec| spec.image_pull_secrets.iter().flatten());
        for reference in secrets {
            match found.secrets.get(&reference.name) {
                Some(secret) => keyring.add(secret),
                None => {
                    let note = format!(
                        "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
                        reference.name
                    );
                    self.note(true, "FailedToRetrieveImagePullSecret", note);
                }
            }
        }
        let stamp = self.shared.stamp();
        let plan = plan::plan(Given {
            pod: &pod,
            container,
            init: self.containers[index].init,
            environment: &environment,
            files: &self.files,
            stamp: &stamp,
            keyring,
            access: wants_access(&pod, &self.shared),
            grace: self.grace(),
        })?;
        let (readiness, receiver) = Readiness::new();
        let cancellation = CancellationToken::new();
        let pod_name = pod.name_any();
        let runtime = &mut self.containers[index];
        let run = ForeignRun {
            engines,
            plan,
            namespace: self.namespace.clone(),
            index,
            run: if runtime.begun {
                runtime.restarts + 1
            } else {
                runtime.restarts
            },
            ports: ContainerPorts {
                pods: self.shared.pods.clone(),
                uid: self.uid.clone(),
                container: container.name.clone(),
                declared: self.declared.clone(),
            },
            lead: self.lead.clone(),
            log: LogPlace {
                logs: self.shared.logs.clone(),
                folder: self.shared.log_folder(&self.namespace, &pod_name, &self.uid),
                clock: Arc::clone(&self.shared.clock),
            },
            pod: pod_name,
            readiness,
            cancellation: cancellation.clone(),
            events: self.event_sender.clone(),
            back_off: self.shared.back_off,
        };
        runtime.start = None;
        runtime.run_again = false;
        runtime.image = container.image.clone().unwrap_or_default();
        if matches!(&runtime.state, State::Waiting { reason, .. } if reason != "CrashLoopBackOff") {
            runtime.state = State::Waiting {
                reason: "ContainerCreating".to_owned(),
                message: None,
            };
        }
        runtime.run = Some(Run::start(
            index,
            run.run().boxed(),
            cancellation,
            receiver,
            self.event_sender.clone(),
        ));
        Ok(())
    }

    pub(super) fn take_report(&mut self, index: usize, report: Report) {
        let now = self.shared.clock.now();
        match report {
            Report::Note {
                warning,
                reason,
                message,
            } => self.note(warning, reason, message),
            Report::Waiting { reason, message } => {
                if let Some(container) = self.containers.get_mut(index) {
                    container.state = State::Waiting {
                        reason: reason.to_owned(),
                        message: Some(message),
                    };
                }
            }
            Report::Started { run, identity } => {
                let Some(container) = self.containers.get_mut(index) else {
                    return;
                };
                container.restarts = run;
                container.begun = true;
                container.identity = Some(identity);
                // Its end may be waiting behind this.
                let readiness = container.run.as_ref().map(Run::readiness);
                container.state = State::Running {
                    started_at: now,
                    readiness: readiness.unwrap_or_else(|| ReadinessState::NotReady("starting".to_owned())),
                };
                let note = format!("Started container {}", container.name);
                self.note(false, "Started", note);
            }
        }
    }

    /// The network that others live in is gone with the container that led it: they start anew in the next one.
    pub(super) fn lose_lead(&mut self, index: usize, restarts: bool) {
        if plan::leader(&self.pod) != Some(self.containers[index].name.as_str()) {
            return;
        }
        self.lead.send_replace(None);
        if !restarts {
            return;
        }
        let foreign: Vec<bool> = self
            .pod
            .spec
            .iter()
            .flat_map(image::containers)
            .map(plan::is_foreign)
            .collect();
        for (other, container) in self.containers.iter_mut().enumerate() {
            if other != index && foreign.get(other) == Some(&true) {
                container.start_anew();
            }
        }
    }

    /// A container whose image was changed in place runs again with the new one.
    pub(super) fn take_images(&mut self, pod: &Pod) {
        let images: Vec<String> = pod
            .spec
            .iter()
            .flat_map(image::containers)
            .map(|container| container.image.clone().unwrap_or_default())
            .collect();
        let mut changed = Vec::new();
        for (container, image) in self.containers.iter_mut().zip(images) {
            if container.image != image {
                container.image = image;
                if container.start_anew() {
                    changed.push(container.name.clone());
                }
            }
        }
        for name in changed {
            let note = format!("Container {name} definition changed, will be restarted");
            self.note(false, "Killing", note);
        }
    }

    /// A container that did not start because it was not wanted any more.
    pub(super) fn take_not_started(&mut self, index: usize) {
        let container = &mut self.containers[index];
        container.state = State::Waiting {
            reason: "ContainerCreating".to_owned(),
            message: None,
        };
        container.start = Some(Start::At(Instant::now()));
    }
}
