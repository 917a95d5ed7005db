//! `mainstay up --watch`

use std::time::Instant;

use super::{MANAGER, agent_report};
use crate::{
    applying::{self, ApplyOptions},
    arguments::UpArguments,
    cluster,
    endpoints::Endpoints,
    manifest_watch::ManifestWatch,
    manifests,
    terminal::{self, Failure},
};

/// Applies each file that is saved, and says what became of the agents in it.
pub(super) async fn follow(
    arguments: &UpArguments,
    endpoints: &Endpoints,
    mut watch: ManifestWatch,
) -> Result<(), Failure> {
    let client = cluster::at(&endpoints.kubeconfig).await?;
    let options = ApplyOptions {
        manager: MANAGER.to_owned(),
        force: arguments.force_conflicts,
    };
    terminal::message("  watching the manifests; a file that is saved is applied again");
    loop {
        let changed = watch.next().await;
        for file in &changed.gone {
            terminal::warning(format!(
                "{} is gone; what it held stays until it is deleted with `mainstay delete`",
                file.display()
            ));
        }
        let began = Instant::now();
        let read = manifests::read(&changed.written);
        for failure in &read.failures {
            terminal::error(&failure.text, failure.hint.as_deref());
        }
        let (applied, _refused) = applying::apply(&client, &read.manifests, &options).await;
        for agent in applied.iter().filter(|object| object.kind.kind == "AgentRuntime") {
            terminal::message(agent_report(&client, endpoints, agent, began, "the save").await);
        }
    }
}
