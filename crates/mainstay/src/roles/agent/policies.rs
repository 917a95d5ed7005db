//! Follows the ToolPolicies of the agent's namespace, so that a change is in force with the next call.

use std::collections::BTreeMap;

use futures::StreamExt;
use kube::{
    Api, ResourceExt,
    runtime::{WatchStreamExt, watcher},
};
use mainstay_controllers::tool_policy::policy_spec;
use mainstay_resources::omnia::ToolPolicy;
use mainstay_tools::policy::{PolicyEngine, PolicySet, PolicySpec};
use mainstay_workload::{RoleError, WorkloadContext, WorkloadLog};
use tokio_util::sync::CancellationToken;

/// The policies of a namespace and where they go.
pub(super) struct Feed {
    policies: Api<ToolPolicy>,
    engine: PolicyEngine,
    log: WorkloadLog,
    known: BTreeMap<String, PolicySpec>,
}

impl Feed {
    /// A feed for the workload's namespace into `engine`.
    pub(super) fn new(context: &WorkloadContext, engine: PolicyEngine) -> Self {
        let policies = Api::namespaced(context.identity.client.clone(), &context.identity.namespace);
        Self {
            policies,
            engine,
            log: context.log.clone(),
            known: BTreeMap::new(),
        }
    }

    /// Takes in the policies that there are.
    ///
    /// # Errors
    ///
    /// When they cannot be listed: the agent does not start without knowing what it may do.
    pub(super) async fn first_list(mut self) -> Result<Self, RoleError> {
        match self.policies.list(&kube::api::ListParams::default()).await {
            Ok(found) => {
                self.known = found
                    .items
                    .iter()
                    .map(|policy| (policy.name_any(), policy_spec(policy)))
                    .collect();
                self.put_in_force();
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => self.absent(),
            Err(error) => return Err(RoleError::new(format!("ToolPolicies cannot be listed: {error}"))),
        }
        Ok(self)
    }

    /// Follows the policies until `cancellation`. While the watch is broken, those last seen stay in force.
    pub(super) async fn follow(mut self, cancellation: CancellationToken) {
        let mut changes =
            Box::pin(watcher(self.policies.clone(), watcher::Config::default()).default_backoff());
        let mut listed = BTreeMap::new();
        loop {
            let change = tokio::select! {
                change = changes.next() => change,
                () = cancellation.cancelled() => return,
            };
            match change {
                None => return,
                Some(Ok(watcher::Event::Init)) => listed.clear(),
                Some(Ok(watcher::Event::InitApply(policy))) => {
                    listed.insert(policy.name_any(), policy_spec(&policy));
                }
                Some(Ok(watcher::Event::InitDone)) => {
                    self.known = std::mem::take(&mut listed);
                    self.put_in_force();
                }
                Some(Ok(watcher::Event::Apply(policy))) => {
                    let spec = policy_spec(&policy);
                    // A status write changes no rule: nothing is compiled for it.
                    if self.known.get(&policy.name_any()) != Some(&spec) {
                        self.known.insert(policy.name_any(), spec);
                        self.put_in_force();
                    }
                }
                Some(Ok(watcher::Event::Delete(policy))) => {
                    self.known.remove(&policy.name_any());
                    self.put_in_force();
                }
                Some(Err(error)) if kind_is_absent(&error) => self.absent(),
                Some(Err(error)) => {
                    self.log.line(format!(
                        "the watch of ToolPolicies broke and is taken up again: {error}"
                    ));
                }
            }
        }
    }

    fn put_in_force(&self) {
        let set = PolicySet::compile(self.known.values().cloned().collect());
        for (policy, error) in set.errors() {
            self.log.line(format!(
                "ToolPolicy {policy} cannot be compiled and denies what it selects: {error}"
            ));
        }
        self.engine.set(set);
    }

    /// The kind is not served: there is no policy engine, and nothing is judged (OM-483).
    fn absent(&mut self) {
        if self.engine.is_enabled() {
            self.log
                .line("the ToolPolicy kind is not served: calls are not judged");
        }
        self.known.clear();
        self.engine.disable();
    }
}

fn kind_is_absent(error: &watcher::Error) -> bool {
    let cause = match error {
        watcher::Error::InitialListFailed(cause) | watcher::Error::WatchStartFailed(cause) => cause,
        _ => return false,
    };
    matches!(cause, kube::Error::Api(status) if status.is_not_found())
}
