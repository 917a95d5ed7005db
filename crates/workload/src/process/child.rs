//! The process's side.

use std::{
    collections::BTreeSet,
    io::{self, BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr},
    os::{fd::AsFd, unix::net::UnixStream},
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use kube::{
    Client, Config,
    config::{
        AuthInfo, Cluster, Context, KubeConfigOptions, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext,
    },
};
use mainstay_telemetry::task;
use rustix::process::{Resource, Rlimit, Signal, getpid, getrlimit, kill_process, setrlimit};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};
use tokio_util::sync::CancellationToken;

use super::{
    calls::{Caller, LONGEST_MESSAGE},
    message::{KubernetesAccess, Port, Start, ToServer, ToWorkload},
    routes::RouteTable,
};
use crate::{
    ConnectError, Connector, ConnectorOptions, FileRoot, Identity, LogSink, Ports, Readiness, Role, Roles,
    ServeError, WorkloadContext, WorkloadLog,
};

/// Threads that roles run on. A Pod's share of a laptop, not the whole of it.
const THREADS: usize = 2;
/// What a Rust program that panics exits with.
const PANICKED: u8 = 101;

/// Why a process cannot become its workload.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// Standard input is no socket: somebody else than the server started this.
    #[error("this is started by the server, which speaks to it over standard input")]
    NotByTheServer,
    /// The server's first message cannot be read.
    #[error("the server's first message cannot be read: {0}")]
    Start(#[source] io::Error),
    /// The program knows no such role.
    #[error("there is no role {0:?} that runs in a process of its own")]
    UnknownRole(String),
    /// The memory cannot be limited.
    #[error("the memory cannot be limited to {limit} bytes: {source}")]
    MemoryLimit {
        /// The limit.
        limit: u64,
        /// Why.
        source: io::Error,
    },
    /// A thread, a signal or the like is refused.
    #[error("the process cannot be set up: {0}")]
    SetUp(#[source] io::Error),
    /// The Kubernetes API's address or certificate authority cannot be used.
    #[error("the Kubernetes API cannot be used: {0}")]
    Kubernetes(String),
    /// The connector cannot be built.
    #[error(transparent)]
    Connector(#[from] ConnectError),
}

/// Becomes the workload that the server at the other end of standard input describes, and runs it to its end. Gives the exit
/// code. The server's end kills the process.
///
/// # Errors
///
/// See [`ProcessError`].
pub fn run(roles: &Roles) -> Result<u8, ProcessError> {
    let channel = channel()?;
    let reading = channel.try_clone().map_err(ProcessError::SetUp)?;
    let mut messages = BufReader::new(reading);
    let start = match next(&mut messages).map_err(ProcessError::Start)? {
        Some(ToWorkload::Start(start)) => *start,
        Some(ToWorkload::Services(_) | ToWorkload::Answer(_)) | None => {
            let error = io::Error::new(io::ErrorKind::InvalidData, "it is not what begins a workload");
            return Err(ProcessError::Start(error));
        }
    };
    limit(&start)?;
    let role = roles
        .get(&start.role)
        .cloned()
        .ok_or_else(|| ProcessError::UnknownRole(start.role.clone()))?;
    let routes = RouteTable::new(start.services.clone());
    let followed = routes.clone();
    let (caller, calls) = Caller::new();
    let answered = caller.clone();
    // Not a task: a role that keeps every thread of the runtime busy must not outlive the server either.
    std::thread::Builder::new()
        .name("server".to_owned())
        .spawn(move || follow(&mut messages, &followed, &answered))
        .map_err(ProcessError::SetUp)?;
    let server = Server::new(channel);
    let sending = server.clone();
    // A call may be long, and the server slow to read it: no thread of the runtime waits for that.
    std::thread::Builder::new()
        .name("calls".to_owned())
        .spawn(move || sending.send(calls))
        .map_err(ProcessError::SetUp)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("workload")
        .enable_all()
        .build()
        .map_err(ProcessError::SetUp)?;
    let code = runtime.block_on(work(role, start, routes, server, caller));
    // What the role left running ends with the process.
    runtime.shutdown_background();
    code
}

fn channel() -> Result<UnixStream, ProcessError> {
    let standard_input = io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map_err(ProcessError::SetUp)?;
    let channel = UnixStream::from(standard_input);
    match channel.local_addr() {
        Ok(_) => Ok(channel),
        Err(_) => Err(ProcessError::NotByTheServer),
    }
}

/// The server's next message; `None` after its end.
fn next(messages: &mut BufReader<UnixStream>) -> io::Result<Option<ToWorkload>> {
    let mut line = String::new();
    if messages
        .by_ref()
        .take(LONGEST_MESSAGE as u64)
        .read_line(&mut line)?
        == 0
    {
        return Ok(None);
    }
    serde_json::from_str(&line)
        .map(Some)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Hears the server for as long as there is one.
fn follow(messages: &mut BufReader<UnixStream>, routes: &RouteTable, caller: &Caller) {
    while let Ok(Some(message)) = next(messages) {
        match message {
            ToWorkload::Services(services) => routes.replace(services),
            ToWorkload::Answer(answer) => caller.answered(answer),
            ToWorkload::Start(_) => break,
        }
    }
    // Nobody is left to whom this process belongs. It is not asked to end: it may be past hearing that.
    let _ = kill_process(getpid(), Signal::KILL);
}

/// Sets what the process may hold.
fn limit(start: &Start) -> Result<(), ProcessError> {
    // An image of the memory would hold the workload's secrets.
    let none = Rlimit {
        current: Some(0),
        ..getrlimit(Resource::Core)
    };
    setrlimit(Resource::Core, none).map_err(|error| ProcessError::SetUp(error.into()))?;
    let Some(limit) = start.memory_limit else {
        return Ok(());
    };
    // Memory of its own that can be written. The address space is no measure: much of it is reserved and never used.
    let bytes = Rlimit {
        current: Some(limit),
        maximum: Some(limit),
    };
    setrlimit(Resource::Data, bytes).map_err(|error| ProcessError::MemoryLimit {
        limit,
        source: error.into(),
    })
}

async fn work(
    role: Arc<dyn Role>,
    start: Start,
    routes: RouteTable,
    server: Server,
    caller: Caller,
) -> Result<u8, ProcessError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(ProcessError::SetUp)?;
    let cancellation = CancellationToken::new();
    let told = cancellation.clone();
    task::spawn("termination", async move {
        if terminate.recv().await.is_some() {
            told.cancel();
        }
    });
    let connector = Connector::new(ConnectorOptions {
        resolver: Arc::new(routes),
        namespace: start.namespace.clone(),
        // A laptop's own programs are what its agents talk to.
        allow_private: true,
    })?;
    let client = client(&start.kubernetes, &start.namespace).await?;
    let (readiness, mut changes) = Readiness::new();
    let teller = server.clone();
    task::spawn("readiness", async move {
        while changes.changed().await.is_ok() {
            let state = changes.borrow_and_update().clone();
            teller.tell(&state.into());
        }
    });
    let context = WorkloadContext {
        arguments: start.arguments,
        environment: start.environment,
        files: FileRoot::at(start.root),
        connector,
        log: WorkloadLog::new(Arc::new(StandardOutput)),
        identity: Identity {
            client,
            namespace: start.namespace,
            service_account: start.service_account,
            pod: start.pod,
        },
        ports: Arc::new(ProcessPorts {
            container: start.container,
            declared: start.ports,
            served: Mutex::default(),
            server: server.clone(),
        }),
        readiness,
        cancellation,
        server: Some(caller),
    };
    let running = task::spawn("role", async move { role.run(context).await });
    let (code, error) = match running.await {
        Ok(Ok(())) => return Ok(0),
        Ok(Err(error)) => (1, error.message),
        Err(error) if error.is_panic() => {
            let panic = error.into_panic();
            (
                PANICKED,
                format!("panicked: {}", task::panic_message(panic.as_ref())),
            )
        }
        Err(error) => (1, error.to_string()),
    };
    server.tell(&ToServer::Failed(error));
    Ok(code)
}

/// The Kubernetes API as the Pod's ServiceAccount, by the files that a Pod on a cluster has too. The token's file is read
/// again as it is replaced.
async fn client(access: &KubernetesAccess, namespace: &str) -> Result<Client, ProcessError> {
    let failed = |error: &dyn std::error::Error| ProcessError::Kubernetes(error.to_string());
    let name = "server".to_owned();
    let path = |path: &std::path::Path| path.to_string_lossy().into_owned();
    let kubeconfig = Kubeconfig {
        clusters: vec![NamedCluster {
            name: name.clone(),
            cluster: Some(Cluster {
                server: Some(access.server.clone()),
                certificate_authority: Some(path(&access.certificate_authority)),
                ..Cluster::default()
            }),
            ..NamedCluster::default()
        }],
        auth_infos: vec![NamedAuthInfo {
            name: name.clone(),
            auth_info: Some(AuthInfo {
                token_file: access.token.as_deref().map(path),
                ..AuthInfo::default()
            }),
            ..NamedAuthInfo::default()
        }],
        contexts: vec![NamedContext {
            name: name.clone(),
            context: Some(Context {
                cluster: name.clone(),
                user: Some(name.clone()),
                namespace: Some(namespace.to_owned()),
                ..Context::default()
            }),
            ..NamedContext::default()
        }],
        current_context: Some(name),
        ..Kubeconfig::default()
    };
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|error| failed(&error))?;
    Client::try_from(config).map_err(|error| failed(&error))
}

/// The way to the server. Clones share it.
#[derive(Clone, Debug)]
struct Server {
    // A std mutex: a message is short, and the server always reads.
    channel: Arc<Mutex<UnixStream>>,
}

impl Server {
    fn new(channel: UnixStream) -> Self {
        Self {
            channel: Arc::new(Mutex::new(channel)),
        }
    }

    fn tell(&self, message: &ToServer) {
        let Ok(mut line) = serde_json::to_vec(message) else {
            return;
        };
        line.push(b'\n');
        self.write(&line);
    }

    /// Sends calls as they come, for as long as any may come.
    fn send(&self, mut calls: mpsc::Receiver<Vec<u8>>) {
        while let Some(line) = calls.blocking_recv() {
            self.write(&line);
        }
    }

    fn write(&self, line: &[u8]) {
        let mut channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        // A server that is gone takes this process along.
        let _ = channel.write_all(line);
    }
}

/// Standard output, which the server writes into the Pod's log.
struct StandardOutput;

impl LogSink for StandardOutput {
    fn line(&self, line: &str) {
        // A server that is gone takes this process along.
        let _ = writeln!(io::stdout().lock(), "{line}");
    }
}

/// Free loopback ports, which the server is told of: the Pod's Services lead there.
#[derive(Debug)]
struct ProcessPorts {
    container: String,
    declared: Vec<Port>,
    // A std mutex: never held across an await.
    served: Mutex<BTreeSet<String>>,
    server: Server,
}

impl ProcessPorts {
    /// The name under which a port is known: it can be asked for by its name or its number.
    fn declared(&self, port: &str) -> Option<&str> {
        let number = port.parse::<u16>().ok();
        let mut declared = self.declared.iter();
        let found = declared.find(|declared| declared.name == port || Some(declared.number) == number);
        found.map(|declared| declared.name.as_str())
    }

    fn tell(&self, port: &str, address: SocketAddr) {
        self.server.tell(&ToServer::Listening {
            port: port.to_owned(),
            address,
        });
    }
}

#[async_trait]
impl Ports for ProcessPorts {
    async fn listen(&self, name: &str) -> io::Result<TcpListener> {
        let Some(port) = self.declared(name) else {
            let text = format!("container {:?} declares no port {name:?}", self.container);
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        self.tell(port, listener.local_addr()?);
        Ok(listener)
    }

    fn serve(&self, name: &str, router: axum::Router) -> Result<(), ServeError> {
        let Some(port) = self.declared(name) else {
            return Err(ServeError::Undeclared {
                name: name.to_owned(),
            });
        };
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        if !served.insert(port.to_owned()) {
            return Err(ServeError::Taken {
                name: name.to_owned(),
            });
        }
        let bound = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| {
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok((TcpListener::from_std(listener)?, address))
        });
        let (listener, address) = bound.map_err(|source| ServeError::Bind {
            name: name.to_owned(),
            source,
        })?;
        self.tell(port, address);
        // Ends with the process.
        task::spawn("served port", async move { axum::serve(listener, router).await });
        Ok(())
    }
}
