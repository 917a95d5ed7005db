//! A test that runs itself as a child.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use mainstay_power_cut::{Recorder, Recording};
use mainstay_telemetry::random::{Random, SeededRandom};

const FOLDER: &str = "MAINSTAY_TEST_CRASH_FOLDER";
const POINTS: &str = "MAINSTAY_KILL_POINTS";
/// Rounds where nobody asks for more.
const ROUNDS: usize = 20;
/// Writers of a child.
pub(crate) const WRITERS: u64 = 16;

/// The folder of the files, in the child.
#[expect(
    clippy::disallowed_methods,
    reason = "how a test tells its own child what to do"
)]
pub(crate) fn folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

/// How often a child is ended.
#[expect(clippy::disallowed_methods, reason = "a test reads its own surroundings")]
pub(crate) fn rounds() -> usize {
    std::env::var(POINTS)
        .ok()
        .map_or(ROUNDS, |points| points.parse().expect("a number of points"))
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

/// Tells the parent.
pub(crate) fn say(line: &str) {
    let mut stdout = std::io::stdout().lock();
    // The reader is gone only when this process is about to be killed.
    let _ = stdout.write_all(format!("told {line}\n").as_bytes());
    let _ = stdout.flush();
}

/// A number below `limit`.
pub(crate) fn below(random: &SeededRandom, limit: u64) -> u64 {
    random.bits() % limit
}

fn command(test: &str, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped());
    command
}

/// Reads what a child says; `after` is told how many lines there were so far.
fn lines(
    child: &mut std::process::Child,
    mut after: impl FnMut(&mut std::process::Child, usize),
) -> Vec<String> {
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut told = Vec::new();
    loop {
        let mut line = String::new();
        // A line that the child was killed in has no end, and was not told.
        if output.read_line(&mut line).unwrap() == 0 || !line.ends_with('\n') {
            return told;
        }
        if let Some((_, line)) = line.trim_end().split_once("told ") {
            told.push(line.to_owned());
            after(child, told.len());
        }
    }
}

/// Runs `test` of this executable as a child, kills it after it has told so many lines, and returns all it told.
pub(crate) fn killed_after(test: &str, folder: &Path, count: usize) -> Vec<String> {
    let mut child = command(test, folder).spawn().unwrap();
    let told = lines(&mut child, |child, told| {
        if told == count {
            child.kill().unwrap();
        }
    });
    assert_eq!(
        child.wait().unwrap().signal(),
        Some(9),
        "it ended by itself: {told:?}"
    );
    told
}

/// Runs `test` of this executable as a child that is killed instead of doing its operation number `operation` on the files
/// of the folder; returns all it told and what it did to them.
pub(crate) fn cut_at(test: &str, folder: &Path, operation: u64) -> (Vec<String>, Recording) {
    let recorder = Recorder::new(folder).unwrap();
    recorder.cut_at(operation).unwrap();
    let mut child = command(test, folder)
        .envs(recorder.environment())
        .spawn()
        .unwrap();
    let told = lines(&mut child, |_, _| {});
    assert_eq!(
        child.wait().unwrap().signal(),
        Some(9),
        "it ended by itself: {told:?}"
    );
    let recording = recorder.finish().unwrap();
    recording.check_complete().unwrap();
    (told, recording)
}
