//! The tables.

use std::{collections::BTreeMap, fmt::Write as _, path::Path};

use anyhow::{Result, ensure};

use crate::{
    SLOWER, Scale,
    servers::{Kind, Setup},
};

/// What is measured. In the order of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Figure {
    Start,
    IdleMemory,
    Memory,
    Creates1,
    Syncs1,
    Processor1,
    ClientProcessor1,
    Creates32,
    Syncs32,
    Processor32,
    ClientProcessor32,
    SlowCreates1,
    SlowSyncs1,
    SlowCreates32,
    SlowSyncs32,
    List,
    ListsAtOnce,
    ListsAtOnceMemory,
    Latency50,
    Latency99,
    ProcessorWatch,
    ClientProcessorWatch,
    IdleWatch,
    UpdatesRead,
    UpdatesReadMemory,
    UpdatesUnread,
    UpdatesUnreadMemory,
}

/// What the ratio of ours to the reference's should be.
#[derive(Debug, Clone, Copy)]
enum Goal {
    AtMost(f64),
    AtLeast(f64),
    None,
}

impl Figure {
    /// Name, unit and goal.
    fn about(self, scale: Scale) -> (String, &'static str, Goal) {
        let Scale {
            objects,
            watchers,
            idle_watches,
            updates,
            ..
        } = scale;
        let slower = SLOWER.as_millis();
        let (name, unit, goal) = match self {
            Self::Start => (
                "start to the first answered request".to_owned(),
                "ms",
                Goal::AtMost(0.05),
            ),
            Self::IdleMemory => ("resident memory, idle".to_owned(), "MiB", Goal::AtMost(0.125)),
            Self::Memory => (
                format!("resident memory with {objects} custom resources"),
                "MiB",
                Goal::AtMost(0.125),
            ),
            Self::Creates1 => ("creates, 1 client".to_owned(), "/s", Goal::AtLeast(3.0)),
            Self::Syncs1 => ("… syncs for each".to_owned(), "", Goal::None),
            Self::Creates32 => ("creates, 32 clients".to_owned(), "/s", Goal::AtLeast(3.0)),
            Self::Syncs32 => ("… syncs for each".to_owned(), "", Goal::None),
            Self::Processor1 | Self::Processor32 => {
                ("… processor time for each, server".to_owned(), "µs", Goal::None)
            }
            Self::ProcessorWatch => (
                "… processor time for each event, server".to_owned(),
                "µs",
                Goal::None,
            ),
            Self::ClientProcessor1 | Self::ClientProcessor32 | Self::ClientProcessorWatch => {
                ("… and the client".to_owned(), "µs", Goal::None)
            }
            Self::SlowCreates1 => (
                format!("creates, 1 client, each sync {slower} ms slower"),
                "/s",
                Goal::None,
            ),
            Self::SlowSyncs1 => ("… syncs for each".to_owned(), "", Goal::None),
            Self::SlowCreates32 => (
                format!("creates, 32 clients, each sync {slower} ms slower"),
                "/s",
                Goal::None,
            ),
            Self::SlowSyncs32 => ("… syncs for each".to_owned(), "", Goal::None),
            Self::List => (
                format!("list of {objects} custom resources"),
                "ms",
                Goal::AtMost(0.5),
            ),
            Self::ListsAtOnce => (
                "the same list by 20 clients at once, until the last has it".to_owned(),
                "ms",
                Goal::None,
            ),
            Self::ListsAtOnceMemory => ("… most resident memory meanwhile".to_owned(), "MiB", Goal::None),
            Self::Latency50 => (
                format!("create to event, {watchers} watchers, p50"),
                "ms",
                Goal::AtMost(1.0 / 3.0),
            ),
            Self::Latency99 => ("… p99".to_owned(), "ms", Goal::AtMost(1.0 / 3.0)),
            Self::IdleWatch => (
                format!("memory of each of {idle_watches} idle watches"),
                "KiB",
                Goal::None,
            ),
            Self::UpdatesRead => (
                format!("{updates} updates of 8 kB, 10 watchers that read"),
                "/s",
                Goal::None,
            ),
            Self::UpdatesReadMemory => ("… resident memory added".to_owned(), "MiB", Goal::None),
            Self::UpdatesUnread => (
                format!("{updates} updates of 8 kB, 10 watchers that do not read"),
                "/s",
                Goal::None,
            ),
            Self::UpdatesUnreadMemory => ("… resident memory added".to_owned(), "MiB", Goal::None),
        };
        (name, unit, goal)
    }
}

impl Goal {
    /// The goal in words, and whether a ratio keeps it.
    fn judge(self, ratio: f64) -> (String, &'static str) {
        let verdict = |kept: bool| if kept { "met" } else { "**missed**" };
        match self {
            Self::AtMost(limit) => (format!("≤ 1/{:.0}", 1.0 / limit), verdict(ratio <= limit)),
            Self::AtLeast(limit) => (format!("≥ {limit:.0}"), verdict(ratio >= limit)),
            Self::None => (String::new(), ""),
        }
    }
}

pub(crate) struct Report {
    scale: Scale,
    machine: String,
    values: BTreeMap<Figure, [Option<f64>; 2]>,
}

impl Report {
    pub(crate) fn new(setup: &Setup, scale: Scale) -> Result<Self> {
        let first = |path: &str| -> Result<String> { Ok(std::fs::read_to_string(path)?.trim().to_owned()) };
        let memory = std::fs::read_to_string("/proc/meminfo")?;
        let kibibytes: u64 = memory
            .split_whitespace()
            .nth(1)
            .and_then(|number| number.parse().ok())
            .unwrap_or_default();
        let cores = std::thread::available_parallelism()?;
        let load = first("/proc/loadavg")?;
        let machine = format!(
            "{cores} cores, {} GiB, Linux {}, data on {}; load of the machine before: {}",
            kibibytes / (1024 * 1024),
            first("/proc/sys/kernel/osrelease")?,
            file_system(setup.folder.path())?,
            load.split(' ').next().unwrap_or_default(),
        );
        Ok(Self {
            scale,
            machine,
            values: BTreeMap::new(),
        })
    }

    pub(crate) fn add(&mut self, kind: Kind, figure: Figure, value: f64) {
        let (name, unit, _) = figure.about(self.scale);
        eprintln!("{kind:?}: {name}: {value:.2} {unit}");
        let [ours, theirs] = self.values.entry(figure).or_default();
        match kind {
            Kind::Embedded => *ours = Some(value),
            Kind::Reference => *theirs = Some(value),
        }
    }

    /// The section of the results.
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "Machine: {}.\n\n| figure | embedded | kube-apiserver and etcd | ratio | goal | |\n|---|---|---|---|---|---|\n",
            self.machine
        );
        for (figure, [ours, theirs]) in &self.values {
            let (name, unit, goal) = figure.about(self.scale);
            let cell = |value: Option<f64>| value.map_or_else(String::new, |value| shown(value, unit));
            let (ratio, (goal, verdict)) = match (ours, theirs) {
                (Some(ours), Some(theirs)) if *theirs > 0.0 && *ours > 0.0 => {
                    let ratio = ours / theirs;
                    (show_ratio(ratio), goal.judge(ratio))
                }
                _ => (String::new(), (String::new(), "")),
            };
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "| {name} | {} | {} | {ratio} | {goal} | {verdict} |",
                cell(*ours),
                cell(*theirs)
            );
        }
        text
    }
}

fn shown(value: f64, unit: &str) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    let space = if unit.is_empty() || unit.starts_with('/') {
        ""
    } else {
        " "
    };
    format!("{value:.digits$}{space}{unit}")
}

fn show_ratio(ratio: f64) -> String {
    if ratio < 1.0 {
        format!("1/{:.1}", 1.0 / ratio)
    } else {
        format!("{ratio:.1}")
    }
}

/// The kind of file system that a folder is on.
fn file_system(folder: &Path) -> Result<String> {
    let folder = folder.canonicalize()?;
    let mounts = std::fs::read_to_string("/proc/self/mounts")?;
    let kind = mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let (at, kind) = (fields.next()?, fields.next()?);
            folder.starts_with(at).then_some((at.len(), kind))
        })
        .max_by_key(|(length, _)| *length);
    Ok(kind.map_or("an unknown file system", |(_, kind)| kind).to_owned())
}

const BEGIN: &str = "<!-- kube figures: begin -->\n";
const END: &str = "<!-- kube figures: end -->";

/// Replaces what stands between the marks of a file.
pub(crate) fn write_between_marks(file: &Path, text: &str) -> Result<()> {
    let old = std::fs::read_to_string(file)?;
    let places = old.find(BEGIN).zip(old.find(END));
    ensure!(places.is_some(), "{} has no marks for the tables", file.display());
    if let Some((begin, end)) = places {
        let (before, behind) = (&old[..begin + BEGIN.len()], &old[end..]);
        std::fs::write(file, format!("{before}{text}{behind}"))?;
    }
    Ok(())
}
