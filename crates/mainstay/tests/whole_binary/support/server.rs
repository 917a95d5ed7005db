//! A running server.

use std::{
    ops::Deref,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, Weak},
};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde::Deserialize;

use super::{
    DEADLINE,
    program::Program,
    world::{Ran, World, example},
};

/// `endpoints.json`, read by its documented form and not by the program's own type.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Endpoints {
    pub(crate) http: String,
    pub(crate) kubernetes: String,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) token: String,
    pub(crate) pid: u32,
    pub(crate) version: String,
}

impl Endpoints {
    /// Those of a data directory, where there are any.
    pub(crate) fn read(data: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(data.join("endpoints.json")).ok()?;
        Some(serde_json::from_str(&text).unwrap())
    }

    /// `HOST:PORT` of the front door.
    pub(crate) fn front_door(&self) -> &str {
        self.http.strip_prefix("http://").unwrap()
    }

    /// A client of the Kubernetes API, as `kubectl` would be with the server's kubeconfig.
    pub(crate) async fn client(&self) -> Client {
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .unwrap();
        Client::try_from(config).unwrap()
    }

    /// Asks the front door with the given headers; gives the status and the body.
    pub(crate) async fn ask(&self, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let asking = async {
            let mut connection = tokio::net::TcpStream::connect(self.front_door()).await.unwrap();
            let mut request = format!("GET {path} HTTP/1.1\r\nConnection: close\r\n");
            if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
                request.push_str(&format!("Host: {}\r\n", self.front_door()));
            }
            for (name, value) in headers {
                request.push_str(&format!("{name}: {value}\r\n"));
            }
            request.push_str("\r\n");
            connection.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            connection.read_to_string(&mut answer).await.unwrap();
            let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
            (
                status,
                answer
                    .split_once("\r\n\r\n")
                    .map(|(_, body)| body.to_owned())
                    .unwrap_or_default(),
            )
        };
        tokio::time::timeout(DEADLINE, asking)
            .await
            .expect("the front door answers")
    }
}

/// A server that a test owns as its child.
pub(crate) struct Server {
    program: Program,
    endpoints: Endpoints,
}

impl Server {
    pub(crate) fn started(mut program: Program, data: &Path) -> Self {
        program.line("  stop     ");
        let endpoints = Endpoints::read(data).expect("a running server has written endpoints.json");
        assert_eq!(endpoints.pid, program.pid());
        Self { program, endpoints }
    }

    /// Its process.
    pub(crate) fn program(&mut self) -> &mut Program {
        &mut self.program
    }

    /// Kills it.
    pub(crate) fn kill(self) {
        self.program.kill();
    }

    /// Tells it to end and waits until it has.
    pub(crate) fn end(self) -> std::process::ExitStatus {
        self.program.signal(rustix::process::Signal::TERM);
        self.program.ended()
    }
}

impl Deref for Server {
    type Target = Endpoints;

    fn deref(&self) -> &Endpoints {
        &self.endpoints
    }
}

/// A world with a server in it.
pub(crate) struct Running {
    // Before the world: the server ends before its directory goes.
    pub(crate) server: Server,
    pub(crate) world: World,
}

/// The server that tests share that change nothing.
static SHARED: Mutex<Weak<Running>> = Mutex::new(Weak::new());

impl Running {
    /// The help desk example, for tests that change nothing. It ends with the last test that holds it.
    pub(crate) fn shared() -> Arc<Self> {
        let mut shared = SHARED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let running = Arc::new(Self::on(&[&example("helpdesk")]));
            *shared = Arc::downgrade(&running);
            running
        })
    }

    /// One that was started on the given manifests.
    pub(crate) fn on(arguments: &[&str]) -> Self {
        let world = World::new();
        let server = world.up(arguments);
        Self { server, world }
    }

    /// Waits until `agent` offers `tool`: a backend that is later than the agent is asked again in the background.
    pub(crate) async fn offers(&self, agent: &str, tool: &str) {
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        loop {
            let listed = self.world.run(&["tool", "list", agent]).await.succeeded();
            if listed.stdout.contains(tool) {
                return;
            }
            assert!(std::time::Instant::now() < until, "{listed}");
        }
    }

    /// `chat` with `arguments`.
    pub(crate) async fn chat(&self, arguments: &[&str]) -> Ran {
        self.world.run(&[&["chat"], arguments].concat()).await
    }
}
