//! The command line of the verbs that work on objects of any kind.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};

use super::ClusterArguments;
use crate::{output::Output, waiting::Wanted};

/// Where the objects are, and which of them are meant.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct NamespaceArguments {
    /// Namespace [default: that of the kubeconfig's context, else default]
    #[arg(short, long, value_name = "NAME", conflicts_with = "all_namespaces")]
    pub(crate) namespace: Option<String>,
    /// All namespaces
    #[arg(short = 'A', long)]
    pub(crate) all_namespaces: bool,
    /// Only objects with these labels, for example `app=orders`
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub(crate) selector: Option<String>,
}

/// `get`
#[derive(Args, Clone, Debug)]
pub(crate) struct GetArguments {
    /// TYPE[,TYPE] [NAME…], or TYPE/NAME…
    #[arg(value_name = "TYPE[/NAME]", required = true)]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    pub(crate) place: NamespaceArguments,
    /// Only objects with these fields, for example `status.phase=Running`
    #[arg(long, value_name = "FIELDS")]
    pub(crate) field_selector: Option<String>,
    /// wide, json, yaml, name or jsonpath=TEMPLATE
    #[arg(short, long, value_name = "FORM")]
    pub(crate) output: Option<Output>,
    /// Print every change until Ctrl-C
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// Keep `metadata.managedFields`
    #[arg(long)]
    pub(crate) show_managed_fields: bool,
    #[command(flatten)]
    pub(crate) cluster: ClusterArguments,
}

/// `describe`
#[derive(Args, Clone, Debug)]
pub(crate) struct DescribeArguments {
    /// TYPE NAME…, or TYPE/NAME…; TYPE alone for all of a namespace
    #[arg(value_name = "TYPE[/NAME]", required = true)]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    pub(crate) place: NamespaceArguments,
    #[command(flatten)]
    pub(crate) cluster: ClusterArguments,
}

/// What becomes of the objects that a deleted one owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cascade {
    /// They are deleted after it.
    Background,
    /// They are deleted before it.
    Foreground,
    /// They stay.
    Orphan,
}

/// `delete`
#[derive(Args, Clone, Debug)]
pub(crate) struct DeleteArguments {
    /// TYPE NAME…, or TYPE/NAME…
    #[arg(
        value_name = "TYPE[/NAME]",
        required_unless_present = "paths",
        conflicts_with = "paths"
    )]
    pub(crate) words: Vec<String>,
    /// Delete what a manifest file or folder holds; `-` for standard input; may be given several times
    #[arg(short = 'f', long = "filename", value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) place: NamespaceArguments,
    /// All objects of the kind in the namespace
    #[arg(long, conflicts_with = "selector")]
    pub(crate) all: bool,
    /// What becomes of the objects that they own
    #[arg(long, value_enum, default_value = "background")]
    pub(crate) cascade: Cascade,
    /// An object that is not there is no failure
    #[arg(long)]
    pub(crate) ignore_not_found: bool,
    /// Do not wait until they are gone
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// How long to wait until they are gone
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) cluster: ClusterArguments,
}

/// `events`
#[derive(Args, Clone, Debug)]
pub(crate) struct EventsArguments {
    /// Only those about this object, TYPE/NAME
    #[arg(long = "for", value_name = "TYPE/NAME")]
    pub(crate) about: Option<String>,
    /// Only those of this type: Normal or Warning
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kind: Option<String>,
    /// Namespace [default: that of the kubeconfig's context, else default]
    #[arg(short, long, value_name = "NAME", conflicts_with = "all_namespaces")]
    pub(crate) namespace: Option<String>,
    /// All namespaces
    #[arg(short = 'A', long)]
    pub(crate) all_namespaces: bool,
    /// Print new ones until Ctrl-C
    #[arg(short, long)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) cluster: ClusterArguments,
}

/// `logs`
#[derive(Args, Clone, Debug)]
pub(crate) struct LogsArguments {
    /// A Pod, or TYPE/NAME of what has Pods: deploy/orders, agentruntimes/helpdesk
    #[arg(
        value_name = "POD|TYPE/NAME",
        required_unless_present = "selector",
        conflicts_with = "selector"
    )]
    pub(crate) object: Option<String>,
    /// Namespace [default: that of the kubeconfig's context, else default]
    #[arg(short, long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// The Pods with these labels
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub(crate) selector: Option<String>,
    /// Go on with new lines until Ctrl-C or until the Pods end
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// The container, where a Pod has several
    #[arg(short, long, value_name = "NAME")]
    pub(crate) container: Option<String>,
    /// How many of the last lines
    #[arg(long, value_name = "LINES")]
    pub(crate) tail: Option<i64>,
    /// Only lines that are not older
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) since: Option<Duration>,
    /// The time before each line
    #[arg(long)]
    pub(crate) timestamps: bool,
    /// The lines of the container's former run
    #[arg(short, long)]
    pub(crate) previous: bool,
    #[command(flatten)]
    pub(crate) cluster: ClusterArguments,
}

/// `wait`
#[derive(Args, Clone, Debug)]
pub(crate) struct WaitArguments {
    /// TYPE NAME…, or TYPE/NAME…; TYPE with --all or -l
    #[arg(value_name = "TYPE[/NAME]", required = true)]
    pub(crate) words: Vec<String>,
    /// condition=NAME[=VALUE], jsonpath=PATH[=VALUE], create or delete
    #[arg(long = "for", value_name = "STATE")]
    pub(crate) state: Wanted,
    /// How long to wait for all of them together
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) place: NamespaceArguments,
    /// All objects of the kind in the namespace
    #[arg(long, conflicts_with = "selector")]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) cluster: ClusterArguments,
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    mainstay_resources::duration::parse_go(text).map_err(|error| error.to_string())
}
