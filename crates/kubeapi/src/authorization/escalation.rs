//! No user grants what the user does not have. Requirement KA-041.

use serde::Deserialize;
use serde_json::Value;

use super::{
    Attributes, GROUP, ResourceAttributes, Rule,
    policy::RoleReference,
    rules::{describe, missing, quoted},
};
use crate::{
    api::Api,
    builtin::KindInfo,
    identity::Identity,
    object,
    status::{ApiError, ApiResult, Reason},
};

/// What is looked at of a role or a binding.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Grant {
    rules: Option<Vec<Rule>>,
    aggregation_rule: Option<Value>,
    role_ref: RoleReference,
}

impl Grant {
    fn read(object: &Value) -> ApiResult<Self> {
        serde_json::from_value(object.clone()).map_err(|error| {
            ApiError::new(
                Reason::BadRequest,
                format!("the role or binding cannot be read: {error}"),
            )
        })
    }

    fn aggregates(&self) -> bool {
        self.aggregation_rule
            .as_ref()
            .and_then(|rule| rule.get("clusterRoleSelectors"))
            .and_then(Value::as_array)
            .is_some_and(|selectors| !selectors.is_empty())
    }
}

impl Api {
    /// Refuses a role or binding that gives more than its author has, unless the author may `escalate` or `bind` it.
    ///
    /// # Errors
    /// 403 naming what is missing; 404 for a binding of a role that is not there.
    pub(crate) fn check_escalation(
        &self,
        author: &Identity,
        kind: &KindInfo,
        namespace: &str,
        object: &Value,
        prior: Option<&Value>,
    ) -> ApiResult<()> {
        if kind.group != GROUP
            || author.is_master()
            || prior.is_some_and(|prior| only_ownership_changes(prior, object))
        {
            return Ok(());
        }
        let name = object::name(object);
        let may = |verb: &str, resource: &str, name: &str| {
            let asked = ResourceAttributes {
                verb: verb.to_owned(),
                group: GROUP.to_owned(),
                resource: resource.to_owned(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                ..ResourceAttributes::default()
            };
            self.authorize(author, &Attributes::Resource(asked)).allowed
        };
        let refuse = |detail: String| Err(ApiError::forbidden(GROUP, &kind.plural, name, &detail));
        let grant = Grant::read(object)?;
        match kind.plural.as_str() {
            "roles" | "clusterroles" => {
                // The name is that of the URL, which a creation does not have.
                let addressed = if prior.is_some() { name } else { "" };
                if may("escalate", &kind.plural, addressed) {
                    return Ok(());
                }
                if let Some(detail) = self.exceeds(author, namespace, grant.rules.as_deref().unwrap_or(&[])) {
                    return refuse(detail);
                }
                let before = prior.map(Grant::read).transpose()?;
                let aggregates = grant.aggregates() || before.is_some_and(|before| before.aggregates());
                let everything = [Rule::every_resource(), Rule::every_path()];
                if aggregates && self.exceeds(author, namespace, &everything).is_some() {
                    return refuse(
                        "must have cluster-admin privileges to use the aggregationRule".to_owned(),
                    );
                }
                Ok(())
            }
            _ => {
                let role = &grant.role_ref;
                let resource = if role.kind == "ClusterRole" {
                    "clusterroles"
                } else {
                    "roles"
                };
                if may("bind", resource, &role.name) {
                    return Ok(());
                }
                let policy = self.policy();
                let rules = policy
                    .referenced(role, namespace)
                    .map_err(|(resource, name)| ApiError::not_found(GROUP, resource, &name))?;
                match self.exceeds(author, namespace, rules) {
                    Some(detail) => refuse(detail),
                    None => Ok(()),
                }
            }
        }
    }

    /// What `rules` give that `author` does not have, as the text of a refusal.
    fn exceeds(&self, author: &Identity, namespace: &str, rules: &[Rule]) -> Option<String> {
        let (owned, problems) = self.policy().rules_for(author, namespace);
        let missing = missing(&owned, rules);
        if missing.is_empty() {
            return None;
        }
        let mut detail = format!(
            "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
            author.username,
            quoted(&author.groups),
            describe(missing)
        );
        if let Some(problems) = problems {
            detail.push_str(&format!("; resolution errors: [{problems}]"));
        }
        Some(detail)
    }
}

/// Whether nothing changes but what garbage collection writes.
fn only_ownership_changes(prior: &Value, object: &Value) -> bool {
    let rest = |object: &Value| {
        let mut rest = object.clone();
        for field in ["ownerReferences", "finalizers", "managedFields", "selfLink"] {
            object::set_meta(&mut rest, field, None);
        }
        rest
    };
    rest(prior) == rest(object)
}
