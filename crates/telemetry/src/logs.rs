//! The process log: one line an event, to a file that is rotated by size, or to standard error.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use tracing_subscriber::{EnvFilter, fmt::MakeWriter, layer::SubscriberExt, util::SubscriberInitExt};

/// Where log lines go.
#[derive(Clone, Debug)]
pub enum Destination {
    /// Standard error, for the roles that run in a container.
    StandardError,
    /// A file that is rotated.
    File(RotatingFile),
}

/// How a line is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

// What this library logs about its connections is logged by their owners too, who know whose they are; its own lines
// name session ids. A filter that names it brings them back.
const QUIET: &str = "rmcp=off";

/// Starts logging for the whole process.
///
/// `filter` has the form of `tracing`'s directives, for example `info,mainstay_agent=debug`.
///
/// # Errors
///
/// When the filter cannot be read or logging was started before.
pub fn start(destination: Destination, format: Format, filter: &str) -> Result<(), LogError> {
    let filter = EnvFilter::try_new(format!("{QUIET},{filter}")).map_err(|source| LogError::Filter {
        filter: filter.to_owned(),
        source,
    })?;
    let registry = tracing_subscriber::registry().with(filter);
    let started = match (destination, format) {
        (Destination::StandardError, Format::Text) => registry
            .with(
                tracing_subscriber::fmt::layer()
                    .with_writer(io::stderr)
                    .with_ansi(false),
            )
            .try_init(),
        (Destination::StandardError, Format::Json) => registry
            .with(tracing_subscriber::fmt::layer().json().with_writer(io::stderr))
            .try_init(),
        (Destination::File(file), Format::Text) => registry
            .with(
                tracing_subscriber::fmt::layer()
                    .with_writer(file)
                    .with_ansi(false),
            )
            .try_init(),
        (Destination::File(file), Format::Json) => registry
            .with(tracing_subscriber::fmt::layer().json().with_writer(file))
            .try_init(),
    };
    started.map_err(|_| LogError::StartedBefore)
}

/// Why logging did not start.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter is not in the form of directives.
    #[error("log filter `{filter}` cannot be read: {source}")]
    Filter {
        /// The text given.
        filter: String,
        /// What is wrong with it.
        source: tracing_subscriber::filter::ParseError,
    },
    /// A second start in one process.
    #[error("logging was already started")]
    StartedBefore,
    /// The log file cannot be opened.
    #[error("log file {} cannot be opened: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A file of at most `limit` bytes with `keep` files in all: `NAME`, `NAME.1`, `NAME.2` …, the oldest dropped.
#[derive(Clone, Debug)]
pub struct RotatingFile {
    // A std mutex: a line is written while it is held; log lines of one process cannot interleave.
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    path: PathBuf,
    file: File,
    written: u64,
    limit: u64,
    keep: usize,
}

impl RotatingFile {
    /// Opens or continues `path`. `limit` is in bytes; `keep` counts the current file too.
    ///
    /// # Errors
    ///
    /// When the file cannot be opened for appending.
    pub fn open(path: &Path, limit: u64, keep: usize) -> Result<Self, LogError> {
        let open = || -> io::Result<State> {
            let file = append(path)?;
            let written = file.metadata()?.len();
            Ok(State {
                path: path.to_owned(),
                file,
                written,
                limit,
                keep: keep.max(1),
            })
        };
        let state = open().map_err(|source| LogError::Open {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            state: Arc::new(Mutex::new(state)),
        })
    }

    /// Writes one line; a newline is added.
    ///
    /// # Errors
    ///
    /// When the file cannot be written or rotated.
    pub fn line(&self, line: &str) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.write_whole(format!("{line}\n").as_bytes())
    }
}

fn append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

impl State {
    fn write_whole(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.written > 0 && self.written + bytes.len() as u64 > self.limit {
            self.rotate()?;
        }
        self.file.write_all(bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        for number in (1..self.keep).rev() {
            let from = if number == 1 {
                self.path.clone()
            } else {
                numbered(&self.path, number - 1)
            };
            match std::fs::rename(&from, numbered(&self.path, number)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        if self.keep == 1 {
            self.file.set_len(0)?;
        } else {
            self.file = append(&self.path)?;
        }
        self.written = 0;
        Ok(())
    }
}

fn numbered(path: &Path, number: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

/// One event's writer; `tracing` writes an event's line in one call.
#[derive(Debug)]
pub struct LineWriter(Arc<Mutex<State>>);

impl Write for LineWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .write_whole(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).file.flush()
    }
}

impl<'a> MakeWriter<'a> for RotatingFile {
    type Writer = LineWriter;

    fn make_writer(&'a self) -> LineWriter {
        LineWriter(Arc::clone(&self.state))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_full_file_is_rotated_and_the_oldest_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mainstay.log");
        let file = RotatingFile::open(&path, 10, 3).unwrap();
        for line in ["first--", "second-", "third--", "fourth-"] {
            file.line(line).unwrap();
        }
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        assert_eq!(read(&path), "fourth-\n");
        assert_eq!(read(&numbered(&path, 1)), "third--\n");
        assert_eq!(read(&numbered(&path, 2)), "second-\n");
        assert!(!numbered(&path, 3).exists());
    }

    #[test]
    fn a_reopened_file_is_continued() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mainstay.log");
        RotatingFile::open(&path, 100, 3).unwrap().line("one").unwrap();
        RotatingFile::open(&path, 100, 3).unwrap().line("two").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\n");
    }
}
