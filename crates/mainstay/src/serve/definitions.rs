//! Installs the definitions of the resource families that are served.

use futures::future::try_join_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use mainstay_resources::names::MANAGED_LABEL;

use crate::terminal::Failure;

/// The field manager of the definitions.
const MANAGER: &str = "mainstay";
/// The kind that is left out where no policies are to be judged by.
const TOOL_POLICIES: &str = "toolpolicies.omnia.altairalabs.ai";

/// Brings every definition of ours to the form of this version. One that somebody else installed is left alone
/// (`interfaces.md` 5).
pub(super) async fn install(client: &Client, policy_engine: bool) -> Result<(), Failure> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let wanted = mainstay_resources::crds();
    try_join_all(
        wanted
            .iter()
            .map(|definition| one(&definitions, definition, policy_engine)),
    )
    .await?;
    Ok(())
}

async fn one(
    definitions: &Api<CustomResourceDefinition>,
    definition: &CustomResourceDefinition,
    policy_engine: bool,
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
    if name == TOOL_POLICIES && !policy_engine {
        if present.is_some_and(|present| present.labels().contains_key(MANAGED_LABEL)) {
            // Its objects would go with it: that has to be done by hand.
            tracing::warn!(
                name,
                "the policy engine is off, and the kind stays because it was installed before"
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
