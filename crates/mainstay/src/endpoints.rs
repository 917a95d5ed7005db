//! `endpoints.json`: where the server of a data directory is reached, for the other verbs.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use mainstay_store::data_directory::{self, Holder};
use serde::{Deserialize, Serialize};

use crate::{terminal, terminal::Failure};

/// How long a server that is starting is waited for.
const STARTS_WITHIN: Duration = Duration::from_secs(10);
/// How long it is waited for without a word.
const QUIETLY_WITHIN: Duration = Duration::from_millis(400);
/// How often it is looked at.
const LOOKS_EVERY: Duration = Duration::from_millis(20);

/// What is known of the server of a data directory.
#[derive(Clone, Debug)]
pub(crate) enum Server {
    /// None runs.
    Absent,
    /// A process holds the directory and does not serve yet.
    Starting {
        /// That process.
        pid: u32,
    },
    /// It serves.
    Running(Endpoints),
}

/// The file's content.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Endpoints {
    /// The front door: `http://127.0.0.1:7480`.
    pub(crate) http: String,
    /// The Kubernetes API: `https://127.0.0.1:7443`.
    pub(crate) kubernetes: String,
    /// The kubeconfig file, absolute.
    pub(crate) kubeconfig: PathBuf,
    /// The front door's token.
    pub(crate) token: String,
    /// The server's process.
    pub(crate) pid: u32,
    /// The server's version.
    pub(crate) version: String,
}

impl Endpoints {
    /// The file of the data directory `data`.
    pub(crate) fn file(data: &Path) -> PathBuf {
        data.join("endpoints.json")
    }

    /// What the file of `data` says, whether a server runs or not; `None` where there is none.
    ///
    /// # Errors
    ///
    /// When the file is there and cannot be read.
    pub(crate) fn read(data: &Path) -> Result<Option<Self>, Failure> {
        let file = Self::file(data);
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            // A path below a file has no server either; whoever wants to start one there is told by the directory.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(Failure::new(format!("{}: {error}", file.display()))),
        };
        serde_json::from_str(&text).map(Some).map_err(|error| {
            Failure::new(format!("{}: {error}", file.display()))
                .with_hint("`mainstay down` and `mainstay up` write it anew")
        })
    }

    /// The endpoints of the server that runs on `data`, if one does. The file of a server that has gone is not looked at.
    ///
    /// # Errors
    ///
    /// When one runs and the file cannot be read, or its process is not known here.
    pub(crate) fn running(data: &Path) -> Result<Option<Self>, Failure> {
        match data_directory::holder(data) {
            Holder::Nobody => return Ok(None),
            Holder::Unknown => return Err(Self::held_elsewhere(data)),
            Holder::Process(_) => {}
        }
        Ok(Self::read(data)?.filter(|endpoints| endpoints.alive(data)))
    }

    /// The endpoints of the server that runs on `data`.
    ///
    /// # Errors
    ///
    /// When none does.
    pub(crate) fn of_running_server(data: &Path) -> Result<Self, Failure> {
        Self::running(data)?.ok_or_else(|| Self::absent(data))
    }

    /// What is known of the server of `data` now.
    fn look(data: &Path) -> Result<Server, Failure> {
        let pid = match data_directory::holder(data) {
            Holder::Nobody => return Ok(Server::Absent),
            Holder::Unknown => return Err(Self::held_elsewhere(data)),
            Holder::Process(pid) => pid,
        };
        Ok(match Self::read(data)? {
            Some(endpoints) if endpoints.pid == pid => Server::Running(endpoints),
            // The file is a former run's, or there is none yet.
            _ => Server::Starting { pid },
        })
    }

    /// The server of `data`; one that is starting is waited for, at most ten seconds.
    ///
    /// # Errors
    ///
    /// When a server runs and its file cannot be read, or its process is not known here.
    pub(crate) async fn settled(data: &Path) -> Result<Server, Failure> {
        let began = tokio::time::Instant::now();
        let mut told = false;
        loop {
            let server = Self::look(data)?;
            let Server::Starting { pid } = &server else {
                return Ok(server);
            };
            if began.elapsed() >= STARTS_WITHIN {
                return Ok(server);
            }
            if !told && began.elapsed() >= QUIETLY_WITHIN {
                terminal::message(format!("the server with pid {pid} is starting; waiting for it"));
                told = true;
            }
            tokio::time::sleep(LOOKS_EVERY).await;
        }
    }

    /// The endpoints of the server of `data`; one that is starting is waited for.
    ///
    /// # Errors
    ///
    /// When none runs, or when it does not serve in time.
    pub(crate) async fn once_started(data: &Path) -> Result<Self, Failure> {
        match Self::settled(data).await? {
            Server::Running(endpoints) => Ok(endpoints),
            Server::Starting { pid } => Err(Self::still_starting(pid)),
            Server::Absent => Err(Self::absent(data)),
        }
    }

    /// The failure of a verb whose server does not serve yet.
    pub(crate) fn still_starting(pid: u32) -> Failure {
        Failure::new(format!(
            "the server with pid {pid} is starting and does not serve yet"
        ))
        .with_hint("try again in a moment; `mainstay down` ends it")
    }

    /// The failure of a verb whose server is not there.
    pub(crate) fn absent(data: &Path) -> Failure {
        Failure::new(format!("no server runs on data directory {}", shown(data)))
            .with_hint("start one with `mainstay up`, or name its directory with `--data DIR`")
    }

    /// The failure of a verb whose server is somewhere that this process cannot see.
    pub(crate) fn held_elsewhere(data: &Path) -> Failure {
        Failure::new(format!(
            "data directory {} is in use by a process that is not known here",
            shown(data)
        ))
        .with_hint("the server may run in a container or on another machine: call `mainstay` there")
    }

    /// Whether the process of the file is there and is the server of `data`.
    ///
    /// After a crash the file stays, and its pid may belong to a stranger by now: only the lock of the directory tells.
    pub(crate) fn alive(&self, data: &Path) -> bool {
        let process = i32::try_from(self.pid)
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        process.is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
            && data_directory::holder(data) == Holder::Process(self.pid)
    }

    /// The ports of a former run, which a new one keeps so that a kubeconfig stays valid: front door, Kubernetes API.
    pub(crate) fn former_addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        let parse = |url: &str, scheme: &str| url.strip_prefix(scheme).and_then(|rest| rest.parse().ok());
        (parse(&self.http, "http://"), parse(&self.kubernetes, "https://"))
    }
}

fn shown(data: &Path) -> String {
    std::path::absolute(data)
        .unwrap_or_else(|_| data.to_owned())
        .display()
        .to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_directory_without_a_server_says_how_to_start_one() {
        let directory = tempfile::tempdir().unwrap();
        let failure = Endpoints::of_running_server(directory.path()).unwrap_err();
        assert!(
            failure.text.starts_with("no server runs on data directory "),
            "{failure}"
        );
        assert!(failure.hint.unwrap().contains("mainstay up"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_starting_is_waited_for_and_then_named() {
        let world = tempfile::tempdir().unwrap();
        let data = data_directory::DataDirectory::open(world.path().join("data")).unwrap();
        let failure = Endpoints::once_started(data.path()).await.unwrap_err();
        assert_eq!(
            failure.text,
            format!(
                "the server with pid {} is starting and does not serve yet",
                std::process::id()
            )
        );
        // A former run's file says nothing of this one.
        let former = Endpoints {
            pid: 1,
            ..endpoints_of_this_process()
        };
        std::fs::write(data.endpoints(), serde_json::to_string(&former).unwrap()).unwrap();
        assert!(Endpoints::once_started(data.path()).await.is_err());
        // It serves while it is waited for.
        let file = data.endpoints();
        let writing = async move {
            tokio::time::sleep(Duration::from_secs(5)).await;
            let text = serde_json::to_string(&endpoints_of_this_process()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        let (found, ()) = tokio::join!(Endpoints::once_started(data.path()), writing);
        assert_eq!(found.unwrap().pid, std::process::id());
    }

    #[tokio::test]
    async fn a_directory_that_is_held_by_somebody_unknown_is_not_free() {
        let world = tempfile::tempdir().unwrap();
        let data = data_directory::DataDirectory::open(world.path().join("data")).unwrap();
        // What a server in another container wrote: no process has this number here.
        std::fs::write(data.path().join("lock"), "2147483646\n").unwrap();
        let failures = [
            Endpoints::running(data.path()).unwrap_err(),
            Endpoints::settled(data.path()).await.unwrap_err(),
            crate::server_process::stop(data.path()).unwrap_err(),
        ];
        for failure in failures {
            assert!(failure.text.contains("in use by a process"), "{failure}");
            assert!(failure.hint.is_some());
        }
    }

    fn endpoints_of_this_process() -> Endpoints {
        Endpoints {
            http: "http://127.0.0.1:7480".to_owned(),
            kubernetes: "https://127.0.0.1:7443".to_owned(),
            kubeconfig: PathBuf::from("/x"),
            token: "t".to_owned(),
            pid: std::process::id(),
            version: "0".to_owned(),
        }
    }

    #[test]
    fn a_process_that_does_not_hold_the_directory_is_not_its_server() {
        let world = tempfile::tempdir().unwrap();
        let data = data_directory::DataDirectory::open(world.path().join("data")).unwrap();
        let path = data.path().to_owned();
        let endpoints = endpoints_of_this_process();
        assert!(endpoints.alive(&path));
        drop(data);
        // A program that another test starts has the lock as well, until it is that program.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while endpoints.alive(&path) {
            assert!(std::time::Instant::now() < until, "the lock was not given back");
            std::thread::yield_now();
        }
    }

    #[test]
    fn former_addresses_are_read_back() {
        let endpoints = endpoints_of_this_process();
        let (http, kubernetes) = endpoints.former_addresses();
        assert_eq!((http.unwrap().port(), kubernetes.unwrap().port()), (7480, 7443));
    }
}
