//! Takes the figures of the embedded Kubernetes API beside those of kube-apiserver with etcd (requirements KA-030…KA-032,
//! section 7): `benches/run`, or
//! `cargo run --profile laptop -p mainstay --example kube_figures -- bin/mainstay [--quick] [--only WORDS] [--write benches/RESULTS.md]`.
//!
//! Both run one after the other on the same file system, with TLS, tokens and RBAC, every write synced, at the same
//! priority, and under the same small program that counts their syncs and, where it says so, makes each of them 2 ms
//! slower (`benches/syncs.c`). `--quick` takes a tenth of everything, to see that the program works. `--only` names some of
//! `embedded`, `reference`, `start`, `creates`, `objects` and `slow`, with commas between. `--write` puts the tables between
//! the marks that the file has for them.
//!
//! The client is the smallest that speaks HTTP over TLS and is the same for both: it has the two processors together with the
//! server. The processor time of both stands in the table, since a machine with other work changes it least.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program whose output is tables, and on standard error how far it is"
)]

mod client;
mod loads;
mod report;
mod servers;

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};

use report::{Figure, Report};
use servers::{Kind, Server, Setup};

/// How much of everything.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    /// Starts that are timed.
    pub(crate) starts: usize,
    /// Custom resources for lists and memory.
    pub(crate) objects: usize,
    /// Watchers whose latency is measured, and changes they are told of.
    pub(crate) watchers: usize,
    pub(crate) changes: usize,
    /// Watches that have nothing to tell.
    pub(crate) idle_watches: usize,
    /// Lists of everything, one after the other.
    pub(crate) lists: usize,
    /// Updates beside watchers that do not read.
    pub(crate) updates: usize,
    /// How long objects are created.
    pub(crate) creating: Duration,
}

const WHOLE: Scale = Scale {
    starts: 5,
    objects: 10_000,
    watchers: 1_000,
    changes: 20,
    idle_watches: 2_000,
    lists: 7,
    updates: 2_000,
    creating: Duration::from_secs(10),
};
const QUICK: Scale = Scale {
    starts: 2,
    objects: 1_000,
    watchers: 100,
    changes: 5,
    idle_watches: 200,
    lists: 3,
    updates: 200,
    creating: Duration::from_secs(2),
};

/// What each sync takes longer where the disk is to be slow.
const SLOWER: Duration = Duration::from_millis(2);

#[tokio::main]
async fn main() -> Result<()> {
    let mut binary = PathBuf::from("bin/mainstay");
    let (mut scale, mut write, mut only) = (WHOLE, None, Only::default());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--quick" => scale = QUICK,
            "--only" => only = Only::of(&arguments.next().context("--only needs words")?)?,
            "--write" => write = Some(PathBuf::from(arguments.next().context("--write needs a file")?)),
            path => binary = path.into(),
        }
    }
    servers::allow_files()?;
    let setup = Setup::new(
        binary
            .canonicalize()
            .with_context(|| format!("no {}", binary.display()))?,
    )?;
    let mut report = Report::new(&setup, scale)?;
    let kinds = only.kinds();
    if only.has("start") {
        starts(&setup, &kinds, scale, &mut report).await?;
    }
    for kind in kinds {
        eprintln!("{kind:?}");
        if only.has("creates") {
            creates(&setup, kind, scale, &mut report).await?;
        }
        if only.has("objects") {
            objects(&setup, kind, scale, &mut report).await?;
        }
        if only.has("slow") {
            slow_disk(&setup, kind, scale, &mut report).await?;
        }
    }
    let text = report.text();
    println!("{text}");
    match write {
        Some(file) => report::write_between_marks(&file, &text),
        None => Ok(()),
    }
}

/// What is asked for; everything where nothing is named.
#[derive(Default)]
struct Only(Vec<String>);

impl Only {
    const SERVERS: [&str; 2] = ["embedded", "reference"];
    const PARTS: [&str; 4] = ["start", "creates", "objects", "slow"];

    fn of(words: &str) -> Result<Self> {
        let words: Vec<String> = words.split(',').map(str::to_owned).collect();
        for word in &words {
            let known = Self::SERVERS
                .iter()
                .chain(&Self::PARTS)
                .any(|known| known == word);
            ensure!(known, "{word:?} is neither a server nor a part");
        }
        Ok(Self(words))
    }

    fn named(&self, word: &str) -> bool {
        self.0.iter().any(|named| named == word)
    }

    fn has(&self, part: &str) -> bool {
        self.named(part) || !Self::PARTS.iter().any(|part| self.named(part))
    }

    fn kinds(&self) -> Vec<Kind> {
        match (self.named("embedded"), self.named("reference")) {
            (true, false) => vec![Kind::Embedded],
            (false, true) => vec![Kind::Reference],
            _ => vec![Kind::Embedded, Kind::Reference],
        }
    }
}

/// Starts by turns, so that what else the machine does meets both.
async fn starts(setup: &Setup, kinds: &[Kind], scale: Scale, report: &mut Report) -> Result<()> {
    for &kind in kinds {
        let mut times = Vec::new();
        for _ in 0..scale.starts {
            let server = Server::start(setup, kind, Duration::ZERO).await?;
            times.push(server.took);
            server.stop()?;
        }
        report.add(
            kind,
            Figure::Start,
            client::percentile(&times, 0.5).as_secs_f64() * 1e3,
        );
    }
    Ok(())
}

async fn creates(setup: &Setup, kind: Kind, scale: Scale, report: &mut Report) -> Result<()> {
    let server = Server::start(setup, kind, Duration::ZERO).await?;
    loads::settled(&server).await?;
    report.add(kind, Figure::IdleMemory, server.resident()?);
    for (clients, rate, syncs, processor, client) in [
        (
            1,
            Figure::Creates1,
            Figure::Syncs1,
            Figure::Processor1,
            Figure::ClientProcessor1,
        ),
        (
            32,
            Figure::Creates32,
            Figure::Syncs32,
            Figure::Processor32,
            Figure::ClientProcessor32,
        ),
    ] {
        let created = loads::creates(&server, clients, scale.creating).await?;
        report.add(kind, rate, created.each_second);
        report.add(kind, syncs, created.syncs_each);
        report.add(kind, processor, created.processor_each.server);
        report.add(kind, client, created.processor_each.client);
    }
    server.stop()
}

/// On a server without what was created before.
async fn objects(setup: &Setup, kind: Kind, scale: Scale, report: &mut Report) -> Result<()> {
    let server = Server::start(setup, kind, Duration::ZERO).await?;
    loads::widgets(&server, scale.objects).await?;
    loads::settled(&server).await?;
    report.add(kind, Figure::Memory, server.resident()?);
    let times = loads::lists(&server, scale.lists).await?;
    report.add(
        kind,
        Figure::List,
        client::percentile(&times, 0.5).as_secs_f64() * 1e3,
    );
    let (time, peak) = loads::lists_at_once(&server, 20).await?;
    report.add(kind, Figure::ListsAtOnce, time.as_secs_f64() * 1e3);
    report.add(kind, Figure::ListsAtOnceMemory, peak);
    let (late, processor) = loads::watch_latency(&server, scale.watchers, scale.changes).await?;
    report.add(
        kind,
        Figure::Latency50,
        client::percentile(&late, 0.5).as_secs_f64() * 1e3,
    );
    report.add(
        kind,
        Figure::Latency99,
        client::percentile(&late, 0.99).as_secs_f64() * 1e3,
    );
    report.add(kind, Figure::ProcessorWatch, processor.server);
    report.add(kind, Figure::ClientProcessorWatch, processor.client);
    report.add(
        kind,
        Figure::IdleWatch,
        loads::idle_watches(&server, scale.idle_watches).await?,
    );
    for (reading, rate, memory) in [
        (true, Figure::UpdatesRead, Figure::UpdatesReadMemory),
        (false, Figure::UpdatesUnread, Figure::UpdatesUnreadMemory),
    ] {
        let (each_second, added) = loads::updates_watched(&server, 10, reading, scale.updates).await?;
        report.add(kind, rate, each_second);
        report.add(kind, memory, added);
    }
    server.stop()
}

async fn slow_disk(setup: &Setup, kind: Kind, scale: Scale, report: &mut Report) -> Result<()> {
    if !setup.counts_syncs() {
        return Ok(());
    }
    let server = Server::start(setup, kind, SLOWER).await?;
    for (clients, rate, syncs) in [
        (1, Figure::SlowCreates1, Figure::SlowSyncs1),
        (32, Figure::SlowCreates32, Figure::SlowSyncs32),
    ] {
        let created = loads::creates(&server, clients, scale.creating).await?;
        report.add(kind, rate, created.each_second);
        report.add(kind, syncs, created.syncs_each);
    }
    server.stop()
}
