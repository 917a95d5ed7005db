//! Who may write a policy with parameters: only those who may read the parameters, which the policy's messages could show.

use serde_json::Value;

use super::{
    BINDINGS, POLICIES,
    model::{self, BindingSpec, ParamKind, PolicySpec},
};
use crate::{
    api::Api,
    authorization::{Attributes, ResourceAttributes},
    builtin::KindInfo,
    commit,
    field::{FieldError, FieldPath},
    identity::Identity,
    present::split_api_version,
    registry::Snapshot,
};

impl Api {
    /// What a policy or binding says that its author has no right to, in the words of the reference.
    pub(crate) fn check_parameter_rights(
        &self,
        author: &Identity,
        kind: &KindInfo,
        snapshot: &Snapshot,
        object: &Value,
        prior: Option<&Value>,
    ) -> Option<FieldError> {
        if author.is_master() {
            return None;
        }
        let (field, refusal) = match kind.storage_resource.as_str() {
            POLICIES => ("paramKind", self.check_policy(author, snapshot, object, prior)?),
            BINDINGS => ("paramRef", self.check_binding(author, snapshot, object, prior)?),
            _ => return None,
        };
        let path = FieldPath::of("spec").child(field);
        Some(FieldError::forbidden(&path, refusal))
    }

    fn check_policy(
        &self,
        author: &Identity,
        snapshot: &Snapshot,
        object: &Value,
        prior: Option<&Value>,
    ) -> Option<String> {
        // What is sent has the types of its kind by now; what is stored and cannot be read permits nothing.
        let spec = |object: &Value| model::spec::<PolicySpec>(object).ok();
        let kind = spec(object)?.param_kind?;
        if prior.and_then(spec).and_then(|spec| spec.param_kind).as_ref() == Some(&kind) {
            return None;
        }
        let (group, resource, _resolved) = resource(snapshot, &kind);
        let asked = ResourceAttributes {
            verb: "get".to_owned(),
            group,
            resource,
            namespace: "*".to_owned(),
            name: "*".to_owned(),
            ..ResourceAttributes::default()
        };
        (!self.authorize(author, &Attributes::Resource(asked)).allowed).then(|| {
            format!(
                "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})",
                shown(author),
                kind.kind,
                kind.api_version
            )
        })
    }

    fn check_binding(
        &self,
        author: &Identity,
        snapshot: &Snapshot,
        object: &Value,
        prior: Option<&Value>,
    ) -> Option<String> {
        // As above.
        let read = |object: &Value| model::spec::<BindingSpec>(object).ok();
        let spec = read(object)?;
        let reference = spec.param_ref.as_ref()?;
        let is_same = prior.and_then(read).is_some_and(|before| {
            before.param_ref.as_ref() == Some(reference) && before.policy_name == spec.policy_name
        });
        if is_same {
            return None;
        }
        let policy = self
            .store()
            .get(&commit::key(POLICIES, "", &spec.policy_name))
            .and_then(|stored| serde_json::from_slice::<Value>(&stored.value).ok());
        let kind = policy
            .as_ref()
            .and_then(|policy| model::spec::<PolicySpec>(policy).ok())
            .and_then(|spec| spec.param_kind);
        let found = kind.as_ref().map(|kind| resource(snapshot, kind));
        let (group, resource, resolved) =
            found.unwrap_or_else(|| ("*".to_owned(), "*".to_owned(), policy.is_some()));
        let verb = if reference.name.is_empty() { "list" } else { "get" };
        let asked = ResourceAttributes {
            verb: verb.to_owned(),
            group,
            resource,
            namespace: reference.namespace.clone(),
            name: reference.name.clone(),
            ..ResourceAttributes::default()
        };
        if self.authorize(author, &Attributes::Resource(asked)).allowed {
            return None;
        }
        let user = shown(author);
        let everything =
            format!("user {user} does not have \"{verb}\" permission for all groups, versions and resources");
        Some(match (&policy, &kind) {
            (None, _) => format!(
                "unable to get policy {} to determine minimum required permissions and {everything}",
                spec.policy_name
            ),
            (Some(_), Some(kind)) if !resolved => format!(
                "unable to resolve paramKind &ParamKind{{APIVersion:{},Kind:{},}} to determine minimum required permissions \
                 and {everything}",
                kind.api_version, kind.kind
            ),
            _ => format!(
                "user {user} does not have \"{verb}\" permission on the object referenced by paramRef"
            ),
        })
    }
}

/// The group and resource of a kind, and whether it is served; of one that is not, every resource of the group is meant.
fn resource(snapshot: &Snapshot, kind: &ParamKind) -> (String, String, bool) {
    let (group, version) = split_api_version(&kind.api_version);
    let found = snapshot.kinds.by_kind(group, version, &kind.kind);
    let resource = found.as_ref().map_or("*", |kind| kind.plural.as_str());
    (group.to_owned(), resource.to_owned(), found.is_some())
}

/// A user as the reference's message shows its structure.
fn shown(user: &Identity) -> String {
    let extra: Vec<String> = user
        .extra
        .iter()
        .map(|(key, values)| format!("{key}:[{}]", values.join(" ")))
        .collect();
    format!(
        "&{{{} {} [{}] map[{}]}}",
        user.username,
        user.uid,
        user.groups.join(" "),
        extra.join(" ")
    )
}
