//! `mainstay workload`: the process of one container, as the server starts it with `--isolate process`.

use std::process::ExitCode;

use mainstay_telemetry::{
    clock,
    logs::{self, Destination, Format},
};
use mainstay_workload::process;

use crate::{arguments::WorkloadArguments, roles, terminal};

/// Runs the container to its end. Not on the program's own runtime: the memory is limited before the first thread starts.
pub(crate) fn run(arguments: &WorkloadArguments) -> ExitCode {
    if let Err(error) = logs::start(Destination::StandardError, Format::Text, &arguments.log) {
        terminal::error(error.to_string(), None);
        return ExitCode::FAILURE;
    }
    match process::run(&roles::without_shared_state(&clock::system())) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            terminal::error(format!("{}: {error}", arguments.title), None);
            ExitCode::FAILURE
        }
    }
}
