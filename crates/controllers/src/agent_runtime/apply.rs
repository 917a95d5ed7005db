//! Writes the objects of an agent by server-side apply, so that what somebody else edited of ours is repaired and what
//! is theirs stays (OM-253).

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Secret, Service},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{Patch, PatchParams},
    core::NamespaceResourceScope,
};
use mainstay_resources::{names, omnia::AgentRuntime};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::workload::Objects;
use crate::{error::ReconcileError, status::FIELD_MANAGER};

/// Applies everything; what pods read comes before the Deployment that makes them read it.
pub(super) async fn apply(
    client: &Client,
    agent: &AgentRuntime,
    objects: Objects,
) -> Result<Deployment, ReconcileError> {
    let name = agent.name_any();
    owned::<ConfigMap>(client, agent, &names::tools_config_map(&name), &objects.tools).await?;
    owned::<ConfigMap>(
        client,
        agent,
        &names::providers_config_map(&name),
        &objects.providers,
    )
    .await?;
    owned::<Secret>(client, agent, &names::tool_secrets(&name), &objects.tool_secrets).await?;
    owned::<Service>(client, agent, &name, &objects.service).await?;
    owned::<Deployment>(client, agent, &name, &objects.deployment).await
}

async fn owned<K>(
    client: &Client,
    agent: &AgentRuntime,
    name: &str,
    object: &Value,
) -> Result<K, ReconcileError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let namespace = agent.namespace().unwrap_or_default();
    let kind = K::kind(&());
    let api: Api<K> = Api::namespaced(client.clone(), &namespace);
    let existing = api
        .get_metadata_opt(name)
        .await
        .map_err(ReconcileError::api(format!("read {kind} {namespace}/{name}")))?;
    // An object of the same name that is not ours is not taken over. Deleting it wakes the agent.
    if let Some(existing) = existing
        && !existing
            .owner_references()
            .iter()
            .any(|owner| Some(&owner.uid) == agent.metadata.uid.as_ref())
    {
        return Err(ReconcileError::Missing {
            message: format!("{kind} {namespace}/{name} exists and does not belong to the agent"),
        });
    }
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(name, &parameters, &Patch::Apply(object))
        .await
        .map_err(ReconcileError::api(format!("apply {kind} {namespace}/{name}")))
}
