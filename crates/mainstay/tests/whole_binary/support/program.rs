//! A program that runs while a test goes on.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::{
        Mutex,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
};

use super::DEADLINE;

/// A child process and the lines of its standard output and standard error. It is killed when this is dropped.
pub(crate) struct Program {
    child: Child,
    // A mutex, so that a server can be shared by tests; only its owner reads.
    lines: Mutex<Receiver<String>>,
    seen: Vec<String>,
}

impl Program {
    /// Starts `command`.
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null());
        Self::spawned(command)
    }

    /// Starts `command`, which is then talked to.
    pub(crate) fn talking(mut command: Command) -> (Self, ChildStdin) {
        command.stdin(Stdio::piped());
        let mut program = Self::spawned(command);
        let input = program.child.stdin.take().unwrap();
        (program, input)
    }

    fn spawned(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let (sender, lines) = sync_channel(4096);
        forward(child.stdout.take().unwrap(), sender.clone());
        forward(child.stderr.take().unwrap(), sender);
        Self {
            child,
            lines: Mutex::new(lines),
            seen: Vec::new(),
        }
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line that contains `text`.
    pub(crate) fn line(&mut self, text: &str) -> String {
        loop {
            match self.next() {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if line.contains(text) {
                        return line;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    panic!("no line with {text:?} came; there were {:#?}", self.seen)
                }
                Err(RecvTimeoutError::Disconnected) => {
                    panic!(
                        "the program ended without a line with {text:?}; there were {:#?}",
                        self.seen
                    )
                }
            }
        }
    }

    fn next(&mut self) -> Result<String, RecvTimeoutError> {
        self.lines
            .get_mut()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .recv_timeout(DEADLINE)
    }

    /// The lines that came so far.
    pub(crate) fn seen(&self) -> &[String] {
        &self.seen
    }

    /// Sends `signal`.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).expect("the program is there");
    }

    /// Ends it as a power cut would end it, and waits until it is gone.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("the program is there");
        self.child.wait().expect("the program can be waited for");
    }

    /// Waits until it has ended by itself.
    pub(crate) fn ended(mut self) -> ExitStatus {
        loop {
            match self.next() {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Disconnected) => {
                    return self.child.wait().expect("the program can be waited for");
                }
                Err(RecvTimeoutError::Timeout) => {
                    panic!("the program does not end; it said {:#?}", self.seen)
                }
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn forward(output: impl Read + Send + 'static, lines: SyncSender<String>) {
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            // Read to the end even when nobody listens any more: a full pipe would stop the program.
            let _ = lines.try_send(line);
        }
    });
}
