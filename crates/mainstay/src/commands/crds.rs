//! `mainstay crds`

use crate::terminal;

/// Prints the custom resource definitions as one YAML stream.
pub(crate) fn run() {
    terminal::data(mainstay_resources::crd_yaml().trim_end());
}
