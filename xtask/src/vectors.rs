//! Sends the conformance vectors to a reference server and to the embedded API, and compares the answers.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use clap::Args;
use kube::{
    Client, Config,
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
};
use mainstay_telemetry::{clock, random};
use mainstay_vectors::{Allowed, Answers, CaseFile, Golden, Server, Suite, differences, run_file};

/// What to run.
#[derive(Args)]
pub(crate) struct Options {
    /// Reaches a real API server; without it the answers that it gave when they were last written are used
    #[arg(long)]
    reference: Option<PathBuf>,
    /// Reaches the embedded API; without it only the reference is asked, with `--write-golden`
    #[arg(long)]
    embedded: Option<PathBuf>,
    /// Keep what the reference answers, so that tests without it can compare
    #[arg(long, requires = "reference")]
    write_golden: bool,
    /// Rewrite `open.txt`: exactly the cases that differ now
    #[arg(long, requires = "embedded", conflicts_with = "filter")]
    write_open: bool,
    /// How many cases are sent at the same time
    #[arg(long, default_value_t = 4)]
    parallel: usize,
    /// Print the reference's answers too
    #[arg(long)]
    show: bool,
    /// Only cases whose `FILE: CASE` contains this; `FILE:` for all of a file
    #[arg(default_value = "")]
    filter: String,
}

/// The outcome of all cases.
#[derive(Default)]
struct Outcome {
    report: String,
    passed: usize,
    failed: usize,
    open: BTreeSet<String>,
    accepted: BTreeSet<usize>,
}

/// Runs the vectors; fails if an answer differs and the difference is not an accepted one.
pub(crate) fn run(root: &Path, options: &Options) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?
        .block_on(compare(root, options))
}

async fn compare(root: &Path, options: &Options) -> anyhow::Result<()> {
    let vectors = root.join("tests/vectors");
    let suite = Suite::load(&vectors)?;
    let allowed = Allowed::load(&vectors, &root.join("docs/reference/api-differences.md"))?;
    let seed = random::system().suffix(4);
    let reference = match &options.reference {
        Some(path) => Some(server(path, &seed, options.parallel).await?),
        None => None,
    };
    let embedded = match &options.embedded {
        Some(path) => Some(server(path, &seed, options.parallel).await?),
        None => None,
    };
    let mut outcome = Outcome::default();
    for (position, file) in suite.files.iter().enumerate() {
        let wanted = |case: &str| match options.filter.strip_suffix(':') {
            Some(name) => name == file.name,
            None => format!("{}: {case}", file.name).contains(&options.filter),
        };
        if !file.cases.iter().any(|case| wanted(&case.name)) {
            continue;
        }
        let ask = async |server: &Option<Server>| match server {
            Some(server) => run_file(server, file, position, wanted).await.map(Some),
            None => Ok(None),
        };
        let (expected, found) = futures::join!(ask(&reference), ask(&embedded));
        let expected = expected.context("the reference");
        let found = found.context("the embedded API");
        let expected = match expected {
            Ok(Some(expected)) => {
                if options.write_golden {
                    keep(&vectors, file, &expected)?;
                }
                expected
            }
            Ok(None) => Golden::read(&vectors, &file.name)?,
            Err(error) => {
                outcome.fail(&file.name, "shared", &format!("{error:#}"), file.cases.len());
                continue;
            }
        };
        if options.show {
            for (case, steps) in &expected {
                for (number, step) in steps.iter().enumerate() {
                    writeln!(outcome.report, "{}: {case} [{number}] {step}", file.name)?;
                }
            }
        }
        match found {
            Ok(Some(found)) => outcome.count(file, &expected, &found, &allowed, wanted),
            Ok(None) => outcome.check(file, &expected, wanted),
            Err(error) => outcome.fail(&file.name, "shared", &format!("{error:#}"), file.cases.len()),
        }
    }
    if options.filter.is_empty() && options.embedded.is_some() {
        for (index, unused) in allowed.differences.iter().enumerate() {
            if !outcome.accepted.contains(&index) {
                outcome.fail(
                    "differences.yaml",
                    &unused.case,
                    &format!("there is no such difference at {:?}", unused.place),
                    1,
                );
            }
        }
    }
    if options.write_open {
        keep_open(&vectors, &outcome.open)?;
    }
    write(&format!(
        "{}{} passed, {} failed\n",
        outcome.report, outcome.passed, outcome.failed
    ))?;
    ensure!(
        outcome.passed + outcome.failed > 0,
        "no case matches {:?}",
        options.filter
    );
    if outcome.failed > 0 {
        // The closing line says it all, and stays the last one.
        std::process::exit(1);
    }
    Ok(())
}

fn write(text: &str) -> anyhow::Result<()> {
    use std::io::Write as _;
    std::io::stdout()
        .write_all(text.as_bytes())
        .context("cannot write to the terminal")
}

async fn server(kubeconfig: &Path, seed: &str, parallel: usize) -> anyhow::Result<Server> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)
        .with_context(|| format!("cannot read the kubeconfig {}", kubeconfig.display()))?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    // An answer that asks for another try is an answer that is compared.
    config.default_retry = false;
    config.read_timeout = None;
    let mut without_credentials = config.clone();
    without_credentials.auth_info = AuthInfo::default();
    Ok(Server {
        admin: Client::try_from(config)?,
        anonymous: Some(Client::try_from(without_credentials)?),
        seed: seed.to_owned(),
        now: clock::system().now(),
        parallel,
    })
}

/// Writes the names of the cases that differ below the heading of `open.txt`.
fn keep_open(vectors: &Path, open: &BTreeSet<String>) -> anyhow::Result<()> {
    let path = vectors.join("open.txt");
    let heading =
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut text: String = heading
        .lines()
        .take_while(|line| line.starts_with('#'))
        .map(|line| format!("{line}\n"))
        .collect();
    for case in open {
        text.push_str(case);
        text.push('\n');
    }
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Writes the reference's answers, beside those of cases that were not asked this time.
fn keep(vectors: &Path, file: &CaseFile, answers: &Answers) -> anyhow::Result<()> {
    let mut kept: BTreeMap<_, _> = Golden::read(vectors, &file.name).unwrap_or_default();
    kept.extend(answers.clone());
    kept.retain(|name, _| name == "shared" || file.cases.iter().any(|case| case.name == *name));
    Golden::write(vectors, &file.name, &kept)
}

impl Outcome {
    fn fail(&mut self, file: &str, case: &str, why: &str, cases: usize) {
        self.failed += cases;
        self.report
            .push_str(&format!("FAILED  {file}: {case}\n    {why}\n"));
    }

    /// Without a second server: every script went through.
    fn check(&mut self, file: &CaseFile, expected: &Answers, wanted: impl Fn(&str) -> bool) {
        for case in file.cases.iter().filter(|case| wanted(&case.name)) {
            match expected.get(&case.name).and_then(|steps| steps.first()) {
                Some(step) if step.get("stopped").is_none() => self.passed += 1,
                step => self.fail(&file.name, &case.name, &format!("{step:?}"), 1),
            }
        }
    }

    fn count(
        &mut self,
        file: &CaseFile,
        expected: &Answers,
        found: &Answers,
        allowed: &Allowed,
        wanted: impl Fn(&str) -> bool,
    ) {
        let shared = (!file.shared.is_empty()).then_some("shared");
        let names = file.cases.iter().map(|case| case.name.as_str());
        for case in shared.into_iter().chain(names.filter(|name| wanted(name))) {
            let (Some(expected), Some(found)) = (expected.get(case), found.get(case)) else {
                self.fail(&file.name, case, "the reference was not asked", 1);
                continue;
            };
            let mut open = Vec::new();
            for difference in differences(expected, found) {
                match allowed.entry(&file.name, case, &difference) {
                    Some(entry) => {
                        self.accepted.insert(entry);
                    }
                    None => open.push(format!("    {difference}")),
                }
            }
            if let Some(stopped) = expected.first().and_then(|step| step.get("stopped")) {
                open.push(format!("    the reference cannot go through it: {stopped}"));
            }
            if open.is_empty() {
                self.passed += 1;
            } else {
                self.failed += 1;
                self.open.insert(format!("{}: {case}", file.name));
                self.report
                    .push_str(&format!("FAILED  {}: {case}\n{}\n", file.name, open.join("\n")));
            }
        }
    }
}
