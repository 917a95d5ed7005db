//! Starting the server in the background, and stopping it.

use std::{
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use mainstay_store::data_directory::{self, Holder};
use serde::{Deserialize, Serialize};

use crate::{
    arguments::{LogFormat, ServeArguments},
    endpoints::Endpoints,
    terminal::Failure,
};

/// How long a server may take to say that it serves. A large data directory is read before.
const STARTS_WITHIN: Duration = Duration::from_secs(60);
/// How long a server may take to drain and end.
const ENDS_WITHIN: Duration = Duration::from_secs(45);
/// How often an ending process is looked at.
const LOOKS_EVERY: Duration = Duration::from_millis(20);

/// What a server started in the background says on its standard output, once, as one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "state")]
pub(crate) enum StartReport {
    /// It serves.
    Ready,
    /// It cannot serve.
    Failed {
        /// Why.
        text: String,
        /// What would mend it.
        hint: Option<String>,
    },
}

/// Starts the server in the background and waits until it serves.
pub(crate) fn start(arguments: &ServeArguments) -> Result<Endpoints, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::new(format!("the path of this program cannot be found: {error}")))?;
    let mut command = Command::new(program);
    command
        .arg("serve")
        .args(server_arguments(arguments))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        // Its own process group: Ctrl-C in this terminal is not meant for it.
        .process_group(0);
    let mut child = command
        .spawn()
        .map_err(|error| Failure::new(format!("the server cannot be started: {error}")))?;
    let data = &arguments.data.data;
    match first_line(&mut child) {
        Ok(StartReport::Ready) => Endpoints::of_running_server(data),
        Ok(StartReport::Failed { text, hint }) => Err(Failure { text, hint }),
        Err(reason) => Err(Failure::new(reason).with_hint(format!(
            "its log is {}",
            data.join("logs").join("mainstay.log").display()
        ))),
    }
}

/// The server's report; an error says why there is none.
fn first_line(child: &mut Child) -> Result<StartReport, String> {
    let output = child
        .stdout
        .take()
        .ok_or("the server's standard output cannot be read")?;
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    // Reading blocks; the deadline is kept on this side. The thread ends with the pipe.
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = BufReader::new(output).read_line(&mut line);
        // The receiver may have given up; there is nobody left to tell.
        let _ = sender.send(read.map(|_length| line));
    });
    match receiver.recv_timeout(STARTS_WITHIN) {
        Ok(Ok(line)) if line.is_empty() => Err("the server ended before it served".to_owned()),
        Ok(Ok(line)) => serde_json::from_str(&line)
            .map_err(|error| format!("the server's report of its start cannot be read: {error}")),
        Ok(Err(error)) => Err(format!(
            "the server's report of its start cannot be read: {error}"
        )),
        Err(_) => Err(format!(
            "the server with pid {} has not said within {} s that it serves; it goes on starting",
            child.id(),
            STARTS_WITHIN.as_secs()
        )),
    }
}

fn server_arguments(arguments: &ServeArguments) -> Vec<String> {
    let mut words = vec!["--data".to_owned(), arguments.data.data.display().to_string()];
    let mut add = |name: &str, value: String| words.extend([name.to_owned(), value]);
    if let Some(listen) = arguments.listen {
        add("--listen", listen.to_string());
    }
    if let Some(listen) = arguments.kube_listen {
        add("--kube-listen", listen.to_string());
    }
    add("--log", arguments.log.clone());
    add(
        "--log-format",
        if arguments.log_format == LogFormat::Json {
            "json"
        } else {
            "text"
        }
        .to_owned(),
    );
    let families: Vec<&str> = arguments.families.iter().map(|family| family.as_str()).collect();
    add("--families", families.join(","));
    for (name, switch) in [
        ("--policy-engine", arguments.policy_engine),
        ("--node-controllers", arguments.node_controllers),
        ("--node-binding", arguments.node_binding),
        ("--node-running", arguments.node_running),
    ] {
        add(name, switch.word().to_owned());
    }
    words.extend(["--isolate".to_owned(), arguments.isolate.as_str().to_owned()]);
    words.extend([
        "--container-engine".to_owned(),
        arguments.container_engine.to_string(),
    ]);
    for origin in &arguments.allowed_origins {
        words.extend(["--allow-origin".to_owned(), origin.clone()]);
    }
    if arguments.allow_remote {
        words.push("--allow-remote".to_owned());
    }
    words
}

/// Drains and stops the server of `data`. Gives whether one ran.
///
/// # Errors
///
/// When it cannot be stopped, or does not end in time; when its process is not known here.
pub(crate) fn stop(data: &Path) -> Result<bool, Failure> {
    // The lock of the directory tells who runs; a file may be stale and its pid a stranger's.
    let number = match data_directory::holder(data) {
        Holder::Nobody => return Ok(false),
        Holder::Unknown => return Err(Endpoints::held_elsewhere(data)),
        Holder::Process(number) => number,
    };
    let pid = i32::try_from(number)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    let Some(pid) = pid else {
        return Ok(false);
    };
    rustix::process::kill_process(pid, rustix::process::Signal::TERM)
        .map_err(|error| Failure::new(format!("the server with pid {number} cannot be stopped: {error}")))?;
    let ends = Instant::now() + ENDS_WITHIN;
    while data_directory::holder(data) == Holder::Process(number) {
        if Instant::now() > ends {
            return Err(Failure::new(format!(
                "the server with pid {number} has not ended within {} s",
                ENDS_WITHIN.as_secs()
            ))
            .with_hint(format!(
                "`kill -9 {number}` ends it at once; nothing acknowledged is lost"
            )));
        }
        std::thread::sleep(LOOKS_EVERY);
    }
    Ok(true)
}
