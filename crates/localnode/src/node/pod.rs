//! One Pod: a task that brings its containers to run, follows them, and ends them.
//!
//! The task has one loop. It does what can be done now (`advance`), says what there is (`publish`), and waits for the
//! next thing: the Pod changed, an object it mounts changed, a container ended or became ready, a wait is over. What it
//! knows of its containers is in `containers`; everything else it reads anew. `starting.rs`, `reporting.rs` and `ending.rs` do the work.

mod ending;
mod foreign;
mod launching;
mod reporting;
mod runtime;
mod starting;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use mainstay_workload::{LogSink, WorkloadLog};
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::container::{Event, Outcome};
use super::engine::run::Lead;
use super::image::Unrunnable;
use super::mount::PodFiles;
use super::objects::{self, Reference};
use super::status::{Ended, State};
use super::tokens::Tokens;
use crate::pods::DeclaredPort;
use runtime::{ContainerRuntime, Start, containers_of, declared_ports, may_start, restarts};

/// Events of a Pod's containers that may wait; more make a container's report wait, not the container.
const EVENTS: usize = 64;
/// How long after the API refused something it is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// How long an aborted role may take to reach an await.
const ABORT: Duration = Duration::from_secs(2);

/// What the node agent hands to a Pod's task: the Pod as it is now, or that it is gone.
pub(super) type Update = Option<Arc<Pod>>;

pub(super) struct Worker {
    shared: Arc<Shared>,
    pod: Arc<Pod>,
    uid: String,
    namespace: String,
    updates: watch::Receiver<Update>,
    object_changes: watch::Receiver<u64>,
    events: mpsc::Receiver<Event>,
    event_sender: mpsc::Sender<Event>,
    containers: Vec<ContainerRuntime>,
    declared: Vec<DeclaredPort>,
    references: BTreeSet<Reference>,
    tokens: Tokens,
    files: PodFiles,
    blocked: Option<Unrunnable>,
    /// The versions of the objects that the volumes were written from.
    written: Option<Vec<String>>,
    objects_changed: bool,
    published: Option<Value>,
    retry_at: Option<Instant>,
    notices: Vec<Notice>,
    /// The container in whose network the others live that run in an engine.
    lead: watch::Sender<Option<Lead>>,
    shutdown: CancellationToken,
}

/// An Event to be written.
struct Notice {
    warning: bool,
    reason: &'static str,
    message: String,
}

/// What made the loop go on.
enum Wake {
    Shutdown,
    Pod,
    Objects,
    Event(Event),
    Time,
}

impl Worker {
    pub(super) fn new(
        shared: Arc<Shared>,
        pod: Arc<Pod>,
        updates: watch::Receiver<Update>,
        shutdown: CancellationToken,
    ) -> Self {
        let (event_sender, events) = mpsc::channel(EVENTS);
        let uid = pod.uid().unwrap_or_default();
        let mut object_changes = shared.objects.changes();
        object_changes.mark_unchanged();
        Self {
            uid: uid.clone(),
            namespace: pod.namespace().unwrap_or_default(),
            containers: containers_of(&pod),
            declared: declared_ports(&pod),
            references: objects::references(&pod),
            tokens: launching::tokens(&pod, &shared),
            files: match PodFiles::new(&shared.pods_folder, &uid) {
                files if foreign::is_foreign(&pod) => files.for_containers(),
                files => files,
            },
            blocked: None,
            written: None,
            objects_changed: true,
            published: None,
            retry_at: None,
            notices: Vec::new(),
            lead: watch::Sender::new(None),
            shared,
            pod,
            updates,
            object_changes,
            events,
            event_sender,
            shutdown,
        }
    }

    /// Runs the Pod until it is gone or the process ends.
    pub(super) async fn run(mut self) {
        self.describe();
        loop {
            if self.pod.metadata.deletion_timestamp.is_some() {
                self.terminate().await;
                return;
            }
            self.advance().await;
            self.describe();
            self.publish().await;
            self.report().await;
            match self.wait().await {
                Wake::Shutdown => {
                    // The Pod stays in the API as it is: the next process goes on with it.
                    self.stop(self.grace()).await;
                    self.shared.pods.forget(&self.uid);
                    return;
                }
                Wake::Pod => {
                    let update = self.updates.borrow_and_update().clone();
                    match update {
                        Some(pod) => self.take_pod(pod),
                        None => {
                            self.stop(Duration::ZERO).await;
                            self.clean_up();
                            return;
                        }
                    }
                }
                Wake::Objects => {
                    self.object_changes.borrow_and_update();
                    self.objects_changed = true;
                }
                Wake::Event(event) => self.take(event),
                Wake::Time => {}
            }
            // One status for what came at the same time.
            while let Ok(event) = self.events.try_recv() {
                self.take(event);
            }
        }
    }

    async fn wait(&mut self) -> Wake {
        let startable = (0..self.containers.len()).filter(|index| may_start(&self.containers, *index));
        let starts = startable.filter_map(|index| match self.containers[index].start {
            Some(Start::At(at)) => Some(at),
            Some(Start::OnChange) | None => None,
        });
        let due = next_due(starts, self.retry_at, self.token_due());
        let timer = async {
            match due {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.shutdown.cancelled() => Wake::Shutdown,
            changed = self.updates.changed() => match changed {
                Ok(()) => Wake::Pod,
                // The node agent is gone: the process ends.
                Err(_) => Wake::Shutdown,
            },
            Some(event) = self.events.recv() => Wake::Event(event),
            Ok(()) = self.object_changes.changed(), if !self.references.is_empty() => Wake::Objects,
            () = timer => Wake::Time,
        }
    }

    /// When a token of the Pod is to be replaced; never for a Pod that does not run, or not any more.
    fn token_due(&self) -> Option<Instant> {
        let is_over = |container: &ContainerRuntime| matches!(container.state, State::Terminated(_));
        let idle = self.blocked.is_some() || self.containers.iter().all(is_over);
        self.tokens.due_at().filter(|_| !idle)
    }

    fn take_pod(&mut self, pod: Arc<Pod>) {
        // The image may be changed in place.
        self.take_images(&pod);
        let downward = pod.labels() != self.pod.labels() || pod.annotations() != self.pod.annotations();
        if downward {
            self.objects_changed = true;
            self.written = None;
        }
        self.pod = pod;
    }

    fn take(&mut self, event: Event) {
        let now = self.shared.clock.now();
        match event {
            Event::Readiness { container, state } => {
                if let Some(ContainerRuntime {
                    state: State::Running { readiness, .. },
                    ..
                }) = self.containers.get_mut(container)
                {
                    *readiness = state;
                }
            }
            Event::Foreign { container, report } => self.take_report(container, report),
            Event::Exited { container, outcome } => {
                let policy = self
                    .pod
                    .spec
                    .as_ref()
                    .and_then(|spec| spec.restart_policy.clone());
                let Some(runtime) = self.containers.get_mut(container) else {
                    return;
                };
                let started_at = match runtime.state {
                    State::Running { started_at, .. } => Some(started_at),
                    _ => None,
                };
                let outcome_is_none = outcome == Outcome::NotStarted;
                let (exit_code, reason, message) = outcome.describe();
                if let Some(message) = &message {
                    tracing::warn!(pod = %self.pod.name_any(), namespace = %self.namespace, container = %runtime.name, exit_code, message, "a container ended");
                }
                runtime.run = None;
                if outcome_is_none {
                    self.take_not_started(container);
                    return;
                }
                let run_again = std::mem::take(&mut runtime.run_again);
                if let Some(log) = runtime.log.take() {
                    if let Some(message) = &message {
                        // Where a container's last words would be.
                        WorkloadLog::new(Arc::clone(&log) as Arc<dyn LogSink>)
                            .line(format!("error: {message}"));
                    }
                    log.end();
                }
                let ended = Ended {
                    exit_code,
                    reason: reason.to_owned(),
                    message,
                    started_at,
                    finished_at: Some(now),
                };
                self.shared.pods.forget_container(&self.uid, &runtime.name);
                let restarts = run_again || restarts(policy.as_deref(), runtime.init, exit_code);
                if !restarts {
                    runtime.state = State::Terminated(ended);
                    self.lose_lead(container, false);
                    return;
                }
                let wait = runtime
                    .back_off
                    .after_run(started_at.unwrap_or(now), now, &self.shared.back_off);
                runtime.state = State::Waiting {
                    reason: "CrashLoopBackOff".to_owned(),
                    message: Some(format!(
                        "back-off {wait:?} restarting failed container={} pod={}_{}({})",
                        runtime.name,
                        self.pod.name_any(),
                        self.namespace,
                        self.uid
                    )),
                };
                let told = ended
                    .message
                    .as_ref()
                    .map_or_else(String::new, |message| format!(": {message}"));
                let note = restart_note(&runtime.name, wait, &told);
                runtime.last = Some(ended);
                runtime.start = Some(Start::At(Instant::now() + wait));
                self.note(true, "BackOff", note);
                self.lose_lead(container, true);
            }
        }
    }
}

/// When the loop goes on by itself. A token that is due does not make what failed be tried again before its time: until
/// then it would be due all the time.
fn next_due(
    starts: impl Iterator<Item = Instant>,
    retry_at: Option<Instant>,
    token: Option<Instant>,
) -> Option<Instant> {
    let token = token.max(retry_at.filter(|_| token.is_some()));
    starts.chain(retry_at).chain(token).min()
}

/// What the Event of a restart says; the first one follows at once.
fn restart_note(container: &str, wait: Duration, told: &str) -> String {
    if wait.is_zero() {
        format!("Restarting failed container {container} at once{told}")
    } else {
        format!("Back-off {wait:?} restarting failed container {container}{told}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_is_due_does_not_precede_the_next_try() {
        let now = Instant::now();
        let after = |seconds| now + Duration::from_secs(seconds);
        for (start, retry_at, token, expected) in [
            // The token was due when the objects could not be read: the next try is after the wait.
            (None, Some(5), Some(0), Some(5)),
            (None, Some(5), Some(9), Some(5)),
            (Some(1), Some(5), Some(0), Some(1)),
            (None, None, Some(3), Some(3)),
            (None, Some(5), None, Some(5)),
            (None, None, None, None),
        ] {
            let due = next_due(
                start.map(after).into_iter(),
                retry_at.map(after),
                token.map(after),
            );
            assert_eq!(due, expected.map(after), "{start:?} {retry_at:?} {token:?}");
        }
    }

    #[test]
    fn an_event_of_a_restart_names_a_wait_only_where_there_is_one() {
        for (seconds, expected) in [
            (0, "Restarting failed container main at once: no file"),
            (10, "Back-off 10s restarting failed container main: no file"),
        ] {
            assert_eq!(
                restart_note("main", Duration::from_secs(seconds), ": no file"),
                expected
            );
        }
    }
}
