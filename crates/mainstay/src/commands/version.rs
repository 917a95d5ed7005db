//! `mainstay version`

use serde_json::json;

use crate::{arguments::VersionArguments, terminal};

/// The Kubernetes minor version whose behaviour the embedded API follows.
const KUBERNETES: &str = "1.37";

/// Prints the version.
pub(crate) fn run(arguments: &VersionArguments) {
    let version = env!("CARGO_PKG_VERSION");
    if arguments.json {
        terminal::data(json!({ "version": version, "kubernetes": KUBERNETES }).to_string());
    } else {
        terminal::data(format!("mainstay {version} (Kubernetes API {KUBERNETES})"));
    }
}
