//! One Pod: a task that brings its containers to run, follows them, and ends them.
//!
//! The task has one loop. It does what can be done now (`advance`), says what there is (`publish`), and waits for the
//! next thing: the Pod changed, an object it mounts changed, a container ended or became ready, a wait is over. What it
//! knows of its containers is in `containers`; everything else it reads anew.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use mainstay_workload::{Identity, Readiness, ReadinessState, WorkloadContext, WorkloadLog};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::back_off::BackOff;
use super::container::{ContainerPorts, Event, Run};
use super::environment::{self, ConfigError};
use super::image::{self, Unrunnable};
use super::mount::PodFiles;
use super::objects::{self, Reference};
use super::status::{self, ContainerView, Ended, State};
use super::{Shared, volumes};
use crate::logs::{ContainerName, RunLog};
use crate::pods::{DeclaredPort, PodDescription};
use crate::until;

/// Events of a Pod's containers that may wait; more make a container's report wait, not the container.
const EVENTS: usize = 64;
/// How long after the API refused something it is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// How long an aborted role may take to reach an await.
const ABORT: Duration = Duration::from_secs(2);

/// What the node agent hands to a Pod's task: the Pod as it is now, or that it is gone.
pub(super) type Update = Option<Arc<Pod>>;

/// A container of the Pod.
struct ContainerRuntime {
    name: String,
    image: String,
    state: State,
    last: Option<Ended>,
    restarts: i32,
    back_off: BackOff,
    run: Option<Run>,
    log: Option<Arc<RunLog>>,
    /// When it may start; `None` while it runs and after it ended for good.
    start: Option<Start>,
    begun: bool,
}

/// When a container may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    At(Instant),
    /// When something changes that it was missing.
    OnChange,
}

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
    files: PodFiles,
    blocked: Option<Unrunnable>,
    /// The versions of the objects that the volumes were written from.
    written: Option<Vec<String>>,
    objects_changed: bool,
    published: Option<Value>,
    retry_at: Option<Instant>,
    notices: Vec<Notice>,
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
            files: PodFiles::new(&shared.pods_folder, &uid),
            blocked: image::check(&pod, &shared.roles).err(),
            written: None,
            objects_changed: true,
            published: None,
            retry_at: None,
            notices: Vec::new(),
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
        let starts = self
            .containers
            .iter()
            .filter_map(|container| match container.start {
                Some(Start::At(at)) => Some(at),
                Some(Start::OnChange) | None => None,
            });
        let due = starts.chain(self.retry_at).min();
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

    fn take_pod(&mut self, pod: Arc<Pod>) {
        // The image may be changed in place.
        let blocked = image::check(&pod, &self.shared.roles).err();
        self.objects_changed |= blocked != self.blocked;
        self.blocked = blocked;
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
                let (exit_code, reason, message) = outcome.describe();
                if let Some(message) = &message {
                    tracing::warn!(pod = %self.pod.name_any(), namespace = %self.namespace, container = %runtime.name, exit_code, message, "a container ended");
                }
                let ended = Ended {
                    exit_code,
                    reason: reason.to_owned(),
                    message,
                    started_at,
                    finished_at: Some(now),
                };
                runtime.run = None;
                if let Some(log) = runtime.log.take() {
                    log.end();
                }
                self.shared.pods.forget_container(&self.uid, &runtime.name);
                let restarts = match policy.as_deref() {
                    Some("Never") => false,
                    Some("OnFailure") => exit_code != 0,
                    _ => true,
                };
                if !restarts {
                    runtime.state = State::Terminated(ended);
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
                let note = format!(
                    "Back-off {wait:?} restarting failed container {}{told}",
                    runtime.name
                );
                runtime.last = Some(ended);
                runtime.start = Some(Start::At(Instant::now() + wait));
                self.note(true, "BackOff", note);
            }
        }
    }

    /// Writes volumes that are behind and starts the containers that are due.
    async fn advance(&mut self) {
        self.retry_at = None;
        if let Some(blocked) = &self.blocked {
            for container in self.containers.iter_mut().filter(|container| {
                container.run.is_none() && !matches!(container.state, State::Terminated(_))
            }) {
                container.state = State::Waiting {
                    reason: blocked.reason().to_owned(),
                    message: Some(blocked.to_string()),
                };
                container.start = Some(Start::OnChange);
            }
            return;
        }
        let now = Instant::now();
        let due: Vec<usize> = (0..self.containers.len())
            .filter(|index| match self.containers[*index].start {
                Some(Start::At(at)) => at <= now,
                Some(Start::OnChange) => self.objects_changed,
                None => false,
            })
            .collect();
        if due.is_empty() && !self.objects_changed {
            return;
        }
        let found = match self.shared.objects.find(&self.namespace, &self.references).await {
            Ok(found) => found,
            Err(error) => {
                self.try_again();
                self.wait_for_config(&due, &format!("what the Pod mounts cannot be read: {error}"));
                return;
            }
        };
        self.objects_changed = false;
        if let Err(error) = self.write_volumes(&found) {
            if matches!(error, ConfigError::Write { .. }) {
                self.try_again();
            }
            if due.is_empty() {
                // Running containers keep what they have, as they do on a cluster.
                tracing::warn!(pod = %self.pod.name_any(), namespace = %self.namespace, %error, "the files of a Pod were not updated");
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
    fn try_again(&mut self) {
        self.retry_at = Some(Instant::now() + RETRY);
        self.objects_changed = true;
    }

    fn wait_for_config(&mut self, due: &[usize], message: &str) {
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

    fn write_volumes(&mut self, found: &objects::Objects) -> Result<(), ConfigError> {
        let versions = found.versions();
        if self.written.as_ref() == Some(&versions) {
            return Ok(());
        }
        let contents = volumes::contents(&self.pod, found)?;
        self.files.write(&contents, &self.shared.stamp())?;
        self.written = Some(versions);
        Ok(())
    }

    fn start(&mut self, index: usize, found: &objects::Objects) -> Result<(), ConfigError> {
        let pod = Arc::clone(&self.pod);
        let Some(spec) = pod.spec.as_ref().and_then(|spec| spec.containers.get(index)) else {
            return Ok(());
        };
        let environment = environment::environment(&pod, spec, found, &self.shared.host_environment)?;
        let mut words = environment::words(spec, &environment).into_iter();
        let role = words
            .next()
            .and_then(|role| self.shared.roles.get(&role).cloned());
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
        let connector = self
            .shared
            .connector(&self.namespace)
            .map_err(|error| write_failed(&error))?;
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
        let service_account = environment::service_account(&pod);
        let context = WorkloadContext {
            arguments: words.collect(),
            environment,
            files: mainstay_workload::FileRoot::at(root),
            connector,
            log: WorkloadLog::new(Arc::clone(&log) as Arc<dyn mainstay_workload::LogSink>),
            identity: Identity {
                client: self.shared.clients.client(&self.namespace, &service_account),
                namespace: self.namespace.clone(),
                service_account,
                pod: pod_name,
            },
            ports: Arc::new(ContainerPorts {
                pods: self.shared.pods.clone(),
                uid: self.uid.clone(),
                container: spec.name.clone(),
                declared: self.declared.clone(),
            }),
            readiness,
            cancellation: CancellationToken::new(),
        };
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
            role,
            context,
            readiness_receiver,
            self.event_sender.clone(),
        ));
        self.note(false, "Started", note);
        Ok(())
    }

    /// Tells others what the Pod is and whether it serves.
    fn describe(&self) {
        let dying = self.pod.metadata.deletion_timestamp.is_some();
        let mut waits = String::new();
        for container in &self.containers {
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

    fn note(&mut self, warning: bool, reason: &'static str, message: String) {
        self.notices.push(Notice {
            warning,
            reason,
            message,
        });
    }

    /// Writes the Events about what happened since the last time.
    async fn report(&mut self) {
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

    fn api(&self) -> Api<Pod> {
        Api::namespaced(self.shared.client.clone(), &self.namespace)
    }

    /// Writes the status if it says something new.
    async fn publish(&mut self) {
        let views: Vec<ContainerView<'_>> = self
            .containers
            .iter()
            .map(|container| ContainerView {
                name: &container.name,
                image: &container.image,
                state: &container.state,
                last: container.last.as_ref(),
                restarts: container.restarts,
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
            .patch_status(
                &self.pod.name_any(),
                &PatchParams::default(),
                &Patch::Strategic(patch),
            )
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

    fn grace(&self) -> Duration {
        let seconds = self
            .pod
            .spec
            .as_ref()
            .and_then(|spec| spec.termination_grace_period_seconds)
            .unwrap_or(30);
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    }

    /// Ends a Pod that is being deleted, and then its object.
    async fn terminate(&mut self) {
        self.describe();
        if self.runs() {
            self.note(false, "Killing", "Stopping the Pod's containers".to_owned());
            self.report().await;
        }
        let deadline = self.pod.metadata.deletion_timestamp.as_ref().map(|time| time.0);
        let left = deadline.map_or(self.grace(), |deadline| until(self.shared.clock.now(), deadline));
        self.stop(left).await;
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

    /// Tells all containers to end, waits up to `grace`, and aborts what is left. A deletion that leaves less time, or
    /// the Pod's disappearance, cuts the wait short.
    async fn stop(&mut self, grace: Duration) {
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

    fn runs(&self) -> bool {
        self.containers.iter().any(|container| container.run.is_some())
    }

    /// Removes everything of a Pod that is gone.
    fn clean_up(&self) {
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

/// The containers of a Pod that this process has not run yet. If a former process ran them, they are restarted in place.
fn containers_of(pod: &Pod) -> Vec<ContainerRuntime> {
    let spec_containers: &[Container] = pod.spec.as_ref().map_or(&[], |spec| &spec.containers);
    let statuses = pod
        .status
        .as_ref()
        .and_then(|status| status.container_statuses.as_ref());
    let never = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()) == Some("Never");
    spec_containers
        .iter()
        .map(|container| {
            let before = statuses
                .into_iter()
                .flatten()
                .find(|status| status.name == container.name);
            let state = before.and_then(|status| status.state.as_ref());
            let ran = state.and_then(|state| state.running.as_ref());
            let lost = ran.map(|running| Ended {
                exit_code: 255,
                reason: "Unknown".to_owned(),
                message: Some("the process that ran it ended".to_owned()),
                started_at: running.started_at.as_ref().map(|time| time.0),
                finished_at: None,
            });
            let ended = state.and_then(|state| state.terminated.as_ref()).map(ended_of);
            let last = before
                .and_then(|status| status.last_state.as_ref()?.terminated.as_ref())
                .map(ended_of);
            // An end that counts is kept; a lost run of a Pod that never restarts counts as a failure.
            let final_state = ended.clone().or_else(|| lost.clone().filter(|_| never));
            ContainerRuntime {
                name: container.name.clone(),
                image: container.image.clone().unwrap_or_default(),
                start: final_state.is_none().then(|| Start::At(Instant::now())),
                state: final_state.map_or_else(
                    || State::Waiting {
                        reason: "ContainerCreating".to_owned(),
                        message: None,
                    },
                    State::Terminated,
                ),
                begun: ran.is_some() || last.is_some() || ended.is_some(),
                last: lost.or(last),
                restarts: before.map_or(0, |status| status.restart_count),
                back_off: BackOff::default(),
                run: None,
                log: None,
            }
        })
        .collect()
}

fn ended_of(terminated: &k8s_openapi::api::core::v1::ContainerStateTerminated) -> Ended {
    Ended {
        exit_code: terminated.exit_code,
        reason: terminated.reason.clone().unwrap_or_default(),
        message: terminated.message.clone(),
        started_at: terminated.started_at.as_ref().map(|time| time.0),
        finished_at: terminated.finished_at.as_ref().map(|time| time.0),
    }
}

fn declared_ports(pod: &Pod) -> Vec<DeclaredPort> {
    let containers: &[Container] = pod.spec.as_ref().map_or(&[], |spec| &spec.containers);
    let ports = containers.iter().flat_map(|container| {
        container
            .ports
            .iter()
            .flatten()
            .map(move |port| (container, port))
    });
    ports
        .filter_map(|(container, port)| {
            let number = u16::try_from(port.container_port).ok()?;
            let name = port.name.clone().unwrap_or_else(|| number.to_string());
            Some(DeclaredPort {
                container: container.name.clone(),
                name,
                number,
            })
        })
        .collect()
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
