//! `endpoints.json`: where the server of a data directory is reached, for the other verbs.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use mainstay_store::data_directory;
use serde::{Deserialize, Serialize};

use crate::terminal::Failure;

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
    /// When one runs and the file cannot be read.
    pub(crate) fn running(data: &Path) -> Result<Option<Self>, Failure> {
        if data_directory::holder(data).is_none() {
            return Ok(None);
        }
        Ok(Self::read(data)?.filter(|endpoints| endpoints.alive(data)))
    }

    /// The endpoints of the server that runs on `data`.
    ///
    /// # Errors
    ///
    /// When none does.
    pub(crate) fn of_running_server(data: &Path) -> Result<Self, Failure> {
        let absent = || {
            Failure::new(format!("no server runs on data directory {}", shown(data)))
                .with_hint("start one with `mainstay up`, or name its directory with `--data DIR`")
        };
        Self::running(data)?.ok_or_else(absent)
    }

    /// Whether the process of the file is there and is the server of `data`.
    ///
    /// After a crash the file stays, and its pid may belong to a stranger by now: only the lock of the directory tells.
    pub(crate) fn alive(&self, data: &Path) -> bool {
        let process = i32::try_from(self.pid)
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        process.is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
            && data_directory::holder(data) == Some(self.pid)
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
        assert!(!endpoints.alive(&path));
    }

    #[test]
    fn former_addresses_are_read_back() {
        let endpoints = endpoints_of_this_process();
        let (http, kubernetes) = endpoints.former_addresses();
        assert_eq!((http.unwrap().port(), kubernetes.unwrap().port()), (7480, 7443));
    }
}
