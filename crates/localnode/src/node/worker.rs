//! One Pod: its files, its containers, its status.

use std::{path::PathBuf, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use mainstay_workload::{Identity, Readiness, ReadinessState, WorkloadContext, WorkloadLog};
use serde_json::json;
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{
    Node,
    container::{self, LocalPorts, Report, Reported, Run},
    environment,
    image::{self, Kind},
    report::{self, Ended, State, View},
    sources::{Sources, Unresolved},
    volumes,
};

/// The gap before the second restart; the first is at once. It doubles up to [`LONGEST_GAP`].
const FIRST_GAP: Duration = Duration::from_secs(10);
/// The longest gap between two runs.
const LONGEST_GAP: Duration = Duration::from_secs(300);
/// How long a run must last for the gaps to start anew.
const LASTING_RUN: Duration = Duration::from_secs(600);
/// How long a role may take to end when the Pod does not say.
const GRACE: Duration = Duration::from_secs(30);
/// The gap before something is tried again that the API failed to answer.
const RETRY_GAP: Duration = Duration::from_secs(1);
/// How many reports of its containers a Pod has yet to read at most.
const REPORTS: usize = 64;

/// What is wanted of a Pod. Only the newest matters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Desired {
    /// The Pod; `None` once it is gone from the API.
    pub(crate) pod: Option<Arc<Pod>>,
    /// Rises with each change of a ConfigMap or Secret that the Pod names.
    pub(crate) sources: u64,
}

/// A container and its runs.
struct Slot {
    state: State,
    run: Option<Run>,
    last: Option<Ended>,
    restarts: i32,
    /// Runs that failed in a row.
    failures: u32,
    /// When the next run may begin.
    next: Option<Instant>,
}

/// The task of one Pod.
pub(crate) struct Worker {
    node: Arc<Node>,
    pod: Arc<Pod>,
    uid: String,
    directory: PathBuf,
    sources: Sources,
    init: Vec<Slot>,
    containers: Vec<Slot>,
    reports: mpsc::Receiver<Reported>,
    reporter: mpsc::Sender<Reported>,
    runs: u64,
    /// The volumes have to be written (again).
    stale: bool,
    /// When something that failed for the API's sake is tried again.
    retry: Option<Instant>,
}

impl Worker {
    pub(crate) fn new(node: Arc<Node>, pod: Arc<Pod>) -> Self {
        let uid = pod.uid().unwrap_or_default();
        let namespace = pod.namespace().unwrap_or_default();
        let identity = pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone());
        let client = node.client_for(&namespace, identity.as_deref().unwrap_or("default"));
        let (reporter, reports) = mpsc::channel(REPORTS);
        let slots = |containers: &[Container], statuses: Option<&Vec<_>>| {
            containers.iter().map(|container| Slot::new(&container.name, statuses)).collect()
        };
        let status = pod.status.as_ref();
        let init = slots(init_containers(&pod), status.and_then(|status| status.init_container_statuses.as_ref()));
        let containers = slots(main_containers(&pod), status.and_then(|status| status.container_statuses.as_ref()));
        Self {
            directory: node.pods_directory().join(&uid),
            sources: Sources::new(client, &namespace),
            node,
            uid,
            init,
            containers,
            reports,
            reporter,
            runs: 0,
            stale: true,
            retry: None,
            pod,
        }
    }

    /// Runs the Pod until it is gone or the node stops.
    pub(crate) async fn run(mut self, mut desired: watch::Receiver<Desired>, stop: CancellationToken) {
        self.describe();
        let mut seen = desired.borrow_and_update().sources;
        loop {
            if self.pod.metadata.deletion_timestamp.is_some() {
                self.end(true).await;
                return;
            }
            if !self.finished() {
                self.advance().await;
            }
            self.publish().await;
            let timer = self.next_timer();
            tokio::select! {
                changed = desired.changed() => {
                    let newest = desired.borrow_and_update().clone();
                    match (changed, newest.pod) {
                        (Ok(()), Some(pod)) => {
                            self.pod = pod;
                            self.describe();
                            self.stale |= newest.sources != seen;
                            seen = newest.sources;
                        }
                        // The node let go of the Pod because it stops itself.
                        _ if stop.is_cancelled() => {
                            self.stop_runs().await;
                            return;
                        }
                        _ => {
                            self.end(false).await;
                            return;
                        }
                    }
                }
                Some(reported) = self.reports.recv() => self.take(reported).await,
                () = tokio::time::sleep_until(timer.unwrap_or_else(far)), if timer.is_some() => self.retry = None,
                () = stop.cancelled() => {
                    self.stop_runs().await;
                    return;
                }
            }
        }
    }

    fn describe(&self) {
        let pod = &self.pod;
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let names = container::declared(main_containers(pod).iter());
        self.node.table().describe(&self.uid, (&namespace, &name), pod.labels().clone(), created, names);
    }

    /// Whether every container has ended for good.
    fn finished(&self) -> bool {
        let phase = self.pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let ended = !self.containers.is_empty() && self.containers.iter().all(|slot| matches!(slot.state, State::Ended(_)));
        ended || (self.runs == 0 && matches!(phase, Some("Succeeded" | "Failed")))
    }

    /// Writes the files and starts what can be started.
    async fn advance(&mut self) {
        if self.stale {
            match volumes::write(&self.directory, &self.pod, &self.sources).await {
                Ok(()) => self.stale = false,
                Err(unresolved) => {
                    self.unresolved(&unresolved);
                    return;
                }
            }
        }
        let pod = Arc::clone(&self.pod);
        for (index, container) in init_containers(&pod).iter().enumerate() {
            if matches!(self.init.get(index).map(|slot| &slot.state), Some(State::Ended(ended)) if ended.exit.code == 0) {
                continue;
            }
            self.start(Place::Init(index), container).await;
            return;
        }
        for (index, container) in main_containers(&pod).iter().enumerate() {
            self.start(Place::Main(index), container).await;
        }
    }

    /// Every container that does not run waits for the missing thing.
    fn unresolved(&mut self, unresolved: &Unresolved) {
        if unresolved.transient {
            self.retry = Some(Instant::now() + RETRY_GAP);
        }
        for slot in self.init.iter_mut().chain(&mut self.containers) {
            if slot.run.is_none() && !matches!(slot.state, State::Ended(_)) {
                slot.state =
                    State::Waiting { reason: "CreateContainerConfigError", message: unresolved.message.clone() };
            }
        }
    }

    async fn start(&mut self, place: Place, container: &Container) {
        let Some(slot) = self.slot(place) else { return };
        if slot.run.is_some() || matches!(slot.state, State::Ended(_)) {
            return;
        }
        if slot.next.is_some_and(|next| next > Instant::now()) {
            return;
        }
        match self.prepare(place, container).await {
            Ok(run) => {
                let since = self.node.clock().now();
                if let Some(slot) = self.slot(place) {
                    slot.next = None;
                    slot.state = State::Running { since, waits: Some("starting".to_owned()) };
                    slot.run = Some(run);
                }
                let note = format!("Started container {}", container.name);
                self.node.events().normal(&*self.pod, "Started", &note).await;
            }
            Err(NotStarted::Unresolved(unresolved)) => self.unresolved(&unresolved),
            Err(NotStarted::Waits { reason, message }) => {
                if let Some(slot) = self.slot(place) {
                    slot.state = State::Waiting { reason, message };
                }
            }
        }
    }

    async fn prepare(&mut self, place: Place, container: &Container) -> Result<Run, NotStarted> {
        let pod = Arc::clone(&self.pod);
        let namespace = pod.namespace().unwrap_or_default();
        let variables =
            environment::environment(&pod, container, self.node.host_environment(), &self.sources).await?;
        let words = environment::arguments(container, &variables);
        let (role, arguments) = match image::kind(container, &words, self.node.roles()) {
            Kind::Role { role, arguments } => (role, arguments),
            Kind::Unknown { message } => return Err(NotStarted::Waits { reason: "UnknownRole", message }),
            Kind::Foreign => {
                let image = container.image.as_deref().unwrap_or_default();
                return Err(NotStarted::Waits {
                    reason: "NoContainerEngine",
                    message: format!(
                        "image {image:?} needs a container engine, and the local node has none; it runs the roles of image \"mainstay\""
                    ),
                });
            }
        };
        let Some(role) = self.node.roles().get(&role).cloned() else {
            return Err(NotStarted::Waits { reason: "UnknownRole", message: format!("there is no role `{role}`") });
        };
        let root = volumes::mount(&self.directory, container)?;
        let connector = self.node.connector(&namespace).map_err(|error| Unresolved::new(error.to_string()))?;
        let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone());
        let account = account.filter(|account| !account.is_empty()).unwrap_or_else(|| "default".to_owned());
        let (readiness, receiver) = Readiness::new();
        let log = self.node.logs().begin(&namespace, &pod.name_any(), &self.uid, &container.name);
        self.runs += 1;
        let context = WorkloadContext {
            arguments,
            environment: variables,
            files: mainstay_workload::FileRoot::at(root),
            connector,
            log: WorkloadLog::new(Arc::clone(&log) as Arc<dyn mainstay_workload::LogSink>),
            identity: Identity {
                client: self.node.client_for(&namespace, &account),
                namespace,
                service_account: account,
                pod: pod.name_any(),
            },
            ports: Arc::new(LocalPorts {
                uid: self.uid.clone(),
                table: self.node.table().clone(),
                declared: container::declared(std::iter::once(container)),
            }),
            readiness,
            cancellation: CancellationToken::new(),
        };
        let number = (place.number(self.init.len()), self.runs);
        Ok(container::start(role, context, receiver, log, number, self.reporter.clone()))
    }

    fn slot(&mut self, place: Place) -> Option<&mut Slot> {
        match place {
            Place::Init(index) => self.init.get_mut(index),
            Place::Main(index) => self.containers.get_mut(index),
        }
    }

    /// Takes in what a container reports.
    async fn take(&mut self, reported: Reported) {
        let place = Place::of(reported.container, self.init.len());
        let now = self.node.clock().now();
        let policy = self.pod.spec.as_ref().and_then(|spec| spec.restart_policy.clone());
        let Some(slot) = self.slot(place) else { return };
        if slot.run.as_ref().is_none_or(|run| run.number != reported.run) {
            return;
        }
        match reported.report {
            Report::Readiness(readiness) => {
                if let State::Running { waits, .. } = &mut slot.state {
                    *waits = match readiness {
                        ReadinessState::Ready => None,
                        ReadinessState::NotReady(reason) => Some(reason),
                    };
                }
            }
            Report::Exited(mut exit) => {
                let run = slot.run.take();
                if exit.message.is_empty() && exit.code != 0 {
                    exit.message = run.as_ref().and_then(|run| run.log.last_line()).unwrap_or_default();
                }
                let started = match slot.state {
                    State::Running { since, .. } => since,
                    _ => now,
                };
                let ended = Ended { exit, started, finished: now };
                let note = slot.restart_or_end(place, ended, policy.as_deref().unwrap_or("Always"));
                self.node.table().stopped(&self.uid);
                if let Some(note) = note {
                    self.node.events().warning(&*self.pod, "BackOff", &note).await;
                }
            }
        }
    }

    /// When something has to be done without any event.
    fn next_timer(&self) -> Option<Instant> {
        let restarts = self.init.iter().chain(&self.containers).filter_map(|slot| slot.next);
        restarts.chain(self.retry).min()
    }

    /// Tells the table and the API how the Pod is.
    async fn publish(&mut self) {
        let pod = Arc::clone(&self.pod);
        let (init, containers) =
            (views(init_containers(&pod), &self.init), views(main_containers(&pod), &self.containers));
        if self.runs == 0 && self.finished() {
            return;
        }
        match report::readiness(&containers) {
            Ok(()) => self.node.table().set_ready(&self.uid, true, ""),
            Err(waits) => self.node.table().set_ready(&self.uid, false, &waits),
        }
        let status = report::status(&pod, &init, &containers, self.node.clock().now());
        if pod.status.as_ref() == Some(&status) {
            return;
        }
        let patch = json!({ "metadata": { "uid": self.uid }, "status": status });
        let pods = self.api();
        match pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(written) => {
                // What was written is compared with next time. A change by somebody else arrives by the watch.
                let mut newest = (*pod).clone();
                newest.status = written.status;
                self.pod = Arc::new(newest);
            }
            // Gone or replaced: the watch says so.
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
            Err(error) => {
                tracing::warn!(pod = pod.name_any(), namespace = pod.namespace(), %error, "a Pod's status could not be written");
                self.retry = Some(Instant::now() + RETRY_GAP);
            }
        }
    }

    fn api(&self) -> Api<Pod> {
        Api::namespaced(self.node.client().clone(), &self.pod.namespace().unwrap_or_default())
    }

    /// Ends every run: asks, waits for the grace period, then ends by force.
    async fn stop_runs(&mut self) {
        let grace = self.pod.metadata.deletion_grace_period_seconds.or_else(|| {
            self.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds)
        });
        let grace = grace.map_or(GRACE, |seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)));
        self.node.table().set_ready(&self.uid, false, "ending");
        let runs: Vec<Run> =
            self.init.iter_mut().chain(&mut self.containers).filter_map(|slot| slot.run.take()).collect();
        let ending = futures::future::join_all(runs.into_iter().map(|run| run.end(grace)));
        tokio::pin!(ending);
        // The reports of ending runs are read, so that their supervisors can end too.
        loop {
            tokio::select! {
                _ = &mut ending => break,
                _ = self.reports.recv() => {}
            }
        }
        self.node.table().stopped(&self.uid);
    }

    /// Ends the Pod and removes what it left; `delete` removes the object too.
    async fn end(&mut self, delete: bool) {
        self.stop_runs().await;
        self.node.table().remove(&self.uid);
        if let Err(error) = volumes::remove(&self.directory) {
            tracing::warn!(directory = %self.directory.display(), %error, "a Pod's files could not be removed");
        }
        let namespace = self.pod.namespace().unwrap_or_default();
        let name = self.pod.name_any();
        if delete {
            let parameters = DeleteParams {
                grace_period_seconds: Some(0),
                preconditions: Some(Preconditions { uid: Some(self.uid.clone()), resource_version: None }),
                ..DeleteParams::default()
            };
            let mut gap = Duration::from_millis(100);
            while let Err(error) = self.api().delete(&name, &parameters).await {
                if matches!(&error, kube::Error::Api(status) if status.is_not_found() || status.is_conflict()) {
                    break;
                }
                tracing::warn!(pod = name, namespace, %error, "an ended Pod could not be removed");
                if gap > LONGEST_GAP {
                    break;
                }
                tokio::time::sleep(gap).await;
                gap *= 2;
            }
        }
        self.node.logs().forget(&namespace, &name, &self.uid);
    }
}

impl Slot {
    /// A slot that goes on from what an earlier process wrote into the status.
    fn new(
        name: &str,
        statuses: Option<&Vec<k8s_openapi::api::core::v1::ContainerStatus>>,
    ) -> Self {
        let former = statuses.and_then(|statuses| statuses.iter().find(|status| status.name == name));
        let ran = former
            .and_then(|status| status.state.as_ref())
            .is_some_and(|state| state.running.is_some() || state.terminated.is_some());
        let restarts = former.map_or(0, |status| status.restart_count + i32::from(ran));
        Self {
            state: State::Waiting { reason: "ContainerCreating", message: String::new() },
            run: None,
            last: None,
            restarts,
            failures: 0,
            next: None,
        }
    }

    /// Decides what follows a run; gives the note of a back-off, where there is one.
    fn restart_or_end(&mut self, place: Place, ended: Ended, policy: &str) -> Option<String> {
        let failed = ended.exit.code != 0;
        let restarts = match policy {
            "Never" => false,
            "OnFailure" => failed,
            // An init container that succeeded is done whatever the policy.
            _ => failed || matches!(place, Place::Main(_)),
        };
        if !restarts {
            self.state = State::Ended(ended);
            return None;
        }
        let lasted = ended.finished.duration_since(ended.started);
        if Duration::try_from(lasted).is_ok_and(|lasted| lasted >= LASTING_RUN) {
            self.failures = 0;
        }
        let gap = match self.failures {
            0 => Duration::ZERO,
            count => FIRST_GAP.saturating_mul(2_u32.saturating_pow(count - 1)).min(LONGEST_GAP),
        };
        self.failures = self.failures.saturating_add(1);
        self.restarts = self.restarts.saturating_add(1);
        self.next = Some(Instant::now() + gap);
        let message = format!("back-off {} s restarting a container that ended: {}", gap.as_secs(), ended.exit.message);
        self.last = Some(ended);
        if gap.is_zero() {
            self.state = State::Waiting { reason: "ContainerCreating", message: String::new() };
            return None;
        }
        self.state = State::Waiting { reason: "CrashLoopBackOff", message: message.clone() };
        Some(message)
    }
}

/// Which container of a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Init(usize),
    Main(usize),
}

impl Place {
    /// One number for both kinds.
    fn number(self, init: usize) -> usize {
        match self {
            Self::Init(index) => index,
            Self::Main(index) => init + index,
        }
    }

    fn of(number: usize, init: usize) -> Self {
        if number < init { Self::Init(number) } else { Self::Main(number - init) }
    }
}

/// Why a container does not run.
enum NotStarted {
    Unresolved(Unresolved),
    Waits { reason: &'static str, message: String },
}

impl From<Unresolved> for NotStarted {
    fn from(unresolved: Unresolved) -> Self {
        Self::Unresolved(unresolved)
    }
}

fn init_containers(pod: &Pod) -> &[Container] {
    pod.spec.as_ref().and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default()
}

fn main_containers(pod: &Pod) -> &[Container] {
    pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default()
}

fn views<'a>(containers: &'a [Container], slots: &'a [Slot]) -> Vec<View<'a>> {
    containers
        .iter()
        .zip(slots)
        .map(|(container, slot)| View { container, state: &slot.state, last: slot.last.as_ref(), restarts: slot.restarts })
        .collect()
}

fn far() -> Instant {
    Instant::now() + LONGEST_GAP
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use jiff::Timestamp;

    use super::{super::container::Exit, *};

    fn ended(code: i32, lasted: i64) -> Ended {
        Ended {
            exit: Exit { code, reason: "Error", message: "no".to_owned() },
            started: Timestamp::UNIX_EPOCH,
            finished: Timestamp::from_second(lasted).unwrap(),
        }
    }

    fn gaps(slot: &mut Slot, runs: &[i64]) -> Vec<u64> {
        runs.iter()
            .map(|lasted| {
                slot.restart_or_end(Place::Main(0), ended(1, *lasted), "Always");
                slot.next.unwrap().duration_since(Instant::now()).as_secs()
            })
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn ka_051_restarts_back_off_and_a_long_run_starts_the_gaps_anew() {
        let mut slot = Slot::new("agent", None);
        assert_eq!(gaps(&mut slot, &[1, 1, 1, 1]), [0, 10, 20, 40]);
        assert!(matches!(slot.state, State::Waiting { reason: "CrashLoopBackOff", .. }));
        assert_eq!(gaps(&mut slot, &[1, 1, 1, 1]), [80, 160, 300, 300]);
        assert_eq!(gaps(&mut slot, &[600, 1]), [0, 10]);
        assert_eq!(slot.restarts, 10);
    }

    #[tokio::test(start_paused = true)]
    async fn ka_051_the_restart_policy_is_obeyed() {
        let ends = |place, policy, code| {
            let mut slot = Slot::new("agent", None);
            slot.restart_or_end(place, ended(code, 1), policy);
            matches!(slot.state, State::Ended(_))
        };
        assert!(!ends(Place::Main(0), "Always", 0));
        assert!(ends(Place::Main(0), "OnFailure", 0));
        assert!(!ends(Place::Main(0), "OnFailure", 1));
        assert!(ends(Place::Main(0), "Never", 1));
        assert!(ends(Place::Init(0), "Always", 0));
        assert!(!ends(Place::Init(0), "Always", 1));
    }
}
