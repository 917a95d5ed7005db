//! The command line of `session`.

use clap::{Args, Subcommand};

use super::{DataArguments, output::OutputArguments};

/// `session`
#[derive(Args, Clone, Debug)]
pub(crate) struct SessionArguments {
    #[command(subcommand)]
    pub(crate) command: SessionCommand,
}

/// What to do with sessions.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// Show the sessions, the last used first
    List(SessionListArguments),
    /// Show what happened in a session
    Show(SessionShowArguments),
    /// Print all of a session as one JSON document
    Export(SessionExportArguments),
}

/// Where sessions are looked for.
#[derive(Args, Clone, Debug)]
pub(crate) struct SessionPlace {
    /// Namespace of the agents
    #[arg(short, long, default_value = "default")]
    pub(crate) namespace: String,
    /// Sessions of this agent only
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    #[command(flatten)]
    pub(crate) data: DataArguments,
}

/// `session list`
#[derive(Args, Clone, Debug)]
pub(crate) struct SessionListArguments {
    #[command(flatten)]
    pub(crate) place: SessionPlace,
    /// How many at most
    #[arg(long, default_value_t = 20, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) limit: u16,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
}

/// `session show`
#[derive(Args, Clone, Debug)]
pub(crate) struct SessionShowArguments {
    /// Id of the session, the beginning of one, or `LAST`: the last used
    #[arg(value_name = "ID|LAST")]
    pub(crate) session: String,
    #[command(flatten)]
    pub(crate) place: SessionPlace,
    /// The last events only [default: all]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
}

/// `session export`
#[derive(Args, Clone, Debug)]
pub(crate) struct SessionExportArguments {
    /// Id of the session, the beginning of one, or `LAST`: the last used
    #[arg(value_name = "ID|LAST")]
    pub(crate) session: String,
    #[command(flatten)]
    pub(crate) place: SessionPlace,
}
