//! What wakes an agent (OM-252 … OM-254).

use std::sync::Arc;

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Pod, Secret, Service},
};
use kube::{Client, Resource, ResourceExt, runtime::reflector::Store};
use mainstay_resources::{
    names,
    omnia::{AgentRuntime, PromptPack, Provider, ToolRegistry},
    pack_version::PackCandidate,
};
use tokio_util::sync::CancellationToken;

use super::{
    Controller,
    gather::{CONFIG_MAP, SECRET},
    pods,
    written::Written,
};
use crate::{
    events::Publisher,
    options::ControllersOptions,
    work::{
        Change, Dependencies, Guarded, Reference, Revision, Seen, Watched, Work, matching, named, reference,
    },
};

type Agents = Store<Guarded<AgentRuntime>>;

/// Runs until cancelled.
pub(crate) async fn run(client: Client, options: ControllersOptions, cancellation: CancellationToken) {
    let mut work: Work<AgentRuntime> = Work::new("agent-runtime-controller", client.clone(), cancellation);
    let dependencies = Arc::new(Dependencies::new());
    let written = Arc::new(Written::default());
    let forgetting = (Arc::clone(&dependencies), Arc::clone(&written));
    let mut revisions = Seen::new();
    work.own(move |agent, change| {
        let key = reference(agent);
        if change == Change::Deleted {
            forgetting.0.forget(&key);
            forgetting.1.forget(agent.meta());
        }
        if revisions.changed(agent, Revision::of(agent, change)) {
            vec![key]
        } else {
            Vec::new()
        }
    });
    references(&mut work);
    children(&mut work, &dependencies);
    let controller = Controller {
        publisher: Publisher::new(
            client.clone(),
            options.clock.clone(),
            options.random.clone(),
            "agentruntime-controller",
        ),
        client,
        options,
        dependencies,
        written,
    };
    work.run(3, controller).await;
}

/// Objects that an agent names: by name, so that one that is created later wakes those that wait for it.
fn references(work: &mut Work<AgentRuntime>) {
    let agents = work.store();
    // Of a pack's status only what the choice depends on matters: its controller counts there the agents that it woke,
    // and each of them would wake all.
    let mut packs = Seen::new();
    work.also::<PromptPack>(move |pack, change| {
        let pack_names = changed_pack_names(&mut packs, pack, change);
        matching(&agents, pack.meta().namespace.as_deref(), |agent| {
            pack_names.iter().any(|name| refers_to_pack(agent, name))
        })
    });
    let agents = work.store();
    // A registry's status does not matter to an agent (OM-263), and a probed one changes it all the time.
    let mut generations = Seen::new();
    work.also::<ToolRegistry>(move |registry, change| {
        let meta = registry.meta();
        let generation = (change == Change::Applied).then(|| (meta.generation, meta.uid.clone()));
        if !generations.changed(registry, generation) {
            return Vec::new();
        }
        let name = registry.name_any();
        matching(&agents, meta.namespace.as_deref(), |agent| {
            agent
                .spec
                .tool_registry_ref
                .as_ref()
                .is_some_and(|reference| reference.name == name)
        })
    });
    let agents = work.store();
    work.also::<Provider>(move |provider, _| {
        let name = provider.name_any();
        matching(&agents, provider.meta().namespace.as_deref(), |agent| {
            agent
                .spec
                .providers
                .iter()
                .any(|entry| entry.provider_ref.name == name)
        })
    });
}

/// The pack names whose agents have to look at a changed pack. One that got another name is gone for those that used the
/// former.
fn changed_pack_names(
    packs: &mut Seen<ReadOfPack>,
    pack: &Guarded<PromptPack>,
    change: Change,
) -> Vec<String> {
    let read = match &pack.0 {
        Ok(read) if change == Change::Applied => Some(ReadOfPack::of(read)),
        _ => None,
    };
    let before = packs.replace(pack, read.clone());
    if before == read {
        return Vec::new();
    }
    before
        .into_iter()
        .chain(read)
        .map(|read| read.candidate.pack_name)
        .collect()
}

/// What an agent reads of a PromptPack.
#[derive(Clone, Debug, PartialEq)]
struct ReadOfPack {
    candidate: PackCandidate,
    generation: Option<i64>,
    uid: Option<String>,
    deleting: bool,
}

impl ReadOfPack {
    fn of(pack: &PromptPack) -> Self {
        Self {
            candidate: PackCandidate::from_resource(pack),
            generation: pack.metadata.generation,
            uid: pack.metadata.uid.clone(),
            deleting: pack.metadata.deletion_timestamp.is_some(),
        }
    }
}

fn refers_to_pack(agent: &AgentRuntime, pack_name: &str) -> bool {
    let candidate = agent
        .spec
        .rollout
        .as_ref()
        .and_then(|rollout| rollout.candidate.as_ref())
        .and_then(|candidate| candidate.prompt_pack_ref.as_ref());
    agent.spec.prompt_pack_ref.name == pack_name
        || candidate.is_some_and(|reference| reference.name == pack_name)
}

/// Objects that an agent owns, and Secrets and ConfigMaps that its last reconcile looked at.
fn children(work: &mut Work<AgentRuntime>, dependencies: &Arc<Dependencies<Reference<AgentRuntime>>>) {
    let agents = work.store();
    work.also::<Deployment>(move |deployment, _| with_child(&agents, deployment, |agent| agent.to_owned()));
    let agents = work.store();
    work.also::<Service>(move |service, _| with_child(&agents, service, |agent| agent.to_owned()));
    let agents = work.store();
    // What a pod says about not being ready; everything else of it shows in its Deployment.
    let mut said = Seen::new();
    work.also::<Pod>(move |pod, change| {
        let Some((agent, words)) = pod
            .0
            .as_ref()
            .ok()
            .and_then(|pod| Some((pods::agent_of(pod)?, pods::explain(pod))))
        else {
            return Vec::new();
        };
        let words = words.filter(|_| change == Change::Applied);
        if !said.changed(pod, words) {
            return Vec::new();
        }
        matching(
            &agents,
            pod.meta().namespace.as_deref(),
            |candidate: &AgentRuntime| candidate.name_any() == agent,
        )
    });
    let agents = work.store();
    let read = Arc::clone(dependencies);
    work.also::<ConfigMap>(move |config_map, _| {
        let mut affected = dependents(&read, CONFIG_MAP, config_map);
        affected.extend(with_child(&agents, config_map, names::tools_config_map));
        affected.extend(with_child(&agents, config_map, names::providers_config_map));
        affected
    });
    let agents = work.store();
    let read = Arc::clone(dependencies);
    work.also::<Secret>(move |secret, _| {
        let mut affected = dependents(&read, SECRET, secret);
        affected.extend(with_child(&agents, secret, names::tool_secrets));
        affected
    });
}

/// The agents whose child has the name of the changed object. The name decides, not the owner: an object that is in
/// the way belongs to somebody else.
fn with_child<K: Watched>(
    agents: &Agents,
    object: &Guarded<K>,
    child: impl Fn(&str) -> String,
) -> Vec<Reference<AgentRuntime>> {
    let name = object.name_any();
    matching(
        agents,
        object.meta().namespace.as_deref(),
        |agent: &AgentRuntime| child(&agent.name_any()) == name,
    )
}

fn dependents<K: Watched>(
    dependencies: &Dependencies<Reference<AgentRuntime>>,
    kind: &'static str,
    object: &Guarded<K>,
) -> Vec<Reference<AgentRuntime>> {
    let namespace = object.meta().namespace.as_deref();
    dependencies
        .dependents(kind, &object.name_any(), |agent| {
            agent.namespace.as_deref() == namespace
        })
        .into_iter()
        .map(|agent| named(&agent.name, namespace.unwrap_or_default()))
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, json};

    use super::*;

    fn pack(pack_name: &str, phase: &str, notified: &str) -> Guarded<PromptPack> {
        let pack: Value = json!({
            "apiVersion": "omnia.altairalabs.ai/v1alpha1", "kind": "PromptPack",
            "metadata": { "name": "p", "namespace": "default", "generation": 1, "uid": "u" },
            "spec": {
                "packName": pack_name, "version": "1.0.0",
                "source": { "type": "configmap", "configMapRef": { "name": "c" } },
            },
            "status": { "phase": phase, "conditions": [{
                "type": "AgentsNotified", "status": "True", "reason": "AgentsNotified", "message": notified,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }] },
        });
        Guarded(Ok(serde_json::from_value(pack).unwrap()))
    }

    #[test]
    fn a_count_in_a_packs_status_wakes_no_agent_and_its_phase_does_om_252() {
        let mut seen = Seen::new();
        let mut woken = |pack: &Guarded<PromptPack>, change| changed_pack_names(&mut seen, pack, change);
        let pending = pack("helpdesk", "Pending", "0 agents");
        assert_eq!(woken(&pending, Change::Applied), ["helpdesk"]);
        let active = pack("helpdesk", "Active", "1 agent");
        assert_eq!(woken(&active, Change::Applied), ["helpdesk", "helpdesk"]);
        let counted = pack("helpdesk", "Active", "2 agents");
        assert_eq!(woken(&counted, Change::Applied), [""; 0]);
        let renamed = pack("sales", "Active", "2 agents");
        assert_eq!(woken(&renamed, Change::Applied), ["helpdesk", "sales"]);
        assert_eq!(woken(&renamed, Change::Deleted), ["sales"]);
    }
}
