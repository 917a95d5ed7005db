//! Writing a status (OM-249): a merge patch that carries the version it was computed from, and none at all when it
//! would change nothing.

use std::fmt::Debug;

use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
    core::object::HasStatus,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    difference::merge_patch,
    error::{ReconcileError, is_conflict, is_not_found},
};

/// Owner of the fields that controllers write.
pub(crate) const FIELD_MANAGER: &str = "mainstay-controllers";

/// How often a write is repeated that met somebody else's.
const ATTEMPTS: usize = 5;

/// Whether two conflicting writes are about one spec is told by the generation; a status is never written for a spec
/// that it was not computed from, because the watch brings the newer one anyway.
///
/// Returns whether the stored status was changed.
pub(crate) async fn write<K>(api: &Api<K>, object: &K, new: &K::Status) -> Result<bool, ReconcileError>
where
    K: Resource<DynamicType = ()> + HasStatus + Clone + DeserializeOwned + Debug,
    K::Status: Serialize,
{
    let name = object.name_any();
    let operation = || format!("write the status of {} {name}", K::kind(&()));
    let new = document(new, &name)?;
    let mut current = object.clone();
    for _ in 0..ATTEMPTS {
        let old = match current.status() {
            Some(status) => document(status, &name)?,
            None => json!({}),
        };
        let Some(change) = merge_patch(&old, &new) else {
            return Ok(false);
        };
        let patch = json!({
            "metadata": { "resourceVersion": current.resource_version() },
            "status": change,
        });
        match api
            .patch_status(&name, &parameters(), &Patch::Merge(&patch))
            .await
        {
            Ok(_) => return Ok(true),
            Err(error) if is_not_found(&error) => return Ok(false),
            Err(error) if is_conflict(&error) => {
                let Some(newer) = api
                    .get_opt(&name)
                    .await
                    .map_err(ReconcileError::api(operation()))?
                else {
                    return Ok(false);
                };
                if newer.meta().generation != object.meta().generation || newer.uid() != object.uid() {
                    return Ok(false);
                }
                current = newer;
            }
            Err(error) => return Err(ReconcileError::api(operation())(error)),
        }
    }
    Err(ReconcileError::Missing {
        message: format!("{}: other writers were faster {ATTEMPTS} times", operation()),
    })
}

/// Parameters of a merge patch: the writer is named in `managedFields`.
pub(crate) fn parameters() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

fn document(status: &impl Serialize, name: &str) -> Result<Value, ReconcileError> {
    serde_json::to_value(status).map_err(|error| ReconcileError::Render {
        what: format!("the status of {name}"),
        message: error.to_string(),
    })
}
