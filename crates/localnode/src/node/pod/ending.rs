//! Ending a Pod: its roles first, then its object, then its files.

use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{DeleteParams, Preconditions};
use tokio::time::Instant;

use super::{ABORT, RETRY, Worker};
use crate::node::status::{Ended, State};
use crate::until;

impl Worker {
    pub(super) fn grace(&self) -> Duration {
        let seconds = self
            .pod
            .spec
            .as_ref()
            .and_then(|spec| spec.termination_grace_period_seconds)
            .unwrap_or(30);
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    }

    /// Ends a Pod that is being deleted, and then its object.
    pub(super) async fn terminate(&mut self) {
        self.describe();
        if self.runs() {
            self.note(false, "Killing", "Stopping the Pod's containers".to_owned());
            self.report().await;
        }
        let deadline = self.pod.metadata.deletion_timestamp.as_ref().map(|time| time.0);
        let left = deadline.map_or(self.grace(), |deadline| until(self.shared.clock.now(), deadline));
        self.stop(left).await;
        // Whoever holds the object with a finalizer, as a Job does until it has counted the Pod, reads how it ended.
        if !self.pod.finalizers().is_empty() {
            self.conclude();
            self.publish().await;
        }
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(self.uid.clone()),
                resource_version: None,
            }),
            ..DeleteParams::default().grace_period(0)
        };
        loop {
            match self.api().delete(&self.pod.name_any(), &parameters).await {
                Ok(_) => break,
                Err(kube::Error::Api(answer))
                    if matches!(answer.reason.as_str(), "NotFound" | "Conflict") =>
                {
                    break;
                }
                Err(error) => {
                    tracing::warn!(pod = %self.pod.name_any(), namespace = %self.namespace, %error, "a Pod that ended could not be deleted");
                }
            }
            tokio::select! {
                () = self.shutdown.cancelled() => return,
                () = tokio::time::sleep(RETRY) => {}
            }
        }
        self.clean_up();
    }

    /// Every container has ended for good, also one that waited for its next run.
    fn conclude(&mut self) {
        for container in &mut self.containers {
            if matches!(container.state, State::Terminated(_)) {
                continue;
            }
            let ended = container.last.take().unwrap_or_else(|| Ended {
                exit_code: 137,
                reason: "ContainerStatusUnknown".to_owned(),
                message: Some("it did not run when the Pod was deleted".to_owned()),
                started_at: None,
                finished_at: None,
            });
            container.state = State::Terminated(ended);
            container.start = None;
        }
    }

    /// Tells all containers to end, waits up to `grace`, and aborts what is left. A deletion that leaves less time, or
    /// the Pod's disappearance, cuts the wait short.
    pub(super) async fn stop(&mut self, grace: Duration) {
        for run in self
            .containers
            .iter()
            .filter_map(|container| container.run.as_ref())
        {
            run.cancel();
        }
        let mut deadline = Instant::now() + grace;
        let mut following = true;
        while self.runs() {
            tokio::select! {
                Some(event) = self.events.recv() => self.take(event),
                () = tokio::time::sleep_until(deadline) => break,
                changed = self.updates.changed(), if following => {
                    following = changed.is_ok();
                    let update = self.updates.borrow_and_update().clone();
                    let ends = match &update {
                        Some(pod) => pod.metadata.deletion_timestamp.as_ref().map(|time| time.0),
                        None => Some(Timestamp::UNIX_EPOCH),
                    };
                    if let Some(ends) = ends {
                        deadline = deadline.min(Instant::now() + until(self.shared.clock.now(), ends));
                    }
                    if let Some(pod) = update {
                        self.pod = pod;
                    }
                }
            }
        }
        if !self.runs() {
            return;
        }
        for run in self
            .containers
            .iter()
            .filter_map(|container| container.run.as_ref())
        {
            run.abort();
        }
        let deadline = Instant::now() + ABORT;
        while self.runs() {
            tokio::select! {
                Some(event) = self.events.recv() => self.take(event),
                () = tokio::time::sleep_until(deadline) => {
                    tracing::error!(pod = %self.pod.name_any(), namespace = %self.namespace, "a container does not end: its role never awaits");
                    break;
                }
            }
        }
    }

    pub(super) fn runs(&self) -> bool {
        self.containers.iter().any(|container| container.run.is_some())
    }

    /// Removes everything of a Pod that is gone.
    pub(super) fn clean_up(&self) {
        self.shared.pods.forget(&self.uid);
        self.shared.logs.forget(&self.uid);
        let removed = self.files.remove().and_then(|()| {
            let folder = self
                .shared
                .log_folder(&self.namespace, &self.pod.name_any(), &self.uid);
            match std::fs::remove_dir_all(folder) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            }
        });
        if let Err(error) = removed {
            tracing::warn!(pod = %self.pod.name_any(), namespace = %self.namespace, %error, "the files of a Pod that is gone could not be removed");
        }
    }
}
