//! Developer tasks: generated files, and checks that they are current.

mod builtin_schemas;
mod generate;
mod vectors;

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Parser, Subcommand};

/// Developer tasks of the workspace.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Writes the schemas of the built-in kinds from the OpenAPI v3 documents that Kubernetes publishes
    BuiltinSchemas {
        /// The folder `api/openapi-spec/v3` of the release
        #[arg(long)]
        from: PathBuf,
    },
    /// Writes every file that is generated from the code and checked in
    Generate {
        /// Write nothing; fail and name the files that are not current
        #[arg(long)]
        check: bool,
    },
    /// Sends the conformance vectors to a real API server and to the embedded one, and compares the answers
    Vectors(vectors::Options),
}

fn main() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("xtask lies in the workspace")?;
    match Arguments::parse().task {
        Task::BuiltinSchemas { from } => builtin_schemas::run(root, &from),
        Task::Generate { check } => generate::run(root, check),
        Task::Vectors(options) => vectors::run(root, &options),
    }
}
