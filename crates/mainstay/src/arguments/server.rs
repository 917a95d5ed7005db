//! What a server is started with.

use std::{fmt, net::SocketAddr, path::PathBuf, str::FromStr};

use clap::Args;
use mainstay_resources::Family;

use super::DataArguments;

/// What a server is started with.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServeArguments {
    #[command(flatten)]
    pub(crate) data: DataArguments,
    /// Address of the front door: agents, health, metrics [default: the former one, else 127.0.0.1:7480]
    #[arg(long, env = "MAINSTAY_LISTEN", value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
    /// Address of the Kubernetes API [default: the former one, else 127.0.0.1:7443]
    #[arg(long, env = "MAINSTAY_KUBE_LISTEN", value_name = "ADDRESS")]
    pub(crate) kube_listen: Option<SocketAddr>,
    /// Serve on an address that other machines reach (the front door then always asks for its token)
    #[arg(long, env = "MAINSTAY_ALLOW_REMOTE")]
    pub(crate) allow_remote: bool,
    /// Origin of a web page that may use the front door, `https://HOST[:PORT]`; may be given several times
    #[arg(
        long = "allow-origin",
        env = "OMNIA_ALLOWED_ORIGINS",
        value_name = "ORIGIN",
        value_delimiter = ',',
        value_parser = origin
    )]
    pub(crate) allowed_origins: Vec<String>,
    /// Judge tool calls by ToolPolicies; `off` leaves the ToolPolicy kind out and judges nothing
    #[arg(
        long,
        env = "MAINSTAY_POLICY_ENGINE",
        value_name = "on|off",
        default_value = "on"
    )]
    pub(crate) policy_engine: Switch,
    /// Which families of kinds are served
    #[arg(
        long,
        env = "MAINSTAY_FAMILIES",
        value_name = "FAMILY,…",
        value_delimiter = ',',
        default_value = "omnia,kourier"
    )]
    pub(crate) families: Vec<FamilyName>,
    /// Act on Deployments, Jobs and the other kinds that become Pods; `off` where another program does
    #[arg(
        long,
        env = "MAINSTAY_NODE_CONTROLLERS",
        value_name = "on|off",
        default_value = "on"
    )]
    pub(crate) node_controllers: Switch,
    /// Give each Pod the local Node; `off` where a scheduler does
    #[arg(
        long,
        env = "MAINSTAY_NODE_BINDING",
        value_name = "on|off",
        default_value = "on"
    )]
    pub(crate) node_binding: Switch,
    /// Run the Pods of the local Node and keep the Node itself; `off` where another node plays it
    #[arg(
        long,
        env = "MAINSTAY_NODE_RUNNING",
        value_name = "on|off",
        default_value = "on"
    )]
    pub(crate) node_running: Switch,
    /// How Pods of the own image run: as tasks of the server, or each as a process (agents stay tasks)
    #[arg(
        long,
        env = "MAINSTAY_ISOLATE",
        value_name = "task|process",
        default_value = "task"
    )]
    pub(crate) isolate: Isolate,
    /// Where Pods of other images run: in the engine that answers at a usual socket, in none, or at this socket
    #[arg(
        long,
        env = "MAINSTAY_CONTAINER_ENGINE",
        value_name = "auto|none|unix:///PATH",
        default_value = "auto"
    )]
    pub(crate) container_engine: ContainerEngine,
    /// Which log lines are written, as `tracing` directives
    #[arg(long, env = "MAINSTAY_LOG", default_value = "info", value_name = "FILTER")]
    pub(crate) log: String,
    /// How log lines are written
    #[arg(
        long,
        env = "MAINSTAY_LOG_FORMAT",
        default_value = "text",
        value_name = "text|json"
    )]
    pub(crate) log_format: LogFormat,
}

/// A family of kinds, as it is named on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum FamilyName {
    /// Agents, packs, providers, tools and policies: omnia.altairalabs.ai.
    Omnia,
    /// Chat channels and the agents that answer there: agentkourier.dev.
    Kourier,
}

impl FamilyName {
    /// The word on the command line.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            FamilyName::Omnia => "omnia",
            FamilyName::Kourier => "kourier",
        }
    }
}

impl From<FamilyName> for Family {
    fn from(name: FamilyName) -> Family {
        match name {
            FamilyName::Omnia => Family::Omnia,
            FamilyName::Kourier => Family::Kourier,
        }
    }
}

/// An origin as browsers write it (OM-505). Nothing at all is no origin: a variable that is set to nothing names none.
fn origin(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(String::new());
    }
    let form = || "an origin is of the form https://HOST[:PORT]".to_owned();
    let url = url::Url::parse(text).map_err(|_| form())?;
    let plain =
        url.path() == "/" && url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
    if !plain || !matches!(url.scheme(), "http" | "https") {
        return Err(form());
    }
    Ok(url.origin().ascii_serialization())
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

impl Switch {
    /// Whether it is on.
    pub(crate) fn is_on(self) -> bool {
        self == Self::On
    }

    /// As it is written on the command line.
    pub(crate) fn word(self) -> &'static str {
        if self.is_on() { "on" } else { "off" }
    }
}

/// How Pods run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Isolate {
    /// In the server.
    Task,
    /// Each as a process.
    Process,
}

impl Isolate {
    /// The word on the command line.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Isolate::Task => "task",
            Isolate::Process => "process",
        }
    }
}

/// Where Pods of images by others run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ContainerEngine {
    /// In the engine that answers first at a usual socket.
    Auto,
    /// Nowhere.
    Nowhere,
    /// In the engine at this socket.
    Socket(PathBuf),
}

impl FromStr for ContainerEngine {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::Nowhere),
            _ => match text.strip_prefix("unix://").map(PathBuf::from) {
                Some(path) if path.is_absolute() => Ok(Self::Socket(path)),
                _ => Err("expected `auto`, `none` or `unix:///` and the path of a socket".to_owned()),
            },
        }
    }
}

impl fmt::Display for ContainerEngine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => formatter.write_str("auto"),
            Self::Nowhere => formatter.write_str("none"),
            Self::Socket(path) => write!(formatter, "unix://{}", path.display()),
        }
    }
}

/// The form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// `up`
#[derive(Args, Clone, Debug)]
pub(crate) struct UpArguments {
    /// Manifest files, or folders whose *.yaml, *.yml and *.json files are applied
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) serve: ServeArguments,
    /// Leave the server running in the background
    #[arg(long)]
    pub(crate) detach: bool,
    /// Apply a manifest file again whenever it is saved, until Ctrl-C
    #[arg(long, conflicts_with = "detach", requires = "paths")]
    pub(crate) watch: bool,
    /// Drain and restart a server that is running already
    #[arg(long)]
    pub(crate) restart: bool,
    /// Take over fields that somebody else has set since
    #[arg(long)]
    pub(crate) force_conflicts: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn om_505_an_origin_is_read_as_a_browser_writes_it_and_no_pattern_is_one() {
        for (given, read) in [
            ("https://desk.example", Some("https://desk.example")),
            (" https://Desk.example:443/ ", Some("https://desk.example")),
            ("http://localhost:3000", Some("http://localhost:3000")),
            ("", Some("")),
            ("*", None),
            ("desk.example", None),
            ("https://desk.example/app", None),
            ("https://ada@desk.example", None),
            ("file:///tmp", None),
            ("null", None),
        ] {
            assert_eq!(origin(given).ok().as_deref(), read, "{given}");
        }
    }
}
