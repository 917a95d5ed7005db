//! The command line: the only place that reads the process's environment.

mod objects;
pub(crate) mod output;
pub(crate) mod policy;
mod server;
pub(crate) mod session;
pub(crate) mod tool;

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand};

pub(crate) use objects::{
    Cascade, DeleteArguments, DescribeArguments, EventsArguments, GetArguments, LogsArguments,
    NamespaceArguments, WaitArguments,
};
pub(crate) use server::{ContainerEngine, Isolate, LogFormat, ServeArguments, UpArguments};

/// Run AI agents that are described as Kubernetes resources.
#[derive(Debug, Parser)]
#[command(name = "mainstay", version)]
pub(crate) struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The variables of this process that the workloads' models may use. They are handed on in memory and
/// never enter the Kubernetes API.
const MODEL_VARIABLES: &[&str] = &[
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
];

/// The variables by which a process finds certificates. The processes of Pods get them from the server's.
const PROCESS_VARIABLES: &[&str] = &["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// The variables that say where a container engine listens.
const ENGINE_VARIABLES: &[&str] = &["DOCKER_HOST", "XDG_RUNTIME_DIR", "HOME"];

/// Those of the variables about container engines that are set.
pub(crate) fn engine_environment() -> BTreeMap<String, String> {
    those_set(ENGINE_VARIABLES)
}

/// Those of the model variables that are set.
pub(crate) fn model_environment() -> BTreeMap<String, String> {
    those_set(MODEL_VARIABLES)
}

/// Those of the variables for the processes of Pods that are set.
pub(crate) fn process_environment() -> BTreeMap<String, String> {
    those_set(PROCESS_VARIABLES)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the environment"
)]
fn those_set(names: &[&str]) -> BTreeMap<String, String> {
    names
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)))
        .collect()
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start everything on this machine and apply manifests
    Up(UpArguments),
    /// Stop the server of a data directory
    Down(DataArguments),
    /// Talk to an agent
    Chat(ChatArguments),
    /// Apply manifests to the local server or, when named, to another cluster
    Apply(ApplyArguments),
    /// Print objects of any kind
    Get(GetArguments),
    /// Say what blocks an object and what would mend it
    Describe(DescribeArguments),
    /// Delete objects
    Delete(DeleteArguments),
    /// Print what happened
    Events(EventsArguments),
    /// Print the lines of Pods
    Logs(LogsArguments),
    /// Wait until objects are in a state
    Wait(WaitArguments),
    /// Show what runs and what blocks it
    Status(StatusArguments),
    /// List and show conversations
    Session(session::SessionArguments),
    /// List and call the tools of an agent
    Tool(tool::ToolArguments),
    /// Try policies out
    Policy(policy::PolicyArguments),
    /// Print the custom resource definitions
    Crds,
    /// Serve a scenario file as a model in OpenAI's and Anthropic's formats
    MockModel(MockModelArguments),
    /// Ask an address until it answers well
    Probe(ProbeArguments),
    /// Run a demo service on its own
    Demo(DemoArguments),
    /// Print the version
    Version(VersionArguments),
    /// Print a completion script
    Completion(CompletionArguments),
    /// The server process itself; `up --detach` starts it
    #[command(hide = true)]
    Serve(ServeArguments),
    /// The process of one container; the server starts it
    #[command(hide = true)]
    Workload(WorkloadArguments),
}

/// `workload`
#[derive(Args, Clone, Debug)]
pub(crate) struct WorkloadArguments {
    /// What it is, for lists of processes: NAMESPACE/POD/CONTAINER
    pub(crate) title: String,
    /// Which log lines of the program itself go to the container's log
    #[arg(long, default_value = "warn", value_name = "FILTER")]
    pub(crate) log: String,
}

/// The data directory where nothing names another.
const DEFAULT_DATA: &str = "./.mainstay";

/// Where the server's data is.
#[derive(Args, Clone, Debug)]
pub(crate) struct DataArguments {
    /// Data directory of the server
    #[arg(long, env = "MAINSTAY_DATA", default_value = DEFAULT_DATA, value_name = "DIR")]
    pub(crate) data: PathBuf,
}

impl DataArguments {
    /// Whether every verb that is told nothing uses this directory too.
    pub(crate) fn is_default(&self) -> bool {
        self.data == std::path::Path::new(DEFAULT_DATA)
    }
}

/// Which API server a verb talks to. `$KUBECONFIG` alone never redirects a write.
#[derive(Args, Clone, Debug)]
pub(crate) struct ClusterArguments {
    #[command(flatten)]
    pub(crate) data: DataArguments,
    /// Kubeconfig of another cluster
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig (without --kubeconfig: of $KUBECONFIG or ~/.kube/config)
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

/// `apply`
#[derive(Args, Clone, Debug)]
pub(crate) struct ApplyArguments {
    /// Manifest file or folder, or `-` for standard input; may be given several times
    #[arg(short = 'f', long = "filename", value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) cluster: ClusterArguments,
    /// Take over fields that somebody else has set since
    #[arg(long)]
    pub(crate) force_conflicts: bool,
    /// Name under which the fields are owned
    #[arg(long, default_value = "mainstay", value_name = "NAME")]
    pub(crate) field_manager: String,
}

/// `status`
#[derive(Args, Clone, Debug)]
pub(crate) struct StatusArguments {
    #[command(flatten)]
    pub(crate) cluster: ClusterArguments,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `chat`
#[derive(Args, Clone, Debug)]
pub(crate) struct ChatArguments {
    /// Name of the AgentRuntime
    pub(crate) name: String,
    /// Namespace of the AgentRuntime
    #[arg(short, long, default_value = "default")]
    pub(crate) namespace: String,
    /// Send one message, print the answer and end
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) message: Option<String>,
    /// Continue a session
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// Print events, one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Value of a prompt variable; may be given several times
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub(crate) variables: Vec<String>,
    /// Program that runs a tool of type client; may be given several times
    #[arg(long = "client-tool", value_name = "NAME=COMMAND")]
    pub(crate) client_tools: Vec<String>,
    /// Run the programs of --client-tool without asking
    #[arg(short = 'y', long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) data: DataArguments,
}

/// `mock-model`
#[derive(Args, Clone, Debug)]
pub(crate) struct MockModelArguments {
    /// Scenario file; without one the model answers by itself
    #[arg(long, value_name = "FILE")]
    pub(crate) scenario: Option<PathBuf>,
    /// Address to serve on
    #[arg(long, default_value = "127.0.0.1:7490", value_name = "ADDRESS")]
    pub(crate) listen: SocketAddr,
}

/// `probe`, as a verb and as the role of a Pod
#[derive(Parser, Clone, Debug)]
pub(crate) struct ProbeArguments {
    /// The address: a Service of the namespace, where it runs as a Pod
    pub(crate) url: url::Url,
    /// How long to go on asking
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = objects::duration)]
    pub(crate) within: std::time::Duration,
}

/// `demo`
#[derive(Args, Clone, Debug)]
pub(crate) struct DemoArguments {
    /// Which service
    #[arg(value_enum)]
    pub(crate) service: DemoService,
    /// Address to serve on
    #[arg(long, default_value = "127.0.0.1:8080", value_name = "ADDRESS")]
    pub(crate) listen: SocketAddr,
}

/// The demo services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DemoService {
    /// An HTTP order service
    Orders,
}

/// `version`
#[derive(Args, Clone, Debug)]
pub(crate) struct VersionArguments {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `completion`
#[derive(Args, Clone, Debug)]
pub(crate) struct CompletionArguments {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}
