//! Prints what becomes of OpenAPI documents: `FILE: N tools, M skipped`. Ends with 1 when a document is not read, or when one of its
//! tools has a name that a provider refuses or a schema that cannot be used.
//!
//! `cargo run -p mainstay-tools --example openapi_tools -- FILE…`

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for the terminal"
)]

use std::{collections::BTreeSet, path::Path, process::ExitCode};

use mainstay_tools::{
    arguments::ArgumentCheck,
    openapi::{ParseOptions, parse},
};

fn main() -> ExitCode {
    let mut succeeded = true;
    for file in std::env::args().skip(1) {
        match report(Path::new(&file)) {
            Ok(line) => println!("{line}"),
            Err(cause) => {
                succeeded = false;
                eprintln!("error: {file}: {cause}");
            }
        }
    }
    if succeeded {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn report(file: &Path) -> Result<String, String> {
    let text = std::fs::read(file).map_err(|error| error.to_string())?;
    let document = parse(&text, &ParseOptions::default()).map_err(|error| error.to_string())?;
    let mut names = BTreeSet::new();
    for operation in &document.operations {
        let name = &operation.tool;
        let allowed = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
        if name.is_empty() || name.len() > 64 || !name.chars().all(allowed) {
            return Err(format!(
                "the tool name {name:?} of {} is not allowed",
                operation.id
            ));
        }
        if !names.insert(name) {
            return Err(format!("two operations are called {name:?}"));
        }
        if operation.input_schema["type"] != "object" {
            return Err(format!("the schema of {} is no object", operation.id));
        }
        ArgumentCheck::compile(&operation.input_schema)
            .map_err(|cause| format!("the schema of {} cannot be used: {cause}", operation.id))?;
    }
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let (tools, skipped) = (document.operations.len(), document.skipped.len());
    Ok(format!("{name}: {tools} tools, {skipped} skipped"))
}
