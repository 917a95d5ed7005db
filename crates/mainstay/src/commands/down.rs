//! `mainstay down`

use crate::{arguments::DataArguments, server_process, terminal, terminal::Failure};

/// Stops the server of the data directory.
pub(crate) fn run(arguments: &DataArguments) -> Result<(), Failure> {
    if server_process::stop(&arguments.data)? {
        terminal::message("stopped");
    } else {
        terminal::message(format!(
            "no server runs on data directory {}",
            arguments.data.display()
        ));
    }
    Ok(())
}
