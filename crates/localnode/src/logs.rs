//! The logs of Pods: a bounded, rotated file for each run of a container and the last lines in memory.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use jiff::Timestamp;
use mainstay_telemetry::clock::SharedClock;
use mainstay_telemetry::logs::RotatingFile;
use mainstay_workload::LogSink;
use tokio::sync::watch;

/// Lines kept in memory for each run of a container, and their bytes.
const LINES: usize = 2_000;
const BYTES: usize = 512 * 1024;
/// A longer line is cut.
const LINE_BYTES: usize = 64 * 1024;
/// Size of a run's file before it is rotated, and how many there are.
const FILE_BYTES: u64 = 5 * 1024 * 1024;
const FILES: usize = 2;

/// Which lines of a container's log are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogQuery {
    /// The Pod's namespace.
    pub namespace: String,
    /// The Pod's name.
    pub pod: String,
    /// The Pod's UID, so that a successor of the same name is not read. Empty: whichever has the name.
    pub uid: String,
    /// The container.
    pub container: String,
    /// Go on with lines that are written later, until the container ends.
    pub follow: bool,
    /// The run before the last restart.
    pub previous: bool,
    /// Begin each line with the time it was written.
    pub timestamps: bool,
    /// Only lines written since then.
    pub since: Option<Timestamp>,
    /// Only so many lines from the end.
    pub tail_lines: Option<u64>,
    /// Only so many bytes from the beginning.
    pub limit_bytes: Option<u64>,
}

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The container has not started; asked again later there may be one.
    #[error("container {container:?} in pod {pod:?} is waiting to start")]
    NotStarted {
        /// The container.
        container: String,
        /// The Pod.
        pod: String,
    },
    /// There is no log of the run before.
    #[error("previous terminated container {container:?} in pod {pod:?} not found")]
    NoPrevious {
        /// The container.
        container: String,
        /// The Pod.
        pod: String,
    },
    /// The log's file cannot be read.
    #[error("the log of container {container:?} in pod {pod:?} cannot be read")]
    Read {
        /// The container.
        container: String,
        /// The Pod.
        pod: String,
        /// What the file system answered.
        #[source]
        source: io::Error,
    },
}

/// Lines as they are asked for, each with its newline.
pub type LogLines = BoxStream<'static, io::Result<Bytes>>;

/// Reads the logs of the Pods that run here. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct PodLogs {
    // A std lock: held for look-ups, never across an await.
    containers: Arc<RwLock<BTreeMap<ContainerKey, Runs>>>,
}

/// Namespace, Pod, container.
type ContainerKey = (String, String, String);

#[derive(Debug)]
struct Runs {
    uid: String,
    current: Arc<RunLog>,
    previous: Option<Arc<RunLog>>,
}

impl PodLogs {
    /// Opens a log.
    ///
    /// # Errors
    ///
    /// See [`LogError`].
    pub async fn open(&self, query: LogQuery) -> Result<LogLines, LogError> {
        let log = self.find(&query)?;
        let limit = query.limit_bytes;
        let follow = query.follow;
        let timestamps = query.timestamps;
        let since = query.since;
        let (container, pod) = (query.container.clone(), query.pod.clone());
        let read = {
            let log = Arc::clone(&log);
            tokio::task::spawn_blocking(move || log.read(query.tail_lines, query.since))
        };
        let read = match read.await {
            Ok(read) => read,
            Err(error) => Err(io::Error::other(error)),
        };
        let (lines, next) = read.map_err(|source| LogError::Read {
            container,
            pod,
            source,
        })?;
        let written = stream::iter(lines).map(move |line| line.render(timestamps));
        let lines = if follow {
            let later = follow_from(log, next).filter(move |line| {
                let wanted = since.is_none_or(|since| line.time >= since);
                futures::future::ready(wanted)
            });
            written
                .chain(later.map(move |line| line.render(timestamps)))
                .boxed()
        } else {
            written.boxed()
        };
        let Some(limit) = limit else {
            return Ok(lines.map(Ok).boxed());
        };
        let mut left = usize::try_from(limit).unwrap_or(usize::MAX);
        let cut = lines.scan((), move |(), mut line| {
            let ended = left == 0;
            line.truncate(left);
            left -= line.len();
            futures::future::ready((!ended).then_some(Ok(line)))
        });
        Ok(cut.boxed())
    }

    fn find(&self, query: &LogQuery) -> Result<Arc<RunLog>, LogError> {
        let (container, pod) = (query.container.clone(), query.pod.clone());
        let key = (query.namespace.clone(), pod.clone(), container.clone());
        let containers = self.containers.read().unwrap_or_else(PoisonError::into_inner);
        let runs = containers
            .get(&key)
            .filter(|runs| query.uid.is_empty() || runs.uid == query.uid);
        let Some(runs) = runs else {
            return Err(LogError::NotStarted { container, pod });
        };
        if !query.previous {
            return Ok(Arc::clone(&runs.current));
        }
        runs.previous
            .clone()
            .ok_or(LogError::NoPrevious { container, pod })
    }

    /// Begins the log of a run. The run before it stays readable.
    pub(crate) fn start(
        &self,
        folder: &Path,
        container: &ContainerName<'_>,
        run: i32,
        clock: SharedClock,
    ) -> io::Result<Arc<RunLog>> {
        let folder = folder.join(container.container);
        std::fs::create_dir_all(&folder)?;
        let log = Arc::new(RunLog::open(folder.join(format!("{run}.log")), clock.clone())?);
        let key = (
            container.namespace.to_owned(),
            container.pod.to_owned(),
            container.container.to_owned(),
        );
        let mut containers = self.containers.write().unwrap_or_else(PoisonError::into_inner);
        let before = containers.remove(&key).filter(|runs| runs.uid == container.uid);
        let previous = match before {
            Some(runs) => Some(runs.current),
            // The run before may have been one of a former process.
            None if run > 0 => {
                let path = folder.join(format!("{}.log", run - 1));
                if path.exists() {
                    RunLog::open(path, clock)
                        .inspect_err(|error| {
                            let (pod, container) = (container.pod, container.container);
                            tracing::warn!(pod, container, %error, "the log of the run before cannot be read");
                        })
                        .ok()
                        .map(Arc::new)
                } else {
                    None
                }
            }
            None => None,
        };
        if let Some(previous) = &previous {
            previous.end();
        }
        for old in [run - 2, run - 3] {
            for suffix in ["", ".1"] {
                let path = folder.join(format!("{old}.log{suffix}"));
                match std::fs::remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        tracing::warn!(path = %path.display(), %error, "an old log cannot be removed");
                    }
                    Ok(()) | Err(_) => {}
                }
            }
        }
        containers.insert(
            key,
            Runs {
                uid: container.uid.to_owned(),
                current: Arc::clone(&log),
                previous,
            },
        );
        Ok(log)
    }

    /// Makes the log of a run that a former process ended readable again, and that of the run before it. Opens no file
    /// if there is one for this container already: a Pod that ended may change as often as it likes.
    pub(crate) fn restore(
        &self,
        folder: &Path,
        container: &ContainerName<'_>,
        run: i32,
        clock: &SharedClock,
    ) -> io::Result<()> {
        let key = (
            container.namespace.to_owned(),
            container.pod.to_owned(),
            container.container.to_owned(),
        );
        let known = {
            let containers = self.containers.read().unwrap_or_else(PoisonError::into_inner);
            containers.get(&key).is_some_and(|runs| runs.uid == container.uid)
        };
        if known {
            return Ok(());
        }
        let folder = folder.join(container.container);
        let ended = |run: i32| -> io::Result<Option<Arc<RunLog>>> {
            let path = folder.join(format!("{run}.log"));
            if !path.exists() {
                return Ok(None);
            }
            let log = RunLog::open(path, Arc::clone(clock))?;
            log.end();
            Ok(Some(Arc::new(log)))
        };
        let Some(current) = ended(run)? else {
            return Ok(());
        };
        let runs = Runs {
            uid: container.uid.to_owned(),
            current,
            previous: ended(run - 1)?,
        };
        let mut containers = self.containers.write().unwrap_or_else(PoisonError::into_inner);
        containers.insert(key, runs);
        Ok(())
    }

    /// Forgets a Pod that is gone.
    pub(crate) fn forget(&self, uid: &str) {
        let mut containers = self.containers.write().unwrap_or_else(PoisonError::into_inner);
        containers.retain(|_, runs| runs.uid != uid);
    }
}

/// Names a container for its log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContainerName<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) pod: &'a str,
    pub(crate) uid: &'a str,
    pub(crate) container: &'a str,
}

#[derive(Clone, Debug)]
struct Line {
    time: Timestamp,
    text: Arc<str>,
}

impl Line {
    fn render(&self, timestamps: bool) -> Bytes {
        if timestamps {
            Bytes::from(format!("{:.9} {}\n", self.time, self.text))
        } else {
            Bytes::from(format!("{}\n", self.text))
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (time, text) = text.split_once(' ')?;
        Some(Self {
            time: time.parse().ok()?,
            text: text.into(),
        })
    }
}

/// The log of one run of a container.
pub(crate) struct RunLog {
    path: PathBuf,
    clock: SharedClock,
    // A std mutex: held while one line is written, never across an await. It keeps file and memory in the same order.
    state: Mutex<RunState>,
    changes: watch::Sender<u64>,
}

struct RunState {
    file: RotatingFile,
    file_failed: bool,
    lines: VecDeque<Line>,
    bytes: usize,
    /// The number of the first line in memory; lines before it are in the file only.
    first: u64,
    ended: bool,
}

impl std::fmt::Debug for RunLog {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("RunLog")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl RunLog {
    fn open(path: PathBuf, clock: SharedClock) -> io::Result<Self> {
        let file = RotatingFile::open(&path, FILE_BYTES, FILES).map_err(io::Error::other)?;
        // What is there already was written by a former process: memory begins after it.
        let held = std::fs::metadata(&path).map_or(0, |metadata| u64::from(metadata.len() > 0));
        let state = RunState {
            file,
            file_failed: false,
            lines: VecDeque::new(),
            bytes: 0,
            first: held,
            ended: false,
        };
        Ok(Self {
            path,
            clock,
            state: Mutex::new(state),
            changes: watch::Sender::new(0),
        })
    }

    /// No more lines come.
    pub(crate) fn end(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        self.changes.send_modify(|count| *count += 1);
    }

    /// The last lines in memory, at most so many and so many bytes, each with its newline.
    pub(crate) fn tail(&self, lines: usize, bytes: usize) -> String {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let skipped = state.lines.len().saturating_sub(lines);
        let mut text = String::new();
        for line in state.lines.iter().skip(skipped) {
            text.push_str(&line.text);
            text.push('\n');
        }
        let from = text.ceil_char_boundary(text.len().saturating_sub(bytes));
        text.split_off(from)
    }

    /// The lines written so far, and the number of the next one.
    fn read(&self, tail: Option<u64>, since: Option<Timestamp>) -> io::Result<(Vec<Line>, u64)> {
        let wanted = tail.map_or(usize::MAX, |tail| usize::try_from(tail).unwrap_or(usize::MAX));
        let (mut lines, next) = {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let next = state.first + state.lines.len() as u64;
            let oldest = state.lines.front().map(|line| line.time);
            let in_memory = state.first == 0
                || state.lines.len() >= wanted
                || since.is_some_and(|since| oldest.is_some_and(|oldest| oldest < since));
            if in_memory {
                (state.lines.iter().cloned().collect::<Vec<_>>(), next)
            } else {
                // Opened and measured under the lock, so that what is written meanwhile is not read twice.
                let mut rotated = self.path.as_os_str().to_owned();
                rotated.push(".1");
                let files: Vec<(File, u64)> = [PathBuf::from(rotated), self.path.clone()]
                    .iter()
                    .filter_map(|path| File::open(path).ok())
                    .map(|file| file.metadata().map(|metadata| (file, metadata.len())))
                    .collect::<io::Result<_>>()?;
                drop(state);
                (read_files(files)?, next)
            }
        };
        if let Some(since) = since {
            lines.retain(|line| line.time >= since);
        }
        if lines.len() > wanted {
            lines.drain(..lines.len() - wanted);
        }
        Ok((lines, next))
    }
}

fn read_files(files: Vec<(File, u64)>) -> io::Result<Vec<Line>> {
    let mut lines = Vec::new();
    for (file, length) in files {
        let mut content = Vec::new();
        file.take(length).read_to_end(&mut content)?;
        lines.extend(String::from_utf8_lossy(&content).lines().filter_map(Line::parse));
    }
    Ok(lines)
}

impl LogSink for RunLog {
    fn line(&self, line: &str) {
        let text = &line[..line.floor_char_boundary(LINE_BYTES)];
        let line = Line {
            time: self.clock.now(),
            text: text.into(),
        };
        {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let written = state.file.line(&format!("{:.9} {text}", line.time));
            if let Err(error) = written
                && !state.file_failed
            {
                state.file_failed = true;
                tracing::warn!(path = %self.path.display(), %error, "a Pod's log cannot be written; its last lines stay in memory");
            }
            state.bytes += text.len();
            state.lines.push_back(line);
            while state.lines.len() > LINES || state.bytes > BYTES {
                if let Some(oldest) = state.lines.pop_front() {
                    state.bytes -= oldest.text.len();
                    state.first += 1;
                }
            }
        }
        self.changes.send_modify(|count| *count += 1);
    }
}

/// The lines from number `next` on, until the run ends. A reader that falls behind what memory holds goes on with the
/// oldest line there: it never makes the writer wait.
fn follow_from(log: Arc<RunLog>, next: u64) -> impl futures::Stream<Item = Line> {
    let changes = log.changes.subscribe();
    stream::unfold((log, changes, next), |(log, mut changes, mut next)| async move {
        loop {
            changes.borrow_and_update();
            {
                let state = log.state.lock().unwrap_or_else(PoisonError::into_inner);
                next = next.max(state.first);
                let line = usize::try_from(next - state.first)
                    .ok()
                    .and_then(|index| state.lines.get(index));
                if let Some(line) = line.cloned() {
                    drop(state);
                    return Some((line, (log, changes, next + 1)));
                }
                if state.ended {
                    return None;
                }
            }
            if changes.changed().await.is_err() {
                return None;
            }
        }
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use mainstay_telemetry::clock::ManualClock;

    use super::*;

    struct World {
        folder: tempfile::TempDir,
        logs: PodLogs,
        clock: Arc<ManualClock>,
    }

    impl World {
        fn new() -> Self {
            let clock = ManualClock::at("2026-11-30T12:00:00.5Z".parse().unwrap());
            Self {
                folder: tempfile::tempdir().unwrap(),
                logs: PodLogs::default(),
                clock,
            }
        }

        fn start(&self, run: i32) -> Arc<RunLog> {
            let name = ContainerName {
                namespace: "ns",
                pod: "pod",
                uid: "uid",
                container: "c",
            };
            self.logs
                .start(self.folder.path(), &name, run, self.clock.clone())
                .unwrap()
        }

        async fn read(&self, change: impl FnOnce(&mut LogQuery)) -> Result<String, LogError> {
            let mut query = LogQuery {
                namespace: "ns".to_owned(),
                pod: "pod".to_owned(),
                container: "c".to_owned(),
                ..LogQuery::default()
            };
            change(&mut query);
            let lines: Vec<Bytes> = self.logs.open(query).await?.map(Result::unwrap).collect().await;
            Ok(String::from_utf8(lines.concat()).unwrap())
        }
    }

    #[tokio::test]
    async fn lines_can_be_chosen_by_number_time_and_bytes() {
        let world = World::new();
        assert!(matches!(
            world.read(|_| {}).await,
            Err(LogError::NotStarted { .. })
        ));
        let log = world.start(0);
        log.line("one");
        world.clock.advance(std::time::Duration::from_secs(1));
        log.line("two");
        assert_eq!(world.read(|_| {}).await.unwrap(), "one\ntwo\n");
        assert_eq!(
            world.read(|query| query.tail_lines = Some(1)).await.unwrap(),
            "two\n"
        );
        assert_eq!(
            world.read(|query| query.limit_bytes = Some(5)).await.unwrap(),
            "one\nt"
        );
        let since = "2026-11-30T12:00:01Z".parse().ok();
        assert_eq!(world.read(|query| query.since = since).await.unwrap(), "two\n");
        let stamped = world.read(|query| query.timestamps = true).await.unwrap();
        assert!(
            stamped.starts_with("2026-11-30T12:00:00.500000000Z one\n"),
            "{stamped}"
        );
        assert!(matches!(
            world.read(|query| query.uid = "other".to_owned()).await,
            Err(LogError::NotStarted { .. })
        ));
    }

    #[tokio::test]
    async fn lines_that_left_memory_are_read_from_the_file() {
        let world = World::new();
        let log = world.start(0);
        for number in 0..LINES + 500 {
            log.line(&number.to_string());
        }
        let text = world.read(|_| {}).await.unwrap();
        let numbers: Vec<usize> = text.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(numbers, (0..LINES + 500).collect::<Vec<_>>());
        assert_eq!(
            world.read(|query| query.tail_lines = Some(2)).await.unwrap(),
            "2498\n2499\n"
        );
    }

    #[tokio::test]
    async fn a_log_that_is_known_is_restored_without_touching_its_file() {
        let world = World::new();
        world.start(0).line("before");
        let restarted = World {
            logs: PodLogs::default(),
            ..world
        };
        let name = ContainerName {
            namespace: "ns",
            pod: "pod",
            uid: "uid",
            container: "c",
        };
        let restore = |name: &ContainerName<'_>| {
            let clock: SharedClock = restarted.clock.clone();
            restarted.logs.restore(restarted.folder.path(), name, 0, &clock)
        };
        restore(&name).unwrap();
        // Nobody can open this.
        let path = restarted.folder.path().join("c").join("0.log");
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        restore(&name).unwrap();
        assert!(
            restore(&ContainerName {
                uid: "another",
                ..name
            })
            .is_err()
        );
    }

    #[tokio::test]
    async fn following_ends_with_the_run_and_the_run_before_stays_readable() {
        let world = World::new();
        let log = world.start(0);
        log.line("before");
        let query = LogQuery {
            namespace: "ns".to_owned(),
            pod: "pod".to_owned(),
            container: "c".to_owned(),
            follow: true,
            ..LogQuery::default()
        };
        let mut lines = world.logs.open(query).await.unwrap();
        assert_eq!(lines.next().await.unwrap().unwrap(), "before\n");
        log.line("after");
        assert_eq!(lines.next().await.unwrap().unwrap(), "after\n");
        assert!(matches!(
            world.read(|query| query.previous = true).await,
            Err(LogError::NoPrevious { .. })
        ));
        world.start(1).line("second run");
        assert!(lines.next().await.is_none());
        assert_eq!(
            world.read(|query| query.previous = true).await.unwrap(),
            "before\nafter\n"
        );
        assert_eq!(world.read(|_| {}).await.unwrap(), "second run\n");
        // A new process knows the run before from its file.
        let restarted = World {
            logs: PodLogs::default(),
            ..world
        };
        restarted.start(2);
        assert_eq!(
            restarted.read(|query| query.previous = true).await.unwrap(),
            "second run\n"
        );
        restarted.logs.forget("uid");
        assert!(restarted.read(|_| {}).await.is_err());
    }
}
