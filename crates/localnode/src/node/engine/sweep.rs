//! Removing containers that nobody follows any more: those of a process that was killed, and those that could not be removed
//! when they ended. Never touches a container without the label of this data directory.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bollard::query_parameters::{ListContainersOptions, RemoveContainerOptions};
use tokio_util::sync::CancellationToken;

use super::{ANSWER, EngineError, Engines, JOINED, OWNER, WORK, within};

/// How long the last sweep may take, when the process ends.
const LAST: Duration = Duration::from_secs(5);
/// The first and the longest wait before it is tried again.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

impl Engines {
    /// Sweeps when there may be something, and once more at the end, when no Pod runs any more.
    pub(in crate::node) async fn keep_clean(self: Arc<Self>, cancellation: CancellationToken) {
        let mut was_used = self.options.used.exists();
        loop {
            if !was_used {
                tokio::select! {
                    () = cancellation.cancelled() => break,
                    () = self.swept.notified() => {}
                }
            }
            was_used = false;
            let mut wait = AGAIN.0;
            while let Err(error) = self.sweep().await {
                tracing::debug!(%error, "containers that ended could not be removed yet");
                tokio::select! {
                    () = cancellation.cancelled() => break,
                    () = tokio::time::sleep(wait) => wait = (wait * 2).min(AGAIN.1),
                }
            }
            if cancellation.is_cancelled() {
                break;
            }
        }
        if !self.options.used.exists() {
            return;
        }
        match tokio::time::timeout(LAST, self.sweep()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "containers of Pods that ended were left in the container engine");
            }
            Err(_) => tracing::warn!("containers of Pods that ended were left in the container engine"),
        }
    }

    async fn sweep(&self) -> Result<(), String> {
        let engine = self.find().await.map_err(|nowhere| nowhere.why)?;
        let options = ListContainersOptions {
            all: true,
            filters: Some(HashMap::from([(
                "label".to_owned(),
                vec![format!("{OWNER}={}", self.owner)],
            )])),
            ..ListContainersOptions::default()
        };
        let listed = within(ANSWER, engine.docker.list_containers(Some(options)))
            .await
            .map_err(|error| error.to_string())?;
        let mut left: Vec<_> = listed
            .into_iter()
            // An engine that does not know the filter must not make strangers ours.
            .filter(|container| {
                container.labels.as_ref().and_then(|labels| labels.get(OWNER)) == Some(&self.owner)
            })
            .filter(|container| {
                let living = self.living();
                let mut names = container.names.iter().flatten();
                !names.any(|name| living.contains(name.trim_start_matches('/')))
            })
            .collect();
        // One whose network others live in cannot go before them.
        left.sort_by_key(|container| {
            let labels = container.labels.as_ref();
            !labels.is_some_and(|labels| labels.contains_key(JOINED))
        });
        let mut failed = Ok(());
        for container in left {
            let Some(id) = &container.id else { continue };
            match remove(&engine, id).await {
                Ok(()) => {}
                Err(error) => failed = Err(error.to_string()),
            }
        }
        failed
    }
}

/// Ends and removes a container. One that is gone is fine.
pub(super) async fn remove(engine: &super::Engine, id: &str) -> Result<(), EngineError> {
    let options = RemoveContainerOptions {
        force: true,
        v: true,
        link: false,
    };
    match within(WORK, engine.docker.remove_container(id, Some(options))).await {
        Err(error) if error.status() == Some(404) => Ok(()),
        other => other,
    }
}
