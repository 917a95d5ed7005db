//! A directory in which the program runs, and what running it to its end gives.

use std::{
    fmt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
};

use super::{
    DEADLINE,
    program::Program,
    server::{Endpoints, Server},
};

const ANY_PORTS: [&str; 4] = ["--listen", "127.0.0.1:0", "--kube-listen", "127.0.0.1:0"];

/// A temporary directory. Programs run in it, with an empty environment, so that the data directory is `.mainstay` in it.
pub(crate) struct World {
    directory: tempfile::TempDir,
    /// Whether a server may run that no test owns as a child, which is stopped in the end.
    detached: AtomicBool,
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
            detached: AtomicBool::new(false),
        }
    }

    /// A path in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The data directory.
    pub(crate) fn data(&self) -> PathBuf {
        self.path(".mainstay")
    }

    /// Writes a file, and its folder where it is missing.
    pub(crate) fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    /// The program with `arguments`, ready to be started.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mainstay"));
        command
            .args(arguments)
            .current_dir(self.directory.path())
            .env_clear()
            // Of whoever runs the tests, nothing is used.
            .env("MAINSTAY_CONTAINER_ENGINE", "none");
        command
    }

    /// Runs the program with `arguments` to its end.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Ran {
        self.finish(self.command(arguments)).await
    }

    /// Runs `command` to its end.
    pub(crate) async fn finish(&self, command: Command) -> Ran {
        self.finish_with(command, "").await
    }

    /// Runs `command` to its end with `input` on its standard input.
    pub(crate) async fn finish_with(&self, command: Command, input: &str) -> Ran {
        use tokio::io::AsyncWriteExt;
        let shown = format!("{:?}", command.get_args().collect::<Vec<_>>());
        let mut command = tokio::process::Command::from(command);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the program starts");
        let mut standard_input = child.stdin.take().unwrap();
        let running = async {
            // A program that ends early reads nothing, which is no failure of the test.
            let _ = standard_input.write_all(input.as_bytes()).await;
            drop(standard_input);
            child.wait_with_output().await
        };
        let output = tokio::time::timeout(DEADLINE, running)
            .await
            .unwrap_or_else(|_| panic!("mainstay {shown} does not end"))
            .expect("the program can be waited for");
        Ran {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
            world: self.directory.path().to_owned(),
        }
    }

    /// `up --detach` on ports of the system's choice, with `arguments` behind.
    pub(crate) async fn detach(&self, arguments: &[&str]) -> Ran {
        self.detached.store(true, Ordering::Relaxed);
        self.run(&[&["up", "--detach"], &ANY_PORTS[..], arguments].concat())
            .await
    }

    /// Starts a server in the foreground, on ports of the system's choice, and waits until it has applied its manifests.
    pub(crate) fn up(&self, arguments: &[&str]) -> Server {
        self.up_with(arguments, &[])
    }

    /// The same with variables in its environment.
    pub(crate) fn up_with(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Server {
        let mut command = self.command(&[&["up"], &ANY_PORTS[..], arguments].concat());
        command.envs(environment.iter().copied());
        Server::started(Program::start(command), &self.data())
    }

    /// Starts a server on the ports of the former one.
    pub(crate) fn up_again(&self) -> Server {
        Server::started(Program::start(self.command(&["up"])), &self.data())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if self.detached.load(Ordering::Relaxed) && Endpoints::read(&self.data()).is_some() {
            // The server of this directory, found by the directory's lock: never a stranger's process.
            let _ = self.command(&["down"]).output();
        }
    }
}

/// What a program that ended has left. Its `Display` is what snapshots hold.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    world: PathBuf,
}

impl Ran {
    /// The same, after a look at the exit code.
    pub(crate) fn succeeded(self) -> Self {
        assert_eq!(self.code, Some(0), "{self}");
        self
    }

    /// The same, after a look at the exit code.
    pub(crate) fn failed(self) -> Self {
        assert_eq!(self.code, Some(1), "{self}");
        self
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = self
            .code
            .map_or_else(|| "killed".to_owned(), |code| code.to_string());
        let text = format!(
            "exit code: {code}\n--- stdout\n{}--- stderr\n{}",
            self.stdout, self.stderr
        );
        formatter.write_str(&tidy(&text, &self.world))
    }
}

/// Replaces what differs from run to run.
fn tidy(text: &str, world: &Path) -> String {
    let mut text = text.replace(env!("CARGO_BIN_EXE_mainstay"), "mainstay");
    // The system may know the directory by a longer name too.
    if let Ok(canonical) = world.canonicalize() {
        text = text.replace(&canonical.display().to_string(), "[WORLD]");
    }
    text = text.replace(&world.display().to_string(), "[WORLD]");
    text.replace(&examples().display().to_string(), "[EXAMPLES]")
        .replace(env!("CARGO_PKG_VERSION"), "[VERSION]")
}

/// The folder of the examples.
pub(crate) fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples")
        .canonicalize()
        .unwrap()
}

/// The folder of one example, as an argument.
pub(crate) fn example(name: &str) -> String {
    examples().join(name).display().to_string()
}

/// Compares with a stored snapshot, after further filters for ports, processes, identifiers and times.
macro_rules! assert_ran {
    ($name:literal, $ran:expr) => {
        let ran = $ran.to_string();
        insta::with_settings!({ filters => $crate::support::world::filters() }, {
            insta::assert_snapshot!($name, ran);
        });
    };
}
pub(crate) use assert_ran;

/// Filters of snapshots.
pub(crate) fn filters() -> Vec<(&'static str, &'static str)> {
    vec![
        (r"127\.0\.0\.1:\d{2,5}", "127.0.0.1:[PORT]"),
        (r"\bpid \d+", "pid [PID]"),
        (r"kill -9 \d+", "kill -9 [PID]"),
        (
            r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
            "[ID]",
        ),
        (r"\(\d+ ms\)", "([TIME] ms)"),
        (r"\d+\.\d s after the start", "[TIME] s after the start"),
        (r"\(os error \d+\)", "(os error [NUMBER])"),
    ]
}
