//! The objects that a binding gives a policy as `params`.

use std::sync::Arc;

use mainstay_cel::Value as Cel;
use serde_json::Value;

use super::{
    model::{ParamKind, ParamRef},
    subject::{Subject, Target},
};
use crate::{
    api::Api,
    builtin::{KindInfo, strategy::labels},
    commit, object,
    present::{View, split_api_version},
    registry::Snapshot,
};

/// The kind of the parameters, if it is served.
///
/// # Errors
/// That it is not, in the words of the reference.
pub(super) fn kind(snapshot: &Snapshot, kind: &ParamKind) -> Result<Arc<KindInfo>, String> {
    let (group, version) = split_api_version(&kind.api_version);
    snapshot.kinds.by_kind(group, version, &kind.kind).ok_or_else(|| {
        let shown = Target::new(group, version, &kind.kind).shown();
        format!("failed to find resource referenced by paramKind: '{shown}'")
    })
}

impl Api {
    /// The parameters, one evaluation each. Without parameters there is one evaluation with null.
    ///
    /// # Errors
    /// Why they cannot be found, in the words of the reference.
    pub(super) fn parameters(
        &self,
        kind: Option<&Arc<KindInfo>>,
        reference: Option<&ParamRef>,
        subject: &Subject<'_>,
    ) -> Result<Vec<Cel>, String> {
        let (Some(kind), Some(reference)) = (kind, reference) else {
            return Ok(vec![Cel::Null]);
        };
        let namespace = match (kind.namespaced, reference.namespace.as_str()) {
            (true, "") => subject.namespace(),
            (true, namespace) => namespace,
            (false, _) => "",
        };
        if kind.namespaced && namespace.is_empty() {
            return Err(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                    .to_owned(),
            );
        }
        if !kind.namespaced && !reference.namespace.is_empty() {
            return Err(
                "paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned(),
            );
        }
        let view = View::new(kind, subject.snapshot);
        let shown = |stored: &mainstay_store::kube::Stored| {
            let mut object = view
                .value(&stored.value, stored.revision)
                .map_err(|error| error.message)?;
            let version = stored.revision.to_string();
            object::set_meta(&mut object, "resourceVersion", Some(Value::from(version)));
            Ok::<Value, String>(object)
        };
        let mut found = Vec::new();
        if !reference.name.is_empty() {
            let key = commit::key(&kind.storage_resource, namespace, &reference.name);
            if let Some(stored) = self.store().get(&key) {
                found.push(Cel::from(shown(&stored)?));
            }
        } else if let Some(selector) = &reference.selector {
            let namespace = kind.namespaced.then_some(namespace);
            for stored in &self.store().list(&kind.storage_resource, namespace).items {
                let object = shown(stored)?;
                let own = object::metadata(&object)
                    .and_then(|metadata| metadata.get("labels"))
                    .and_then(Value::as_object);
                if labels::matches(selector, own) {
                    found.push(Cel::from(object));
                }
            }
        } else {
            return Err("one of name or selector must be provided".to_owned());
        }
        if found.is_empty() && reference.parameter_not_found_action.as_deref() == Some("Deny") {
            return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
        }
        Ok(found)
    }
}
