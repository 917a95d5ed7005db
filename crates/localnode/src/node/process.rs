//! A container as a process of its own: started from this program's binary, followed to its end, and told where Services
//! lead. What the two say to each other is `mainstay_workload::process`.

mod ending;
mod lines;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mainstay_workload::process::calls::{Answer, Answering, LONGEST_MESSAGE};
use mainstay_workload::process::{ServiceRoute, Start, ToServer, ToWorkload};
use mainstay_workload::{LogSink, Readiness};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncRead, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::container::{ContainerPorts, Outcome};
use crate::ProcessOptions;
use crate::logs::RunLog;
use crate::services::Services;
use ending::Ending;

/// How long after a process's end its last lines are read. Only a process that it left behind could hold them open.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How often a process is told at most where Services lead.
const TELLS_EVERY: Duration = Duration::from_millis(20);

/// A container that is to run as a process.
pub(super) struct Process {
    pub(super) options: Arc<ProcessOptions>,
    pub(super) start: Start,
    pub(super) services: Services,
    pub(super) ports: ContainerPorts,
    pub(super) log: Arc<RunLog>,
    pub(super) readiness: Readiness,
    pub(super) cancellation: CancellationToken,
}

impl Process {
    /// Runs the process to its end. When this is dropped the process is killed.
    pub(super) async fn run(self) -> Outcome {
        let failed = |error: io::Error| Outcome::Failed(format!("its process cannot be started: {error}"));
        let limit = self.start.memory_limit;
        let (mut child, channel) = match self.spawn() {
            Ok(spawned) => spawned,
            Err(error) => return failed(error),
        };
        let (Some(output), Some(errors)) = (child.stdout.take(), child.stderr.take()) else {
            return failed(io::Error::other("its output cannot be read"));
        };
        let (reader, mut writer) = channel.into_split();
        // Begun before the process hears who it is, and ended once the process is.
        let conversation = self.options.answers.as_ref();
        let conversation = conversation.and_then(|answers| answers.begin(&self.start));
        let (answering, answers) = Answering::new(conversation);
        let sent = self.start.services.clone();
        let first = ToWorkload::Start(Box::new(self.start));
        if let Err(error) = tell(&mut writer, &first).await {
            // It may have ended by itself, and then its end says more.
            tracing::debug!(%error, "a process does not hear what it is");
        }
        let hearing = hear(reader, &self.ports, &self.readiness, &answering);
        let out_of_memory = AtomicBool::new(false);
        let reading = async {
            let said = |line: &str| {
                if ending::tells_of_memory(line) {
                    out_of_memory.store(true, Ordering::Relaxed);
                }
                self.log.line(line);
            };
            tokio::join!(
                hearing,
                lines::each(output, |line| self.log.line(line)),
                lines::each(errors, said),
            )
            .0
        };
        let telling = keep_told(writer, &self.services, sent, answers);
        let (mut reading, mut telling) = (std::pin::pin!(reading), std::pin::pin!(telling));
        let mut heard = None;
        let status = {
            let mut ended = std::pin::pin!(ended(&mut child, &self.cancellation));
            let mut told = false;
            loop {
                tokio::select! {
                    status = &mut ended => break status,
                    words = &mut reading, if heard.is_none() => heard = Some(words),
                    () = &mut telling, if !told => told = true,
                }
            }
        };
        if heard.is_none() {
            heard = tokio::time::timeout(LAST_WORDS, reading).await.ok();
        }
        let ending = Ending {
            failure: heard.flatten(),
            memory_limit: limit,
            out_of_memory: out_of_memory.load(Ordering::Relaxed),
        };
        match status {
            Ok(status) => ending.outcome(status),
            Err(error) => Outcome::Failed(format!("its process cannot be waited for: {error}")),
        }
    }

    fn spawn(&self) -> io::Result<(Child, UnixStream)> {
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut command = Command::new(&self.options.program);
        // What `ps` shows.
        let title = format!(
            "{}/{}/{}",
            self.start.namespace, self.start.pod, self.start.container
        );
        command
            .args(&self.options.arguments)
            .arg(title)
            .env_clear()
            .envs(&self.options.environment)
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C at the server's terminal is meant for the server, which ends its Pods in order.
            .process_group(0)
            .kill_on_drop(true);
        if let Some(name) = &self.options.shown_as {
            command.arg0(name);
        }
        let child = command.spawn()?;
        // With the command goes the last copy of their end here: our end then hears when the process has closed it.
        drop(command);
        Ok((child, UnixStream::from_std(ours)?))
    }
}

/// Waits for the end of a process, which `cancellation` asks it for.
async fn ended(child: &mut Child, cancellation: &CancellationToken) -> io::Result<ExitStatus> {
    tokio::select! {
        status = child.wait() => return status,
        () = cancellation.cancelled() => {}
    }
    // A process that was waited for has no number any more, so this is nobody else's.
    let pid = child
        .id()
        .and_then(|id| i32::try_from(id).ok())
        .and_then(Pid::from_raw);
    if let Some(pid) = pid
        && let Err(error) = kill_process(pid, Signal::TERM)
    {
        tracing::warn!(%error, "a process could not be told to end");
    }
    child.wait().await
}

async fn tell(writer: &mut OwnedWriteHalf, message: &ToWorkload) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    writer.write_all(&line).await
}

/// Tells a process the answers to its calls, and where Services lead whenever one leads elsewhere, until it does not listen
/// any more.
async fn keep_told(
    mut writer: OwnedWriteHalf,
    services: &Services,
    mut sent: Vec<ServiceRoute>,
    mut answers: mpsc::Receiver<Answer>,
) {
    let mut changes = services.changes();
    let (mut following, mut behind, mut not_before) = (true, false, Instant::now());
    loop {
        let message = tokio::select! {
            changed = changes.changed(), if following && !behind => {
                (following, behind) = (changed.is_ok(), changed.is_ok());
                continue;
            }
            () = tokio::time::sleep_until(not_before), if behind => {
                (behind, not_before) = (false, Instant::now() + TELLS_EVERY);
                let routes = services.routes();
                if routes == sent {
                    continue;
                }
                sent.clone_from(&routes);
                ToWorkload::Services(routes)
            }
            Some(answer) = answers.recv() => ToWorkload::Answer(answer),
            // Dropped, the channel would tell the process that this server is gone.
            else => return std::future::pending().await,
        };
        if tell(&mut writer, &message).await.is_err() {
            return;
        }
    }
}

/// Hears a process to its end; why its role failed, if it said so.
async fn hear(
    reader: OwnedReadHalf,
    ports: &ContainerPorts,
    readiness: &Readiness,
    answering: &Answering,
) -> Option<String> {
    let mut failure = None;
    lines::each_of(reader, LONGEST_MESSAGE, |line| match serde_json::from_str(line) {
        Ok(ToServer::Ready) => readiness.ready(),
        Ok(ToServer::NotReady(why)) => readiness.not_ready(why),
        Ok(ToServer::Listening { port, address }) => match ports.declared(&port) {
            Some(port) if address.ip().is_loopback() => {
                ports.pods.listening(&ports.uid, &ports.container, port, address);
            }
            _ => tracing::warn!(port, %address, "a process listens where its Pod does not"),
        },
        Ok(ToServer::Failed(why)) => failure = Some(why),
        Ok(ToServer::Call(call)) => answering.take(call),
        Err(error) => tracing::warn!(%error, "a message of a process cannot be read"),
    })
    .await;
    failure
}

/// What a process of our own image is given to find the Kubernetes API, as on a cluster.
pub(super) fn api_variables(server: &str) -> BTreeMap<String, String> {
    let address = server
        .strip_prefix("https://")
        .and_then(|rest| rest.rsplit_once(':'));
    address
        .map(|(host, port)| {
            let of = |name: &str, value: &str| (format!("KUBERNETES_SERVICE_{name}"), value.to_owned());
            [of("HOST", host), of("PORT", port)].into()
        })
        .unwrap_or_default()
}

/// Anything that lines are read from.
trait Source: AsyncRead + Unpin {}
impl<T: AsyncRead + Unpin> Source for T {}
