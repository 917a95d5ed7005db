//! Installs the definitions of the resource families that are served.

use futures::future::try_join_all;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use mainstay_resources::{Family, names::MANAGED_LABEL};

use crate::terminal::Failure;

/// The field manager of the definitions.
const MANAGER: &str = "mainstay";
/// The kind that is left out where no policies are to be judged by.
const TOOL_POLICIES: &str = "toolpolicies.omnia.altairalabs.ai";

/// Brings every definition and ClusterRole of the families to the form of this version. One that somebody else installed is left
/// alone, and so is a family that is not served any more: its objects would go with its definitions.
pub(super) async fn install(
    client: &Client,
    families: &[Family],
    policy_engine: bool,
) -> Result<(), Failure> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let wanted = mainstay_resources::crds().map_err(|error| {
        Failure::new(format!(
            "the definitions of this program's kinds cannot be made: {error}"
        ))
    })?;
    try_join_all(wanted.iter().map(|definition| {
        let family = families
            .iter()
            .any(|family| family.group() == definition.spec.group);
        let left_out = if !family {
            Some("its family is not among `--families`")
        } else if definition.name_any() == TOOL_POLICIES && !policy_engine {
            Some("the policy engine is off")
        } else {
            None
        };
        one(&definitions, definition, left_out)
    }))
    .await?;
    let roles: Api<ClusterRole> = Api::all(client.clone());
    let wanted: Vec<ClusterRole> = families
        .iter()
        .flat_map(|family| mainstay_resources::cluster_roles(*family))
        .collect();
    try_join_all(wanted.iter().map(|wanted| role(&roles, wanted))).await?;
    Ok(())
}

/// One ClusterRole, under the same rule as a definition.
async fn role(roles: &Api<ClusterRole>, wanted: &ClusterRole) -> Result<(), Failure> {
    let name = wanted.name_any();
    let failed =
        |error: kube::Error| Failure::new(format!("ClusterRole {name} cannot be installed: {error}"));
    let present = roles.get_opt(&name).await.map_err(failed)?;
    if present.is_some_and(|present| !present.labels().contains_key(MANAGED_LABEL)) {
        tracing::warn!(
            name,
            "this ClusterRole was made by somebody else and is left as it is"
        );
        return Ok(());
    }
    let parameters = PatchParams::apply(MANAGER).force();
    roles
        .patch(&name, &parameters, &Patch::Apply(wanted))
        .await
        .map_err(failed)?;
    Ok(())
}

async fn one(
    definitions: &Api<CustomResourceDefinition>,
    definition: &CustomResourceDefinition,
    left_out: Option<&str>,
) -> Result<(), Failure> {
    let name = definition.name_any();
    let failed = |error: kube::Error| {
        Failure::new(format!(
            "CustomResourceDefinition {name} cannot be installed: {error}"
        ))
    };
    let present = definitions.get_opt(&name).await.map_err(failed)?;
    let ours = present
        .as_ref()
        .is_none_or(|present| present.labels().contains_key(MANAGED_LABEL));
    if !ours {
        tracing::warn!(
            name,
            "this CustomResourceDefinition was installed by somebody else and is left as it is"
        );
        return Ok(());
    }
    if let Some(reason) = left_out {
        if present.is_some() {
            // Its objects would go with it: that has to be done by hand.
            tracing::warn!(
                name,
                reason,
                "this kind is left out, and stays because it was installed before"
            );
        }
        return Ok(());
    }
    let parameters = PatchParams::apply(MANAGER).force();
    definitions
        .patch(&name, &parameters, &Patch::Apply(definition))
        .await
        .map_err(failed)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use kube::runtime::wait::await_condition;
    use mainstay_kubeapi::{ApiOptions, Identity};
    use mainstay_store::kube::{KubeOptions, KubeStore};
    use mainstay_telemetry::{clock, random, task};
    use tokio_util::sync::CancellationToken;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn the_roles_of_kubernetes_have_our_kinds_ka_041() {
        let store = KubeStore::open(KubeOptions::in_memory()).unwrap();
        let api = mainstay_kubeapi::Api::open(ApiOptions::new(store, clock::system(), random::system()))
            .await
            .unwrap();
        let cancellation = CancellationToken::new();
        let (background, token) = (api.clone(), cancellation.clone());
        task::spawn("kubeapi", async move { background.run(token).await });
        let _running = cancellation.drop_guard();
        let client = api.client(Identity::component("mainstay"));
        install(&client, Family::ALL, true).await.unwrap();
        // A second start finds them and changes nothing.
        install(&client, Family::ALL, true).await.unwrap();
        let roles: Api<ClusterRole> = Api::all(client);
        for (name, verb) in [("view", "list"), ("edit", "create"), ("admin", "create")] {
            let includes = move |role: Option<&ClusterRole>| {
                let rules = role.into_iter().flat_map(|role| role.rules.iter().flatten());
                rules
                    .filter(|rule| rule.resources.iter().flatten().any(|kind| kind == "promptpacks"))
                    .any(|rule| rule.verbs.iter().any(|allowed| allowed == verb))
            };
            tokio::time::timeout(
                Duration::from_secs(20),
                await_condition(roles.clone(), name, includes),
            )
            .await
            .unwrap()
            .unwrap();
        }
    }
}
