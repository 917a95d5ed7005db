//! The two servers: started from nothing, and stopped again.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::client::{Access, Client, SharedConnection};

/// Longer than any start.
const DEADLINE: Duration = Duration::from_secs(90);
/// How often a server that starts is asked.
const PAUSE: Duration = Duration::from_millis(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Embedded,
    Reference,
}

/// Thousands of connections need as many files, here and in what is started from here.
pub(crate) fn allow_files() -> Result<()> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let current = limit.maximum;
    let wanted = rustix::process::Rlimit { current, ..limit };
    Ok(rustix::process::setrlimit(
        rustix::process::Resource::Nofile,
        wanted,
    )?)
}

/// What both need.
pub(crate) struct Setup {
    /// On the file system of the checkout, where a temporary folder may be in memory.
    pub(crate) folder: TempDir,
    binary: PathBuf,
    /// The program that counts syncs, where it can.
    syncs: Option<PathBuf>,
    /// The command lines of etcd and kube-apiserver.
    reference: Vec<Vec<String>>,
}

impl Setup {
    pub(crate) fn new(binary: PathBuf) -> Result<Self> {
        let folder = TempDir::new_in("target")?;
        let folder_path = folder.path().canonicalize()?;
        let cluster = folder_path.join("reference");
        let (start, stop) = (
            cluster_command("start", &cluster),
            cluster_command("stop", &cluster),
        );
        // Once by the script that the conformance vectors use, for its certificates, tokens and command lines.
        let started = run(start);
        let reference = started.and_then(|()| command_lines(&cluster));
        run(stop)?;
        Ok(Self {
            syncs: compiled(&folder_path)?,
            folder,
            binary,
            reference: reference?,
        })
    }

    pub(crate) fn counts_syncs(&self) -> bool {
        self.syncs.is_some()
    }

    /// A command at the lowest priority, which the reference's script gives too, under the program that counts syncs.
    fn command(&self, line: &[String], counter: &Path, slower: Duration) -> Command {
        let mut words = Vec::new();
        if let Some(syncs) = &self.syncs {
            words.push(syncs.display().to_string());
            words.push(slower.as_micros().to_string());
            words.push(counter.display().to_string());
        }
        words.extend(["nice", "-n", "19"].map(str::to_owned));
        words.extend_from_slice(line);
        let mut words = words.into_iter();
        let mut command = Command::new(words.next().unwrap_or_default());
        command
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }
}

fn cluster_command(verb: &str, folder: &Path) -> Command {
    let mut command = Command::new("tests/reference/cluster");
    command
        .arg(verb)
        .arg(folder)
        .env("CONTROLLERS", "")
        .stdout(Stdio::null());
    command
}

fn run(mut command: Command) -> Result<()> {
    let status = command.status()?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

/// The command lines of the processes that the script has started in `folder`.
fn command_lines(folder: &Path) -> Result<Vec<Vec<String>>> {
    std::fs::read_to_string(folder.join("pids"))?
        .lines()
        .map(|line| {
            let pid = line.split(' ').next().unwrap_or_default();
            let text = std::fs::read_to_string(format!("/proc/{pid}/cmdline"))?;
            Ok(text.split_terminator('\0').map(str::to_owned).collect())
        })
        .collect()
}

/// Compiles the program that counts syncs; `None`, with the reason on standard error, where this kernel has not what it
/// needs.
fn compiled(folder: &Path) -> Result<Option<PathBuf>> {
    let program = folder.join("syncs");
    let mut command = Command::new("cc");
    command
        .args(["-O1", "-o"])
        .arg(&program)
        .args(["benches/syncs.c", "-lpthread"]);
    run(command)?;
    let mut trial = Command::new(&program);
    trial.arg("0").arg(folder.join("trial")).arg("true");
    if trial.status()?.success() {
        return Ok(Some(program));
    }
    eprintln!("skipped: syncs are not counted, and no disk is made slower: this kernel refuses it");
    Ok(None)
}

/// A running server.
pub(crate) struct Server {
    access: Option<Access>,
    processes: Vec<Child>,
    counters: Vec<PathBuf>,
    counted: bool,
    /// From the start of the first process to the first request that was let in and answered.
    pub(crate) took: Duration,
    _folder: TempDir,
}

impl Server {
    /// Starts a server on an empty folder; each of its syncs takes so much longer.
    pub(crate) async fn start(setup: &Setup, kind: Kind, slower: Duration) -> Result<Self> {
        let folder = TempDir::new_in(setup.folder.path())?;
        let path = folder.path().canonicalize()?;
        let (lines, kubeconfig) = match kind {
            Kind::Embedded => {
                let mut line = vec![setup.binary.display().to_string()];
                line.extend(
                    [
                        "up",
                        "--listen",
                        "127.0.0.1:0",
                        "--kube-listen",
                        "127.0.0.1:0",
                        "--data",
                    ]
                    .map(str::to_owned),
                );
                line.push(path.join("data").display().to_string());
                (vec![line], path.join("data/kubeconfig"))
            }
            Kind::Reference => (
                setup
                    .reference
                    .iter()
                    .map(|line| on_folder(line, &path))
                    .collect(),
                setup.folder.path().canonicalize()?.join("reference/kubeconfig"),
            ),
        };
        let began = Instant::now();
        let mut server = Self {
            access: None,
            processes: Vec::new(),
            counters: Vec::new(),
            counted: setup.counts_syncs(),
            took: Duration::ZERO,
            _folder: folder,
        };
        for (number, line) in lines.iter().enumerate() {
            let counter = path.join(format!("counter{number}"));
            let child = setup.command(line, &counter, slower).spawn();
            server
                .processes
                .push(child.with_context(|| format!("{line:?} cannot be started"))?);
            server.counters.push(counter);
        }
        let mut unread = None;
        loop {
            // Not before it is there; the reference's is that of its first start.
            if server.access.is_none() && kubeconfig.exists() {
                match Access::read(&kubeconfig).await {
                    Ok(access) => server.access = Some(access),
                    // It may be half written. If it stays so, that is why the server is not reached.
                    Err(error) => unread = Some(error),
                }
            }
            // A refused connection or request says that it is still starting.
            if let Ok(client) = server.client().await
                && client.get("/api/v1/namespaces/default/configmaps").await.is_ok()
            {
                server.took = began.elapsed();
                // Writes need the namespace, which the reference makes a moment later.
                while client.get("/api/v1/namespaces/default").await.is_err() {
                    server.still_starting(began)?;
                    tokio::time::sleep(PAUSE).await;
                }
                return Ok(server);
            }
            let still = server.still_starting(began);
            match &unread {
                Some(error) if server.access.is_none() => {
                    still.with_context(|| format!("{} cannot be read: {error:#}", kubeconfig.display()))?;
                }
                _ => still?,
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn still_starting(&mut self, began: Instant) -> Result<()> {
        for process in &mut self.processes {
            if let Some(status) = process.try_wait()? {
                bail!("a server ended while it was starting: {status}");
            }
        }
        ensure!(
            began.elapsed() < DEADLINE,
            "a server did not start in {DEADLINE:?}"
        );
        Ok(())
    }

    pub(crate) async fn client(&self) -> Result<Client> {
        Client::new(self.access()?).await
    }

    pub(crate) async fn shared_connection(&self) -> Result<SharedConnection> {
        SharedConnection::new(self.access()?).await
    }

    fn access(&self) -> Result<&Access> {
        self.access.as_ref().context("the server has no kubeconfig yet")
    }

    /// How many syncs its processes have made.
    pub(crate) fn syncs(&self) -> Result<u64> {
        let mut sum = 0;
        for counter in self.counters.iter().filter(|_| self.counted) {
            let mut number = [0; 8];
            File::open(counter)?.read_exact_at(&mut number, 0)?;
            sum += u64::from_ne_bytes(number);
        }
        Ok(sum)
    }

    /// Resident memory of its processes, in MiB.
    pub(crate) fn resident(&self) -> Result<f64> {
        let sum: u64 = self.pids()?.into_iter().map(memory).sum();
        Ok(sum as f64 / 1024.0)
    }

    /// Processor time that its processes have taken, in seconds.
    pub(crate) fn processor(&self) -> Result<f64> {
        self.pids()?.into_iter().map(processor).sum()
    }

    fn pids(&self) -> Result<Vec<u32>> {
        let mut pids = Vec::new();
        for process in &self.processes {
            pids.extend(descendants(process.id())?);
            // The program that counts syncs is not part of it.
            if !self.counted {
                pids.push(process.id());
            }
        }
        Ok(pids)
    }

    /// Ends its processes, the last started first: kube-apiserver hangs on its way out when etcd is gone.
    pub(crate) fn stop(mut self) -> Result<()> {
        while let Some(mut process) = self.processes.pop() {
            signal(&process, rustix::process::Signal::TERM)?;
            let began = Instant::now();
            while process.try_wait()?.is_none() {
                if began.elapsed() > Duration::from_secs(20) {
                    process.kill()?;
                }
                std::thread::sleep(PAUSE);
            }
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Where a measurement failed. What counts syncs takes its program with it.
        for process in self.processes.iter_mut().rev() {
            drop(process.kill());
            drop(process.wait());
        }
    }
}

fn signal(process: &Child, signal: rustix::process::Signal) -> Result<()> {
    let pid = rustix::process::Pid::from_raw(i32::try_from(process.id())?).context("no pid")?;
    Ok(rustix::process::kill_process(pid, signal)?)
}

/// The command line of etcd with another folder for its data.
fn on_folder(line: &[String], folder: &Path) -> Vec<String> {
    let mut line = line.to_vec();
    if let Some(at) = line.iter().position(|word| word == "--data-dir")
        && let Some(word) = line.get_mut(at + 1)
    {
        *word = folder.join("etcd").display().to_string();
    }
    line
}

/// What a process has started, directly or not.
fn descendants(root: u32) -> Result<Vec<u32>> {
    let mut pids = vec![root];
    let mut at = 0;
    while let Some(pid) = pids.get(at) {
        for task in std::fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            pids.extend(
                children
                    .split_whitespace()
                    .filter_map(|pid| pid.parse::<u32>().ok()),
            );
        }
        at += 1;
    }
    pids.remove(0);
    Ok(pids)
}

fn memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
        .unwrap_or(0)
}

/// Ticks a second in what Linux tells programs, whatever its own are.
const TICKS: f64 = 100.0;

/// In seconds. The threads that have ended are in it.
pub(crate) fn processor(pid: u32) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name may hold spaces and parentheses.
    let (_, fields) = text.rsplit_once(')').context("no state of a process")?;
    let ticks: u64 = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|ticks| ticks.parse::<u64>().ok())
        .sum();
    Ok(ticks as f64 / TICKS)
}
