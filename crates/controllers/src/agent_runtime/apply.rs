//! Writes the objects of an agent by server-side apply, so that what somebody else edited of ours is repaired and what
//! is theirs stays (OM-253). Elements that somebody added to our lists are taken out again ([`super::repair`]).

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Secret, Service},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{Patch, PatchParams},
    core::NamespaceResourceScope,
};
use mainstay_resources::{condition_types, names, omnia::AgentRuntime, reasons};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{repair, workload::Objects, written::Written};
use crate::{
    error::{ReconcileError, is_invalid},
    status::FIELD_MANAGER,
};

/// Where the objects are written, and what is known to be there.
#[derive(Clone, Copy)]
pub(super) struct Writer<'a> {
    pub(super) client: &'a Client,
    pub(super) written: &'a Written,
}

/// A write of the workload that failed, and the condition that says so (OM-282, OM-283).
pub(super) struct Failure {
    pub(super) condition: &'static str,
    pub(super) reason: &'static str,
    pub(super) error: ReconcileError,
}

/// Applies everything, the Service beside what the pods are made from. A Service that cannot be written keeps no change
/// from the pods, and the other way round.
pub(super) async fn apply(
    writer: Writer<'_>,
    agent: &AgentRuntime,
    objects: Objects,
) -> Result<Deployment, Vec<Failure>> {
    let name = agent.name_any();
    let service = owned::<Service>(writer, agent, &name, &objects.service);
    let (service, deployment) = tokio::join!(service, pods(writer, agent, &objects));
    let service = service.map_err(|error| Failure {
        condition: condition_types::SERVICE_READY,
        reason: reasons::SERVICE_FAILED,
        error,
    });
    let deployment = deployment.map_err(|error| Failure {
        condition: condition_types::DEPLOYMENT_READY,
        reason: reasons::DEPLOYMENT_FAILED,
        error,
    });
    match (service, deployment) {
        (Ok(_), Ok(deployment)) => Ok(deployment),
        (service, deployment) => Err([service.err(), deployment.err()].into_iter().flatten().collect()),
    }
}

/// What pods read comes before the Deployment that makes them read it.
async fn pods(
    writer: Writer<'_>,
    agent: &AgentRuntime,
    objects: &Objects,
) -> Result<Deployment, ReconcileError> {
    let name = agent.name_any();
    let (tools, providers, secrets) = (
        names::tools_config_map(&name),
        names::providers_config_map(&name),
        names::tool_secrets(&name),
    );
    // Not given up at the first failure: a write that is under way is waited for.
    let (tools, providers, secrets) = tokio::join!(
        owned::<ConfigMap>(writer, agent, &tools, &objects.tools),
        owned::<ConfigMap>(writer, agent, &providers, &objects.providers),
        owned::<Secret>(writer, agent, &secrets, &objects.tool_secrets),
    );
    tools?;
    providers?;
    secrets?;
    owned::<Deployment>(writer, agent, &name, &objects.deployment).await
}

/// Takes credentials that are gone out of the tool Secret of an agent that runs already, so that its calls are refused
/// and not made with a credential that was withdrawn (OM-403).
pub(super) async fn withdraw(
    writer: Writer<'_>,
    agent: &AgentRuntime,
    tool_secrets: &Value,
) -> Result<(), ReconcileError> {
    let name = names::tool_secrets(&agent.name_any());
    let namespace = agent.namespace().unwrap_or_default();
    let present = Api::<Secret>::namespaced(writer.client.clone(), &namespace)
        .get_metadata_opt(&name)
        .await
        .map_err(ReconcileError::api(format!("read Secret {namespace}/{name}")))?;
    if present.is_some() {
        owned::<Secret>(writer, agent, &name, tool_secrets).await?;
    }
    Ok(())
}

async fn owned<K>(
    writer: Writer<'_>,
    agent: &AgentRuntime,
    name: &str,
    object: &Value,
) -> Result<K, ReconcileError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    let namespace = agent.namespace().unwrap_or_default();
    let kind = K::kind(&());
    let api: Api<K> = Api::namespaced(writer.client.clone(), &namespace);
    let existing = api
        .get_opt(name)
        .await
        .map_err(ReconcileError::api(format!("read {kind} {namespace}/{name}")))?;
    if let Some(existing) = existing {
        // An object of the same name that is not ours is not taken over. Deleting it wakes the agent.
        if !is_ours(&existing, agent) {
            return Err(ReconcileError::Missing {
                message: format!("{kind} {namespace}/{name} exists and does not belong to the agent"),
            });
        }
        if writer.written.holds(agent, object, &existing) {
            return Ok(existing);
        }
    }
    let operation = || format!("apply {kind} {namespace}/{name}");
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    let applied = match api.patch(name, &parameters, &Patch::Apply(object)).await {
        Ok(applied) => applied,
        // What somebody added to a list may be what ours cannot stand beside.
        Err(error) if is_invalid(&error) => {
            let existing = api
                .get_opt(name)
                .await
                .map_err(ReconcileError::api(operation()))?;
            let Some(existing) = existing else {
                return Err(ReconcileError::api(operation())(error));
            };
            if repaired(&api, &existing, object).await?.is_none() {
                return Err(ReconcileError::api(operation())(error));
            }
            api.patch(name, &parameters, &Patch::Apply(object))
                .await
                .map_err(ReconcileError::api(operation()))?
        }
        Err(error) => return Err(ReconcileError::api(operation())(error)),
    };
    let stored = repaired(&api, &applied, object).await?.unwrap_or(applied);
    writer.written.note(agent, object, &stored);
    Ok(stored)
}

/// Whether an object was made for the agent. One that lost its owner is still ours when we applied it and nobody else
/// controls it: it gets its owner back, and goes with the agent again (OM-250, OM-253).
fn is_ours<K: Resource>(existing: &K, agent: &AgentRuntime) -> bool {
    let owners = existing.owner_references();
    if owners
        .iter()
        .any(|owner| Some(&owner.uid) == agent.metadata.uid.as_ref())
    {
        return true;
    }
    let controlled = owners.iter().any(|owner| owner.controller == Some(true));
    let applied = existing.managed_fields().iter().any(|entry| {
        entry.manager.as_deref() == Some(FIELD_MANAGER) && entry.operation.as_deref() == Some("Apply")
    });
    !controlled
        && applied
        && existing.labels().get(names::INSTANCE_LABEL).map(String::as_str) == Some(&agent.name_any())
}

/// Takes out of our lists what is not ours; `None` when there is nothing.
async fn repaired<K>(api: &Api<K>, existing: &K, ours: &Value) -> Result<Option<K>, ReconcileError>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let name = existing.name_any();
    let unreadable = |error: serde_json::Error| ReconcileError::Render {
        what: format!("{} {name}", K::kind(&())),
        message: error.to_string(),
    };
    let present = serde_json::to_value(existing).map_err(unreadable)?;
    let operations = repair::operations(&present, ours);
    if operations.is_empty() {
        return Ok(None);
    }
    let patch: Patch<()> = Patch::Json(serde_json::from_value(Value::Array(operations)).map_err(unreadable)?);
    let repaired = api
        .patch(&name, &crate::status::parameters(), &patch)
        .await
        .map_err(ReconcileError::api(format!("repair {} {name}", K::kind(&()))))?;
    tracing::info!(kind = %K::kind(&()), name, "took out what somebody else had added to the agent's workload");
    Ok(Some(repaired))
}
