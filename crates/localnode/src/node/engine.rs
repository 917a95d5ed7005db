//! Pods of images by other people: their containers run in a container engine, Docker or Podman, asked over its socket
//! ([ADR 0009](../../../../docs/adr/0009-containers.md), KA-051).
//!
//! This file finds the engine and knows which containers of it are ours. `plan.rs` says what a container is to be, `run.rs`
//! brings one to run and follows it to its end, with `pull.rs` for its image, `output.rs` for its log and `probe.rs` for
//! whether it answers. `sweep.rs` removes what was left behind.

mod output;
pub(super) mod plan;
pub(super) mod probe;
mod pull;
pub(super) mod reference;
pub(super) mod run;
mod sweep;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bollard::models::ContainerInspectResponse;
use bollard::{ClientVersion, Docker};
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::time::{Instant, sleep, timeout};

/// How long an engine may take to say what it is.
const GREETING: Duration = Duration::from_secs(3);
/// How long it may take to answer a question about what it has.
pub(super) const ANSWER: Duration = Duration::from_secs(15);
/// How long until a container in a state without a name is looked at again.
const BETWEEN_STATES: Duration = Duration::from_millis(50);
/// How long it may take to make, start or remove a container.
pub(super) const WORK: Duration = Duration::from_secs(120);
/// The first and the longest wait before an engine is looked for again.
const SEARCHES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));
/// No call may be cut by the client itself: each has a deadline of its own.
const CLIENT_SECONDS: u64 = 24 * 60 * 60;
/// What the client is told of versions. It asks without one in its paths, which every engine answers in its own.
const VERSION: ClientVersion = ClientVersion {
    major_version: 1,
    minor_version: 44,
};

/// The label that says which data directory a container belongs to.
const OWNER: &str = "dev.mainstay.data-directory";
/// The label of a container that lives in the network of another one.
const JOINED: &str = "dev.mainstay.joined-network";

/// Where containers of images by other people run.
#[derive(Clone, Debug)]
pub struct ContainerEngineOptions {
    /// The sockets at which an engine may answer; the first that does is taken.
    pub sockets: Vec<PathBuf>,
    /// The file that remembers that an engine was used, so that what a killed process left there is found.
    pub used: PathBuf,
    /// Where a container in the host's network finds the Kubernetes API: `https://HOST:PORT`.
    pub kubernetes: String,
    /// The certificate authority of that, in PEM.
    pub certificate_authority: String,
}

/// An engine that answered. Clones share its connections.
#[derive(Clone, Debug)]
pub(super) struct Engine {
    pub(super) docker: Docker,
    /// The scheme of its containers' ids in statuses: `docker` or `podman`.
    pub(super) scheme: &'static str,
}

impl Engine {
    /// How a container is. Between a program's end and its own clean-up Podman says `stopped`, a word that Docker's API and the
    /// library do not have: that is waited out.
    pub(super) async fn inspect(&self, id: &str) -> Result<ContainerInspectResponse, EngineError> {
        let told = async {
            loop {
                match self.docker.inspect_container(id, None).await {
                    Err(bollard::errors::Error::JsonDataError { message, .. })
                        if message.contains("unknown variant") =>
                    {
                        tracing::debug!(message, "a container is in a state without a name");
                        sleep(BETWEEN_STATES).await;
                    }
                    told => return told,
                }
            }
        };
        within(ANSWER, told).await
    }
}

/// Why an engine did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(super) enum EngineError {
    #[error("the container engine did not answer within {0:?}")]
    Stalled(Duration),
    #[error("{}", words(.0))]
    Refused(#[from] bollard::errors::Error),
}

impl EngineError {
    /// The status of its answer, where it gave one.
    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Self::Refused(bollard::errors::Error::DockerResponseServerError { status_code, .. }) => {
                Some(*status_code)
            }
            _ => None,
        }
    }
}

/// What an engine says, without the name of the library.
fn words(error: &bollard::errors::Error) -> String {
    use bollard::errors::Error;
    let text = match error {
        Error::DockerResponseServerError { status_code, message } if message.trim().is_empty() => {
            format!("the container engine answered with status {status_code}")
        }
        Error::DockerResponseServerError { message, .. } => message.clone(),
        Error::DockerStreamError { error } => error.clone(),
        Error::RequestTimeoutError => "the container engine did not answer in time".to_owned(),
        Error::JsonDataError { message, .. } => {
            format!("the container engine gave an answer that cannot be read: {message}")
        }
        other => {
            let mut text = other.to_string();
            let mut source = std::error::Error::source(other);
            while let Some(cause) = source {
                let cause_text = cause.to_string();
                if !text.contains(&cause_text) {
                    text = format!("{text}: {cause_text}");
                }
                source = cause.source();
            }
            format!("the container engine cannot be asked: {text}")
        }
    };
    let text = text.trim();
    text[..text.floor_char_boundary(MESSAGE)].to_owned()
}

/// Longest text of an engine that is shown, in bytes.
const MESSAGE: usize = 1024;

/// Asks an engine with a deadline.
pub(super) async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, bollard::errors::Error>>,
) -> Result<T, EngineError> {
    match timeout(limit, call).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(EngineError::Stalled(limit)),
    }
}

/// No engine answers.
#[derive(Clone, Debug)]
pub(super) struct Nowhere {
    /// In words, where it was looked for.
    pub(super) why: String,
    /// When it is looked for again.
    pub(super) again: Instant,
}

enum Found {
    Nothing { wait: Duration, before: Option<Nowhere> },
    Here(Engine),
}

/// The engine that is used and the containers that run there.
pub(super) struct Engines {
    pub(super) options: ContainerEngineOptions,
    owner: String,
    process: String,
    serial: AtomicU64,
    // Held while one looks for an engine, so that all others get the same answer.
    found: AsyncMutex<Found>,
    // Names of the containers that somebody here follows. A std mutex: never held across an await.
    living: Mutex<BTreeSet<String>>,
    swept: Notify,
}

impl Engines {
    /// `process` tells the containers of this process from those of a former one.
    pub(super) fn new(options: ContainerEngineOptions, pods_folder: &Path, process: String) -> Self {
        Self {
            options,
            owner: std::path::absolute(pods_folder)
                .unwrap_or_else(|_| pods_folder.to_owned())
                .display()
                .to_string(),
            process,
            serial: AtomicU64::new(0),
            found: AsyncMutex::new(Found::Nothing {
                wait: SEARCHES.0,
                before: None,
            }),
            living: Mutex::default(),
            swept: Notify::new(),
        }
    }

    /// The engine. One that was found is asked whether it still answers; where none was, the answer stands for a while.
    pub(super) async fn find(&self) -> Result<Engine, Nowhere> {
        let mut found = self.found.lock().await;
        let wait = match &*found {
            Found::Here(engine) => {
                if within(GREETING, engine.docker.ping()).await.is_ok() {
                    return Ok(engine.clone());
                }
                SEARCHES.0
            }
            Found::Nothing {
                before: Some(before), ..
            } if Instant::now() < before.again => return Err(before.clone()),
            Found::Nothing { wait, .. } => *wait,
        };
        let mut why = Vec::new();
        for socket in &self.options.sockets {
            match greet(socket).await {
                Ok(engine) => {
                    tracing::info!(socket = %socket.display(), engine = engine.scheme, "containers run in this engine");
                    if let Err(error) = std::fs::write(&self.options.used, socket.display().to_string()) {
                        tracing::warn!(path = %self.options.used.display(), %error, "it cannot be noted which container engine is used");
                    }
                    *found = Found::Here(engine.clone());
                    self.swept.notify_one();
                    return Ok(engine);
                }
                Err(error) => why.push(format!("{}: {error}", socket.display())),
            }
        }
        let nowhere = Nowhere {
            why: format!("no container engine answers ({})", why.join("; ")),
            again: Instant::now() + wait,
        };
        *found = Found::Nothing {
            wait: (wait * 2).min(SEARCHES.1),
            before: Some(nowhere.clone()),
        };
        Err(nowhere)
    }

    /// Names a container that is about to be made. While the claim lives nobody removes it.
    fn claim(self: &std::sync::Arc<Self>, title: &str) -> Claim {
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        let name = format!("mainstay_{title}_{}-{serial}", self.process);
        self.living().insert(name.clone());
        Claim {
            engines: std::sync::Arc::clone(self),
            name,
        }
    }

    fn living(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.living.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The labels by which a container is known to be ours.
    fn labels(&self) -> HashMap<String, String> {
        [(OWNER.to_owned(), self.owner.clone())].into()
    }
}

/// The right to a container of this name. When it ends, the container is removed if it is still there.
#[derive(Debug)]
struct Claim {
    engines: std::sync::Arc<Engines>,
    name: String,
}

impl std::fmt::Debug for Engines {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Engines").finish_non_exhaustive()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.engines.living().remove(&self.name);
        self.engines.swept.notify_one();
    }
}

async fn greet(socket: &Path) -> Result<Engine, String> {
    let path = socket.to_str().ok_or("the path is no text")?;
    let docker = Docker::connect_with_unix(path, CLIENT_SECONDS, &VERSION).map_err(|error| match error {
        bollard::errors::Error::SocketNotFoundError(_) => "no such socket".to_owned(),
        other => other.to_string(),
    })?;
    let answer = within(GREETING, docker.version())
        .await
        .map_err(|error| error.to_string())?;
    let mut components = answer.components.iter().flatten();
    let podman = components.any(|component| component.name.contains("Podman"));
    Ok(Engine {
        docker,
        scheme: if podman { "podman" } else { "docker" },
    })
}
