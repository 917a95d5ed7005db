//! ClusterRoles that are made of other ClusterRoles. Requirement KA-041.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{GROUP, Rule, rules};
use crate::{
    api::Api,
    builtin::strategy::labels,
    object,
    status::{ApiResult, Reason},
    write::{Intention, WriteRequest},
};

/// Where ClusterRoles are stored.
pub(crate) const CLUSTER_ROLES: &str = "rbac.authorization.k8s.io/clusterroles";
/// Who owns the rules of an aggregated role, in `managedFields`.
const MANAGER: &str = "clusterrole-aggregation-controller";

impl Api {
    /// Gives each ClusterRole with an `aggregationRule` the rules of those it selects.
    ///
    /// # Errors
    /// As a write.
    pub(crate) async fn aggregate_roles(&self) -> ApiResult<()> {
        let roles: Vec<Value> = self
            .store()
            .list(CLUSTER_ROLES, None)
            .items
            .iter()
            .filter_map(|stored| match serde_json::from_slice(&stored.value) {
                Ok(role) => Some(role),
                Err(error) => {
                    tracing::error!(
                        resource = CLUSTER_ROLES, name = %stored.key.name, %error,
                        "a stored role cannot be read and is not aggregated"
                    );
                    None
                }
            })
            .collect();
        let snapshot = self.registry().snapshot();
        let Some(kind) = snapshot.kinds.lookup(GROUP, "v1", "clusterroles") else {
            return Ok(());
        };
        for role in &roles {
            let Some(rules) = aggregated(role, &roles) else {
                continue;
            };
            if rules_of(role) == rules {
                continue;
            }
            let name = object::name(role);
            let configuration = json!({
                "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRole",
                "metadata": {"name": name, "uid": object::uid(role)}, "rules": rules,
            });
            let intention = Intention::Apply {
                configuration,
                force: true,
            };
            let request = WriteRequest {
                manager: MANAGER.to_owned(),
                ..WriteRequest::by_server(Arc::clone(&kind), Arc::clone(&snapshot), "", name, intention)
            };
            match self.write(request).await {
                Ok(_) => {}
                // Removed meanwhile, which is looked at again.
                Err(error) if matches!(error.reason, Reason::NotFound | Reason::Conflict) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn rules_of(role: &Value) -> Vec<Rule> {
    rules::read_and_report(CLUSTER_ROLES, role)
}

/// The rules of the roles that `role` selects, each once; `None` if it is not made of others. `roles` are sorted by name.
fn aggregated(role: &Value, roles: &[Value]) -> Option<Vec<Rule>> {
    let selectors = role
        .pointer("/aggregationRule/clusterRoleSelectors")
        .and_then(Value::as_array)?;
    let mut rules: Vec<Rule> = Vec::new();
    for selector in selectors {
        let selected = roles.iter().filter(|other| {
            let own = other.pointer("/metadata/labels").and_then(Value::as_object);
            object::name(other) != object::name(role) && labels::matches(selector, own)
        });
        for rule in selected.flat_map(rules_of) {
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
    }
    Some(rules)
}
