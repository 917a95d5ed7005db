//! Compiles the library that records what a program does to its files.
#![allow(clippy::disallowed_methods, reason = "how cargo talks to a build script")]

use std::{env, io, path::PathBuf, process::Command};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=src/recorder.c");
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return Ok(());
    }
    let folder = env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-o"])
        .arg(folder.join("recorder.so"))
        .args(["src/recorder.c", "-lpthread"])
        .status()?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("cc: {status}")))
    }
}
