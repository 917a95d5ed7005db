//! The messages between the server and a workload's process: JSON, one a line.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::calls::{Answer, Call};
use super::routes::ServiceRoute;
use crate::context::ReadinessState;

/// What the server says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ToWorkload {
    /// What the process is; the first message, and only that.
    Start(Box<Start>),
    /// All Services, whenever one leads elsewhere.
    Services(Vec<ServiceRoute>),
    /// The answer to a call.
    Answer(Answer),
}

/// What the process says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ToServer {
    /// A container port answers at this loopback address.
    Listening {
        /// The port as it is declared.
        port: String,
        /// Where it is.
        address: SocketAddr,
    },
    /// The role can serve.
    Ready,
    /// It cannot, and why.
    NotReady(String),
    /// The role ended in an error; the process exits next.
    Failed(String),
    /// It asks for something that it shares with the server.
    Call(Call),
}

impl From<ReadinessState> for ToServer {
    fn from(state: ReadinessState) -> Self {
        match state {
            ReadinessState::Ready => Self::Ready,
            ReadinessState::NotReady(why) => Self::NotReady(why),
        }
    }
}

/// Everything that a workload is given: [`crate::WorkloadContext`] is built from it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Start {
    /// The role, which is the container's first argument.
    pub role: String,
    /// The arguments behind it.
    pub arguments: Vec<String>,
    /// The container's environment. It comes this way and not as the process's own, which others may look at.
    pub environment: BTreeMap<String, String>,
    /// The root of the mounted files.
    pub root: PathBuf,
    /// The Pod's namespace.
    pub namespace: String,
    /// The Pod.
    pub pod: String,
    /// The container.
    pub container: String,
    /// Its ServiceAccount.
    pub service_account: String,
    /// The ports that the container declares.
    pub ports: Vec<Port>,
    /// How the Kubernetes API is reached.
    pub kubernetes: KubernetesAccess,
    /// Where Services lead at the start.
    pub services: Vec<ServiceRoute>,
    /// The most memory that the process may hold, in bytes.
    pub memory_limit: Option<u64>,
}

impl std::fmt::Debug for Start {
    // The environment may hold secrets: only its names are shown.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Start")
            .field("role", &self.role)
            .field("arguments", &self.arguments)
            .field("environment", &self.environment.keys().collect::<Vec<_>>())
            .field("pod", &self.pod)
            .finish_non_exhaustive()
    }
}

/// A port that a container declares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// Its name; its number where it has none.
    pub name: String,
    /// Its number.
    pub number: u16,
}

/// How a workload reaches the Kubernetes API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KubernetesAccess {
    /// `https://HOST:PORT`.
    pub server: String,
    /// The file of the certificate authority, in PEM.
    pub certificate_authority: PathBuf,
    /// The file of the ServiceAccount's token, which is replaced from time to time; none for a Pod that wants no token.
    pub token: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_environment_travels_and_is_not_shown() {
        let start = Start {
            role: "demo".to_owned(),
            arguments: vec!["orders".to_owned()],
            environment: [("KEY".to_owned(), "s3cret".to_owned())].into(),
            root: "/x".into(),
            namespace: "default".to_owned(),
            pod: "p".to_owned(),
            container: "c".to_owned(),
            service_account: "default".to_owned(),
            ports: vec![Port {
                name: "http".to_owned(),
                number: 80,
            }],
            kubernetes: KubernetesAccess {
                server: "https://127.0.0.1:1".to_owned(),
                certificate_authority: "/ca".into(),
                token: None,
            },
            services: Vec::new(),
            memory_limit: Some(1),
        };
        assert!(!format!("{start:?}").contains("s3cret"));
        let text = serde_json::to_string(&ToWorkload::Start(Box::new(start))).unwrap();
        assert!(!text.contains('\n'), "one line");
        let ToWorkload::Start(read) = serde_json::from_str(&text).unwrap() else {
            panic!("{text}");
        };
        assert_eq!(read.environment["KEY"], "s3cret");
        assert_eq!((read.ports[0].number, read.memory_limit), (80, Some(1)));
    }
}
