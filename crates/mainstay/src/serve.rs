//! How the parts are wired into a running server.
//!
//! ```text
//! data directory (lock) → stores → embedded API (threads of its own) → definitions → local node, controllers → front door
//! ```
//!
//! Stopping goes the other way: the front door and the API stop accepting, Pods drain, the stores close last.

mod api_threads;
mod containers;
mod definitions;
mod delegation;
mod directory;
mod isolation;
mod pod_access;
mod retention;

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
};

use axum::serve::ListenerExt;
use mainstay_agent::{Budgets, EngineMetrics, Hubs, StoredBudgets, StoredCooldowns, budget::BudgetMetrics};
use mainstay_controllers::{Controllers, ControllersOptions};
use mainstay_kubeapi::{Identity, SecretSeal, ServeOptions};
use mainstay_llm::Cooldowns;
use mainstay_localnode::{Handle, LocalNode, LocalNodeOptions, Parts};
use mainstay_resources::Family;
use mainstay_server::{
    facade::FacadeMetrics,
    front_door::{self, Access, FrontDoor},
    sessions::{self, Sessions},
};
use mainstay_store::{
    data_directory::{DataDirectory, DataDirectoryError, write_private},
    kube::{KubeOptions, KubeStore},
    payload::{PayloadOptions, PayloadStore},
};
use mainstay_telemetry::{
    clock::{self, SharedClock},
    logs::{self, Destination, Format, RotatingFile},
    metrics::Metrics,
    random::{self, SharedRandom},
    task,
};
use mainstay_workload::{Connector, ConnectorOptions, Roles, ServiceResolver};
use secrecy::SecretString;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use self::{api_threads::ApiThreads, delegation::Delegation, directory::Agents, pod_access::PodAccess};
use crate::{
    arguments::{self, LogFormat, ServeArguments},
    endpoints::Endpoints,
    roles,
    server_process::StartReport,
    terminal,
    terminal::Failure,
};

/// Where the front door is when nothing says otherwise.
const FRONT_DOOR: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7480);
/// Where the Kubernetes API is when nothing says otherwise.
const KUBERNETES_API: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7443);
/// The size at which the log is rotated, in bytes, and how many files are kept.
const LOG_BYTES: u64 = 10 * 1024 * 1024;
const LOG_FILES: usize = 3;

/// The shortest token that is accepted from the file: a shorter one was cut off or written by somebody else.
const SHORTEST_TOKEN: usize = 32;

/// A running server.
pub(crate) struct Running {
    endpoints: Endpoints,
    /// Ends the front door and everything that works on objects.
    outer: CancellationToken,
    /// Ends the API, once nothing needs it any more.
    inner: CancellationToken,
    workers: Vec<JoinHandle<()>>,
    api: ApiThreads,
    kube: KubeStore,
    budgets: Budgets,
    payload: PayloadStore,
    /// Held until everything else has ended.
    _data: DataDirectory,
}

impl Running {
    /// Where it is reached.
    pub(crate) fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// Drains and ends.
    pub(crate) async fn stop(self) {
        self.outer.cancel();
        for ended in futures::future::join_all(self.workers).await {
            if let Err(error) = ended {
                tracing::error!(%error, "a part of the server failed");
            }
        }
        self.inner.cancel();
        self.api.end().await;
        // What is left of the leased blocks is not spent.
        self.budgets.close().await;
        self.payload.close().await;
        self.kube.close().await;
        tracing::info!("stopped");
    }
}

/// Starts a server on the data directory of `arguments`.
pub(crate) async fn start(arguments: &ServeArguments) -> Result<Running, Failure> {
    let data = DataDirectory::open(&arguments.data.data).map_err(|error| no_data_directory(&error))?;
    start_log(&data, arguments)?;
    // A former run's file only keeps addresses from changing: one that cannot be read is written anew.
    let former = Endpoints::read(data.path())
        .inspect_err(|failure| tracing::warn!("the former endpoints are not known: {failure}"))
        .unwrap_or_default();
    let (listen, kube_listen) = permitted_addresses(arguments, former.as_ref())?;
    // Bound first: a port that is taken is the likeliest mistake, and nothing has been started yet.
    let listener = TcpListener::bind(listen)
        .await
        .map_err(|error| not_bound(listen, &error, "--listen"))?;
    // The API binds its own later; that it could is known before the databases are created.
    drop(
        TcpListener::bind(kube_listen)
            .await
            .map_err(|error| not_bound(kube_listen, &error, "--kube-listen"))?,
    );
    let front_address = listener
        .local_addr()
        .map_err(|error| Failure::new(format!("the front door's address: {error}")))?;
    let (clock, random, metrics) = (clock::system(), random::system(), Metrics::new());
    let (kube, payload) = open_stores(&data).await?;
    let (outer, inner) = (CancellationToken::new(), CancellationToken::new());
    let pods = PodAccess::default();
    let api = ApiThreads::start(
        kube.clone(),
        &clock,
        &random,
        &metrics,
        (pods.clone(), data.keys_dir()),
        inner.clone(),
    )
    .await?;
    let serving = api
        .serve_tls(
            ServeOptions {
                address: kube_listen,
                directory: data.ca_dir(),
                kubeconfig: data.kubeconfig(),
            },
            inner.clone(),
        )
        .await
        .map_err(|error| not_served(&error, kube_listen))?;
    let policy_engine = arguments.policy_engine.is_on();
    let families: Vec<Family> = arguments.families.iter().map(|name| (*name).into()).collect();
    definitions::install(
        &api.client(Identity::component("mainstay")),
        &families,
        policy_engine,
    )
    .await?;

    let delegation = Delegation::open(&data, format!("http://{front_address}"), &clock, &random)?;
    let budgets = Budgets::new(
        Arc::clone(&clock),
        Arc::new(StoredBudgets::new(payload.clone())),
        BudgetMetrics::register(&metrics),
    );
    let agent = roles::agent::Agent {
        payload: payload.clone(),
        hubs: Hubs::new(),
        cooldowns: Cooldowns::new(
            Arc::clone(&clock),
            Arc::new(StoredCooldowns::new(payload.clone())),
        ),
        budgets: budgets.clone(),
        clock: Arc::clone(&clock),
        random: Arc::clone(&random),
        metrics: FacadeMetrics::register(&metrics),
        turn_metrics: EngineMetrics::register(&metrics),
        policy_engine,
        delegation: delegation.issuer.clone(),
    };
    let node = LocalNode::new(LocalNodeOptions {
        client: api.client(Identity::component("mainstay-localnode")),
        clients: Arc::new(api.clone()),
        roles: known_roles(agent, &clock),
        pods_directory: data.pods_dir(),
        logs_directory: data.logs_dir().join("pods"),
        host_environment: arguments::model_environment(),
        clock: Arc::clone(&clock),
        random: Arc::clone(&random),
        parts: Parts {
            controllers: arguments.node_controllers.is_on(),
            binding: arguments.node_binding.is_on(),
            running: arguments.node_running.is_on(),
        },
        certificate_authority: Some(serving.certificate_authority.clone()),
        isolation: isolation::of(arguments, &serving, &clock)?,
    })
    .with_container_engine(containers::of(arguments, &serving, &data)?);
    let handle = node.handle();
    pods.connect(handle.clone());
    let mut workers = vec![
        task::spawn("local node", node.run(outer.clone())),
        task::spawn(
            "retention",
            retention::run(payload.clone(), Arc::clone(&clock), outer.clone()),
        ),
    ];
    if families.contains(&Family::Omnia) {
        workers.push(controllers(
            &api,
            &handle,
            &clock,
            &random,
            (front_address, policy_engine),
            outer.clone(),
        )?);
    }
    let token = front_token(&data, &random)?;
    let door = FrontDoor {
        agents: Arc::new(Agents::new(handle)),
        access: Access {
            allowed_origins: arguments
                .allowed_origins
                .iter()
                .filter(|origin| !origin.is_empty())
                .cloned()
                .collect(),
            ..Access::of(front_address, SecretString::from(token.clone()))
        },
        metrics: metrics.clone(),
        version: env!("CARGO_PKG_VERSION"),
        routes: sessions::router(Sessions::new(payload.clone())),
        open_routes: delegation.routes(),
    };
    workers.push(task::spawn("delegation keys", delegation.run(outer.clone())));
    workers.push(front_door(listener, front_door::router(door), outer.clone()));

    let endpoints = Endpoints {
        http: format!("http://{front_address}"),
        kubernetes: format!("https://{}", serving.address),
        kubeconfig: serving.kubeconfig.clone(),
        token,
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    write_endpoints(&data, &endpoints)?;
    tracing::info!(
        front_door = endpoints.http,
        kubernetes = endpoints.kubernetes,
        pid = endpoints.pid,
        "Mainstay {} runs",
        endpoints.version
    );
    Ok(Running {
        endpoints,
        outer,
        inner,
        workers,
        api,
        kube,
        budgets,
        payload,
        _data: data,
    })
}

/// The addresses of the front door and of the Kubernetes API: as asked, else those of the `former` run, else the usual ones.
///
/// # Errors
///
/// For an address that other machines reach, unless that is meant.
pub(crate) fn permitted_addresses(
    arguments: &ServeArguments,
    former: Option<&Endpoints>,
) -> Result<(SocketAddr, SocketAddr), Failure> {
    let (former_http, former_kube) = former.map(Endpoints::former_addresses).unwrap_or_default();
    let listen = arguments.listen.or(former_http).unwrap_or(FRONT_DOOR);
    let kube_listen = arguments.kube_listen.or(former_kube).unwrap_or(KUBERNETES_API);
    for (address, flag, given) in [
        (listen, "--listen", arguments.listen.is_some()),
        (kube_listen, "--kube-listen", arguments.kube_listen.is_some()),
    ] {
        if !address.ip().is_loopback() && !arguments.allow_remote {
            let failure = Failure::new(format!("`{flag} {address}` is reachable from other machines"));
            return Err(if given {
                failure.with_hint("add `--allow-remote` if that is meant")
            } else {
                failure.with_hint(format!(
                    "it is the address of the former run; add `--allow-remote` again, or choose another with `{flag}`"
                ))
            });
        }
    }
    Ok((listen, kube_listen))
}

fn start_log(data: &DataDirectory, arguments: &ServeArguments) -> Result<(), Failure> {
    let path = data.logs_dir().join("mainstay.log");
    let file =
        RotatingFile::open(&path, LOG_BYTES, LOG_FILES).map_err(|error| Failure::new(error.to_string()))?;
    let format = match arguments.log_format {
        LogFormat::Text => Format::Text,
        LogFormat::Json => Format::Json,
    };
    logs::start(Destination::File(file), format, &arguments.log)
        .map_err(|error| Failure::new(error.to_string()))
}

/// Opens both stores. Reading them may take a while, so it does not happen on a thread that serves others.
async fn open_stores(data: &DataDirectory) -> Result<(KubeStore, PayloadStore), Failure> {
    let (kube, payload) = (data.kube_db(), data.payload_db());
    let (kube_path, payload_path) = (kube.clone(), payload.clone());
    // Secrets are encrypted in the file (KA-034).
    let seal = Arc::new(SecretSeal::new(&data.keys_dir()));
    let opened = tokio::task::spawn_blocking(move || {
        let kube = KubeStore::open(KubeOptions {
            seal: Some(seal),
            ..KubeOptions::file(kube)
        })
        .map_err(|error| not_opened(&kube_path, &error))?;
        let payload = PayloadStore::open(PayloadOptions::file(payload))
            .map_err(|error| not_opened(&payload_path, &error))?;
        Ok((kube, payload))
    });
    opened
        .await
        .map_err(|error| Failure::new(format!("opening the databases failed: {error}")))?
}

fn not_opened(path: &Path, error: &dyn std::error::Error) -> Failure {
    let cause = crate::applying::cause(error);
    let text = error.to_string();
    let text = if text.contains(&cause) {
        text
    } else {
        format!("{text}: {cause}")
    };
    let path = path.display().to_string();
    // Most of these errors name their file.
    Failure::new(if text.contains(&path) {
        text
    } else {
        format!("{path}: {text}")
    })
}

fn known_roles(agent: roles::agent::Agent, clock: &SharedClock) -> Roles {
    let mut known = roles::without_shared_state(clock);
    known.insert("agent".to_owned(), Arc::new(agent));
    known
}

fn controllers(
    api: &ApiThreads,
    node: &Handle,
    clock: &SharedClock,
    random: &SharedRandom,
    (front_address, policy_engine): (SocketAddr, bool),
    cancellation: CancellationToken,
) -> Result<JoinHandle<()>, Failure> {
    let resolver: Arc<dyn ServiceResolver> = Arc::new(node.services.clone());
    let connector = Connector::new(ConnectorOptions {
        resolver: Arc::clone(&resolver),
        namespace: "default".to_owned(),
        allow_private: true,
    })
    .map_err(|error| Failure::new(format!("no connection can be made: {error}")))?;
    let options = ControllersOptions {
        image: ControllersOptions::DEFAULT_IMAGE.to_owned(),
        service_endpoint: Some(front_address.to_string()),
        policy_engine,
        connector,
        resolver,
        environment: arguments::model_environment(),
        clock: Arc::clone(clock),
        random: Arc::clone(random),
    };
    let client = api.client(Identity::component("mainstay-controllers"));
    Ok(task::spawn(
        "controllers",
        Controllers::run(options, client, cancellation),
    ))
}

/// Small pieces of a stream are sent when they are written: held back until the one before is acknowledged, each would be
/// up to 40 ms late.
pub(crate) fn send_at_once(stream: &mut TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection sends its small pieces late");
    }
}

fn front_door(
    listener: TcpListener,
    router: axum::Router,
    cancellation: CancellationToken,
) -> JoinHandle<()> {
    task::spawn("front door", async move {
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        let served = axum::serve(listener.tap_io(send_at_once), service)
            .with_graceful_shutdown(cancellation.cancelled_owned())
            .await;
        if let Err(error) = served {
            tracing::error!(%error, "the front door ended");
        }
    })
}

/// The front door's token: made at the first start and kept, so that a client's configuration survives a restart. Who wants a
/// new one deletes its file.
fn front_token(data: &DataDirectory, random: &SharedRandom) -> Result<String, Failure> {
    let file: PathBuf = data.keys_dir().join("front-door-token");
    match std::fs::read_to_string(&file) {
        Ok(token)
            if token.len() >= SHORTEST_TOKEN && token.bytes().all(|byte| byte.is_ascii_alphanumeric()) =>
        {
            return Ok(token);
        }
        Ok(_) => {
            return Err(
                Failure::new(format!("{}: not a token of this program", file.display()))
                    .with_hint("delete the file; the next start makes a new token"),
            );
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(Failure::new(format!("{}: {error}", file.display())));
        }
        Err(_) => {}
    }
    // Two version 4 identifiers: 244 random bits.
    let token = format!("{}{}", random.uuid().simple(), random.uuid().simple());
    write_private(&file, token.as_bytes()).map_err(|error| no_data_directory(&error))?;
    Ok(token)
}

fn write_endpoints(data: &DataDirectory, endpoints: &Endpoints) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(endpoints)
        .map_err(|error| Failure::new(format!("the endpoints cannot be written: {error}")))?;
    write_private(&data.endpoints(), text.as_bytes()).map_err(|error| no_data_directory(&error))
}

fn no_data_directory(error: &DataDirectoryError) -> Failure {
    let failure = Failure::new(match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    });
    match error {
        DataDirectoryError::InUse { .. } => failure.with_hint(
            "stop it with `mainstay down`, or give this one a directory of its own with `--data DIR`",
        ),
        DataDirectoryError::NotWritable { .. }
        | DataDirectoryError::NotADirectory { .. }
        | DataDirectoryError::Foreign { .. } => failure.with_hint("name another directory with `--data DIR`"),
        _ => failure,
    }
}

fn not_served(error: &mainstay_kubeapi::ServeError, address: SocketAddr) -> Failure {
    match error {
        mainstay_kubeapi::ServeError::Bind { source, .. } => not_bound(address, source, "--kube-listen"),
        other => Failure::new(format!("the Kubernetes API cannot be served: {other}")),
    }
}

/// The failure of an address that cannot be bound.
pub(crate) fn not_bound(address: SocketAddr, error: &io::Error, flag: &str) -> Failure {
    let failure = Failure::new(format!("cannot listen on {address}: {error}"));
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            let free = SocketAddr::new(address.ip(), 0);
            failure.with_hint(format!(
                "another program has the port; choose one with `{flag} {free}`"
            ))
        }
        _ => failure,
    }
}

/// Waits for the signal to end; gives its name. The signals are watched from this call on and not from the first poll on:
/// one that comes while something else is waited for is neither lost nor ends the process without a drain.
pub(crate) fn stop_signal() -> impl Future<Output = &'static str> {
    use tokio::signal::unix::{SignalKind, signal};
    let watched = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
        signal(SignalKind::hangup()),
    );
    async move {
        let (Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)) = watched else {
            // Without handlers the default action ends the process.
            return std::future::pending().await;
        };
        loop {
            tokio::select! {
                _ = interrupt.recv() => return "interrupted",
                _ = terminate.recv() => return "told to end",
                // A terminal that closes is not meant for a server in the background.
                _ = hangup.recv() => {}
            }
        }
    }
}

/// `mainstay serve`: a server whose starter reads one line of report from its standard output.
pub(crate) async fn in_background(arguments: &ServeArguments) -> Result<(), Failure> {
    let stop = stop_signal();
    let started = start(arguments).await;
    let report = match &started {
        Ok(_) => StartReport::Ready,
        Err(failure) => StartReport::Failed {
            text: failure.text.clone(),
            hint: failure.hint.clone(),
        },
    };
    let line = serde_json::to_string(&report)
        .map_err(|error| Failure::new(format!("the report cannot be written: {error}")))?;
    terminal::data(line);
    let running = started?;
    let signal = stop.await;
    tracing::info!("{signal}: finishing what runs");
    running.stop().await;
    Ok(())
}
