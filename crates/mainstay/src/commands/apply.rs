//! `mainstay apply`

use crate::{
    applying::{self, ApplyOptions},
    arguments::ApplyArguments,
    cluster, manifests, terminal,
    terminal::Failure,
};

/// Applies manifests by server-side apply; a refused one does not stop the others.
pub(crate) async fn run(arguments: &ApplyArguments) -> Result<(), Failure> {
    let client = cluster::client(&arguments.cluster).await?;
    let read = manifests::read(&arguments.paths);
    for failure in &read.failures {
        terminal::error(&failure.text, failure.hint.as_deref());
    }
    let options = ApplyOptions {
        manager: arguments.field_manager.clone(),
        force: arguments.force_conflicts,
    };
    let (_, refused) = applying::apply(&client, &read.manifests, &options).await;
    match read.failures.len() + refused {
        0 => Ok(()),
        1 => Err(Failure::new("one manifest was not applied")),
        several => Err(Failure::new(format!("{several} manifests were not applied"))),
    }
}
