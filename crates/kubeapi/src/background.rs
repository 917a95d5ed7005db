//! The work that goes on behind requests: garbage collection, the removal of namespaces and definitions, the types of
//! admission policies, the expiry of Events. Requirements KA-012, KA-023, KA-031.

mod garbage;
mod namespace;

use std::{future::pending, time::Duration};

use futures::{StreamExt as _, stream};
use jiff::SignedDuration;
use tokio_util::sync::CancellationToken;

use crate::{
    aftermath::Work,
    api::Api,
    commit,
    status::{ApiResult, Reason},
};

/// How many pieces of work are in progress at a time: enough to share the store's group commits.
const CONCURRENCY: usize = 32;
/// How long work that failed rests before it is tried again.
const RETRY: Duration = Duration::from_millis(500);

impl Api {
    /// Does the background work until `cancellation`. One caller runs this; without it nothing is collected.
    pub async fn run(&self, cancellation: CancellationToken) {
        cancellation
            .run_until_cancelled(async { tokio::join!(self.work(), self.expire_events()) })
            .await;
    }

    async fn work(&self) {
        loop {
            let mut batch = Vec::with_capacity(CONCURRENCY);
            while batch.len() < CONCURRENCY
                && let Some(work) = self.aftermath().take()
            {
                batch.push(work);
            }
            if batch.is_empty() {
                self.aftermath().changed().await;
                continue;
            }
            let failed: Vec<Work> = stream::iter(batch)
                .map(|work| async {
                    match self.work_on(&work).await {
                        Ok(()) => None,
                        Err(error) => {
                            tracing::warn!(?work, %error, "background work of the API failed and will be tried again");
                            Some(work)
                        }
                    }
                })
                .buffer_unordered(CONCURRENCY)
                .filter_map(|failed| async { failed })
                .collect()
                .await;
            if !failed.is_empty() {
                for work in failed {
                    self.aftermath().put_back(work);
                }
                // Something else may be wrong (a full disk): do not spin.
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    async fn work_on(&self, work: &Work) -> ApiResult<()> {
        match work {
            Work::Object(key) => self.collect(key).await,
            Work::Owner(owner) => match self.owner_key(owner) {
                Some(key) => self.collect(&key).await,
                None => Ok(()),
            },
            Work::Namespace(name) => self.attend_namespace(name).await,
            // Objects held by finalizers keep the definition; the removal of the last one brings it back.
            Work::Definition(name) => self.remove_definition(name).await.map(|_finished| ()),
            Work::Roles => self.aggregate_roles().await,
            Work::Policy(name) => self.attend_policy(name).await,
        }
    }

    /// Removes Events an hour after their last write.
    async fn expire_events(&self) {
        let age = self.limits().event_age;
        let kept = SignedDuration::try_from(age).unwrap_or(SignedDuration::from_secs(3600));
        loop {
            let now = self.clock().now();
            let deadline = now.saturating_sub(kept).unwrap_or(now);
            for (key, revision) in self.aftermath().expired_events(deadline) {
                // An Event written again since then has a later entry of its own.
                let unchanged = self
                    .store()
                    .get(&key)
                    .is_some_and(|stored| stored.revision == revision);
                if !unchanged {
                    continue;
                }
                let kinds = self.registry().snapshot();
                if let Some(kind) = kinds.kinds.lookup("", "v1", "events")
                    && let Err(error) = self.delete_quietly(&kind, &key).await
                    && error.reason != Reason::NotFound
                {
                    tracing::warn!(namespace = %key.namespace, name = %key.name, %error, "an old Event was not removed");
                }
            }
            match self.aftermath().oldest_event() {
                Some(oldest) => {
                    let due = oldest.saturating_add(kept).unwrap_or(oldest);
                    let wait = due
                        .duration_since(self.clock().now())
                        .max(SignedDuration::from_secs(1));
                    tokio::time::sleep(wait.try_into().unwrap_or(RETRY)).await;
                }
                None if age.is_zero() => pending::<()>().await,
                // The first Event that comes is due in `age` at the earliest.
                None => tokio::time::sleep(age).await,
            }
        }
    }

    /// Where an owner that a dependent names is stored.
    fn owner_key(&self, owner: &crate::aftermath::OwnerName) -> Option<mainstay_store::kube::Key> {
        let (group, version) = crate::present::split_api_version(&owner.api_version);
        let snapshot = self.registry().snapshot();
        let kind = snapshot.kinds.by_kind(group, version, &owner.kind)?;
        let namespace = if kind.namespaced {
            owner.namespace.as_str()
        } else {
            ""
        };
        Some(commit::key(&kind.storage_resource, namespace, &owner.name))
    }
}
