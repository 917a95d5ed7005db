//! The command line of `tool`.

use clap::{Args, Subcommand};

use super::{DataArguments, output::OutputArguments};

/// `tool`
#[derive(Args, Clone, Debug)]
pub(crate) struct ToolArguments {
    #[command(subcommand)]
    pub(crate) command: ToolCommand,
}

/// What to do with tools.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ToolCommand {
    /// Show the tools of an agent: who serves them, who decides about them
    List(ToolListArguments),
    /// Call a tool as the agent would: policy, check of the arguments, request
    Call(ToolCallArguments),
}

/// Whose tools.
#[derive(Args, Clone, Debug)]
pub(crate) struct AgentArguments {
    /// Name of the AgentRuntime
    pub(crate) agent: String,
    /// Namespace of the AgentRuntime
    #[arg(short, long, default_value = "default")]
    pub(crate) namespace: String,
    #[command(flatten)]
    pub(crate) data: DataArguments,
}

/// `tool list`
#[derive(Args, Clone, Debug)]
pub(crate) struct ToolListArguments {
    #[command(flatten)]
    pub(crate) agent: AgentArguments,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
}

/// `tool call`
#[derive(Args, Clone, Debug)]
pub(crate) struct ToolCallArguments {
    #[command(flatten)]
    pub(crate) agent: AgentArguments,
    /// Name of the tool
    pub(crate) tool: String,
    /// Arguments of the call, a JSON object
    #[arg(default_value = "{}", value_name = "JSON")]
    pub(crate) arguments: String,
    /// Print the request as it would be sent, and the decision; send nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
}
