//! The command line of `policy`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{DataArguments, output::OutputArguments};

/// `policy`
#[derive(Args, Clone, Debug)]
pub(crate) struct PolicyArguments {
    #[command(subcommand)]
    pub(crate) command: PolicyCommand,
}

/// What to do with policies.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Decide about a call, and say why; ends with 0 when it is allowed, 1 when it is denied, 2 when nothing was decided
    Test(PolicyTestArguments),
}

/// `policy test`
#[derive(Args, Clone, Debug)]
pub(crate) struct PolicyTestArguments {
    /// File or folder with ToolPolicies; may be given several times
    #[arg(
        short = 'f',
        long = "filename",
        value_name = "PATH",
        required_unless_present = "agent",
        conflicts_with = "agent"
    )]
    pub(crate) paths: Vec<PathBuf>,
    /// Decide by the policies that are in force for this agent of the running server
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Name of the tool
    #[arg(long, value_name = "NAME")]
    pub(crate) tool: String,
    /// Arguments of the call, a JSON object
    #[arg(long = "args", value_name = "JSON", default_value = "{}")]
    pub(crate) arguments: String,
    /// Name of the ToolRegistry [default: the one of the files that has the tool, else the only one that is named]
    #[arg(long, value_name = "NAME", conflicts_with = "agent")]
    pub(crate) registry: Option<String>,
    /// A further header that the caller sends; may be given several times
    #[arg(long = "header", value_name = "NAME=VALUE")]
    pub(crate) headers: Vec<String>,
    /// Who calls: a JSON object, or one of origin, subject, endUser, workspace, agent, claims.NAME; may be given several times
    #[arg(long, value_name = "NAME=VALUE|JSON")]
    pub(crate) identity: Vec<String>,
    /// Namespace of the agent and its policies
    #[arg(short, long, default_value = "default")]
    pub(crate) namespace: String,
    #[command(flatten)]
    pub(crate) data: DataArguments,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
}
