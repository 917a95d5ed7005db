//! ToolRegistry: validates handlers, lists their tools, probes their endpoints when asked to (OM-319 … OM-347).

mod decision;
mod probe;
mod report;
mod sandboxes;

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, Resource, ResourceExt, api::ListParams, core::DeserializeGuard};
use mainstay_resources::{
    duration,
    omnia::{ToolPolicy, ToolRegistry},
};
use tokio_util::sync::CancellationToken;

pub(crate) use self::decision::RuntimeRules;
pub use self::report::Reporter;
use crate::{
    error::ReconcileError,
    events::Publisher,
    options::ControllersOptions,
    presence::Presence,
    status,
    work::{Change, Next, Reconciler, Seen, Work, named, reference},
};

/// Shortest time between two probes, whatever the spec says.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);

struct Controller {
    client: Client,
    options: ControllersOptions,
    presence: Presence,
    publisher: Publisher,
}

impl Reconciler<ToolRegistry> for Controller {
    async fn reconcile(&self, registry: &ToolRegistry) -> Result<Next, ReconcileError> {
        if registry.metadata.deletion_timestamp.is_some() {
            return Ok(Next::AwaitChange);
        }
        let namespace = registry.namespace().unwrap_or_default();
        let name = registry.name_any();
        let mut discovery = decision::discover(&registry.spec);
        let probe = registry.spec.probe.as_ref().filter(|probe| probe.enabled);
        if let Some(probe) = probe {
            // A timeout that does not parse is among the discovery's errors already.
            let timeout = duration::parse_go(&probe.timeout).unwrap_or(probe::DEFAULT_TIMEOUT);
            let results = probe::probe(
                &discovery.tools,
                timeout,
                &namespace,
                self.options.resolver.as_ref(),
            )
            .await;
            decision::apply_probe(&mut discovery.tools, &results, self.options.clock.now());
        }
        // Not held over the call: whoever tells would wait for it.
        let engine_present = *self.presence.borrow() == Some(true);
        let policies = if engine_present {
            Some(selecting(&self.client, &namespace, &name).await?)
        } else {
            None
        };
        let told = decision::Told {
            policies,
            missing: report::missing(&self.client, &namespace, &name).await?,
        };
        let new = decision::status(registry, discovery, &told, self.options.clock.now());
        let api = Api::namespaced(self.client.clone(), &namespace);
        status::write(&api, registry, &new).await?;
        Ok(match probe.map(|probe| duration::parse_go(&probe.interval)) {
            Some(Ok(interval)) => Next::After(interval.max(SHORTEST_INTERVAL)),
            _ => Next::AwaitChange,
        })
    }

    fn publisher(&self) -> &Publisher {
        &self.publisher
    }
}

/// The policies of a namespace that select a registry, by name and sorted. A kind that is announced and not served yet,
/// or not any more, is an error: the next attempt, or the next announcement, settles it.
async fn selecting(client: &Client, namespace: &str, registry: &str) -> Result<Vec<String>, ReconcileError> {
    let api: Api<DeserializeGuard<ToolPolicy>> = Api::namespaced(client.clone(), namespace);
    let policies = api
        .list(&ListParams::default())
        .await
        .map_err(ReconcileError::api(format!(
            "list the ToolPolicies of {namespace}"
        )))?;
    let mut names: Vec<String> = policies
        .iter()
        .filter(|policy| {
            policy
                .0
                .as_ref()
                .is_ok_and(|policy| policy.spec.selector.registry == registry)
        })
        .filter(|policy| policy.meta().deletion_timestamp.is_none())
        .map(ResourceExt::name_any)
        .collect();
    names.sort();
    Ok(names)
}

/// Runs until cancelled.
pub(crate) async fn run(
    client: Client,
    options: ControllersOptions,
    mut presence: Presence,
    cancellation: CancellationToken,
) {
    // Before the first answer the conditions about policies could only be guessed.
    let known = tokio::select! {
        known = presence.wait_for(Option::is_some) => known.is_ok(),
        () = cancellation.cancelled() => false,
    };
    if !known {
        return;
    }
    let mut work: Work<ToolRegistry> = Work::new("tool-registry-controller", client.clone(), cancellation);
    // Only changes of the spec: the controller's own status write must not wake it (OM-319, V-40).
    let mut generations = Seen::new();
    work.own(move |registry, change| {
        let meta = registry.meta();
        let generation = (change == Change::Applied).then(|| (meta.generation, meta.uid.clone()));
        if generations.changed(registry, generation) {
            vec![reference(registry)]
        } else {
            Vec::new()
        }
    });
    // An agent found out that it misses tools, or that it misses them no longer.
    work.also::<ConfigMap>(|config_map, _| {
        let namespace = config_map.meta().namespace.clone().unwrap_or_default();
        let about = config_map.0.as_ref().ok().and_then(report::registry_of);
        about
            .map(|registry| named(&registry, &namespace))
            .into_iter()
            .collect()
    });
    if options.policy_engine {
        // Both the registry that a policy selects and the one that it selected before (OM-320, V-38). Every change of a
        // policy counts: a filter by generation would hide its deletion.
        let mut selected: Seen<String> = Seen::new();
        work.also_while::<ToolPolicy>(presence.clone(), move |policy, change| {
            let registry = match (&policy.0, change) {
                (Ok(policy), Change::Applied) => Some(policy.spec.selector.registry.clone()),
                _ => None,
            };
            let namespace = policy.meta().namespace.clone().unwrap_or_default();
            let before = selected.replace(policy, registry.clone());
            before
                .into_iter()
                .chain(registry)
                .map(|registry| named(&registry, &namespace))
                .collect()
        });
    }
    let controller = Controller {
        publisher: Publisher::new(
            client.clone(),
            options.clock.clone(),
            options.random.clone(),
            "toolregistry-controller",
        ),
        client,
        options,
        presence,
    };
    work.run(3, controller).await;
}

/// Endpoints and what a probe of each found.
type ProbeResults = BTreeMap<String, Result<(), String>>;
