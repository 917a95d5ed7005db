//! Bringing a Pod's containers to run: its files, their environment, their roles.

use std::sync::Arc;

use kube::ResourceExt;
use mainstay_workload::{Readiness, ReadinessState};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::launching::Launch;
use super::{RETRY, Start, Worker, may_start};
use crate::logs::ContainerName;
use crate::node::container::Run;
use crate::node::engine::plan::is_foreign;
use crate::node::environment::{self, ConfigError};
use crate::node::status::State;
use crate::node::{image, objects, volumes};

impl Worker {
    /// Writes volumes that are behind and starts the containers that are due.
    pub(super) async fn advance(&mut self) {
        self.retry_at = None;
        self.check().await;
        if let Some(blocked) = self.blocked.clone() {
            let state = State::Waiting {
                reason: blocked.reason().to_owned(),
                message: Some(blocked.to_string()),
            };
            let mut told = true;
            for container in self.containers.iter_mut().filter(|container| {
                container.run.is_none() && !matches!(container.state, State::Terminated(_))
            }) {
                told &= container.state == state;
                container.state = state.clone();
                container.start = Some(Start::OnChange);
            }
            if !told {
                self.note(true, blocked.reason(), blocked.to_string());
            }
            return;
        }
        let now = Instant::now();
        let due: Vec<usize> = (0..self.containers.len())
            .filter(|index| may_start(&self.containers, *index))
            .filter(|index| match self.containers[*index].start {
                Some(Start::At(at)) => at <= now,
                Some(Start::OnChange) => self.objects_changed,
                None => false,
            })
            .collect();
        self.objects_changed |= self.token_due().is_some_and(|at| at <= now);
        if due.is_empty() && !self.objects_changed {
            return;
        }
        let mut found = match self.shared.objects.find(&self.namespace, &self.references).await {
            Ok(found) => found,
            Err(error) => {
                self.try_again();
                self.wait_for_config(&due, &format!("what the Pod mounts cannot be read: {error}"));
                return;
            }
        };
        let account = environment::service_account(&self.pod);
        let time = self.shared.clock.now();
        let renewed = self.tokens.renew(&self.shared.client, &self.pod, &account, time);
        if let Err(error) = renewed.await {
            self.try_again();
            self.wait_for_config(
                &due,
                &format!("a ServiceAccount token of the Pod cannot be had: {error}"),
            );
            return;
        }
        found.tokens = self.tokens.present();
        self.objects_changed = false;
        if let Err(error) = self.write_volumes(&found) {
            if matches!(error, ConfigError::Write { .. }) {
                self.try_again();
            }
            if due.is_empty() {
                // Running containers keep what they have, as they do on a cluster.
                let pod = self.pod.name_any();
                if error.is_missing_object() {
                    // Often the Pod goes next: what an owner's deletion takes along has no order.
                    tracing::info!(%pod, namespace = %self.namespace, %error, "the files of a Pod stay as they are");
                } else {
                    tracing::warn!(%pod, namespace = %self.namespace, %error, "the files of a Pod were not updated");
                }
            }
            self.wait_for_config(&due, &error.to_string());
            return;
        }
        for index in due {
            if let Err(error) = self.start(index, &found) {
                if matches!(error, ConfigError::Write { .. }) {
                    self.try_again();
                }
                self.wait_for_config(&[index], &error.to_string());
            }
        }
    }

    /// What failed may work later though nothing of the API changes.
    pub(super) fn try_again(&mut self) {
        self.retry_at = Some(Instant::now() + RETRY);
        self.objects_changed = true;
    }

    pub(super) fn wait_for_config(&mut self, due: &[usize], message: &str) {
        for index in due {
            let state = State::Waiting {
                reason: "CreateContainerConfigError".to_owned(),
                message: Some(message.to_owned()),
            };
            let container = &mut self.containers[*index];
            container.start = Some(Start::OnChange);
            if container.state != state {
                container.state = state;
                let note = format!("container {}: {message}", container.name);
                self.note(true, "Failed", note);
            }
        }
    }

    pub(super) fn write_volumes(&mut self, found: &objects::Objects) -> Result<(), ConfigError> {
        let versions = found.versions();
        if self.written.as_ref() == Some(&versions) {
            return Ok(());
        }
        let contents = volumes::contents(&self.pod, found)?;
        self.files.write(&contents, &self.shared.stamp())?;
        self.write_access(found)?;
        self.written = Some(versions);
        Ok(())
    }

    pub(super) fn start(&mut self, index: usize, found: &objects::Objects) -> Result<(), ConfigError> {
        let pod = Arc::clone(&self.pod);
        let all = pod.spec.as_ref().map(image::containers);
        let Some(spec) = all.and_then(|mut all| all.nth(index)) else {
            return Ok(());
        };
        if is_foreign(spec) {
            return self.start_foreign(index, spec, found);
        }
        let environment = environment::environment(&pod, spec, found, &self.shared.host_environment)?;
        let mut words = environment::words(spec, &environment).into_iter();
        let role_name = words.next().unwrap_or_default();
        let role = self.shared.roles.get(&role_name).cloned();
        let unsupported = |what| ConfigError::Unsupported {
            place: format!("container {:?}", spec.name),
            what,
        };
        let role = role.ok_or_else(|| unsupported("a role that this program does not know"))?;
        let root = self.files.mount(&pod, spec, &environment)?;
        let write_failed = |error: &dyn std::fmt::Display| ConfigError::Write {
            place: format!("container {:?}", spec.name),
            error: error.to_string(),
        };
        let container = &self.containers[index];
        let run = if container.begun {
            container.restarts + 1
        } else {
            container.restarts
        };
        let pod_name = pod.name_any();
        let name = ContainerName {
            namespace: &self.namespace,
            pod: &pod_name,
            uid: &self.uid,
            container: &spec.name,
        };
        let folder = self.shared.log_folder(&self.namespace, &pod_name, &self.uid);
        let log = self
            .shared
            .logs
            .start(&folder, &name, run, Arc::clone(&self.shared.clock))
            .map_err(|error| write_failed(&error))?;
        let (readiness, readiness_receiver) = Readiness::new();
        let cancellation = CancellationToken::new();
        let launch = Launch {
            container: spec,
            role: (role_name, role),
            arguments: words.collect(),
            environment,
            root,
            log: Arc::clone(&log),
            readiness,
            cancellation: cancellation.clone(),
        };
        let work = self.launch(launch)?;
        let runtime = &mut self.containers[index];
        runtime.restarts = run;
        runtime.begun = true;
        runtime.start = None;
        runtime.log = Some(log);
        runtime.state = State::Running {
            started_at: self.shared.clock.now(),
            readiness: ReadinessState::NotReady("starting".to_owned()),
        };
        let note = format!("Started container {}", runtime.name);
        runtime.run = Some(Run::start(
            index,
            work,
            cancellation,
            readiness_receiver,
            self.event_sender.clone(),
        ));
        self.note(false, "Started", note);
        Ok(())
    }
}
