//! A container's output, read from the engine into the log of its run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bollard::container::LogOutput;
use bollard::query_parameters::LogsOptions;
use futures::StreamExt;
use jiff::Timestamp;
use mainstay_workload::LogSink;

use super::Engine;
use crate::logs::RunLog;

/// How long after an interruption the engine is asked again.
const AGAIN: Duration = Duration::from_millis(500);
/// A longer line is given in pieces.
const LONGEST: usize = 64 * 1024;

/// Puts frames of output together to lines. Each frame begins with a time; one that does not end a line is gone on with by
/// the next, which begins with a time too.
pub(super) struct Lines {
    log: Arc<RunLog>,
    held: [Vec<u8>; 2],
    /// The time of the newest frame that was taken.
    last: Option<Timestamp>,
}

impl Lines {
    pub(super) fn new(log: Arc<RunLog>) -> Self {
        Self {
            log,
            held: Default::default(),
            last: None,
        }
    }

    /// Takes a frame. What is not newer than `seen` was taken before an interruption.
    fn take(&mut self, stream: usize, frame: &[u8], seen: Option<Timestamp>) {
        for piece in frame.split_inclusive(|byte| *byte == b'\n') {
            let (time, text) = stamped(piece);
            if let Some(time) = time {
                if seen.is_some_and(|seen| time <= seen) {
                    continue;
                }
                self.last = self.last.max(Some(time));
            }
            let held = &mut self.held[stream];
            held.extend_from_slice(text);
            if held.ends_with(b"\n") || held.len() >= LONGEST {
                if held.ends_with(b"\n") {
                    held.pop();
                }
                if held.ends_with(b"\r") {
                    held.pop();
                }
                self.log.line(&String::from_utf8_lossy(held));
                held.clear();
            }
        }
    }

    /// What did not end with a newline is a line too.
    pub(super) fn finish(&mut self) {
        for held in &mut self.held {
            if !held.is_empty() {
                self.log.line(&String::from_utf8_lossy(held));
                held.clear();
            }
        }
    }

    /// Follows a container until the engine has nothing more, once the container is `over`.
    pub(super) async fn follow(&mut self, engine: &Engine, id: &str, over: &AtomicBool) {
        loop {
            let seen = self.last;
            let since = seen.map_or(0, |time| i32::try_from(time.as_second()).unwrap_or(0));
            let options = LogsOptions {
                follow: true,
                stdout: true,
                stderr: true,
                timestamps: true,
                since,
                ..LogsOptions::default()
            };
            {
                let mut frames = std::pin::pin!(engine.docker.logs(id, Some(options)));
                while let Some(frame) = frames.next().await {
                    match frame {
                        Ok(LogOutput::StdErr { message }) => self.take(1, &message, seen),
                        Ok(
                            LogOutput::StdOut { message }
                            | LogOutput::Console { message }
                            | LogOutput::StdIn { message },
                        ) => self.take(0, &message, seen),
                        Err(error) => {
                            tracing::debug!(%error, container = id, "the output of a container was interrupted");
                            break;
                        }
                    }
                }
            }
            if over.load(Ordering::Relaxed) {
                return;
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}

/// The time that an engine puts before a piece of output, and the piece.
fn stamped(piece: &[u8]) -> (Option<Timestamp>, &[u8]) {
    let Some(at) = piece.iter().take(40).position(|byte| *byte == b' ') else {
        return (None, piece);
    };
    let time = std::str::from_utf8(&piece[..at])
        .ok()
        .and_then(|text| text.parse().ok());
    match time {
        Some(time) => (Some(time), &piece[at + 1..]),
        None => (None, piece),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;
    use mainstay_telemetry::clock;

    #[test]
    fn frames_become_lines_and_what_was_read_before_an_interruption_is_left_out_ka_051() {
        let folder = tempfile::tempdir().unwrap();
        let logs = crate::logs::PodLogs::default();
        let name = crate::logs::ContainerName {
            namespace: "n",
            pod: "p",
            uid: "u",
            container: "c",
        };
        let log = logs.start(folder.path(), &name, 0, clock::system()).unwrap();
        let mut lines = Lines::new(Arc::clone(&log));
        lines.take(0, b"2026-01-01T00:00:01.000000001Z one\n", None);
        lines.take(0, b"2026-01-01T00:00:02.000000001Z half", None);
        lines.take(1, b"2026-01-01T00:00:02.5Z aside\r\n", None);
        lines.take(
            0,
            b"2026-01-01T00:00:03Z and half\n2026-01-01T00:00:03.5Z three\n",
            None,
        );
        let seen = lines.last;
        lines.take(0, b"2026-01-01T00:00:03.5Z three\n", seen);
        lines.take(0, b"2026-01-01T00:00:04Z no time inside\n", seen);
        lines.take(0, b"without a time", seen);
        lines.finish();
        assert_eq!(
            log.tail(10, 1024),
            "one\naside\nhalfand half\nthree\nno time inside\nwithout a time\n"
        );
        assert_eq!(log.tail(1, 1024), "without a time\n");
        assert_eq!(log.tail(10, 8), "ut a time\n"[2..]);
    }
}
