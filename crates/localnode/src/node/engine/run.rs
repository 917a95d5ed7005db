//! One run of a container in the engine: its image, the container, its output and probes, its end.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bollard::models::{ContainerInspectResponse, ContainerStateStatusEnum, ImageInspect};
use bollard::query_parameters::{CreateContainerOptions, StopContainerOptions, WaitContainerOptions};
use futures::StreamExt;
use mainstay_telemetry::clock::SharedClock;
use mainstay_workload::Readiness;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::output::Lines;
use super::plan::{self, Network, Plan};
use super::probe::{Check, Target};
use super::sweep::remove;
use super::{Claim, Engine, EngineError, Engines, JOINED, WORK, within};
use crate::logs::{ContainerName, PodLogs, RunLog};
use crate::node::back_off::BackOffOptions;
use crate::node::container::{ContainerPorts, Event, Outcome};

/// How long after a container's end its last lines are read.
const LAST_LINES: Duration = Duration::from_secs(5);
/// How often the engine is asked how a container is, though it should say by itself when one ends.
const LOOK: Duration = Duration::from_secs(60);
/// The first and the longest wait before an engine that did not answer is asked again.
const AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// How long a hook after the start may take.
const HOOK: Duration = Duration::from_secs(120);
/// What of a container's last words is kept, in bytes, and of its output where that stands in for them.
const LAST_WORDS: usize = 4096;
const LAST_OUTPUT: (usize, usize) = (80, 2048);

/// What a run tells its Pod before it ends.
#[derive(Debug)]
pub(in crate::node) enum Report {
    Waiting {
        reason: &'static str,
        message: String,
    },
    Started {
        run: i32,
        identity: EngineIdentity,
    },
    Note {
        warning: bool,
        reason: &'static str,
        message: String,
    },
}

/// A container and its image, as its status names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::node) struct EngineIdentity {
    pub(in crate::node) container: String,
    pub(in crate::node) image: String,
}

/// The container in whose network the others of its Pod live, and where its ports are published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::node) struct Lead {
    id: String,
    ports: BTreeMap<u16, u16>,
}

/// Where the output of the run goes.
pub(in crate::node) struct LogPlace {
    pub(in crate::node) logs: PodLogs,
    pub(in crate::node) folder: PathBuf,
    pub(in crate::node) clock: SharedClock,
}

/// A container that is to run.
pub(in crate::node) struct ForeignRun {
    pub(in crate::node) engines: Arc<Engines>,
    pub(in crate::node) plan: Plan,
    pub(in crate::node) namespace: String,
    pub(in crate::node) pod: String,
    /// Its place among the Pod's containers, and which of its runs this is.
    pub(in crate::node) index: usize,
    pub(in crate::node) run: i32,
    pub(in crate::node) ports: ContainerPorts,
    pub(in crate::node) lead: watch::Sender<Option<Lead>>,
    pub(in crate::node) log: LogPlace,
    pub(in crate::node) readiness: Readiness,
    pub(in crate::node) cancellation: CancellationToken,
    pub(in crate::node) events: mpsc::Sender<Event>,
    pub(in crate::node) back_off: BackOffOptions,
}

/// A container that was started.
struct Started {
    engine: Engine,
    id: String,
    claim: Claim,
    log: LogEnd,
    ports: BTreeMap<u16, u16>,
}

/// The log ends with the run, whatever ended that.
struct LogEnd(Arc<RunLog>);

impl Drop for LogEnd {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Why a container did not start.
enum StartFailure {
    /// It could not even be made; tried again.
    NotMade { reason: &'static str, message: String },
    /// The engine refused to start what it had made: that is how this run ended.
    Refused(String),
}

impl ForeignRun {
    /// Runs the container to its end. When this is dropped the container is removed.
    pub(in crate::node) async fn run(self) -> Outcome {
        let starting = self.cancellation.run_until_cancelled(Box::pin(self.start()));
        let started = match starting.await {
            None => return Outcome::NotStarted,
            Some(Err(message)) => {
                return Outcome::Exited {
                    code: 128,
                    reason: "StartError",
                    message: Some(message),
                };
            }
            Some(Ok(started)) => started,
        };
        let Started {
            engine,
            id,
            claim,
            log,
            ports,
        } = started;
        let target = Target {
            engine: engine.clone(),
            id: id.clone(),
            ports,
        };
        let ended = Box::pin(self.follow(&target, &log.0)).await;
        let outcome = self.outcome(ended, &log.0);
        if let Err(error) = remove(&engine, &id).await {
            tracing::debug!(%error, container = id, "a container that ended is removed later");
        }
        drop((log, claim));
        outcome
    }

    pub(super) async fn tell(&self, report: Report) {
        let container = self.index;
        // Without a receiver the Pod is gone, and nobody asks.
        let _ = self.events.send(Event::Foreign { container, report }).await;
    }

    pub(super) async fn note(&self, warning: bool, reason: &'static str, message: String) {
        self.tell(Report::Note {
            warning,
            reason,
            message,
        })
        .await;
    }

    /// The engine, once there is one.
    pub(super) async fn engine(&self) -> Engine {
        loop {
            match self.engines.find().await {
                Ok(engine) => return engine,
                Err(nowhere) => {
                    self.waiting("NoContainerEngine", nowhere.why).await;
                    tokio::time::sleep_until(nowhere.again).await;
                }
            }
        }
    }

    async fn start(&self) -> Result<Started, String> {
        let mut engine = self.engine().await;
        let image = self.image(&mut engine).await;
        let mut wait = AGAIN.1;
        loop {
            let failure = match self.try_start(&engine, &image).await {
                Ok(started) => return Ok(started),
                Err(failure) => failure,
            };
            match failure {
                StartFailure::Refused(message) => {
                    self.note(true, "Failed", format!("Error: {message}")).await;
                    return Err(message);
                }
                StartFailure::NotMade { reason, message } => {
                    self.note(true, "Failed", format!("Error: {message}")).await;
                    self.waiting(reason, message).await;
                }
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(self.back_off.limit);
            engine = self.engine().await;
        }
    }

    async fn try_start(&self, engine: &Engine, image: &ImageInspect) -> Result<Started, StartFailure> {
        if self.plan.not_root {
            self.check_user(image)?;
        }
        let not_made = |reason, error: &dyn std::fmt::Display| StartFailure::NotMade {
            reason,
            message: format!("container {:?}: {error}", self.ports.container),
        };
        let mut body = self.plan.body.clone();
        let mut labels = self.engines.labels();
        for (name, value) in [
            ("namespace", &self.namespace),
            ("pod", &self.pod),
            ("pod-uid", &self.ports.uid),
            ("container", &self.ports.container),
        ] {
            labels.insert(format!("dev.mainstay.{name}"), value.clone());
        }
        let mut lead = None;
        let mode = match &self.plan.network {
            Network::Own { publish, .. } => {
                plan::publish(&mut body, publish);
                None
            }
            Network::Host => Some("host".to_owned()),
            Network::Joined => {
                let mut leads = self.lead.subscribe();
                // The sender is held here.
                let Ok(found) = leads.wait_for(Option::is_some).await.map(|found| found.clone()) else {
                    return Err(not_made("CreateContainerError", &"its Pod is gone"));
                };
                labels.insert(JOINED.to_owned(), "true".to_owned());
                let id = found.as_ref().map(|lead| lead.id.clone()).unwrap_or_default();
                lead = found;
                Some(format!("container:{id}"))
            }
        };
        body.labels = Some(labels);
        if let Some(host) = &mut body.host_config {
            host.network_mode = mode;
            if lead.is_some() {
                host.extra_hosts = None;
            }
        }
        let claim = self.engines.claim(&format!(
            "{}_{}_{}_{}",
            self.ports.container, self.pod, self.namespace, self.run
        ));
        let options = CreateContainerOptions {
            name: Some(claim.name.clone()),
            ..CreateContainerOptions::default()
        };
        let made = within(WORK, engine.docker.create_container(Some(options), body))
            .await
            .map_err(|error| not_made("CreateContainerError", &error))?;
        let id = made.id;
        self.note(
            false,
            "Created",
            format!("Created container {}", self.ports.container),
        )
        .await;
        let name = ContainerName {
            namespace: &self.namespace,
            pod: &self.pod,
            uid: &self.ports.uid,
            container: &self.ports.container,
        };
        let LogPlace { logs, folder, clock } = &self.log;
        let log = logs
            .start(folder, &name, self.run, Arc::clone(clock))
            .map_err(|error| {
                not_made(
                    "CreateContainerError",
                    &format!("its log cannot be written: {error}"),
                )
            })?;
        let log = LogEnd(log);
        match within(WORK, engine.docker.start_container(&id, None)).await {
            Ok(()) => {}
            Err(error @ EngineError::Refused(_)) if error.status().is_some() => {
                let refused = format!("failed to start container {:?}: {error}", self.ports.container);
                let removed = remove(engine, &id).await;
                drop((removed, claim));
                return Err(StartFailure::Refused(refused));
            }
            Err(error) => return Err(not_made("RunContainerError", &error)),
        }
        let found = engine
            .inspect(&id)
            .await
            .map_err(|error| not_made("RunContainerError", &error))?;
        let ports = match (&self.plan.network, lead) {
            (Network::Own { .. }, _) => published(&found),
            (Network::Joined, Some(lead)) => lead.ports,
            (Network::Joined, None) => BTreeMap::new(),
            (Network::Host, _) => {
                let own = self.ports.declared.iter().map(|declared| declared.number);
                own.chain(self.plan.checks.ports())
                    .map(|port| (port, port))
                    .collect()
            }
        };
        self.open(&ports);
        if matches!(self.plan.network, Network::Own { leads: true, .. }) {
            self.lead.send_replace(Some(Lead {
                id: id.clone(),
                ports: ports.clone(),
            }));
        }
        let digests = image.repo_digests.iter().flatten();
        let identity = EngineIdentity {
            container: format!("{}://{id}", engine.scheme),
            image: digests
                .into_iter()
                .next()
                .or(image.id.as_ref())
                .cloned()
                .unwrap_or_default(),
        };
        self.tell(Report::Started {
            run: self.run,
            identity,
        })
        .await;
        Ok(Started {
            engine: engine.clone(),
            id,
            claim,
            log,
            ports,
        })
    }

    /// Makes the declared ports of this container known.
    fn open(&self, ports: &BTreeMap<u16, u16>) {
        let ContainerPorts {
            pods,
            uid,
            container,
            declared,
        } = &self.ports;
        for declared in declared
            .iter()
            .filter(|declared| declared.container == *container)
        {
            if let Some(port) = ports.get(&declared.number) {
                let address = SocketAddr::from((Ipv4Addr::LOCALHOST, *port));
                pods.listening(uid, container, &declared.name, address);
            }
        }
    }

    fn check_user(&self, image: &ImageInspect) -> Result<(), StartFailure> {
        let user = image
            .config
            .as_ref()
            .and_then(|config| config.user.clone())
            .unwrap_or_default();
        let user = user.split(':').next().unwrap_or_default();
        let message = match user.parse::<i64>() {
            Ok(0) => "container has runAsNonRoot and image will run as root".to_owned(),
            Ok(_) => return Ok(()),
            Err(_) if user.is_empty() => "container has runAsNonRoot and image will run as root".to_owned(),
            Err(_) => format!(
                "container has runAsNonRoot and image has non-numeric user ({user}), cannot verify user is non-root"
            ),
        };
        Err(StartFailure::NotMade {
            reason: "CreateContainerConfigError",
            message: format!(
                "{message} (pod: {}/{}, container: {})",
                self.namespace, self.pod, self.ports.container
            ),
        })
    }

    /// Follows the container to its end; ends it when it is told to, or when a probe says so.
    async fn follow(&self, target: &Target, log: &Arc<RunLog>) -> Ended {
        let gate = Gate::new(self.readiness.clone());
        let over = AtomicBool::new(false);
        let mut lines = Lines::new(Arc::clone(log));
        let ended = {
            let mut following = std::pin::pin!(lines.follow(&target.engine, &target.id, &over));
            let ended = {
                let mut ended = std::pin::pin!(self.ended(target, &gate));
                let mut probing = std::pin::pin!(self.probe(target, &gate));
                let to_end = async {
                    tokio::select! {
                        () = self.cancellation.cancelled() => {}
                        () = &mut probing => {}
                    }
                    self.stop(target).await;
                    std::future::pending::<()>().await;
                };
                tokio::select! {
                    ended = &mut ended => ended,
                    // Neither ends by itself.
                    () = &mut following => Ended::unknown(),
                    () = to_end => Ended::unknown(),
                }
            };
            over.store(true, Ordering::Relaxed);
            if timeout(LAST_LINES, following).await.is_err() {
                tracing::debug!(
                    container = target.id,
                    "the last lines of a container could not be read"
                );
            }
            ended
        };
        lines.finish();
        ended
    }

    /// Asks the container to end, and sees that it does after its grace period.
    async fn stop(&self, target: &Target) {
        let deadline = Instant::now() + self.plan.grace;
        if let Some(hook) = &self.plan.checks.pre_stop
            && let Err(why) = target.act(hook, self.plan.grace).await
        {
            self.note(true, "FailedPreStopHook", format!("PreStopHook failed: {why}"))
                .await;
        }
        let mut wait = AGAIN.0;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let options = StopContainerOptions {
                signal: None,
                t: Some(i32::try_from(left.as_secs()).unwrap_or(i32::MAX)),
            };
            let stopped = within(
                left + WORK,
                target.engine.docker.stop_container(&target.id, Some(options)),
            )
            .await;
            match stopped {
                Ok(()) => return,
                // It has ended, or is gone.
                Err(error) if matches!(error.status(), Some(304 | 404)) => return,
                Err(error) => {
                    tracing::debug!(%error, container = target.id, "a container could not be stopped yet")
                }
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(AGAIN.1);
        }
    }

    /// Probes the container. Returns when it has to end.
    async fn probe(&self, target: &Target, gate: &Gate) {
        let checks = &self.plan.checks;
        let name = &self.ports.container;
        if let Some(hook) = &checks.post_start
            && let Err(why) = target.act(hook, HOOK).await
        {
            self.note(
                true,
                "FailedPostStartHook",
                format!("PostStartHook failed: {why}"),
            )
            .await;
            return;
        }
        let killing = |kind: &str| format!("Container {name} failed {kind} probe, will be restarted");
        if let Some(check) = &checks.startup {
            gate.set(Err("its startup probe has not succeeded yet".to_owned()));
            let mut started = false;
            let verdict = |verdict: Result<(), String>| {
                started = verdict.is_ok();
                true
            };
            self.each_verdict(target, gate, check, verdict).await;
            if !started {
                self.note(false, "Killing", killing("startup")).await;
                return;
            }
        }
        let readiness = async {
            match &checks.readiness {
                None => gate.set(Ok(())),
                Some(check) => {
                    gate.set(Err("its readiness probe has not succeeded yet".to_owned()));
                    let verdict = |verdict: Result<(), String>| {
                        gate.set(verdict.map_err(|why| format!("readiness probe failed: {why}")));
                        false
                    };
                    self.each_verdict(target, gate, check, verdict).await;
                }
            }
            std::future::pending::<()>().await;
        };
        let liveness = async {
            match &checks.liveness {
                None => std::future::pending().await,
                Some(check) => {
                    let ill = |verdict: Result<(), String>| verdict.is_err() && !gate.is_lost();
                    self.each_verdict(target, gate, check, ill).await;
                    self.note(false, "Killing", killing("liveness")).await;
                }
            }
        };
        tokio::select! {
            () = readiness => {}
            () = liveness => {}
        }
    }

    /// Runs one probe until `seen`, which is told each verdict that counts, wants no more.
    async fn each_verdict(
        &self,
        target: &Target,
        gate: &Gate,
        check: &Check,
        mut seen: impl FnMut(Result<(), String>) -> bool + Send,
    ) {
        tokio::time::sleep(check.delay).await;
        let mut interval = tokio::time::interval(check.period);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut well, mut ill) = (0_u32, 0_u32);
        loop {
            interval.tick().await;
            match target.act(&check.action, check.limit).await {
                Ok(()) => {
                    well = well.saturating_add(1);
                    ill = 0;
                    if well >= check.successes && seen(Ok(())) {
                        return;
                    }
                }
                // It says nothing about the container while the engine is gone.
                Err(_) if gate.is_lost() => {}
                Err(why) => {
                    ill = ill.saturating_add(1);
                    well = 0;
                    let what = format!("{} probe failed: {why}", check.kind);
                    self.note(true, "Unhealthy", what).await;
                    if ill >= check.failures && seen(Err(why)) {
                        return;
                    }
                }
            }
        }
    }

    /// Waits until the engine says that the container has ended. While the engine does not answer, the container is not
    /// ready, and taken to run.
    async fn ended(&self, target: &Target, gate: &Gate) -> Ended {
        let docker = &target.engine.docker;
        let mut wait = AGAIN.0;
        loop {
            let options = WaitContainerOptions {
                condition: "not-running".to_owned(),
            };
            // One that did not answer may be back before the container ends.
            if !gate.is_lost() {
                let mut waiting = std::pin::pin!(docker.wait_container(&target.id, Some(options)));
                // Whatever it says: the container itself is looked at.
                let _ = timeout(LOOK, waiting.next()).await;
            }
            match target.engine.inspect(&target.id).await {
                Ok(found) => {
                    if gate.found() {
                        let note = format!(
                            "The container engine answers again about container {}",
                            self.ports.container
                        );
                        self.note(false, "ContainerEngineBack", note).await;
                    }
                    if let Some(ended) = Ended::of(&found) {
                        return ended;
                    }
                }
                Err(error) if error.status() == Some(404) => return Ended::unknown(),
                Err(error) => {
                    if gate.lose() {
                        let name = &self.ports.container;
                        let note = format!(
                            "The container engine does not answer; container {name} is taken to go on: {error}"
                        );
                        self.note(true, "ContainerEngineLost", note).await;
                    }
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(AGAIN.1);
                    continue;
                }
            }
            tokio::time::sleep(AGAIN.0).await;
            wait = AGAIN.0;
        }
    }

    fn outcome(&self, ended: Ended, log: &RunLog) -> Outcome {
        let Ended { code, reason, error } = ended;
        let words = match read_limited(&self.plan.last_words) {
            Ok(words) => words,
            Err(error) => {
                tracing::warn!(%error, container = self.ports.container, "the last words of a container cannot be read");
                String::new()
            }
        };
        let words = if words.is_empty() && self.plan.output_as_last_words && code != 0 {
            log.tail(LAST_OUTPUT.0, LAST_OUTPUT.1)
        } else {
            words
        };
        Outcome::Exited {
            code,
            reason,
            message: Some(words).filter(|words| !words.is_empty()).or(error),
        }
    }
}

fn read_limited(path: &std::path::Path) -> std::io::Result<String> {
    use std::io::Read;
    let mut bytes = Vec::new();
    std::fs::File::open(path)?
        .take(LAST_WORDS as u64)
        .read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Where an engine published a container's ports.
fn published(found: &ContainerInspectResponse) -> BTreeMap<u16, u16> {
    let ports = found
        .network_settings
        .as_ref()
        .and_then(|settings| settings.ports.as_ref());
    let ports = ports.into_iter().flatten();
    ports
        .filter_map(|(name, bindings)| {
            let inner = name.strip_suffix("/tcp")?.parse().ok()?;
            let outer = bindings
                .iter()
                .flatten()
                .find_map(|binding| binding.host_port.as_ref()?.parse().ok())?;
            Some((inner, outer))
        })
        .collect()
}

/// How a container ended.
#[derive(Debug, PartialEq, Eq)]
struct Ended {
    code: i32,
    reason: &'static str,
    error: Option<String>,
}

impl Ended {
    fn of(found: &ContainerInspectResponse) -> Option<Self> {
        use ContainerStateStatusEnum as Status;
        let state = found.state.as_ref()?;
        let over = matches!(
            state.status,
            Some(Status::EXITED | Status::DEAD | Status::REMOVING)
        );
        if !over || state.running == Some(true) {
            return None;
        }
        let code = state
            .exit_code
            .and_then(|code| i32::try_from(code).ok())
            .unwrap_or(255);
        let reason = if state.oom_killed == Some(true) {
            "OOMKilled"
        } else if code == 0 {
            "Completed"
        } else {
            "Error"
        };
        Some(Self {
            code,
            reason,
            error: state.error.clone().filter(|error| !error.is_empty()),
        })
    }

    fn unknown() -> Self {
        Self {
            code: 137,
            reason: "ContainerStatusUnknown",
            error: Some("the container engine does not have the container any more".to_owned()),
        }
    }
}

/// A container's readiness: what its probes say, as long as the engine answers.
struct Gate {
    readiness: Readiness,
    // A std mutex: never held across an await.
    state: Mutex<(Result<(), String>, bool)>,
}

impl Gate {
    fn new(readiness: Readiness) -> Self {
        let starting = Err("starting".to_owned());
        Self {
            readiness,
            state: Mutex::new((starting, false)),
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut (Result<(), String>, bool)) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut state);
        match &*state {
            (_, true) => self.readiness.not_ready("the container engine does not answer"),
            (Ok(()), false) => self.readiness.ready(),
            (Err(why), false) => self.readiness.not_ready(why.clone()),
        }
        result
    }

    fn set(&self, verdict: Result<(), String>) {
        self.change(|state| state.0 = verdict);
    }

    /// Whether this is news.
    fn lose(&self) -> bool {
        self.change(|state| !std::mem::replace(&mut state.1, true))
    }

    /// Whether this is news.
    fn found(&self) -> bool {
        self.change(|state| std::mem::replace(&mut state.1, false))
    }

    fn is_lost(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).1
    }
}
