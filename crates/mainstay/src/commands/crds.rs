//! `mainstay crds`

use crate::terminal;

/// Prints the custom resource definitions as one YAML stream.
pub(crate) fn run() {
    let documents: Vec<&str> = mainstay_resources::crd_yaml()
        .iter()
        .map(|(_, text)| text.trim_end())
        .collect();
    terminal::data(documents.join("\n"));
}
