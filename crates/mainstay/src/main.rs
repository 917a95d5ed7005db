//! The `mainstay` binary: arguments, wiring, one file per verb.
//!
//! - [`arguments`]: the command line, and the only place that reads the environment.
//! - [`commands`]: one file per verb.
//! - [`serve`]: how the parts are wired into a running server; start reading here.
//! - [`roles`]: what runs as a Pod of this binary's own image.
//!
//! It holds no behaviour of its own: what can be tested without it belongs to another crate.

mod applying;
mod arguments;
mod cluster;
mod commands;
mod endpoints;
mod following;
mod front_door_client;
mod kinds;
mod manifest_watch;
mod manifests;
mod output;
mod requests;
mod roles;
mod serve;
mod server_process;
mod targets;
mod template;
mod terminal;
mod waiting;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::{
    arguments::{Arguments, Command},
    terminal::Failure,
};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // With threads of its own, few of them: each counts against the memory that the container may hold.
    if let Command::Workload(arguments) = &arguments.command {
        return commands::workload::run(arguments);
    }
    let program = program_name();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .thread_name("mainstay")
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            terminal::error(format!("the runtime cannot be started: {error}"), None);
            return ExitCode::FAILURE;
        }
    };
    let ended = runtime.block_on(Box::pin(run(arguments.command, &program)));
    // A read of standard input that is still waiting must not hold the process.
    runtime.shutdown_background();
    match ended {
        Ok(code) => code,
        Err(failure) => {
            terminal::error(&failure.text, failure.hint.as_deref());
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command, program: &str) -> Result<ExitCode, Failure> {
    match command {
        Command::Policy(arguments) => return Ok(commands::policy::run(&arguments).await),
        // `main` has begun it before there were threads here.
        Command::Workload(arguments) => {
            return Ok(tokio::task::block_in_place(|| {
                commands::workload::run(&arguments)
            }));
        }
        Command::Up(arguments) => commands::up::run(&arguments, program).await,
        Command::Serve(arguments) => serve::in_background(&arguments).await,
        Command::Down(arguments) => {
            // Waits for another process by looking at it: nothing else runs here meanwhile.
            tokio::task::block_in_place(|| commands::down::run(&arguments))
        }
        Command::Chat(arguments) => commands::chat::run(&arguments).await,
        Command::Apply(arguments) => commands::apply::run(&arguments).await,
        Command::Get(arguments) => commands::get::run(&arguments).await,
        Command::Describe(arguments) => Box::pin(commands::describe::run(&arguments)).await,
        Command::Delete(arguments) => commands::delete::run(&arguments).await,
        Command::Events(arguments) => commands::events::run(&arguments).await,
        Command::Logs(arguments) => commands::logs::run(&arguments).await,
        Command::Wait(arguments) => commands::wait::run(&arguments).await,
        Command::Status(arguments) => commands::status::run(&arguments).await,
        Command::Session(arguments) => commands::session::run(&arguments).await,
        Command::Tool(arguments) => commands::tool::run(&arguments).await,
        Command::Crds => {
            commands::crds::run();
            Ok(())
        }
        Command::MockModel(arguments) => commands::mock_model::run(&arguments).await,
        Command::Probe(arguments) => commands::probe::run(&arguments).await,
        Command::Demo(arguments) => commands::demo::run(&arguments).await,
        Command::Version(arguments) => {
            commands::version::run(&arguments);
            Ok(())
        }
        Command::Completion(arguments) => {
            let mut script = Vec::new();
            clap_complete::generate(
                arguments.shell,
                &mut Arguments::command(),
                "mainstay",
                &mut script,
            );
            terminal::data(String::from_utf8_lossy(&script).trim_end());
            Ok(())
        }
    }?;
    Ok(ExitCode::SUCCESS)
}

/// The program as it was called, to be repeated in what is printed to be typed next.
fn program_name() -> String {
    std::env::args().next().unwrap_or_else(|| "mainstay".to_owned())
}
