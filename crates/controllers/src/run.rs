//! All controllers together.

use kube::Client;
use mainstay_telemetry::task;
use tokio_util::sync::CancellationToken;

use crate::{
    agent_runtime, options::ControllersOptions, presence, prompt_pack, provider, tool_policy, tool_registry,
};

/// The controllers of the Omnia kinds.
#[derive(Debug)]
pub struct Controllers;

impl Controllers {
    /// Runs every controller until cancelled, then waits for the reconciles that are under way.
    ///
    /// The kinds have to be served already: a watch of a kind that is not there is tried again with growing gaps.
    pub async fn run(options: ControllersOptions, client: Client, cancellation: CancellationToken) {
        let (present, presence_watch) = if options.policy_engine {
            let (present, watch) = presence::follow(client.clone(), cancellation.child_token());
            (present, Some(watch))
        } else {
            (presence::absent(), None)
        };
        let parts = || (client.clone(), options.clone(), cancellation.child_token());
        let agents = parts();
        let packs = parts();
        let registries = parts();
        let providers = parts();
        let policies = parts();
        let policies_present = present.clone();
        let mut running = vec![
            task::spawn(
                "agent-runtime-controller",
                agent_runtime::run(agents.0, agents.1, agents.2),
            ),
            task::spawn(
                "prompt-pack-controller",
                prompt_pack::run(packs.0, packs.1, packs.2),
            ),
            task::spawn(
                "tool-registry-controller",
                tool_registry::run(registries.0, registries.1, present, registries.2),
            ),
            task::spawn(
                "provider-controller",
                provider::run(providers.0, providers.1, providers.2),
            ),
            task::spawn(
                "tool-policy-controller",
                tool_policy::run(policies.0, policies.1, policies_present, policies.2),
            ),
        ];
        running.extend(presence_watch);
        for controller in running {
            if let Err(error) = controller.await {
                tracing::error!(%error, "controller ended abnormally");
            }
        }
    }
}
