//! How Pods run: in the server, or each as a process of this binary (`commands/workload.rs`).

use std::path::PathBuf;

use mainstay_kubeapi::Serving;
use mainstay_localnode::{Isolation, ProcessOptions};
use mainstay_telemetry::clock::SharedClock;

use crate::{
    arguments::{self, Isolate, ServeArguments},
    roles,
    terminal::Failure,
};

/// As the arguments say.
pub(super) fn of(
    arguments: &ServeArguments,
    serving: &Serving,
    clock: &SharedClock,
) -> Result<Isolation, Failure> {
    if arguments.isolate == Isolate::Task {
        return Ok(Isolation::Task);
    }
    Ok(Isolation::Process(ProcessOptions {
        program: program()?,
        arguments: vec!["workload".to_owned()],
        shown_as: Some("mainstay".to_owned()),
        environment: arguments::process_environment(),
        kubernetes: format!("https://{}", serving.address),
        certificate_authority: serving.certificate_authority.clone(),
        roles: roles::without_shared_state(clock).into_keys().collect(),
        answers: None,
    }))
}

/// This program, as it was when it was started: a build may put another one in its place, which does not speak as this one
/// does.
fn program() -> Result<PathBuf, Failure> {
    if cfg!(target_os = "linux") {
        return Ok(PathBuf::from("/proc/self/exe"));
    }
    std::env::current_exe()
        .map_err(|error| Failure::new(format!("the path of this program cannot be found: {error}")))
}
