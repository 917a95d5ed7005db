//! `mainstay probe`

use mainstay_workload::Connector;

use crate::{
    arguments::ProbeArguments,
    roles::probe,
    terminal::{self, Failure},
};

/// Asks an address until it answers well.
pub(crate) async fn run(arguments: &ProbeArguments) -> Result<(), Failure> {
    let connector =
        Connector::direct().map_err(|error| Failure::new(format!("no connection can be made: {error}")))?;
    let status = probe::until_well(&connector, &arguments.url, arguments.within)
        .await
        .map_err(Failure::new)?;
    terminal::data(format!("{} answers with {status}", arguments.url));
    Ok(())
}
